"""The guides to plug-ins: examples are installed, simulated, run and built in."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from tests.e2e.runs import moe, star, write_experiment
from tests.integration.test_compiled_build import missing_compiler
from tests.patched import GUIDES, patch_of, patched_tree
from tests.plug_ins import EXAMPLES
from tests.support import REPO_ROOT, require


@dataclass(frozen=True, slots=True)
class Place:
    """Environment of commands: a folder, and packages besides the product.

    Attributes:
        folder: Experiments and runs are there.
        path: Folders before all others on the path of modules.
        mode: Which form of the hot modules runs.
    """

    folder: Path
    path: tuple[Path, ...] = ()
    mode: str = "auto"

    def python(self, *arguments: str, code: int = 0) -> str:
        """Return the output of a command on both streams."""
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, self.path)),
                "CHAKRAM_COMPILED": self.mode,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def run(self, verb: str, experiment: Path, code: int = 0) -> str:
        """Return the output of a command for an experiment."""
        shutil.rmtree(self.folder / "runs", ignore_errors=True)
        return self.python("-m", "chakram", verb, str(experiment), code=code)

    def flows(self) -> dict[str, list[Any]]:
        """Return the flows of the last run."""
        (path,) = (self.folder / "runs").glob("*/flows.parquet")
        columns = set(parquet.read_schema(path).names) - {"run_id", "world"}
        found: dict[str, list[Any]] = parquet.read_table(
            path, columns=sorted(columns)
        ).to_pydict()
        return found

    def manifest(self) -> dict[str, Any]:
        """Return the record of the last run."""
        (path,) = (self.folder / "runs").glob("*/run.json")
        told: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return told


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both examples, installed as packages; nothing is fetched."""
    folder = tmp_path_factory.mktemp("installed")
    sources = tmp_path_factory.mktemp("sources")
    for name in ("aimd", "star"):
        # An installer leaves a folder behind where it builds.
        shutil.copytree(EXAMPLES / name, sources / name)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-index"),
            *("--no-build-isolation", "--no-deps", "--target", str(folder)),
            *(str(sources / name) for name in ("aimd", "star")),
        ],
        check=True,
        timeout=100,
    )
    return folder


@pytest.fixture
def place(installed: Path, tmp_path: Path) -> Place:
    return Place(tmp_path, (installed,))


def experiment(
    folder: Path, control: object, fabric: dict[str, Any] | None = None
) -> Path:
    """An incast of four ranks with both plug-ins, marked at each port."""
    return write_experiment(
        folder,
        [{**moe(4), "size_scale": "1/64"}],
        fabric or star(4, rate="100Mbit", ecn="4KB/16KB/0.5"),
        collectives={"all_reduce": {"star": {"hubs": 2}}},
        transport={"congestion_control": control, "path_mtu": 1024},
        faults={"packets": [{"action": "mark", "nth": 20, "every": 40}]},
        iterations={"warmup": 0, "measured": 3},
    )


AIMD = {"aimd": {"increase": "2%", "period": "1ms", "cnp_interval": "100us"}}


def notified(flows: dict[str, list[Any]]) -> int:
    return sum(flows["cnp"])


@pytest.fixture(scope="module")
def simulated(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Where both were simulated."""
    place = Place(tmp_path_factory.mktemp("simulated"), (installed,))
    place.run("simulate", experiment(place.folder, AIMD))
    return place


def test_both_plug_ins_are_simulated(simulated: Place) -> None:
    flows = simulated.flows()
    assert "star(hubs=2)" in flows["algorithm"]
    assert notified(flows) > 10
    # A cut flow begins its next message at what it was cut to.
    assert 0 < min(rate for rate in flows["rate_at_start_bps"]) < 50_000_000
    versions = simulated.manifest()["versions"]
    assert (versions["chakram-aimd"], versions["chakram-star"]) == ("1.0", "1.0")


@pytest.mark.usefixtures("netns")
def test_both_plug_ins_run_in_a_lab(place: Place) -> None:
    place.run("run", experiment(place.folder, AIMD))
    flows = place.flows()
    assert place.manifest()["status"] == "complete"
    assert "star(hubs=2)" in flows["algorithm"]
    assert notified(flows) > 10
    assert 0 < min(rate for rate in flows["rate_at_start_bps"]) < 100_000_000


LOOPBACK = {"kind": "loopback", "ports": 4, "rate": "100Mbit"}


@pytest.mark.parametrize(
    "verb", [pytest.param("simulate", marks=pytest.mark.soak), "run"]
)
def test_failing_hook_ends_the_run_and_is_named(
    installed: Path, tmp_path: Path, verb: str
) -> None:
    broken = tmp_path / "installed"
    shutil.copytree(installed, broken)
    module = broken / "chakram_aimd.py"
    text = module.read_text("utf-8")
    module.write_text(text.replace("if now_ns <", "if 1 // 0 <"), "utf-8")
    said = Place(tmp_path, (broken,)).run(
        verb, experiment(tmp_path, AIMD, LOOPBACK), code=4
    )
    line = text[: text.index("if now_ns <")].count("\n") + 1
    told = (
        "congestion control aimd: on_cnp failed: ZeroDivisionError: "
        f"integer division or modulo by zero (chakram_aimd.py, line {line})"
    )
    # A terminal breaks lines.
    assert told in " ".join(said.split())


def test_missing_plug_in_is_reported_with_the_available_ones(tmp_path: Path) -> None:
    said = Place(tmp_path).run("simulate", experiment(tmp_path, AIMD, LOOPBACK), code=2)
    text = " ".join(said.split())
    assert "transport.congestion_control.aimd: unknown key" in text
    assert "there is no algorithm 'star' for all_reduce" in text


def sources(tree: Path) -> tuple[Path, ...]:
    return tree / "emulator", tree / "agents"


def tree_with_aimd(root: Path) -> Path:
    """Copy the tree below *root* and add the control as its guide describes it."""
    tree = patched_tree("congestion-control.md", root)
    head, last = "# cython: annotation_typing=False, language_level=3", "CONTROL = Aimd"
    guide = (GUIDES / "congestion-control.md").read_text("utf-8")
    assert f"`{head}`" in guide
    assert f"`{last}`" in guide
    example = (EXAMPLES / "aimd/chakram_aimd.py").read_text("utf-8")
    own = tree / "emulator/chakram/roce/congestion/aimd.py"
    own.write_text(f"{head}\n{example}\n\n{last}\n", "utf-8")
    return tree


def test_built_in_control_is_one_module_and_its_declaration(
    installed: Path, simulated: Place, tmp_path: Path
) -> None:
    text = patch_of("congestion-control.md")
    named = re.findall(r"^\+\+\+ b/(.*)$", text, re.M)
    assert named == ["emulator/chakram/roce/congestion/aimd.pxd"]
    tree = tree_with_aimd(tmp_path / "tree")
    # It stands in the schema, and does what it does as a plug-in.
    ours = Place(tmp_path / "ours", (*sources(tree), installed), "off")
    ours.folder.mkdir()
    ours.run("simulate", experiment(ours.folder, AIMD))
    schema = json.loads(ours.python("-m", "chakram.config.schema"))
    assert schema["$defs"]["AimdSettings"]["properties"]["period"]["default"] == "50us"
    assert ours.flows() == simulated.flows()
    assert "chakram-aimd" not in ours.manifest()["versions"]


@pytest.mark.soak  # runs the compiler
def test_built_in_control_is_compiled(installed: Path, tmp_path: Path) -> None:
    require("compiler", missing_compiler())
    tree = tree_with_aimd(tmp_path / "tree")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO_ROOT / name, tree / name)
    Place(tree, sources(tree)).python("setup.py", "-q", "build_ext", "--inplace")
    compiled = Place(tmp_path / "compiled", (*sources(tree), installed), "require")
    plain = Place(tmp_path / "plain", (*sources(tree), installed), "off")
    for each in (compiled, plain):
        each.folder.mkdir()
        each.run("simulate", experiment(each.folder, AIMD))
    assert compiled.flows() == plain.flows()
    where = compiled.python("-c", "import chakram.roce.congestion.aimd as m; print(m)")
    assert ".so'" in where


def test_built_in_algorithm_is_one_module_and_its_rows(tmp_path: Path) -> None:
    text = patch_of("algorithm.md")
    module = "emulator/chakram/collectives/algorithms/star.py"
    named = re.findall(r"^\+\+\+ b/(.*)$", text, re.M)
    assert named == ["docs/reference/algorithms.md"]
    tree = patched_tree(
        "algorithm.md",
        tmp_path / "tree",
        *("docs", "tests/unit/collectives", "configs"),
    )
    example = (EXAMPLES / "star/chakram_star.py").read_text("utf-8")
    (tree / module).write_text(example, "utf-8")
    for path in [*REPO_ROOT.glob("tests/*.py"), REPO_ROOT / "pyproject.toml"]:
        shutil.copy(path, tree / path.relative_to(REPO_ROOT))
    costs = Path("tests/property/test_algorithm_costs.py")
    (tree / costs).parent.mkdir()
    shutil.copy(REPO_ROOT / costs, tree / costs)
    # The tests of all algorithms are those of this one, too.
    said = Place(tree, sources(tree), "off").python(
        *(
            "-m",
            "pytest",
            "-q",
            "-k",
            "star or listed or default",
            "-p",
            "no:cacheprovider",
        ),
        *("tests/unit/collectives/algorithms/test_reference.py", str(costs)),
    )
    assert int(re.findall(r"(\d+) passed", said)[0]) >= 5
    place = Place(tmp_path / "ours", sources(tree), "off")
    place.folder.mkdir()
    place.run("simulate", experiment(place.folder, "none"))
    assert "star(hubs=2)" in place.flows()["algorithm"]

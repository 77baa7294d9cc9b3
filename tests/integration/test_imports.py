"""Frequently started processes import no heavy modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chakram.__main__ import GARBAGE_THRESHOLD
from chakram.cli import main
from chakram.run_directory.reader import runs_in
from tests.support import REPO_ROOT

WEIGHTY = frozenset(
    {
        "asyncio",
        "bokeh",
        "cryptography",
        "google.protobuf",
        "grpc",
        "jinja2",
        "numpy",
        "prometheus_client",
        "pyarrow",
        "pydantic",
        "pyroute2",
        "rich",
        "yaml",
    }
)
QUICKSTART = str(REPO_ROOT / "configs/quickstart-small.yaml")

NOT_FOR_RUN_DIRECTORIES = WEIGHTY - {"pyarrow"} | {
    "chakram.chakra",
    "chakram.collectives.algorithms",
    "chakram.config",
    "chakram.control",
    "chakram.diagnosis",
    "chakram.execution",
    "chakram.fabric.fabric_types",
    "chakram.metrics",
    "chakram.plan.packet_faults",
    "chakram.plan.plan",
    "chakram.plan.probes",
    "chakram.predict",
    "chakram.preparation",
    "chakram.program",
    "chakram.report",
    "chakram.run_directory.record_tables",
    "chakram.run_directory.writer",
    "chakram.service",
    "chakram.settings",
    "chakram.simulation",
    "chakram.synth",
    "chakram.trace",
    "cloudpickle",
    "concurrent.futures",
    "importlib.metadata",
    "multiprocessing",
}
"""Modules that verbs do not need to read and print a run directory."""

AS_COMMAND = (
    "import chakram.__main__ as command; command.ends_after_verb = True; "
    "from chakram.cli import main"
)
"""Code that imports the verbs as the command does."""


def imported_by(code: str) -> set[str]:
    """Return the modules that a process has imported to run *code*."""
    tell = "import json, sys; print(json.dumps([*sys.modules]), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tell}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {*json.loads(done.stderr.splitlines()[-1])}


@pytest.mark.parametrize(
    ("module", "needed"),
    [
        ("chakram.fabric.enter_lab", set()),
        ("chakram.fabric.labs.holder", set()),
        ("chakram.fabric.modeled_switch.switch_process", set()),
        ("chakram_agent.shard", {"google.protobuf"}),
        ("chakram_agent.agent", {"google.protobuf", "asyncio"}),
        ("chakram_agent.cli", {"google.protobuf"}),
        ("chakram_agent.grpc_server", {"google.protobuf", "asyncio", "grpc"}),
    ],
)
def test_processes_of_a_run_import_no_heavy_modules(
    module: str, needed: set[str]
) -> None:
    assert imported_by(f"import {module}") & WEIGHTY == needed


def test_command_imports_no_other_command() -> None:
    loaded = imported_by("from chakram.cli import command_line; command_line('gate')")
    assert {each for each in loaded if each.startswith("chakram.cli.")} == {
        "chakram.cli.common",
        "chakram.cli.common.help_examples",
        "chakram.cli.results",
        "chakram.cli.results.gate",
        "chakram.cli.common.options",
        "chakram.cli.common.parameter_conversion",
    }
    assert not loaded & WEIGHTY


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (
            ["--help"],
            {"asyncio", "numpy", "pyarrow", "pydantic", "yaml"},
        ),
        (["plan", QUICKSTART], {"asyncio", "grpc", "numpy", "pyarrow", "pyroute2"}),
        (
            ["simulate", QUICKSTART, "--set", "iterations.measured=1"],
            {
                "asyncio",
                "bokeh",
                "chakram.chakra.lint.traffic_warnings",
                "chakram.chakra.read.pytorch",
                "chakram.control",
                "chakram.diagnosis",
                "chakram.report",
                "chakram.user_algorithms",
                "concurrent.futures",
                "grpc",
                "jinja2",
                "multiprocessing",
                "numpy",
                "prometheus_client",
                "pyarrow.dataset",
                "pyroute2",
                "rich",
            },
        ),
    ],
)
def test_command_imports_only_what_it_needs(
    arguments: list[str],
    unneeded: set[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if arguments[0] == "simulate":
        arguments = [*arguments, "--runs", str(tmp_path_factory.mktemp("runs"))]
    loaded = imported_by(f"{AS_COMMAND}; main({arguments!r})")
    if arguments[0] != "--help":
        assert "chakram.preparation.plan_settings" in loaded
    assert not loaded & unneeded


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a simulated run."""
    folder = tmp_path_factory.mktemp("runs")
    main(["simulate", QUICKSTART, "--runs", str(folder)])
    return runs_in(folder)[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "RUN"],
        ["show", "RUN", "--json"],
        ["why", "RUN", "--no-verify"],
        ["compare", "RUN", "RUN"],
        ["validate", "RUN"],
        ["runs", "FOLDER"],
    ],
    ids=" ".join,
)
def test_reading_a_run_imports_only_what_it_needs(
    arguments: list[str], run: Path
) -> None:
    places = {"RUN": str(run), "FOLDER": str(run.parent)}
    words = [places.get(word, word) for word in arguments]
    loaded = imported_by(f"{AS_COMMAND}; main({words!r})")
    assert "chakram.run_directory.reader" in loaded
    assert not loaded & NOT_FOR_RUN_DIRECTORIES


def test_verbs_called_by_other_code_leave_numpy_to_it(run: Path) -> None:
    words = ["show", str(run)]
    used = "import pyarrow as pa; pa.array([1]).to_numpy()"
    loaded = imported_by(f"from chakram.cli import main; main({words!r}); {used}")
    assert "numpy" in loaded


def test_untested_report_imports_no_simulator(run: Path, tmp_path: Path) -> None:
    words = ["report", str(run), "--no-verify", "--out", str(tmp_path / "page.html")]
    loaded = imported_by(f"from chakram.cli import main; main({words!r})")
    assert "chakram.report.run.page" in loaded
    assert not loaded & {
        "chakram.diagnosis.verification",
        "chakram.execution",
        "chakram.preparation",
        "chakram.report.bmwg_page",
        "chakram.simulation",
        "grpc",
        "prometheus_client",
    }


def test_garbage_collection_starts_late_in_commands() -> None:
    script = "import gc; from chakram.__main__ import main; main(); " + (
        "import sys; sys.modules[f'looks at {gc.get_threshold()[0]}'] = gc"
    )
    assert f"looks at {GARBAGE_THRESHOLD}" in imported_by(script)


def test_command_skips_pydantic_plugins() -> None:
    read = imported_by(
        "import sys, importlib.metadata as metadata\n"
        "def distributions(**_):\n"
        "    sys.modules['all packages'] = metadata\n"
        "    return iter(())\n"
        "metadata.distributions = distributions\n"
        "from chakram.__main__ import main\n"
        f"sys.argv = ['chakram', 'plan', {QUICKSTART!r}]\n"
        "main()"
    )
    assert "chakram.preparation.plan_settings" in read
    assert "all packages" not in read


def test_experiment_validators_are_built_on_first_use() -> None:
    built = imported_by(
        "import sys, chakram.config.experiment\n"
        "from chakram.config.schema import sections\n"
        "for name, section in sections().items():\n"
        "    if section.__pydantic_complete__:\n"
        "        sys.modules[f'built {name}'] = section\n"
    )
    assert not {each for each in built if each.startswith("built ")}

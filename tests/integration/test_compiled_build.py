"""A tiny project, built with this project's `setup.py`, imported in other processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import REPO_ROOT, require

pytestmark = pytest.mark.slow  # each runs the compiler or pip

PYPROJECT = """\
[project]
name = "chakram"
version = "1"
[tool.setuptools]
package-dir = { chakram = "emulator/chakram", chakram_agent = "agents/chakram_agent" }
packages = ["chakram", "chakram_agent"]
[tool.setuptools.package-data]
"*" = ["*.pxd", "*.pyx"]
"""
SOURCES = {
    "pyproject.toml": PYPROJECT,
    "emulator/chakram/axle.py": """\
class Axle:
    def __init__(self, turns: int) -> None:
        self.turns = turns

    def turn(self) -> int:
        self.turns += 1
        return self.turns
""",
    "emulator/chakram/axle.pxd": """\
cdef class Axle:
    cdef public long long turns
    cpdef long long turn(self)
""",
    "emulator/chakram/wheel.py": """\
from chakram.axle import Axle

class Wheel:
    def __init__(self) -> None:
        self.axle = Axle(41)

    def turn(self) -> int:
        return self.axle.turn()
""",
    "emulator/chakram/wheel.pxd": """\
from chakram.axle cimport Axle

cdef class Wheel:
    cdef public Axle axle
    cpdef long long turn(self)
""",
    "agents/chakram_agent/__init__.py": "import chakram\n",
    "agents/chakram_agent/brake.pyx": """\
from chakram.axle cimport Axle

def stop(Axle axle):
    axle.turns = 0
""",
}
# Prints what the wheel turned to, and the state of each hot module.
TURN = """\
import chakram._compiled
from chakram.wheel import Wheel
import chakram_agent
print(Wheel().turn())
for name, state in chakram._compiled.status().modules.items():
    print(name, state, sep="=")
"""
ALL_COMPILED = {
    "chakram.axle": "compiled",
    "chakram.wheel": "compiled",
    "chakram_agent.brake": "compiled",
}


@dataclass(frozen=True, slots=True)
class Project:
    """A checkout of the tiny project."""

    root: Path

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(
        self, *arguments: str, path: tuple[str, ...], **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Python in the checkout; *path* precedes its own path."""
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CHAKRAM_", "PYTHON"))
        }
        search = os.pathsep.join(str(self.root / folder) for folder in path)
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env={**clean, "PYTHONPATH": search, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def build(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run(
            "setup.py", "-q", "build_ext", "--inplace", path=(), **environment
        )

    def turn(
        self, *, path: tuple[str, ...] = ("emulator", "agents"), mode: str = "auto"
    ) -> dict[str, str]:
        """Return the states of the hot modules after using all of them."""
        done = self.run("-c", TURN, path=path, CHAKRAM_COMPILED=mode)
        assert done.returncode == 0, done.stderr
        turned, *states = done.stdout.split("\n")
        assert turned == "42"
        return dict(line.split("=", 1) for line in states if line)


def missing_compiler() -> str | None:
    """Return why extensions cannot be built here; None if they can."""
    if find_spec("Cython") is None:
        return "Cython is not installed"
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC")
    options = ("-x", "c", "-fsyntax-only", "-I", sysconfig.get_path("include"), "-")
    try:
        subprocess.run(
            [*compiler.split(), *options],
            input=b"#include <Python.h>\n",
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return f"{compiler} does not compile, or Python's headers are not installed"
    return None


def new_project(root: Path) -> Project:
    """Write the sources of the tiny project, and nothing built."""
    project = Project(root)
    for name, text in SOURCES.items():
        project.write(name, text)
    for name in FINDER:
        shutil.copy(REPO_ROOT / name, root / name)
    setup = (REPO_ROOT / "setup.py").read_text()
    assert '"-O2"' in setup
    # What is built here turns a wheel once.
    project.write("setup.py", setup.replace('"-O2"', '"-O0"'))
    return project


FINDER = ("emulator/chakram/__init__.py", "emulator/chakram/_compiled.py")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project that was built in place; to be copied before it is changed."""
    require("compiler", missing_compiler())
    project = new_project(tmp_path_factory.mktemp("built"))
    done = project.build(CHAKRAM_COMPILED="require")
    assert done.returncode == 0, done.stdout + done.stderr
    return project


@pytest.fixture
def project(built: Project, tmp_path: Path) -> Project:
    """Return a copy of the built project."""
    shutil.copytree(built.root, tmp_path / "copy")
    return Project(tmp_path / "copy")


def test_extensions_built_in_place_run(built: Project) -> None:
    assert built.turn(mode="require") == ALL_COMPILED
    assert set(built.turn(mode="off").values()) == {"CHAKRAM_COMPILED=off"}


def test_a_build_without_changes_builds_nothing(built: Project) -> None:
    done = built.build()
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.soak
def test_edited_module_runs_uncompiled_until_the_next_build(project: Project) -> None:
    name = "emulator/chakram/axle.py"
    project.write(name, SOURCES[name] + "# edited\n")
    stale = "built from another version of chakram/axle.py"
    against = f"goes with chakram.axle, which is {stale}"
    assert project.turn() == {
        "chakram.axle": stale,
        "chakram.wheel": against,
        "chakram_agent.brake": against,
    }
    refused = project.run(
        "-c", TURN, path=("emulator", "agents"), CHAKRAM_COMPILED="require"
    )
    assert refused.returncode == 1
    assert f"ImportError: chakram.wheel: {against}" in refused.stderr

    done = project.build()
    assert done.stdout.startswith("compiling 1 hot modules")
    assert project.turn() == ALL_COMPILED


@pytest.mark.soak
def test_edited_declaration_rebuilds_dependent_modules(
    project: Project,
) -> None:
    name = "emulator/chakram/axle.pxd"
    project.write(name, SOURCES[name] + "    cdef public long long dents\n")
    assert project.build().stdout.startswith("compiling 3 hot modules")
    assert project.turn(mode="require") == ALL_COMPILED


@pytest.mark.soak
def test_an_error_in_one_module_leaves_the_others_compiled(project: Project) -> None:
    name = "emulator/chakram/wheel.pxd"
    project.write(name, SOURCES[name] + "    cdef Unknown spokes\n")
    done = project.build()
    assert done.returncode == 0, done.stderr
    assert "chakram.wheel: not compiled, its plain form will run" in done.stdout
    assert project.turn() == ALL_COMPILED | {
        "chakram.wheel": "built from unknown sources (no digests recorded)"
    }
    required = project.build(CHAKRAM_COMPILED="require")
    assert required.returncode == 1
    assert "Cython refuses emulator/chakram/wheel.py" in required.stderr


@pytest.mark.soak
def test_nothing_is_compiled_without_the_shared_declarations(project: Project) -> None:
    (shared,) = project.root.glob("emulator/chakram/_cython*.so")
    shared.unlink()
    assert project.build(CC="false").returncode == 0
    assert set(project.turn().values()) == {
        "built from unknown sources (no digests recorded)"
    }
    # The next build would be one of everything.
    assert project.build(CC="false").stdout.startswith(
        "compiling 3 hot modules and the code they share"
    )


def test_a_plain_install_carries_its_extensions(project: Project) -> None:
    shutil.rmtree(project.root / "build")
    install(project)
    # What installers do to times says nothing about what was built from what.
    for path in (project.root / "installed" / "chakram").glob("*.p*"):
        os.utime(path)
    assert project.turn(path=("installed",), mode="require") == ALL_COMPILED


def test_an_install_without_compiler_runs_the_plain_form(tmp_path: Path) -> None:
    project = new_project(tmp_path)
    install(project, CC="false")
    assert project.turn(path=("installed",)) == dict.fromkeys(ALL_COMPILED, "not built")


def install(project: Project, **environment: str) -> None:
    """Install *project* as pip does, into its folder ``installed``."""
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--no-cache-dir")
    done = project.run(
        *("-m", "pip", "install", "-q", *options, "--target", "installed", "."),
        path=(),
        **environment,
    )
    assert done.returncode == 0, done.stderr

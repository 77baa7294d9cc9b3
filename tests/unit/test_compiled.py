"""Choice between compiled and plain form of hot modules, and its report."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from importlib.machinery import (
    ExtensionFileLoader,
    ModuleSpec,
    SourceFileLoader,
)
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import chakram
from chakram import _compiled
from chakram._compiled import SUFFIX, CompiledFinder, Mode, digest, requested_mode
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Package:
    """The package ``wheel``, with fake extensions."""

    folder: Path

    def write(self, name: str, text: str = "") -> None:
        (self.folder / name).write_text(text)

    def build(self, module: str, *sources: str) -> None:
        """Pretend to build *module* from *sources* as they are now."""
        self.write(f"{module}{SUFFIX}")
        path = self.folder / "_compiled.json"
        record = json.loads(path.read_text()) if path.exists() else {"modules": {}}
        record["modules"][f"wheel.{module}"] = {
            f"wheel/{name}": digest(str(self.folder / name)) for name in sources
        }
        path.write_text(json.dumps(record))

    def finder(self, mode: Mode) -> CompiledFinder:
        return CompiledFinder(
            mode, packages=("wheel",), record=str(self.folder / "_compiled.json")
        )

    def find(self, module: str, mode: Mode) -> ModuleSpec | None:
        return self.finder(mode).find_spec(f"wheel.{module}", [str(self.folder)])

    def state(self, module: str, mode: Mode = "auto") -> str:
        return self.finder(mode).status().modules[f"wheel.{module}"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Return a package with the plain module ``cold`` and the hot module ``hot``."""
    module = ModuleType("wheel")
    module.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "wheel", module)
    package = Package(tmp_path)
    for name in ("__init__.py", "cold.py", "hot.py", "hot.pxd"):
        package.write(name)
    return package


@pytest.mark.parametrize("mode", ["auto", "require", "off"])
def test_modules_without_declarations_are_left_to_python(
    package: Package, mode: Mode
) -> None:
    assert package.find("cold", mode) is None
    assert package.find("missing", mode) is None


@pytest.mark.parametrize("mode", ["auto", "require", "off"])
def test_other_packages_and_top_packages_are_ignored(
    package: Package, mode: Mode
) -> None:
    finder = package.finder(mode)
    assert finder.find_spec("spoke.hot", [str(package.folder)]) is None
    assert finder.find_spec("wheel", None) is None


@pytest.mark.parametrize("mode", ["auto", "require"])
def test_extension_built_from_these_sources_is_used(
    package: Package, mode: Mode
) -> None:
    package.build("hot", "hot.py", "hot.pxd")
    spec = package.find("hot", mode)
    assert spec is not None
    assert isinstance(spec.loader, ExtensionFileLoader)
    assert spec.origin == str(package.folder / f"hot{SUFFIX}")
    assert package.finder(mode).status().is_compiled()


def test_off_uses_the_source_despite_an_extension(package: Package) -> None:
    package.build("hot", "hot.py", "hot.pxd")
    spec = package.find("hot", "off")
    assert spec is not None
    assert isinstance(spec.loader, SourceFileLoader)
    assert package.state("hot", "off") == "CHAKRAM_COMPILED=off"


def test_auto_uses_the_source_without_an_extension(package: Package) -> None:
    spec = package.find("hot", "auto")
    assert spec is not None
    assert isinstance(spec.loader, SourceFileLoader)
    assert package.state("hot") == "not built"


@pytest.mark.parametrize("edited", ["hot.py", "hot.pxd", "other.pxd"])
def test_auto_uses_the_source_after_an_edit(package: Package, edited: str) -> None:
    package.write("other.pxd")
    package.build("hot", "hot.py", "hot.pxd", "other.pxd")
    package.write(edited, "# edited")
    spec = package.find("hot", "auto")
    assert spec is not None
    assert isinstance(spec.loader, SourceFileLoader)
    assert package.state("hot") == f"built from another version of wheel/{edited}"


def test_an_extension_without_recorded_digests_counts_as_stale(
    package: Package,
) -> None:
    package.write(f"hot{SUFFIX}")
    assert package.state("hot") == ("built from unknown sources (no digests recorded)")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"modules": '])
def test_damaged_digest_record_counts_as_missing(package: Package, text: str) -> None:
    package.build("hot", "hot.py", "hot.pxd")
    package.write("_compiled.json", text)
    assert package.state("hot") == ("built from unknown sources (no digests recorded)")


def test_modules_compiled_against_a_stale_module_are_stale(
    package: Package,
) -> None:
    """Compiled classes cannot extend or hold the plain form of another's classes."""
    for name in ("rim", "axle"):
        package.write(f"{name}.py")
        package.write(f"{name}.pxd")
    package.build("axle", "axle.py", "axle.pxd")
    package.build("hot", "hot.py", "hot.pxd", "axle.pxd")
    package.build("rim", "rim.py", "rim.pxd", "hot.pxd")
    assert package.finder("auto").status().is_compiled()
    package.write("axle.py", "# edited")
    stale = "built from another version of wheel/axle.py"
    assert package.finder("auto").status().modules == {
        "wheel.axle": stale,
        "wheel.hot": f"goes with wheel.axle, which is {stale}",
        "wheel.rim": f"goes with wheel.axle, which is {stale}",
    }


def test_dependencies_of_a_stale_module_are_stale(
    package: Package,
) -> None:
    """A plain module may not change what a compiled class keeps to its like."""
    for name in ("rim", "axle"):
        package.write(f"{name}.py")
        package.write(f"{name}.pxd")
    package.build("axle", "axle.py", "axle.pxd")
    package.build("hot", "hot.py", "hot.pxd", "axle.pxd")
    package.build("rim", "rim.py", "rim.pxd")
    package.write("hot.py", "# edited")
    stale = "built from another version of wheel/hot.py"
    assert package.finder("auto").status().modules == {
        "wheel.axle": f"goes with wheel.hot, which is {stale}",
        "wheel.hot": stale,
        "wheel.rim": "compiled",
    }


def test_modules_compiled_against_each_other_are_compiled(package: Package) -> None:
    package.write("rim.py")
    package.write("rim.pxd")
    package.build("rim", "rim.py", "rim.pxd", "hot.pxd")
    package.build("hot", "hot.py", "hot.pxd", "rim.pxd")
    assert package.finder("auto").status().is_compiled()


def test_require_reports_module_reason_and_remedy(package: Package) -> None:
    with pytest.raises(ImportError) as caught:
        package.find("hot", "require")
    assert str(caught.value) == (
        "wheel.hot: not built, and CHAKRAM_COMPILED=require: build it with "
        "`make build`, or set CHAKRAM_COMPILED=auto"
    )
    assert caught.value.name == "wheel.hot"


def test_pyx_without_extension_is_a_missing_module(
    package: Package,
) -> None:
    package.write("fast.pyx")
    with pytest.raises(ModuleNotFoundError, match=r"wheel\.fast: not built"):
        package.find("fast", "auto")
    package.build("fast", "fast.pyx")
    assert package.find("fast", "auto") is not None
    with pytest.raises(ModuleNotFoundError, match="CHAKRAM_COMPILED=off"):
        package.find("fast", "off")


def test_first_import_decides_for_the_whole_process(package: Package) -> None:
    package.build("hot", "hot.py", "hot.pxd")
    finder = package.finder("auto")
    assert finder.status().is_compiled()
    package.write("hot.py", "# edited")
    assert finder.status().is_compiled()
    assert not package.finder("auto").status().is_compiled()


def test_a_package_without_hot_modules_is_not_compiled(package: Package) -> None:
    (package.folder / "hot.pxd").unlink()
    status = package.finder("auto").status()
    assert status.modules == {}
    assert not status.is_compiled()


def test_status_finds_hot_modules_of_sub_packages(package: Package) -> None:
    below = package.folder / "hub" / "bolt"
    below.mkdir(parents=True)
    (below / "nut.py").touch()
    (below / "nut.pxd").touch()
    (below / "__init__.py").touch()
    (below / "__init__.pxd").touch()
    assert list(package.finder("auto").status().modules) == [
        "wheel.hot",
        "wheel.hub.bolt.nut",
    ]


def test_status_includes_packages_that_are_not_imported(
    package: Package,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path_factory.mktemp("path") / "axle_without_import"
    folder.mkdir()
    for name in ("__init__.py", "hot.py", "hot.pxd"):
        (folder / name).touch()
    monkeypatch.syspath_prepend(folder.parent)
    packages = (folder.name, "wheel", "axle_that_is_not_installed")
    finder = CompiledFinder("auto", packages=packages, record="")
    assert list(finder.status().modules) == [f"{folder.name}.hot", "wheel.hot"]
    assert folder.name not in sys.modules


def test_the_mode_is_auto_by_default() -> None:
    assert requested_mode({}) == "auto"
    assert requested_mode({"CHAKRAM_COMPILED": ""}) == "auto"
    assert requested_mode({"CHAKRAM_COMPILED": "off"}) == "off"


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(
        ImportError, match="CHAKRAM_COMPILED='yes' is not one of auto, require, off"
    ):
        requested_mode({"CHAKRAM_COMPILED": "yes"})


def test_importing_chakram_installs_one_finder() -> None:
    _compiled.install()
    finders = [each for each in sys.meta_path if isinstance(each, CompiledFinder)]
    assert len(finders) == 1
    assert _compiled.status() == finders[0].status()
    assert chakram.__version__


def test_status_reports_a_missing_finder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [])
    with pytest.raises(RuntimeError, match="not installed"):
        _compiled.status()


def test_methods_that_return_numbers_declare_their_exception_value() -> None:
    # Else the caller asks the interpreter after every call: 1 to 2 % of a send.
    number = r"(?:bint|int|long long|Py_ssize_t|unsigned [a-z ]+)"
    silent = re.compile(
        rf"^    cp?def {number} (\w+)\((?:[^()]|\([^()]*\))*\) *$", re.MULTILINE
    )
    found = [
        f"{path.relative_to(REPO_ROOT)}: {name}"
        for root in ("emulator", "agents")
        for path in (REPO_ROOT / root).rglob("*.pxd")
        for name in silent.findall(path.read_text())
    ]
    assert found == []

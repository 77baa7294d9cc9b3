"""Names of built-in modules and of entry points of packages."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from chakram.foundation.errors import PlugInError, TraceError
from chakram.foundation.plugin_registry import PlugIn, Registry, modules_of
from tests.plug_ins import install

GROUP = "chakram.tests_of_plug_ins"


def accept(name: str, found: object) -> str:
    if not isinstance(found, str):
        raise ValueError("it is no text")
    return f"{name}: {found}"


def registry() -> Registry[str]:
    return Registry(
        "wheel",
        group=GROUP,
        own=lambda: {"ours": "chakram.foundation.units:__name__"},
        accept=accept,
    )


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path of modules."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_only_named_plug_ins_are_imported(path: Path) -> None:
    install(
        path,
        group=GROUP,
        entries={"spokes": "acme_spokes:TEXT", "rim": "acme_rim:TEXT"},
        acme_spokes="TEXT = 'of steel'",
        acme_rim="raise SystemExit",
    )
    wheels = registry()
    assert wheels.names() == ("ours", "rim", "spokes")
    assert wheels.find("spokes") == PlugIn(
        name="spokes", target="acme_spokes:TEXT", package="acme 1.0"
    )
    assert wheels.load("spokes") == "spokes: of steel"
    assert wheels.load("ours") == "ours: chakram.foundation.units"
    assert wheels.loaded() == {
        "spokes": "spokes: of steel",
        "ours": "ours: chakram.foundation.units",
    }
    assert "acme_rim" not in sys.modules


def test_plug_in_cannot_replace_a_built_in_name(path: Path) -> None:
    install(path, group=GROUP, entries={"ours": "acme_ours:TEXT"})
    wheels = registry()
    assert wheels.names() == ("ours",)
    assert wheels.find("ours") == PlugIn(
        name="ours", target="chakram.foundation.units:__name__"
    )


def test_unknown_plug_in_is_reported_with_the_available_ones(path: Path) -> None:
    install(path, group=GROUP, entries={"rim": "acme_rim:TEXT"})
    with pytest.raises(
        ValueError, match=r"there is no wheel 'hub' \(known: ours, rim\)"
    ):
        registry().load("hub")


def test_two_packages_with_one_name_are_refused(path: Path) -> None:
    install(path, group=GROUP, entries={"rim": "acme_rim:TEXT"})
    install(
        path,
        package="best",
        version="2",
        group=GROUP,
        entries={"rim": "best_rim:TEXT"},
    )
    with pytest.raises(PlugInError) as caught:
        registry().load("rim")
    assert str(caught.value) == (
        "wheel rim: several packages provide this name: acme 1.0 and best 2 "
        "(uninstall all but one of them)"
    )


@pytest.mark.parametrize(
    ("name", "target", "module", "found"),
    [
        ("a", "acme_a:TEXT", "1 / 0", "ZeroDivisionError: division by zero"),
        ("b", "acme_b:TEXT", "", "AttributeError: "),
        ("c", "acme_missing:TEXT", "", "ModuleNotFoundError: "),
        ("f", "acme_f:TEXT", "raise SystemExit(2)", "imported: SystemExit: 2"),
        ("d", "acme_d:TEXT", "TEXT = 5", "acme 1.0: acme_d:TEXT: it is no text"),
        ("E", "acme_e:TEXT", "TEXT = ''", "'E' cannot be written in an experiment"),
    ],
)
def test_unusable_plug_in_is_reported_with_its_package(
    name: str, target: str, module: str, found: str, path: Path
) -> None:
    install(path, group=GROUP, entries={name: target}, **{f"acme_{name}": module})
    with pytest.raises(PlugInError) as caught:
        registry().load(name)
    text = str(caught.value)
    assert text.startswith(f"wheel {name}: acme 1.0: ")
    assert found in text


def test_failed_call_is_reported_with_the_package_and_its_line(path: Path) -> None:
    install(
        path,
        group=GROUP,
        entries={"rim": "acme_called:turn"},
        acme_called="def turn():\n    return 1 / 0\n",
    )
    wheels = registry()
    with pytest.raises(PlugInError) as caught, wheels.calls("rim"):
        import_module("acme_called").turn()
    assert str(caught.value) == (
        f"wheel rim: acme 1.0: {path}/acme_called.py:2: ZeroDivisionError: division "
        "by zero (report this to its author)"
    )
    ended = pytest.raises(PlugInError, match=": SystemExit: 3 ")
    with ended, wheels.calls("rim"):
        raise SystemExit(3)
    with pytest.raises(TraceError), wheels.calls("rim"):
        raise TraceError("a", "b")
    with pytest.raises(ZeroDivisionError), wheels.calls("ours"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("name", "package", "found"),
    [
        ("rim", "acme 1.0", None),
        (
            "rim",
            "acme 1.1",
            "plan r: wheel 'rim' comes from acme 1.0 here, but from acme 1.1 on the "
            "controller (install acme 1.1 on the agent's host, too, and restart it)",
        ),
        (
            "hub",
            "acme 1.1",
            "plan r: there is no wheel 'hub' here (known: ours, rim) "
            "(install acme 1.1 on the agent's host, too, and restart it)",
        ),
        (
            "ours",
            "acme 1.0",
            "plan r: wheel 'ours' comes from chakram itself here, but from ",
        ),
    ],
)
def test_a_plan_is_for_the_same_package_in_the_same_version(
    name: str, package: str, found: str | None, path: Path
) -> None:
    install(path, group=GROUP, entries={"rim": "acme_rim:TEXT"})
    if found is None:
        registry().check_package(name, package, where="plan r")
        return
    with pytest.raises(PlugInError) as caught:
        registry().check_package(name, package, where="plan r")
    assert str(caught.value).startswith(found)


def test_modules_of_a_folder_are_listed_except_excluded_ones() -> None:
    names = modules_of("chakram.roce.congestion", ("base",))
    assert "dcqcn" in names
    assert "base" not in names
    assert "profiles" not in names  # a folder

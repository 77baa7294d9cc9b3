"""The public API of `import chakram`: existence, documentation, lazy loading."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import yaml

import chakram
from chakram import api
from chakram.foundation.errors import (
    ConfigError,
    InputError,
    RunFailed,
    RunInterrupted,
)
from tests.support import REPO_ROOT

INCAST = REPO_ROOT / "configs/incast.yaml"
SHORT = {
    "iterations.measured": 1,
    "jobs[0].trace.fan_in": 2,
    "jobs[0].trace.repeats": 1,
    "jobs[0].trace.size": "16KiB",
    "predict": ["bound"],
    "transport.window": "32KiB",
}


@pytest.mark.parametrize("name", sorted(set(chakram.__all__) - {"__version__"}))
def test_public_names_exist_and_are_documented(name: str) -> None:
    assert inspect.getdoc(getattr(chakram, name))
    assert name in dir(chakram)
    page = (REPO_ROOT / "docs/reference/python.md").read_text()
    assert f"`{name}" in page


def test_attributes_of_results_are_documented() -> None:
    page = (REPO_ROOT / "docs/reference/python.md").read_text()
    offered = [name for name in vars(chakram.Results) if not name.startswith("_")]
    assert offered
    assert [name for name in offered if f"`{name}" not in page] == []


def test_missing_attribute_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'chakram' has no attribute 'x'"):
        _ = chakram.x


def test_import_loads_no_submodules() -> None:
    script = (
        "import sys, chakram; "
        "print(*sorted(m for m in sys.modules if m.startswith('chakram')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["chakram", "chakram._compiled"]


def test_a_simulation_from_python(tmp_path: Path) -> None:
    results = chakram.simulate(INCAST, set=SHORT, runs=tmp_path)
    assert results.path.parent == tmp_path
    assert results.flows.num_rows == results.table("flows").num_rows > 0
    assert set(results.operations["kind"].to_pylist()) >= {"send", "receive"}
    assert results.why().time_ns == results.why(job="incast").time_ns > 0
    assert results.summary().facts.world == "simulate"
    assert "# Run complete." in str(results)
    assert "&lt;" not in results._repr_html_().partition("\n")[0]
    assert repr(results) == f"<Results of incast in {results.path}>"
    again = chakram.open_run(str(results.path))
    assert again.manifest == results.manifest
    assert not any(each.significant for each in _all(results.compare(again)))


def _all(found: Any) -> list[Any]:
    return [each for level in found.levels.values() for each in level]


def test_files_mappings_and_experiments_mean_the_same(tmp_path: Path) -> None:
    mapping = yaml.safe_load(INCAST.read_text())
    read = chakram.load_experiment(INCAST)
    every = [
        chakram.simulate(experiment, set=SHORT, runs=tmp_path)
        for experiment in (str(INCAST), mapping, read)
    ]
    first = every[0]
    for each in every[1:]:
        assert each.manifest.experiment == first.manifest.experiment
        assert each.flows["fct_ns"] == first.flows["fct_ns"]
    # What the run directory keeps can be run again.
    for each in every:
        kept = each.path / "experiment.yaml"
        text = kept.read_text()
        assert text.startswith("# --set iterations.measured=1\n")
        said = dict(re.findall(r"^# --set ([^=\n]+)=(.*)$", text, re.M))
        assert said["transport.window"] == "32KiB"
        again = chakram.load_experiment(kept, overrides=said)
        assert again.iterations.measured == 1
    assert read.iterations.measured == 5  # unchanged


def test_an_experiment_may_be_run_as_it_was_read(tmp_path: Path) -> None:
    overrides = {"iterations.measured": "1", "jobs[0].trace.repeats": "1"}
    read = chakram.load_experiment(INCAST, overrides=overrides)
    results = chakram.simulate(read, runs=tmp_path)
    assert results.manifest.measured == 1
    kept = chakram.load_experiment(results.path / "experiment.yaml")
    assert kept.jobs == read.jobs


@pytest.mark.parametrize(
    "text",
    ["😀", "é", "\x7f\x85", "\u2028", "\uffff", "\\ud83d\\ude00", "a: b # c\n\x07"],
)
def test_any_text_of_python_is_accepted(text: str, tmp_path: Path) -> None:
    mapping = {**yaml.safe_load(INCAST.read_text()), "description": text}
    results = chakram.simulate(mapping, set=SHORT, runs=tmp_path)
    assert results.manifest.experiment["description"] == text
    again = chakram.load_experiment(results.path / "experiment.yaml")
    assert again.description == text
    path = {"jobs": [{"name": "j", "trace": {"path": f"r{text[0]}"}}]}
    with pytest.raises(chakram.ChakramError, match=f"r{re.escape(text[0])}"):
        chakram.simulate(mapping, set=path, runs=tmp_path)


@pytest.mark.parametrize(
    ("written", "description"),
    [
        ("'two\n\n  lines'", "two\nlines"),
        ("|\n  a: 😀\n  b\n", "a: 😀\nb\n"),
        ("'\u2028'", "\u2028"),
    ],
)
def test_changes_of_several_lines_are_recorded_in_one(
    written: str, description: str, tmp_path: Path
) -> None:
    changes = {**SHORT, "description": written}
    results = chakram.simulate(INCAST, set=changes, runs=tmp_path)
    text = (results.path / "experiment.yaml").read_text()
    assert text.endswith(f"\n{INCAST.read_text()}")
    said = dict(re.findall(r"^# --set ([^=\n]+)=(.*)$", text, re.M))
    again = chakram.load_experiment(results.path / "experiment.yaml", overrides=said)
    assert (
        again.description == description == results.manifest.experiment["description"]
    )


def test_folder_of_runs_may_have_any_name(tmp_path: Path) -> None:
    mapping = {**yaml.safe_load(INCAST.read_text()), "runs": f"{tmp_path}/r😀"}
    results = chakram.simulate(mapping, set=SHORT)
    assert results.path.parent == tmp_path / "r😀"


@pytest.mark.parametrize(
    ("value", "measured"),
    [(np.int64(2), 2), (Decimal(2), 2), (np.array([2])[0], 2), ("2", 2)],
)
def test_numbers_of_other_types_are_accepted(
    value: Any, measured: int, tmp_path: Path
) -> None:
    changes = {**SHORT, "iterations.measured": value, "runs": tmp_path}
    assert chakram.simulate(INCAST, set=changes).manifest.measured == measured


def test_nested_read_only_mappings_are_accepted(tmp_path: Path) -> None:
    mapping = yaml.safe_load(INCAST.read_text())
    iterations = MappingProxyType({"warmup": 0, "measured": Decimal(1)})
    proxy = MappingProxyType({**mapping, "iterations": iterations})
    results = chakram.simulate(proxy, set=SHORT, runs=tmp_path)
    assert results.manifest.measured == 1


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"bound"}, "it has a value of type set"),
        ((each for each in ["bound"]), "it has a value of type generator"),
        ([{b"a": 1}], "keys must be str, int, float, bool or None, not bytes"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_value_that_no_file_can_have_is_refused(value: object, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        chakram.simulate(INCAST, set={"predict": value})
    assert caught.value.where == "set: predict"
    assert found in caught.value.found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([("seed", 1)], "is a list, not a mapping"),
        ("seed=1", "is a str, not a mapping"),
        ({1: 2}, "the key 1 is not text"),
    ],
)
def test_changes_must_be_a_mapping_with_text_as_keys(given: Any, found: str) -> None:
    for world in (None, "loopback"):
        with pytest.raises(ConfigError, match=f"^set: {found}"):
            chakram.run(INCAST, world=world, set=given)
    with pytest.raises(ConfigError, match=f"^overrides: {found}"):
        chakram.load_experiment(INCAST, overrides=given)


def test_invalid_experiment_raises_our_error(tmp_path: Path) -> None:
    with pytest.raises(chakram.ChakramError, match=r"--set transport\.windw=1KiB"):
        chakram.simulate(INCAST, set={"transport.windw": "1KiB"}, runs=tmp_path)
    with pytest.raises(chakram.ChakramError, match="'moon'"):
        chakram.run(INCAST, world="moon", runs=tmp_path)
    with pytest.raises(chakram.ChakramError, match="experiment: 4 mistakes"):
        chakram.simulate({}, runs=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_run_in_virtual_time_is_a_simulation(tmp_path: Path) -> None:
    results = chakram.run(INCAST, world="simulate", set=SHORT, runs=tmp_path)
    assert results.manifest.world == "simulate"


class Ran:
    """Replaces the runner of experiments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.directory = directory
        self.worlds: list[str] = []
        self.fabrics: list[Any] = []
        self.threads: list[threading.Thread] = []
        self.cancelled = False
        self.waits = False
        monkeypatch.setattr(api.run_experiment, "run_experiment", self)

    async def __call__(self, request: Any) -> Any:
        self.worlds.append(request.experiment.fabric.kind)
        self.fabrics.append(request.experiment.fabric)
        self.threads.append(threading.current_thread())
        try:
            if self.waits:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return SimpleNamespace(error=None, directory=self.directory)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ran:
    path = chakram.simulate(INCAST, set=SHORT, runs=tmp_path).path
    return Ran(monkeypatch, path)


def test_wrong_arguments_of_readers_raise_our_errors(ran: Ran) -> None:
    with pytest.raises(InputError, match=r"no table 'zzz' \(choose from flows, "):
        chakram.open_run(ran.directory).table("zzz")
    for wrong in (0, "2"):
        with pytest.raises(ConfigError, match=f"bytes_per_element: is {wrong!r} "):
            chakram.load_trace_set("any", bytes_per_element=cast("Any", wrong))


def test_run_has_its_own_event_loop(ran: Ran) -> None:
    assert chakram.run(INCAST).path == ran.directory
    assert chakram.run(INCAST, world="run").path == ran.directory
    assert ran.worlds == ["namespaces"] * 2
    assert ran.threads == [threading.main_thread()] * 2


def test_other_fabric_type_keeps_common_keys(ran: Ran) -> None:
    read = chakram.load_experiment(INCAST)
    for experiment in (INCAST, yaml.safe_load(INCAST.read_text()), read):
        chakram.run(experiment, world="loopback")
    chakram.run(INCAST, world="loopback", set={"fabric.rate": "3Mbit"})
    chakram.run(INCAST, world="namespaces")
    assert ran.worlds == ["loopback"] * 4 + ["namespaces"]
    *moved, slower, same = ran.fabrics
    assert {each.rate_bps for each in moved} == {read.fabric.port_rate_bps}
    assert {each.mtu for each in moved} == {read.fabric.smallest_mtu}
    assert slower.rate_bps == 3_000_000
    assert same == read.fabric


def test_error_of_a_run_has_no_unrelated_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(request: Any) -> Any:
        raise RunFailed("run", "ended")

    monkeypatch.setattr(api.run_experiment, "run_experiment", fail)
    with pytest.raises(RunFailed) as caught:
        chakram.run(INCAST)
    assert caught.value.__context__ is None


def test_mistake_caused_by_another_fabric_type_names_the_argument() -> None:
    mapping = yaml.safe_load(INCAST.read_text())
    mapping["faults"] = {"links": [{"kind": "down", "link": "h0-leaf0", "at": "1ms"}]}
    mapping["fabric"] = yaml.safe_load(
        (REPO_ROOT / "configs/quickstart.yaml").read_text()
    )["fabric"]
    with pytest.raises(ConfigError) as caught:
        chakram.run(mapping, world="loopback")
    assert caught.value.where == "world='loopback': faults.links"
    assert caught.value.found == "fabric loopback has no links"
    given = {"kind": "loopback", "rate": "1Gbit"}
    with pytest.raises(ConfigError, match=r"^--set fabric=\{"):
        chakram.run(mapping, world="loopback", set={"fabric": given})


def test_run_inside_an_event_loop_uses_a_thread(ran: Ran) -> None:
    async def cell() -> chakram.Results:
        return chakram.run(INCAST)

    assert asyncio.run(cell()).path == ran.directory
    (thread,) = ran.threads
    assert thread is not threading.main_thread()
    assert not thread.is_alive()


def test_an_interrupted_cell_ends_its_run(
    ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran.waits = True

    class Interrupted(api.ThreadPoolExecutor):
        def submit(self, *args: Any, **named: Any) -> Any:
            future = super().submit(*args, **named)

            def result() -> None:
                while not ran.threads:
                    threading.Event().wait(0.001)
                raise KeyboardInterrupt

            future.result = result  # type: ignore[method-assign] # how waiting begins
            return future

    monkeypatch.setattr(api, "ThreadPoolExecutor", Interrupted)

    async def cell() -> None:
        chakram.run(INCAST)

    with pytest.raises(RunInterrupted, match="interrupted by SIGINT"):
        asyncio.run(cell())
    assert ran.cancelled

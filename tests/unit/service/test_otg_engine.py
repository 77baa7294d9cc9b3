"""The engine that clients of OTG drive, with runs that have no processes."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chakram.foundation.errors import ConfigError, ResultsError
from chakram.service import otg_engine, otg_runs
from chakram.service.otg_config import OtgProblem
from chakram.service.otg_engine import OtgEngine
from chakram.service.run_store import CANCELED, FAILED, RUNNING
from tests.unit.service.test_otg_config import config, options

pytestmark = pytest.mark.asyncio

FABRIC = {
    "kind": "namespaces",
    "topology": {"single_switch": {"hosts": 4}},
    "links": {"host": {"rate": "50Mbit"}},
}


@dataclass
class EndlessRuns:
    """A queue whose runs send until they are canceled."""

    runs: list[Any] = field(default_factory=list)
    is_silent: bool = False

    @property
    def store(self) -> Any:
        return self

    def reserve(self, *_: str) -> bool:
        return True

    async def start_now(self, submission: Any, *, holder: str, jobs: Any) -> Any:
        run = SimpleNamespace(
            id=str(len(self.runs)),
            owner=holder,
            fabric=submission.fabric,
            state=RUNNING,
            jobs=[job.name for job in submission.experiment.jobs],
            chosen=[jobs],
            reason="it broke",
        )
        self.runs.append(run)
        return run

    def choose(self, run_id: str, jobs: list[str]) -> int:
        self.find(run_id).chosen.append(jobs)
        return 7

    def find(self, run_id: str) -> Any:
        return self.runs[int(run_id)]

    def has_said(self, run_id: str, text: str, since: int) -> bool:
        said = f"jobs: {' '.join(self.find(run_id).chosen[-1])}"
        assert (text, since) in (("replaying", 0), (said, 7))
        return not self.is_silent

    def search(self, **_: Any) -> list[Any]:
        return [run for run in self.runs if run.state == RUNNING]

    def cancel(self, run: Any, _by: str) -> None:
        run.state = CANCELED

    def directory_of(self, _run_id: str) -> None:
        return None


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> EndlessRuns:
    monkeypatch.setattr(otg_runs, "_LOOK_S", 0.001)
    return EndlessRuns()


@pytest.fixture
def engine(queue: EndlessRuns, tmp_path: Path) -> OtgEngine:
    (tmp_path / "fabrics").mkdir()
    (tmp_path / "fabrics/lab.yaml").write_text(json.dumps(FABRIC))
    return OtgEngine(queue, tmp_path, "lab")  # type: ignore[arg-type] # a made queue


async def transmit(engine: OtgEngine, word: str, *names: str) -> None:
    asked = {"state": word, "flow_names": list(names)}
    await engine.control({"choice": "traffic", "traffic": {"flow_transmit": asked}})


async def states(engine: OtgEngine, kind: str) -> list[str]:
    """Return the names of the flows or ports that are started."""
    rows = (await engine.metrics({"choice": kind, kind: {}}))[f"{kind}_metrics"]
    return [row["name"] for row in rows if row["transmit"] == "started"]


@pytest.mark.parametrize(
    ("kind", "inner", "key", "known"),
    [
        ("rocev2_flow", "per_qp", "flow_names", "a"),
        ("flow", None, "flow_names", "a"),
        ("port", None, "port_names", "p2"),
        ("rocev2_ipv4", "per_peer", "peer_names", "peer3"),
    ],
)
async def test_metrics_are_of_known_names(
    engine: OtgEngine, kind: str, inner: str | None, key: str, known: str
) -> None:
    await engine.set_config(config(("a", 1, 0), ("b", 2, 0)))
    for name, is_known in ((known, True), ("other", False)):
        asked: dict[str, Any] = {key: [name]}
        request = {"choice": kind, kind: asked if inner is None else {inner: asked}}
        if is_known:
            answer = await engine.metrics(request)
            (row,) = answer[answer["choice"]]
            assert known in row.values()
            continue
        with pytest.raises(OtgProblem) as caught:
            await engine.metrics(request)
        place = ".".join(filter(None, (kind, inner, key)))
        assert caught.value.errors == [f"{place}: other is unknown"]
        assert caught.value.status == 400


async def test_peers_belong_to_the_ip_version_of_their_interface(
    engine: OtgEngine,
) -> None:
    await engine.set_config(config(("a", 1, 0)))
    for version, count in (("ipv4", 4), ("ipv6", 0)):
        answer = await engine.metrics({"choice": f"rocev2_{version}"})
        assert len(answer[answer["choice"]]) == count


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"alpha_g": 5000}, "alpha_g: 5000 is out of range"),
        ({"rate_increment_time": 0}, "rate_increment_time: increase_period is too"),
    ],
)
async def test_mistakes_in_settings_of_dcqcn_have_their_places(
    engine: OtgEngine, settings: dict[str, Any], words: str
) -> None:
    whole = config(("a", 1, 0)) | {"options": options({"dcqcn_settings": settings})}
    with pytest.raises(ConfigError) as caught:
        await engine.set_config(whole)
    place = "options.per_port_options[0].protocols[0].rocev2.dcqcn_settings."
    assert str(caught.value).startswith(place + words)


async def test_some_flows_run_and_others_do_not(
    engine: OtgEngine, queue: EndlessRuns
) -> None:
    await engine.set_config(config(("a", 1, 0), ("b", 2, 0), ("c", 3, 0)))
    assert await states(engine, "flow") == []
    await transmit(engine, "start", "a", "b")
    assert queue.runs[-1].jobs == ["f0", "f1", "f2"]
    assert queue.runs[-1].chosen == [["f0", "f1"]]
    assert await states(engine, "flow") == ["a", "b"]
    assert await states(engine, "port") == ["p0", "p1", "p2"]
    # They run already, or do not run.
    await transmit(engine, "start", "a")
    await transmit(engine, "stop", "c")
    assert await states(engine, "flow") == ["a", "b"]
    assert len(queue.runs[-1].chosen) == 1
    await transmit(engine, "start", "b", "c")
    assert await states(engine, "flow") == ["a", "b", "c"]
    assert await states(engine, "port") == ["p0", "p1", "p2", "p3"]
    await transmit(engine, "stop", "a", "b")
    assert await states(engine, "flow") == ["c"]
    assert await states(engine, "port") == ["p0", "p3"]
    await transmit(engine, "start", "a")
    chosen = [["f0", "f1"], ["f0", "f1", "f2"], ["f2"], ["f0", "f2"]]
    assert queue.runs[-1].chosen == chosen
    await transmit(engine, "stop", "a", "b", "c")
    assert await states(engine, "flow") == await states(engine, "port") == []
    await transmit(engine, "start")
    assert await states(engine, "flow") == ["a", "b", "c"]
    await transmit(engine, "stop")
    assert [run.state for run in queue.runs] == [CANCELED, CANCELED]


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_stop_of_some_flows_waits_for_their_counters(
    engine: OtgEngine,
    queue: EndlessRuns,
    monkeypatch: pytest.MonkeyPatch,
    arrives: bool,
) -> None:
    asked: list[dict[str, int]] = []

    def read(_run: Any, since_ns: dict[str, int]) -> Any:
        asked.append(since_ns)
        arrived = 9 if arrives and len(asked) > 2 else 8
        rows = [
            {"flow_name": f"f0/p2p/0.0/{ends}", **counts}
            for ends, counts in (
                ("0>1", {"message_tx": 9, "message_complete_rx": 0}),
                ("1>0", {"message_tx": 0, "message_complete_rx": arrived}),
            )
        ]
        return SimpleNamespace(to_pylist=lambda: rows)

    monkeypatch.setattr(otg_engine, "_SETTLE_S", 0.001)
    monkeypatch.setattr(otg_engine, "open_run", lambda _: None)
    results = SimpleNamespace(queue_pair_metrics=read)
    monkeypatch.setattr(otg_engine, "RunResults", results)
    monkeypatch.setattr(queue, "directory_of", str)
    await engine.set_config(config(("a", 1, 0), ("b", 2, 0)))
    await transmit(engine, "start")
    await transmit(engine, "stop", "a")
    assert len(asked) == (3 if arrives else otg_engine._SETTLE_LOOKS)
    assert asked[-1] == {}
    # A start clears the counters, but not those of flows that send already.
    began_ns = time.monotonic_ns()
    await transmit(engine, "start", "a", "b")
    await engine.metrics({"choice": "flow", "flow": {}})
    assert began_ns <= asked[-1].pop("f0") <= time.monotonic_ns()
    assert not asked[-1]
    await transmit(engine, "stop")
    await transmit(engine, "start")
    await engine.metrics({"choice": "flow", "flow": {}})
    assert asked[-1] == {}


async def test_a_run_that_fails_fails_the_change_of_its_flows(
    engine: OtgEngine, queue: EndlessRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.set_config(config(("a", 1, 0), ("b", 2, 0)))
    await transmit(engine, "start", "a")

    def fail(run_id: str, _jobs: list[str]) -> int:
        queue.runs[int(run_id)].state = FAILED
        return 0

    monkeypatch.setattr(queue, "choose", fail)
    with pytest.raises(ResultsError, match="could not be started or stopped: it broke"):
        await transmit(engine, "start", "b")
    assert await states(engine, "flow") == []


async def test_queue_pairs_of_flows_that_send_are_up(engine: OtgEngine) -> None:
    await engine.set_config(config(("a", 1, 0), ("b", 2, 0)))

    async def up() -> dict[str, int]:
        rows = (await engine.metrics({"choice": "rocev2_ipv4"}))[
            "rocev2_ipv4_per_peer_metrics"
        ]
        for row in rows:
            assert row["qp_up"] + row["qp_down"] == row["qp_configured"]
        return {row["name"]: row["qp_up"] for row in rows}

    assert set((await up()).values()) == {0}
    await transmit(engine, "start", "a")
    # Of the flow from p1 to p0, both ends.
    assert await up() == {"peer0": 1, "peer1": 1, "peer2": 0, "peer3": 0}
    await transmit(engine, "stop")
    assert set((await up()).values()) == {0}


async def test_a_start_that_was_given_up_leaves_no_run_beside_the_next(
    engine: OtgEngine, queue: EndlessRuns
) -> None:
    await engine.set_config(config(("a", 1, 0)))
    queue.is_silent = True
    start = asyncio.create_task(transmit(engine, "start"))
    async with asyncio.timeout(20):
        while not queue.runs:  # noqa: ASYNC110 - a made queue has no event for this
            await asyncio.sleep(0.001)
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    queue.is_silent = False
    await transmit(engine, "start")
    assert [run.state for run in queue.runs] == [CANCELED, RUNNING]
    assert await states(engine, "flow") == ["a"]


async def test_rates_of_ports_are_those_of_the_undilated_fabric(
    queue: EndlessRuns, tmp_path: Path
) -> None:
    (tmp_path / "fabrics").mkdir()
    (tmp_path / "fabrics/lab.yaml").write_text(json.dumps({**FABRIC, "dilation": 10}))
    engine = OtgEngine(queue, tmp_path, "lab")  # type: ignore[arg-type] # a made queue
    engine.ports()
    assert set(engine.rates_bps.values()) == {50_000_000}

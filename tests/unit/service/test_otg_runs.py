"""Stages run one after another, and a stage that fails ends them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from chakram.foundation.errors import ResultsError
from chakram.service import otg_runs
from chakram.service.otg_collectives import CollectivePlan, Communicator, Stage
from chakram.service.otg_runs import StageSequence
from chakram.service.run_store import CANCELED, DONE, FAILED, RUNNING
from tests.unit.service.test_otg_collectives import made_rank

pytestmark = pytest.mark.asyncio


@dataclass
class ScriptedQueue:
    """A queue whose runs end as a test wants.

    Attributes:
        ends: State at which each run ends, in order; None: only when it is canceled.
        runs: The runs so far.
        removed: IDs of the runs whose folders are gone.
        silent: IDs of the runs that never send.
    """

    ends: list[str | None]
    runs: list[Any] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)

    @property
    def store(self) -> Any:
        return self

    async def start_now(self, submission: Any, *, holder: str, jobs: Any) -> Any:
        assert jobs == ()
        run = SimpleNamespace(
            id=str(len(self.runs)),
            owner=holder,
            fabric="lab",
            state=RUNNING,
            reason="it broke",
            submission=submission,
            looks=0,
        )
        self.runs.append(run)
        return run

    def find(self, run_id: str) -> Any:
        run = self.runs[int(run_id)]
        run.looks += 1
        end = self.ends[int(run_id)]
        if run.looks > 3 and end is not None and run.state == RUNNING:
            run.state = end
        return run

    def has_said(self, run_id: str, _text: str, _since: int) -> bool:
        return run_id not in self.silent

    def search(self, **_: Any) -> list[Any]:
        return [run for run in self.runs if run.state == RUNNING]

    def cancel(self, run: Any, _by: str) -> None:
        run.state = CANCELED

    def directory_of(self, run_id: str) -> str | None:
        return None if run_id in self.removed else run_id


def sequence(queue: ScriptedQueue, *stages: Stage) -> StageSequence:
    plan = CollectivePlan(
        stages=list(stages), order=[(number, 1) for number in range(len(stages))]
    )
    names: Any = [stage.name for stage in stages]
    return StageSequence(queue, "lab", "otg", plan, names, {})  # type: ignore[arg-type] # a made queue


async def ended(stages: StageSequence) -> None:
    async with asyncio.timeout(20):
        while stages.is_running:  # noqa: ASYNC110 - a sequence has no event for this
            await asyncio.sleep(0.01)


def made_results(directory: str) -> Any:
    """Return a run, dilated by 10, with an iteration of the duration of its number."""
    took_ns = 10 * (int(directory) + 1)

    def ranks(*, whole: bool) -> Any:
        assert whole
        return [made_rank(0, 0, start_ns=0, end_ns=took_ns)]

    return SimpleNamespace(manifest=SimpleNamespace(dilation=10), ranks=ranks)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otg_runs, "_LOOK_S", 0.001)
    monkeypatch.setattr(otg_runs, "open_run", made_results)


async def test_stages_run_in_order_and_a_timed_one_is_stopped() -> None:
    queue = ScriptedQueue([DONE, None, DONE])
    timed = Stage(name="b", seconds=1)
    stages = sequence(queue, Stage(name="a"), timed, Stage(name="c"))
    await stages.start()
    await ended(stages)
    assert [run.submission for run in queue.runs] == ["a", "b", "c"]
    assert [run.state for run in queue.runs] == [DONE, CANCELED, DONE]
    rows = stages.metrics([], [])
    assert [row["stage_name"] for row in rows] == ["a", "b", "c"]
    assert [row["jct"] for row in rows] == pytest.approx([1e-9, 2e-9, 3e-9])


async def test_times_of_stages_outlive_their_runs() -> None:
    queue = ScriptedQueue([DONE, DONE])
    stages = sequence(queue, Stage(name="a"), Stage(name="b"))
    await stages.start()
    await ended(stages)
    queue.removed = {"0", "1"}  # beyond the number of runs to keep
    assert [row["iteration_count"] for row in stages.metrics([], [])] == [1, 1]


@pytest.mark.parametrize("seconds", [0, 3600])
async def test_a_stage_that_fails_ends_the_sequence(seconds: int) -> None:
    queue = ScriptedQueue([FAILED, DONE])
    stages = sequence(queue, Stage(name="a", seconds=seconds), Stage(name="b"))
    await stages.start()
    await ended(stages)
    assert len(queue.runs) == 1
    with pytest.raises(ResultsError, match="stage a: did not succeed: it broke"):
        stages.metrics([], [])


async def test_stopping_ends_the_stage_in_progress_and_starts_no_other() -> None:
    queue = ScriptedQueue([None, DONE])
    stages = sequence(queue, Stage(name="a"), Stage(name="b"))
    await stages.start()
    await stages.start()  # nothing more: it is running
    await stages.stop()
    assert [run.state for run in queue.runs] == [CANCELED]
    assert not stages.is_running


async def test_ports_of_the_stage_in_progress_are_known() -> None:
    of = Communicator(
        name="dp", job="c0", locations=("h0", "h1"), op="all_reduce",
        algorithm="ring", size_bytes=1, gap_ms=0,
    )  # fmt: skip
    for stage, ports in (
        (Stage(name="a", communicators=[of]), {"h0", "h1"}),
        (Stage(name="a", experiment="moe"), {"h0", "h1", "h2"}),
    ):
        stages = sequence(ScriptedQueue([None]), stage)
        stages.rates_bps = dict.fromkeys(("h0", "h1", "h2"))
        assert stages.ports == set()
        await stages.start()
        assert stages.ports == ports
        await stages.stop()
        assert stages.ports == set()


async def test_a_stage_that_does_not_start_is_ended_by_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(otg_runs, "_START_S", 0.05)
    queue = ScriptedQueue([None, DONE], silent={"0"})
    stages = sequence(queue, Stage(name="a"))
    with pytest.raises(ResultsError, match="did not start"):
        await stages.start()
    await stages.start()
    await ended(stages)
    assert [run.state for run in queue.runs] == [CANCELED, DONE]

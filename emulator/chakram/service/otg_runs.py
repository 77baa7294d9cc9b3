"""Runs that an OTG client starts: one for its flows, or one per stage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from chakram.foundation.errors import ChakramError, ResultsError
from chakram.records.run_records import CollectiveRecord
from chakram.run_directory.reader import open_run
from chakram.service.job_queue import JobQueue
from chakram.service.otg_collectives import (
    CollectivePlan,
    Stage,
    Times,
    iteration_times,
)
from chakram.service.run_store import DONE, ENDED, RUNNING, StoredRun
from chakram.service.submissions import Submission

_START_S = 90.0
_STOP_S = 60.0
_LOOK_S = 0.05
_SENDING = "replaying"


async def start_run(
    queue: JobQueue, submission: Submission, holder: str, jobs: Collection[str] = ()
) -> StoredRun:
    """Start a run, and return it once it sends or has ended without an error.

    If *jobs* is not empty, only these jobs send until the next call of ``choose_jobs``.

    Raises:
        ResultsError: If the run cannot be started.
    """
    # A run must not remain half started if the client disconnects.
    run = await asyncio.shield(queue.start_now(submission, holder=holder, jobs=jobs))
    return await _until_said(queue, run.id, _SENDING)


async def choose_jobs(queue: JobQueue, run_id: str, jobs: Collection[str]) -> None:
    """Let only *jobs* of a run send, and return once all other jobs have stopped.

    Raises:
        ResultsError: If the run fails, or takes too long.
    """
    since = queue.choose(run_id, jobs)
    await _until_said(queue, run_id, f"jobs: {' '.join(jobs)}", since)


async def _until_said(
    queue: JobQueue, run_id: str, text: str, since: int = 0
) -> StoredRun:
    limit_s = time.monotonic() + _START_S
    while time.monotonic() < limit_s:
        found = queue.store.find(run_id)
        if found is None or (found.state in ENDED and found.state != DONE):
            reason = "is gone" if found is None else found.reason or found.state
            raise ResultsError("flows", f"could not be started or stopped: {reason}")
        if found.state == DONE or queue.has_said(run_id, text, since):
            return found
        await asyncio.sleep(_LOOK_S)
    raise ResultsError("flows", f"did not start or stop within {_START_S:.0f} s")


async def stop_runs(queue: JobQueue, fabric: str, holder: str) -> None:
    """End the runs on a fabric that a holder has reserved, and wait until they end.

    Raises:
        ResultsError: If a run does not end.
    """
    for run in queue.store.search(owner=holder, states=(RUNNING,), limit=-1):
        if run.fabric == fabric:
            queue.cancel(run, holder)
            if await _ended(queue, run.id, _STOP_S) is None:
                raise ResultsError("flows", f"did not stop within {_STOP_S:.0f} s")


async def _ended(
    queue: JobQueue, run_id: str, limit_s: float | None
) -> StoredRun | None:
    """Return a run once it has ended, or None if it does not end in time."""
    began_s = time.monotonic()
    while limit_s is None or time.monotonic() - began_s < limit_s:
        run = queue.store.find(run_id)
        if run is None:
            raise ResultsError("run", "is gone")
        if run.state in ENDED:
            return run
        await asyncio.sleep(_LOOK_S)
    return None


@dataclass(slots=True, eq=False)
class StageSequence:
    """The stages of a configuration, one run after another.

    Attributes:
        queue: The queue of the service.
        fabric: Name of the fabric that the runs lock.
        holder: Client that reserved the fabric.
        plan: Plan of the stages.
        submissions: Experiment of each stage.
        rates_bps: Undilated rate of each port of the fabric, if known.
    """

    queue: JobQueue
    fabric: str
    holder: str
    plan: CollectivePlan
    submissions: Sequence[Submission]
    rates_bps: Mapping[str, int | None]
    # Stage, pass over the stages, and ID of each run.
    _runs: list[tuple[int, int, str]] = field(default_factory=list)
    # Times of runs that have ended. The service may remove these runs.
    _known: dict[str, Mapping[str, Times]] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None
    _started: asyncio.Event = field(default_factory=asyncio.Event)
    _failure: ChakramError | None = None

    @property
    def is_running(self) -> bool:
        """Whether stages are in progress."""
        return self._task is not None and not self._task.done()

    @property
    def ports(self) -> frozenset[str]:
        """Ports of the stage in progress. A stage with an experiment uses all ports."""
        if not (self.is_running and self._runs):
            return frozenset()
        stage = self.plan.stages[self._runs[-1][0]]
        if not stage.communicators:
            return frozenset(self.rates_bps)
        return frozenset(
            port for each in stage.communicators for port in each.locations
        )

    async def start(self) -> None:
        """Start the first stage, and return once it sends. Stages in progress continue.

        Raises:
            ResultsError: If the run cannot be started.
        """
        if self.is_running:
            return
        # A stage that took too long to start may have left a run.
        await stop_runs(self.queue, self.fabric, self.holder)
        self._runs, self._known, self._failure = [], {}, None
        self._started.clear()
        self._task = asyncio.create_task(self._run(), name="stages")
        await self._started.wait()
        self._check()
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """End the stage in progress, and start no further stage."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await stop_runs(self.queue, self.fabric, self.holder)

    def metrics(
        self,
        communicators: Collection[str],
        stages: Collection[str],
        *,
        with_loops: bool = False,
    ) -> list[dict[str, Any]]:
        """Return the metrics of each communicator of each stage that has begun.

        Args:
            communicators: Names of communicators, or empty for all.
            stages: Names of stages, or empty for all.
            with_loops: Whether to add the metrics of each pass over the stages.

        Raises:
            ResultsError: If a stage has failed.
        """
        self._check()
        rows = []
        for number, stage in enumerate(self.plan.stages):
            if stages and stage.name not in stages:
                continue
            loops = [
                (loop, self._times(stage, run_id))
                for of, loop, run_id in self._runs
                if of == number
            ]
            for name in dict.fromkeys(name for _, found in loops for name in found):
                if communicators and name not in communicators:
                    continue
                row = {
                    "communicator_name": name,
                    "stage_index": number,
                    "stage_name": stage.name,
                    **self._row(stage, name, [found for _, found in loops]),
                }
                if with_loops and len(loops) > 1:
                    row["loop_metrics"] = [
                        {"stage_loop": loop, **self._row(stage, name, [found])}
                        for loop, found in loops
                    ]
                rows.append(row)
        return rows

    def _row(
        self, stage: Stage, name: str, loops: Sequence[Mapping[str, Times]]
    ) -> dict[str, Any]:
        times = [found[name] for found in loops if name in found]
        durations_ns = [each for part in times for each in part.durations_ns]
        whole = Times(durations_ns, times[0].gap_ns if times else 0)
        of = next((each for each in stage.communicators if each.name == name), None)
        rates = [self.rates_bps.get(port) for port in of.locations] if of else []
        known = [rate for rate in rates if rate is not None]
        slowest = min(known) if known and len(known) == len(rates) else None
        return dict(whole.metrics(of, slowest))

    def _times(self, stage: Stage, run_id: str) -> Mapping[str, Times]:
        """Return the times of a run, by communicator or by job of an experiment."""
        if run_id in self._known:
            return self._known[run_id]
        directory = self.queue.directory_of(run_id)
        records: list[CollectiveRecord] = []
        dilation = 1
        if directory is not None:
            # The directory is not a run directory until its first file is written.
            with suppress(ChakramError):
                results = open_run(directory)
                dilation = results.manifest.dilation
                if not stage.communicators:
                    return iteration_times(results.ranks(whole=True), dilation)
                records = results.collectives()
        return {
            each.name: each.times(records, dilation) for each in stage.communicators
        }

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _run(self) -> None:
        try:
            for number, loop in self.plan.order:
                await self._stage(number, loop)
        except ChakramError as error:
            self._failure = error
        finally:
            self._started.set()

    async def _stage(self, number: int, loop: int) -> None:
        stage = self.plan.stages[number]
        run = await start_run(self.queue, self.submissions[number], self.holder)
        self._runs.append((number, loop, run.id))
        self._started.set()
        ended = await _ended(self.queue, run.id, stage.seconds or None)
        if ended is None:
            await stop_runs(self.queue, self.fabric, self.holder)
        self._known[run.id] = await asyncio.to_thread(self._times, stage, run.id)
        if ended is not None and ended.state != DONE:
            why = ended.reason or ended.state
            raise ResultsError(f"stage {stage.name}", f"did not succeed: {why}")

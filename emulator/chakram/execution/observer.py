"""Passes on what happens in a run: to files, to metrics and to a person."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from typing import TYPE_CHECKING, Protocol

import numpy as np

from chakram.execution.state import Phase
from chakram.records.counter_slots import fault_slot, slot
from chakram.records.row_layout import FLOW_FIELDS, RecordRows
from chakram.summary.collectives_in_flight import UnderWay
from chakram.summary.generator_health import GeneratorHealth, ShardHealth, agent_health
from chakram.summary.interval_lines import AgentSample, agent_sample

if TYPE_CHECKING:
    from chakram.control.events import CountersSnapshot
    from chakram.metrics.live_rows import LiveRows
    from chakram.metrics.state import MetricsState
    from chakram.records.run_records import CollectiveIdentity
    from chakram.run_directory.writer import RunDirectory


log = logging.getLogger(__name__)

_FLUSH_NS = 2 * 10**9
_SHARD_HEALTH = tuple(each.name for each in fields(ShardHealth))


class Progress(Protocol):
    """Who tells a person how far a run is."""

    def phase(self, text: str) -> None:
        """A phase has begun."""

    def iterations(self, done: int, total: int, unit: str = "iteration") -> None:
        """So many iterations, or other *unit*, are done."""

    def sample(
        self,
        agent: str,
        sample: AgentSample,
        *,
        done: int,
        total: int,
        work: UnderWay | None = None,
    ) -> None:
        """An agent has sent its counters, after so many iterations of all ranks."""

    def note(self, text: str) -> None:
        """Something to read."""


class Silent:
    """Tells nobody how far a run is."""

    def phase(self, text: str) -> None:
        """See ``Progress``."""

    def iterations(self, done: int, total: int, unit: str = "iteration") -> None:
        """See ``Progress``."""

    def sample(
        self,
        agent: str,
        sample: AgentSample,
        *,
        done: int,
        total: int,
        work: UnderWay | None = None,
    ) -> None:
        """See ``Progress``."""

    def note(self, text: str) -> None:
        """See ``Progress``."""


class Observer:
    """Told by a session what happens (``chakram.execution.session.RunObserver``).

    Records are taken in by a thread of their own, in the order in which they come, the
    samples for live pages too: all that takes longer than an agent waits for a
    heartbeat.

    Args:
        directory: Where records go.
        metrics: Where counters go.
        progress: Who is told.
        total: Iterations of the whole run.
        live: Where samples of queue pairs and ports go as well; None: nowhere.

    Attributes:
        began: Whether traffic has started.
        banners: What agents said that belongs on top of the results.
    """

    def __init__(
        self,
        directory: RunDirectory,
        metrics: MetricsState,
        progress: Progress,
        total: int,
        live: LiveRows | None = None,
    ) -> None:
        self.began = False
        self.banners: list[str] = []
        self._counters: dict[str, Sequence[int]] = {}
        self._shards: dict[str, dict[int, ShardHealth]] = {}
        self._directory = directory
        self._metrics = metrics
        self._progress = progress
        self._total = total
        self._iterations = 0
        self._work: UnderWay | None = None
        self._live = live
        self._flushed_ns = time.monotonic_ns()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="records")
        self._failed: Future[None] | None = None
        self._closed = False

    def begin(
        self,
        identities: Sequence[CollectiveIdentity],
        iterations: Mapping[str, int],
    ) -> None:
        """The plan is known: what an iteration does, by job how many there are."""
        self._work = UnderWay(identities, iterations)

    def phase_changed(self, phase: Phase) -> None:
        """The run has entered a phase."""
        log.info("phase changed phase=%s", phase.name)
        if phase is Phase.RUNNING:
            self.began = True
            self._metrics.set_state("running")
            self._metrics.set_start_time(time.time())
            self._progress.phase("replaying")
            self._progress.iterations(0, self._total)

    def iterations_done(self, iterations: int) -> None:
        """All ranks have done so many iterations."""
        self._iterations = iterations
        self._progress.iterations(iterations, self._total)

    def rows_arrived(self, rows: RecordRows) -> None:
        """An agent has sent records.

        Raises:
            ChakramError: Why earlier ones could not be taken.
        """
        if self._failed is not None:
            self._failed.result()
        self._submit(self._take, rows)

    def close(self) -> None:
        """Return when all records are taken; blocks, and may be called again.

        Raises:
            ChakramError: Why some could not be taken.
        """
        if not self._closed:
            self._closed = True
            self._submit(self._directory.flush)
        self._writer.shutdown()
        if self._failed is not None:
            self._failed.result()

    def counters_arrived(self, agent: str, snapshot: CountersSnapshot) -> None:
        """An agent has sent its counters."""
        self._metrics.set_counters(agent, snapshot.values)
        if self.began:
            busy_ns = {load.shard: load.busy_ns for load in snapshot.loads}
            sample = agent_sample(snapshot.values, busy_ns)
            self._progress.sample(
                agent,
                sample,
                done=self._iterations,
                total=self._total,
                work=self._work,
            )
        if snapshot.loads:
            self._metrics.set_loads(agent, snapshot.loads)
        self._counters[agent] = snapshot.values
        # A process that has ended is told of no more: its last words count.
        self._shards.setdefault(agent, {}).update(
            (
                load.shard,
                ShardHealth(**{name: getattr(load, name) for name in _SHARD_HEALTH}),
            )
            for load in snapshot.loads
        )

    def counted(self, slots: Mapping[str, str]) -> dict[str, int]:
        """Return by name what all agents have counted, where they counted anything.

        Args:
            slots: By name, the counter.
        """
        totals = {
            name: sum(values[slot(own)] for values in self._counters.values())
            for name, own in slots.items()
        }
        return {name: total for name, total in totals.items() if total}

    def generator(self) -> dict[str, GeneratorHealth]:
        """Return by agent how it has kept up."""
        return {
            agent: agent_health(values, self._shards[agent].values())
            for agent, values in sorted(self._counters.items())
        }

    def disturbed(self, faults: int) -> list[int]:
        """Return how many packets each of so many faults has disturbed."""
        return [
            sum(counters[fault_slot(index)] for counters in self._counters.values())
            for index in range(faults)
        ]

    def agent_lost(self, agent: str) -> None:
        """The connection to an agent is gone."""
        self._metrics.set_agent_up(agent, False)

    def agent_said(self, agent: str, level: str, text: str) -> None:
        """An agent has something for people to read."""
        if level == "warning":
            self.banners.append(f"agent {agent}: {text}")
        self._progress.note(f"agent {agent}: {text}")

    def _take(self, rows: RecordRows) -> None:
        if self._live is not None:
            self._live.take(rows)
            flows = np.array(rows.flows, np.int64).reshape(-1, len(FLOW_FIELDS))
            columns = dict(zip(FLOW_FIELDS, flows.T, strict=True))
            self._metrics.add_messages(columns)
        new = self._directory.add(rows)
        self._metrics.add_collectives(new.collectives)
        self._metrics.add_ranks(new.ranks)
        if self._work is not None:
            self._work.take(new.collectives)
        now_ns = time.monotonic_ns()
        if now_ns - self._flushed_ns > _FLUSH_NS:
            self._directory.flush()
            self._flushed_ns = now_ns

    def _submit(self, function: Callable[..., None], *args: RecordRows) -> None:
        self._writer.submit(function, *args).add_done_callback(self._note_failure)

    def _note_failure(self, future: Future[None]) -> None:
        if future.exception() is not None and self._failed is None:
            self._failed = future

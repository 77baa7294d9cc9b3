"""Forwarding of a run's events to its files, metrics and a progress display."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from chakram.control.events import CountersSnapshot, HostCounters, NicCounters
from chakram.execution.session import RunObserver
from chakram.execution.state import Phase
from chakram.metrics.live_samples_json import LiveRows
from chakram.metrics.state import MetricsState
from chakram.records.counter_slots import (
    FCT_BUCKETS,
    distribution_slot,
    fault_slot,
    slot,
)
from chakram.records.row_layout import FLOW_FIELDS, RecordRows
from chakram.records.run_records import CollectiveIdentity
from chakram.summary.collectives_in_flight import CollectivesInFlight
from chakram.summary.generator_health import (
    GeneratorHealth,
    ShardHealth,
    agent_health,
    median_ns,
)
from chakram.summary.interval_lines import AgentSample, agent_sample

if TYPE_CHECKING:
    from chakram.run_directory.writer import RunDirectory


log = logging.getLogger(__name__)

_FLUSH_NS = 2 * 10**9
_SHARD_HEALTH = tuple(each.name for each in fields(ShardHealth))


class Progress(Protocol):
    """Interface for progress displays."""

    def phase(self, text: str) -> None:
        """Report that a phase has begun."""

    def iterations(self, done: int, total: int, unit: str = "iteration") -> None:
        """Report the number of finished iterations, or of another *unit*."""

    def sample(
        self,
        agent: str,
        sample: AgentSample,
        *,
        done: int,
        total: int,
        work: CollectivesInFlight | None = None,
    ) -> None:
        """Report the counters of an agent after *done* of *total* iterations."""

    def expect(self, duration_ns: int) -> None:
        """Receive the expected duration of all iterations of a run, 0 if unknown."""

    def note(self, text: str) -> None:
        """Show a message to the user."""


class Silent:
    """A progress display that shows nothing."""

    def phase(self, text: str) -> None:
        """See ``Progress``."""

    def iterations(self, done: int, total: int, unit: str = "iteration") -> None:
        """See ``Progress``."""

    def sample(self, *_: object, **__: object) -> None:
        """See ``Progress``."""

    def expect(self, duration_ns: int) -> None:
        """See ``Progress``."""

    def note(self, text: str) -> None:
        """See ``Progress``."""


@dataclass(slots=True, eq=False)
class Observer(RunObserver):
    """Handler of the events of a session.

    A separate thread processes records and live samples in order of arrival. In the
    event loop, this processing would delay heartbeats until agents give up.

    Attributes:
        directory: Destination of records.
        metrics: Destination of counters.
        progress: The progress display.
        total: Number of iterations of the whole run.
        live: Additional destination of samples of queue pairs and ports, if any.
        began: Whether traffic has started.
        banners: Warnings of agents, to print above the results.
        nics: RDMA NICs by the number of the port.
        hosts: Counters of the hosts by agent.
    """

    directory: RunDirectory
    metrics: MetricsState
    progress: Progress
    total: int
    live: LiveRows | None = None
    began: bool = False
    banners: list[str] = field(default_factory=list)
    nics: dict[int, NicCounters] = field(default_factory=dict)
    hosts: dict[str, dict[str, int]] = field(default_factory=dict)
    _counters: dict[str, Sequence[int]] = field(default_factory=dict)
    _shards: dict[str, dict[int, ShardHealth]] = field(default_factory=dict)
    _iterations: int = 0
    _work: CollectivesInFlight | None = None
    _flushed_ns: int = field(default_factory=time.monotonic_ns)
    _writer: ThreadPoolExecutor = field(
        default_factory=partial(ThreadPoolExecutor, 1, "records")
    )
    _failed: Future[None] | None = None
    _closed: bool = False

    def begin(
        self,
        identities: Sequence[CollectiveIdentity],
        iterations: Mapping[str, int],
    ) -> None:
        """Receive the collectives of an iteration, and the iteration count by job."""
        self._work = CollectivesInFlight(identities, iterations)

    def phase_changed(self, phase: Phase) -> None:
        """Handle a phase change of the run."""
        log.info("phase changed phase=%s", phase.name)
        if phase is Phase.RUNNING:
            self.began = True
            self.metrics.set_state("running")
            self.metrics.set_start_time(time.time())
            self.progress.phase("replaying")
            self.progress.iterations(0, self.total)

    def iterations_done(self, iterations: int) -> None:
        """Handle the end of an iteration of all ranks."""
        self._iterations = iterations
        self.progress.iterations(iterations, self.total)

    def rows_arrived(self, rows: RecordRows) -> None:
        """Queue records of an agent for processing.

        Raises:
            ChakramError: If earlier records could not be processed.
        """
        if self._failed is not None:
            self._failed.result()
        self._submit(self._take, rows)

    def close(self) -> None:
        """Wait until all records are processed. A second call has no effect.

        Raises:
            ChakramError: If records could not be processed.
        """
        if not self._closed:
            self._closed = True
            self._submit(self.directory.flush)
        self._writer.shutdown()
        if self._failed is not None:
            self._failed.result()

    def counters_arrived(self, agent: str, snapshot: CountersSnapshot) -> None:
        """Handle counters of an agent."""
        self.metrics.set_counters(agent, snapshot.values)
        if self.began:
            busy_ns = {load.shard: load.busy_ns for load in snapshot.loads}
            sample = agent_sample(snapshot.values, busy_ns)
            if self.nics:
                sample = replace(sample, retransmitted=None, marked=None)
            self.progress.sample(
                agent,
                sample,
                done=self._iterations,
                total=self.total,
                work=self._work,
            )
        if snapshot.loads:
            self.metrics.set_loads(agent, snapshot.loads)
        self._counters[agent] = snapshot.values
        # A data-plane process that has ended sends no more counters, so keep the last
        # values.
        self._shards.setdefault(agent, {}).update(
            (
                load.shard,
                ShardHealth(**{name: getattr(load, name) for name in _SHARD_HEALTH}),
            )
            for load in snapshot.loads
        )

    def counted(self, slots: Mapping[str, str]) -> dict[str, int]:
        """Return the nonzero sums of counters over all agents, by name.

        Args:
            slots: Counters by name.
        """
        totals = {
            name: sum(values[slot(own)] for values in self._counters.values())
            for name, own in slots.items()
        }
        return {name: total for name, total in totals.items() if total}

    def generator(self) -> dict[str, GeneratorHealth]:
        """Return the health of the traffic generator, by agent."""
        return {
            agent: agent_health(values, self._shards[agent].values())
            for agent, values in sorted(self._counters.items())
        }

    def round_trips_ns(self) -> dict[str, float]:
        """Return the median round-trip time of each agent that measured any."""
        first = distribution_slot("round_trip")
        found = {
            agent: median_ns(values[first : first + FCT_BUCKETS])
            for agent, values in self._counters.items()
        }
        return {agent: time_ns for agent, time_ns in found.items() if time_ns}

    def disturbed(self, faults: int) -> list[int]:
        """Return the number of packets that each of *faults* faults has disturbed."""
        return [
            sum(counters[fault_slot(index)] for counters in self._counters.values())
            for index in range(faults)
        ]

    def agent_lost(self, agent: str) -> None:
        """Handle the loss of the connection to an agent."""
        self.metrics.set_agent_up(agent, False)

    def records_missing(self, agent: str, reason: str) -> None:
        """Show a warning that an agent's last records are missing, also as a banner."""
        text = f"its last records are missing: {reason}"
        self.agent_said(agent, "warning", text)

    def agent_said(self, agent: str, level: str, text: str) -> None:
        """Show a message of an agent, and keep it as a banner if it is a warning."""
        if level == "warning":
            self.banners.append(f"agent {agent}: {text}")
        self.progress.note(f"agent {agent}: {text}")

    def nic_counted(self, nic: NicCounters) -> None:
        """Keep the settings and the last counters of an RDMA NIC."""
        self.nics[nic.port] = nic
        self.metrics.set_nic(nic.port, dict(nic.counts))

    def host_counted(self, agent: str, host: HostCounters) -> None:
        """Keep the counters of an agent's host."""
        self.hosts[agent] = dict(host.counts)

    def jobs_chosen(self, jobs: Sequence[str]) -> None:
        """Write all records so far, and then show which jobs continue."""
        self._submit(self.directory.flush)
        self._submit(self.progress.note, f"jobs: {' '.join(jobs)}")

    def _take(self, rows: RecordRows) -> None:
        if self.live is not None:
            self.live.take(rows)
            flows = np.array(rows.flows, np.int64).reshape(-1, len(FLOW_FIELDS))
            columns = dict(zip(FLOW_FIELDS, flows.T, strict=True))
            self.metrics.add_messages(columns)
        new = self.directory.add(rows)
        self.metrics.add_collectives(new.collectives)
        self.metrics.add_ranks(new.ranks)
        if self._work is not None:
            self._work.take(new.collectives)
        now_ns = time.monotonic_ns()
        if now_ns - self._flushed_ns > _FLUSH_NS:
            self.directory.flush()
            self._flushed_ns = now_ns

    def _submit(self, function: Callable[..., None], *args: RecordRows | str) -> None:
        self._writer.submit(function, *args).add_done_callback(self._note_failure)

    def _note_failure(self, future: Future[None]) -> None:
        if future.exception() is not None and self._failed is None:
            self._failed = future

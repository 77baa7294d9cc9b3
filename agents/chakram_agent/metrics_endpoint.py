"""The agent's own metrics endpoint, for agents whose controller serves no metrics.

The metrics have few labels. The endpoint also serves the counters of each queue pair
and port in the last run, at ``/queue-pairs`` and ``/ports`` (see
``chakram.metrics.live_samples_json``).

The agent updates the values once a second. A separate thread answers scrapes from a
copy of the values, so a scrape neither waits for the agent nor delays it.
"""

from __future__ import annotations

import platform
import socket
from collections.abc import Sequence

import chakram
from chakram._compiled import status as compiled_status
from chakram.control.events import CountersSnapshot
from chakram.metrics.exporter import MetricsServer, open_listener
from chakram.metrics.live_samples_json import LiveRows
from chakram.metrics.state import MetricsState, Snapshot
from chakram.plan.plan import AgentPlan
from chakram.records.row_layout import RecordRows

_OF_RUNS = ("chakram_run_", "chakram_generator_bound")
"""Prefixes of metrics that only a controller can provide."""


class AgentMetrics(MetricsState):
    """The metrics of one agent.

    Args:
        listen: Address of the endpoint, as ``host:port``.

    Raises:
        ConfigError: If *listen* is not a valid address.
        EnvironmentProblem: If the endpoint cannot listen at the address.

    Attributes:
        server: HTTP server that answers scrapes.
    """

    def __init__(self, listen: str) -> None:
        super().__init__(
            "",
            build={
                "version": chakram.__version__,
                "compiled": str(compiled_status().is_compiled()).lower(),
                "python": platform.python_version(),
            },
        )
        self._agent = socket.gethostname()
        self._is_running = False
        self._rows = LiveRows()
        self.server = MetricsServer(
            self,
            open_listener(listen),
            self._rows.pages(),
            lambda: self._rows.show(self),
        )

    def begin(self, plan: AgentPlan) -> None:
        """Start counting for the queue pairs and ports of *plan*."""
        self._rows.begin([plan])
        self.set_nics(plan.ports)
        self.set_loads(self._agent, ())  # clear the shards of an earlier run

    def update(
        self,
        counters: CountersSnapshot,
        rows: RecordRows | None = None,
        *,
        totals: Sequence[int] | None = None,
    ) -> None:
        """Update the counters and, if *rows* is given, queue pairs and ports.

        Args:
            counters: Counters of the current or last run. If they contain no shard
                loads, no run is in progress, and nothing is sent or in flight.
            rows: Counters of queue pairs and ports.
            totals: Sums of the counters over all runs. If None, *counters* are used.
        """
        self._is_running = bool(counters.loads)
        if rows is not None:
            self._rows.take(rows)
        self.set_agent_up(self._agent, True)
        values = counters.values
        self.set_counters(
            self._agent,
            values if totals is None else totals,
            of_run=values if self._is_running else [0] * len(values),
        )
        self.set_loads(self._agent, counters.loads)

    def set_queue_pair_rates(self, bytes_per_second: Sequence[float]) -> None:
        """Set the send rates of queue pairs, which are 0 between runs."""
        idle = [0.0] * bool(bytes_per_second)
        super().set_queue_pair_rates(bytes_per_second if self._is_running else idle)

    def snapshot(self) -> Snapshot:
        """Return a copy of the metrics that an agent can provide."""
        everything = super().snapshot()
        return Snapshot(
            {
                name: values
                for name, values in everything.values.items()
                if not name.startswith(_OF_RUNS)
            },
            everything.histograms,
        )

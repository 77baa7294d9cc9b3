"""The agent's own metrics endpoint, for agents that nobody's controller serves.

Beside the metrics, whose labels are few, it serves ``/queue-pairs`` and ``/ports``: the
counters of each of them in the last run (``chakram.metrics.live_rows``).

The numbers are those that the controller gets, once a second; a scrape reads a copy in
a thread of its own and never waits for, or holds up, anything.
"""

from __future__ import annotations

import platform
import socket
from typing import TYPE_CHECKING

import chakram
from chakram._compiled import status as compiled_status
from chakram.metrics.exporter import MetricsServer, open_listener
from chakram.metrics.live_rows import LiveRows
from chakram.metrics.state import MetricsState, Snapshot

if TYPE_CHECKING:
    from chakram.control.events import CountersSnapshot
    from chakram.plan.plan import AgentPlan
    from chakram.records.row_layout import RecordRows


_OF_RUNS = ("chakram_run_", "chakram_generator_bound")
"""What only a controller knows."""


class AgentMetrics(MetricsState):
    """The numbers of one agent.

    Args:
        listen: Where to serve them: ``host:port``.

    Raises:
        ConfigError: If that is no address.
        EnvironmentProblem: If it cannot be served there.
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
        self._rows = LiveRows()
        self._server = MetricsServer(
            self,
            open_listener(listen),
            self._rows.pages(),
            lambda: self._rows.show(self),
        )

    @property
    def url(self) -> str:
        """Where the metrics are."""
        return self._server.url

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.close()

    def begin(self, plan: AgentPlan) -> None:
        """Note whose queue pairs and ports are counted from now on."""
        self._rows.begin([plan])

    def update(
        self, counters: CountersSnapshot, rows: RecordRows | None = None
    ) -> None:
        """Take the numbers as they are now, and those of queue pairs and ports."""
        if rows is not None:
            self._rows.take(rows)
        self.set_agent_up(self._agent, True)
        self.set_counters(self._agent, counters.values)
        self.set_loads(self._agent, counters.loads)

    def snapshot(self) -> Snapshot:
        """Return a copy of the numbers that an agent has."""
        everything = super().snapshot()
        return Snapshot(
            {
                name: values
                for name, values in everything.values.items()
                if not name.startswith(_OF_RUNS)
            },
            everything.histograms,
        )

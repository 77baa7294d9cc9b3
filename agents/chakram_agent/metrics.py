"""The agent's own metrics endpoint, for agents that nobody's controller serves.

Beside the metrics, whose labels are few, it serves ``/queue-pairs`` and ``/ports``: the
counters of each of them at work, as JSON, by the names of the run directory.

The numbers are those that the controller gets, once a second; a scrape reads a copy in
a thread of its own and never waits for, or holds up, anything.
"""

from __future__ import annotations

import platform
import socket
from functools import partial
from typing import TYPE_CHECKING

import chakram
from chakram._compiled import status as compiled_status
from chakram.core.records import PORT_FIELDS, QUEUE_PAIR_FIELDS, RecordRows
from chakram.observe.exporter import MetricsServer, open_listener
from chakram.observe.metrics_state import MetricsState, Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakram.control.events import CountersSnapshot

__all__ = ["AgentMetrics"]

MOST_ROWS = 1000
"""Queue pairs or ports of one answer."""

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
        self._rows = RecordRows()
        self._server = MetricsServer(
            self,
            open_listener(listen),
            {
                "/queue-pairs": partial(self._page, "queue_pairs", QUEUE_PAIR_FIELDS),
                "/ports": partial(self._page, "ports", PORT_FIELDS),
            },
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

    def update(
        self, counters: CountersSnapshot, rows: RecordRows | None = None
    ) -> None:
        """Take the numbers as they are now, and those of queue pairs and ports."""
        if rows is not None:
            self._rows = rows
        loads = counters.loads
        self.set_agent_up(self._agent, True)
        self.set_counters(self._agent, counters.values)
        self.set_load(
            self._agent,
            max_lag_ns=max((load.max_lag_ns for load in loads), default=0),
            rounds=sum(load.rounds for load in loads),
            late_rounds=sum(load.late_rounds for load in loads),
            busy_ns=sum(load.busy_ns for load in loads),
        )
        self.set_queue_pairs(
            self._agent,
            total=sum(load.queue_pairs for load in loads),
            limited=sum(load.queue_pairs_limited for load in loads),
            failed=sum(load.queue_pairs_failed for load in loads),
        )

    def _page(
        self, name: str, fields: tuple[str, ...], parameters: Mapping[str, str]
    ) -> object:
        """Return a part of the rows *name*: at most `MOST_ROWS`, from ``first`` on."""
        rows, width = getattr(self._rows, name), len(fields)
        text = parameters.get("first", "0")
        first = int(text) if text.isdecimal() and len(text) < 10 else 0
        total = len(rows) // width
        return {
            "total": total,
            "first": first,
            name: [
                dict(zip(fields, rows[at * width : (at + 1) * width], strict=True))
                for at in range(first, min(first + MOST_ROWS, total))
            ],
        }

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

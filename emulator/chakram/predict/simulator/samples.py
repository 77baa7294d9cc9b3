"""Samples of a simulated fabric: ports, queue pairs and links."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chakram.native.append_rows import append_values
from chakram.records.row_layout import LINK_SAMPLE_FIELDS
from chakram.replay.samples import ROWS_PER_BIN_LENGTH, Sampler, port_values
from chakram.switch.model import SwitchModel
from chakram.switch.port import Port

if TYPE_CHECKING:
    from chakram.plan.plan import Plan
    from chakram.replay.endpoint import Endpoint


_OF_CLASS = len(LINK_SAMPLE_FIELDS) - 2
_WEIGHT = 4
"""Factor by which bins double sooner in simulations: after 12,500 rows."""

_COUNTED = [
    LINK_SAMPLE_FIELDS.index(name) - 2
    for name in ("bytes", "marked", "drops", "pauses", "paused_ns")
]


class LinkSampler:
    """Samples of the ports of a model by class: bytes, queues, drops and pauses.

    A class without changes has no row. When it changes again, the sampler first adds a
    row for the last bin without a change. The whole change then falls into the next
    bin.

    Attributes:
        rows: Rows of ``LINK_SAMPLE_FIELDS`` taken so far.
    """

    def __init__(self, model: SwitchModel) -> None:
        self.rows = array("q")
        self._ports: Sequence[Port] = model.ports()
        self._found: dict[int, list[int]] = {}
        self._seen: dict[tuple[int, int], tuple[int, list[int]]] = {}
        self._last_ns = 0
        # The values when this run began, if the model continues over several runs.
        self._before: dict[tuple[int, int], list[int]] = {}
        self._bin_ns = 0
        self._next_ns = 0
        self._taken = 0

    def begin(self, bin_ns: int, now_ns: int) -> None:
        """Start sampling in bins of *bin_ns*, relative to the current counters."""
        self._seen.clear()
        self._found.clear()
        self._before.clear()
        self.take(now_ns)
        self._before = {key: row for key, (_, row) in self._seen.items()}
        self._seen.clear()
        self._found.clear()
        self.rows = array("q")
        self._bin_ns = bin_ns
        self._next_ns = now_ns + bin_ns
        self._taken = 0

    def turn(self, now_ns: int) -> None:
        """Take samples if a bin has ended."""
        if self._bin_ns and now_ns >= self._next_ns:
            self._taken += self.take(now_ns)
            if self._taken >= ROWS_PER_BIN_LENGTH:
                self._taken = 0
                self._bin_ns *= 2
            self._next_ns = now_ns + self._bin_ns

    def end(self, now_ns: int) -> None:
        """Take the last samples. A second call has no effect."""
        if self._bin_ns:
            self.take(now_ns)
            self._bin_ns = 0

    def take(self, now_ns: int) -> int:
        """Add a row for each changed port and class, and return the number of rows."""
        count = len(self.rows)
        for number, port in enumerate(self._ports):
            found = port.sampled(now_ns)
            if found == self._found.get(number):
                continue
            self._found[number] = found
            for at in range(0, len(found), _OF_CLASS):
                row = found[at : at + _OF_CLASS]
                key = number, row[0]
                before = self._before.get(key)
                if before is not None:
                    for place in _COUNTED:
                        row[place] -= before[place]
                time_ns, last = self._seen.get(key, (self._last_ns, row))
                if time_ns < self._last_ns and last != row:
                    append_values(self.rows, [self._last_ns, number, *last])
                if key not in self._seen or last != row:
                    self._seen[key] = now_ns, row
                    append_values(self.rows, [now_ns, number, *row])
        self._last_ns = now_ns
        return (len(self.rows) - count) // len(LINK_SAMPLE_FIELDS)


class FabricSampler(Sampler):
    """Samples endpoints and the links between them.

    Args:
        plan: The plan that the endpoints execute.
        endpoints: All endpoints.
        model: The switches, and the hosts of the endpoints.
        hosts: For each endpoint, the port of its host in the model.
        dscp: DSCP of data packets.
        bin_ns: Time between two samples; 0 means only at the end.

    Attributes:
        links: Samples of links.
    """

    def __init__(
        self,
        plan: Plan,
        endpoints: Sequence[Endpoint],
        model: SwitchModel,
        hosts: Sequence[int],
        *,
        dscp: int,
        bin_ns: int,
    ) -> None:
        super().__init__(
            endpoints, plan.agents, port_row=self._values_of_port, bin_ns=bin_ns
        )
        self.links = LinkSampler(model)
        self._hosts = [model.port(number) for number in hosts]
        self._dscp = dscp
        self._now_ns = 0

    def turn(self, now_ns: int) -> None:
        """Take samples of everything at the end of a bin."""
        self._now_ns = now_ns
        Sampler.turn(self, now_ns)
        self._count(self.links.take(now_ns))

    def _count(self, rows: int) -> None:
        """Count rows with a weight, so that bins double sooner than in emulation."""
        Sampler._count(self, _WEIGHT * rows)

    def finish(self, now_ns: int) -> None:
        """Take the last sample of everything. Without bins, it is the only sample."""
        self._now_ns = now_ns
        Sampler.finish(self, now_ns)
        self.links.take(now_ns)

    def _values_of_port(
        self, at: int, counted: tuple[int, ...], disturbances: int
    ) -> tuple[int, ...]:
        host = self._hosts[at]
        return port_values(
            counted,
            disturbances,
            shard=0,
            rx_bytes=host.received_so_far(),
            socket_drops=0,
            send_retries=0,
            paused_ns=host.paused_so_far(host.class_of(self._dscp), self._now_ns),
        )

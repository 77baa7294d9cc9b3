# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""The packet level with one queue pair per message: ASTRA-sim over ns-3.

Programs, collectives and host costs are those of the message level. Messages cross
modeled switches as in ``chakram.predict.simulator.ns3_host_model``. A message is
complete when its last acknowledgment has arrived at its sender.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.predict.levels import row_offsets
from chakram.predict.levels.message_level import MessageLevel
from chakram.predict.simulator.ns3_host_model import MessageHosts, Ns3Hosts

if TYPE_CHECKING:
    from collections.abc import Callable

    from chakram.predict.levels.level_network import LevelNetwork
    from chakram.predict.levels.message_times import LevelTimes
    from chakram.predict.simulator.switch_fabric import SwitchFabric
    from chakram.roce.congestion import CongestionControl

__all__ = ["PacketLevel"]

_SLOT = row_offsets.SLOT
_CLASS = row_offsets.CLASS
_LEFT_AT = row_offsets.LEFT_AT
_BITS_PER_BYTE_NS = 8_000_000_000
_NEVER = 1 << 62


class PacketLevel(MessageLevel):
    """Traffic over modeled switches.

    Args:
        network: Hosts, routers and links.
        times: Times at hosts.
        fabric: Modeled switches, with the same hosts in the same order.
        settings: Settings of the sending hosts.
        make_control: Function that creates the congestion control of a message. None
            means no congestion control.
        record: Whether to write flow rows.

    Attributes:
        fabric: The modeled switches.
    """

    def __init__(
        self,
        network: LevelNetwork,
        times: LevelTimes,
        *,
        fabric: SwitchFabric,
        settings: Ns3Hosts,
        make_control: Callable[[], CongestionControl] | None = None,
        record: bool = False,
    ) -> None:
        MessageLevel.__init__(self, network, times, record=record)
        self._in_series = False
        self.fabric = fabric
        self._settings = settings
        self._wires = MessageHosts(
            model=fabric.model,
            hosts=fabric.host_ports,
            delays_ns=fabric.delays_ns,
            settings=settings,
            make_control=make_control,
            has_choice=fabric.has_choice,
        )
        self._due_ns = _NEVER
        self._until_ns = _NEVER
        self._windows: dict[int, int] = {}

    def link_bytes(self) -> list[int]:
        """Return the bytes that entered each link of the network, with headers."""
        return [
            sum(self.fabric.named(link.name).counted(self.now_ns)["sent_bytes"])
            for link in self._network.links
        ]

    def run(self, until_ns: int, most_flows: int = 1 << 30) -> bool:
        """Process events: see ``Traffic``."""
        self._until_ns = until_ns
        return MessageLevel.run(self, until_ns, most_flows)

    def _cross(self, slot: int, source: int, target: int) -> None:
        size_bytes = self._classes[self._slots[slot * _SLOT + _CLASS]]
        self._wires.post(
            source,
            target,
            slot,
            size_bytes,
            self._window_bytes(source, target),
            self.now_ns,
        )
        self._settle()

    def _window_bytes(self, source: int, target: int) -> int:
        """Return the capacity of the path between two hosts. 0 means no window."""
        if self._settings.window == "off":
            return 0
        key = source << 32 | target
        if key not in self._windows:
            links = [
                self._network.links[link] for link in self._network.path(source, target)
            ]
            rates = [link.rate_bps for link in links if link.rate_bps]
            packet = self._settings.payload_bytes * _BITS_PER_BYTE_NS
            trip_ns = 2 * sum(link.delay_ns for link in links)
            trip_ns += sum(packet // rate_bps for rate_bps in rates)
            least = min(rates, default=0)
            self._windows[key] = trip_ns * least // _BITS_PER_BYTE_NS
        return self._windows[key]

    def _settle(self) -> None:
        """Schedule the next packet event."""
        due_ns = self._wires.next_ns()
        if due_ns < self._due_ns:
            self._due_ns = due_ns
            self._coming.add(due_ns, 0)

    def _happen(self, number: int) -> None:
        """Process packet events until a message completes or another event is due."""
        if number:
            # The event belongs to a message within a host. Packet events have number 0.
            MessageLevel._happen(self, number)
            return
        if self.now_ns != self._due_ns:
            return  # stale: an earlier event has replaced this one
        self._due_ns = _NEVER
        limit_ns = self._coming.first_ns()
        if self._until_ns < limit_ns:
            limit_ns = self._until_ns
        if self.done:
            limit_ns = self.now_ns  # successors of completed shares must not start late
        wires = self._wires
        before = wires.events
        wires.run_until(limit_ns)
        self.events += wires.events - before
        if wires.done:
            done = wires.done
            wires.done = []
            self.now_ns = wires.now_ns
            for pair in done:
                self._slots[pair.message * _SLOT + _LEFT_AT] = pair.first_ns
                self._arrive(pair.message)
        self._settle()

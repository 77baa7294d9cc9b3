# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Messages packet by packet, with a queue pair for each: ASTRA-sim over ns-3.

Programs, collectives and costs of hosts are those of the message level; a message
crosses modelled switches as ``chakram.predict.simulator.message_hosts`` says, and is
there when its last acknowledgement is back at its sender.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.predict.levels import row_offsets
from chakram.predict.levels.messages import MessageLevel
from chakram.predict.simulator.message_hosts import MessageHosts, Ns3Hosts

if TYPE_CHECKING:
    from collections.abc import Callable

    from chakram.predict.levels.message_times import LevelTimes
    from chakram.predict.levels.network import LevelNetwork
    from chakram.predict.simulator.switch_fabric import SwitchFabric
    from chakram.roce.congestion import CongestionControl

__all__ = ["PacketLevel"]

_SLOT = row_offsets.SLOT
_CLASS = row_offsets.CLASS
_LEFT_AT = row_offsets.LEFT_AT
_BITS_PER_BYTE_NS = 8_000_000_000
_NEVER = 1 << 62


class PacketLevel(MessageLevel):
    """Traffic over modelled switches.

    Args:
        network: Hosts, routers, links.
        times: What hosts need.
        fabric: Its switches; the same hosts, in the same order.
        settings: How hosts send.
        make_control: Makes the congestion control of a message; None: there is none.
        record: Whether rows of flows are written.

    Attributes:
        fabric: As given.
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
        """Return what has entered each link of the network, headers included."""
        return [
            sum(self.fabric.named(link.name).counted(self.now_ns)["sent_bytes"])
            for link in self._network.links
        ]

    def run(self, until_ns: int, most_flows: int = 1 << 30) -> bool:
        """Let events happen; see ``Traffic``."""
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
        """Return what the path of two hosts holds; 0: there is no window."""
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
        """See that the packets go on when they have to."""
        due_ns = self._wires.next_ns()
        if due_ns < self._due_ns:
            self._due_ns = due_ns
            self._coming.add(due_ns, 0)

    def _happen(self, number: int) -> None:
        """Let packets go on until a message is over, or something else happens."""
        if self.now_ns != self._due_ns:
            return  # they have been asked earlier meanwhile
        self._due_ns = _NEVER
        limit_ns = self._coming.first_ns()
        if self._until_ns < limit_ns:
            limit_ns = self._until_ns
        if self.done:
            limit_ns = self.now_ns  # what follows on those is not to begin later
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

# cython: language_level=3, annotation_typing=False, boundscheck=False
# cython: wraparound=False, initializedcheck=False
"""The links of modeled switches: packets wait, cross a link, and arrive.

Packets wait in the queues of the switch model, including those of hosts. They cross a
link one after another, and arrive one propagation delay after their last bit has left.
Every link has at most two pending events. One is the arrival of the first packet on the
link. The other is the time at which the wire is free, if packets wait. The packets on a
link form a linked list. At a switch that cuts through, a packet arrives with its first
bit if it may leave immediately, else with its last bit.

Simultaneous events occur in the order in which they became the next event of their link
or port. With *is_by_departure*, they occur as in ns-3: in the order in which the
packets began to leave. A wire then becomes free only at its turn in this order.

Subclasses define the clock and the hosts.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.foundation.errors import RunFailed
from chakram.foundation.units import LAST_INSTANT_NS
from chakram.native.prefetch import (
    prefetch_cell,
    prefetch_part,
)
from chakram.predict.simulator.event_queue import Events
from chakram.roce.constants import NEVER
from chakram.switch.packet_outcomes import DELIVERED, QUEUED
from chakram.switch.packet_slots import (
    DSCP,
    EGRESS,
    ENTERED,
    FATE,
    FLOW,
    HOP,
    NEXT,
    ORDER,
    TIME,
    WIRE_NS,
)
from chakram.switch.port import HEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.switch.fault_schedule import FaultSchedule
    from chakram.switch.model import SwitchModel
    from chakram.switch.packet_slots import Packets
    from chakram.switch.port import Port

__all__ = ["FIRST_OWN_KIND", "KIND_BITS", "Wires", "out_of_time"]

KIND_BITS = 3
"""Number of low bits of an event that contain its kind."""

FIRST_OWN_KIND = 4
"""First kind of events that ``Wires`` does not use."""

# Cache lines in which a compiled port has its class counters and its classes by DSCP.
_COUNTERS_LINE, _CLASSES_LINE = 3, 19
_YEAR_NS = 365 * 24 * 3600 * 10**9
_ARRIVE, _FREE, _PAUSE, _MODEL = range(4)
_KIND_BITS = KIND_BITS
# Fields of a link: its first and last packet, whether a wire-free event is pending, and
# whether the switch at its end cuts through. The last field is the order of the
# wire-free time, or 0 if orders are not kept. On a link with cut-through, ENTERED of a
# packet is the arrival time of its last bit.
_HEAD, _TAIL, _WAITS, _CUTS, _FREED, _LINK_FIELDS = 0, 1, 2, 3, 4, 5
_FIRST = HEAD


def out_of_time() -> RunFailed:
    """Return the error for a simulation that exceeds the virtual time limit."""
    return RunFailed(
        "simulation",
        f"would take more than {LAST_INSTANT_NS // _YEAR_NS} years of virtual time",
        "raise the rates of links, or lower delays, gaps, starts and compute.scale",
    )


class Wires:
    """A switch model and its links, driven by events.

    Args:
        model: The switches and their hosts.
        delays_ns: Propagation delay of each port's link, by port of the model.
        faults: Link faults; None means no faults.
        is_by_departure: Whether simultaneous events occur in order of departure.

    Attributes:
        now_ns: Time of the last event.
        hops: Number of departures from ports. A burst that crosses links as a unit
            counts once.
        looks_ahead: Whether to prefetch the memory of upcoming events.
    """

    __slots__ = (
        "_delays_ns",
        "_events",
        "_faults",
        "_is_by_departure",
        "_links",
        "_model",
        "_model_ns",
        "_order",
        "_packets",
        "_pauses",
        "_ports",
        "_timed",
        "hops",
        "looks_ahead",
        "now_ns",
    )

    def __init__(
        self,
        *,
        model: SwitchModel,
        delays_ns: Sequence[int],
        faults: FaultSchedule | None = None,
        is_by_departure: bool = False,
    ) -> None:
        self.now_ns = 0
        self.hops = 0
        self._model = model
        self._packets: Packets = model.packets
        self._ports: list[Port] = list(model.ports())
        self._delays_ns = array("q", delays_ns)
        self._events = Events()
        self._is_by_departure = is_by_departure
        # Order of the last event, if orders are kept.
        self._order = 0
        self.looks_ahead = False
        self._links = array("q", [-1, -1, 0, 0, 0] * len(delays_ns))
        for number, port in enumerate(self._ports):
            if port.peer >= 0:
                peer = self._ports[port.peer]
                self._links[number * _LINK_FIELDS + _CUTS] = peer.cuts_through
        # Pause frames in flight.
        self._pauses: dict[int, tuple[int, int, int]] = {}
        # Whether the model has any events other than packets.
        self._faults = faults
        self._timed = faults is not None or any(port.pauses() for port in self._ports)
        self._model_ns = NEVER

    # Hooks for subclasses.

    def _deliver(self, number: int, slot: int) -> None:
        """Handle a packet that has reached the host with port *number*."""
        self._forget(slot)

    def _forget(self, slot: int) -> None:
        """Release a packet that was delivered or dropped."""
        self._packets.release_bytes(slot)

    def _look_at(self, number: int) -> None:
        """Resume or stop a port after a pause has begun or ended."""
        self._kick(number)

    def _on_pause(self, number: int, klass: int, duration_ns: int) -> None:
        """Handle a pause frame that a port has received and obeys."""

    # Events.

    def _happen(self, kind: int, index: int) -> None:
        """Process an event of ``Wires``."""
        if kind == _ARRIVE:
            self._arrive(index)
        elif kind == _FREE:
            self._links[index * _LINK_FIELDS + _WAITS] = 0
            self._send(index)
        elif kind == _PAUSE:
            self._pause(index)
        else:
            self._advance_model()

    # Prefetching.

    def _look_ahead(self) -> None:
        """Prefetch the data of upcoming events in stages.

        An event passes through all stages as its time approaches. Each stage uses
        addresses in data that earlier stages prefetched.
        """
        for stage in range(6):
            self._foresee(stage, self._events.ahead(15 - 3 * stage))

    def _foresee(self, stage: int, what: int) -> None:
        """Prefetch the data of an event for a stage. Do nothing if the event is -1."""
        kind = what & 7
        if what < 0:
            return
        number = what >> _KIND_BITS
        if kind > _FREE:
            self._foresee_own(stage, kind, number)
            return
        port = self._ports[number]
        if kind == _FREE:
            waiting = port.waiting if stage < 2 else 0
            klass = 0
            while waiting:
                if waiting & 1 and stage == 0:
                    self._fetch_counters(number, klass)
                elif waiting & 1:
                    self._fetch_packet(port.by_class[klass << 4 | _FIRST])
                waiting >>= 1
                klass += 1
            return
        slot = self._links[number * _LINK_FIELDS + _HEAD]
        if slot < 0 or port.peer < 0:
            return
        if stage > 2:
            port = self._ports[port.peer]
            if port.is_host:
                self._foresee_delivery(stage, slot, port.number)
        elif stage == 0:
            self._fetch_packet(slot)
            self._foresee_delivery(stage, slot, port.peer)
            prefetch_part(self._ports, port.peer, 0, 3)
            prefetch_part(self._ports, port.peer, _CLASSES_LINE, 2)
        else:
            self._foresee_arrival(stage, slot, self._ports[port.peer])

    def _foresee_arrival(self, stage: int, slot: int, port: Port) -> None:
        """Prefetch the data that a packet needs at the port where it arrives."""
        packets = self._packets
        klass = port.class_of_dscp[packets.cells[slot + DSCP]]
        if stage == 1:
            self._fetch_counters(port.number, klass)
            after = packets.cells[slot + NEXT]
            if after >= 0:
                prefetch_cell(packets.cells, after + TIME)
        forwarding = self._model.forwarding
        if port.is_host:
            self._foresee_delivery(stage, slot, port.number)
        elif stage == 1:
            forwarding.prefetch_path(packets.cells[slot + FLOW])
        else:
            flow, hop = packets.cells[slot + FLOW], packets.cells[slot + HOP]
            egress = forwarding.known(flow, hop, port.node)
            if egress >= 0:
                prefetch_cell(self._links, egress * _LINK_FIELDS)
                prefetch_part(self._ports, egress, 0, 3)
                self._fetch_counters(egress, klass)

    def _foresee_delivery(self, stage: int, slot: int, number: int) -> None:
        """Prefetch the data for the delivery of a packet at a host."""

    def _foresee_own(self, stage: int, kind: int, index: int) -> None:
        """Prefetch the data of an event that ``Wires`` does not use."""

    def _fetch_packet(self, slot: int) -> None:
        packets = self._packets
        prefetch_cell(packets.cells, slot)
        prefetch_cell(packets.cells, slot + 8)
        prefetch_cell(packets.cells, slot + 16)
        prefetch_cell(packets.cells, slot + 24)

    def _fetch_counters(self, number: int, klass: int) -> None:
        """Prefetch the counters of a class at a port by their place in the object."""
        prefetch_part(self._ports, number, _COUNTERS_LINE + 2 * klass, 3)

    # Packets.

    def _arrive(self, number: int) -> None:
        """Process the arrival of the first packet on the link of a port."""
        packets = self._packets
        at = number * _LINK_FIELDS
        slot = self._links[at + _HEAD]
        if slot < 0 or packets.cells[slot + TIME] != self.now_ns:
            return  # the packet was lost with the link
        port = self._ports[number]
        peer = port.peer
        if self._links[at + _CUTS] and packets.cells[slot + ENTERED] > self.now_ns:
            last_ns = packets.cells[slot + ENTERED]
            if not self._model.cuts_through(peer, slot, self.now_ns):
                packets.cells[slot + TIME] = last_ns
                self._events.add(last_ns, number << _KIND_BITS)
                return
            # The packet leaves while it still arrives, so subtract the overlap.
            packets.cells[slot + WIRE_NS] -= last_ns - self.now_ns
        after = packets.cells[slot + NEXT]
        self._links[at + _HEAD] = after
        if after >= 0:
            # Because of rounding, the first bit of the next packet may precede the last
            # bit of this one.
            if packets.cells[after + TIME] < self.now_ns:
                packets.cells[after + TIME] = self.now_ns
            self._expect(number, after)
        outcome = self._model.receive(peer, slot, self.now_ns)
        if outcome == QUEUED:
            self._kick(packets.cells[slot + EGRESS])
        elif outcome == DELIVERED:
            self._deliver(peer, slot)
        else:
            self._forget(slot)

    def _kick(self, number: int) -> None:
        """Start sending at a port that has packets to send."""
        if self._links[number * _LINK_FIELDS + _WAITS]:
            return
        port = self._ports[number]
        if port.free_ns > self.now_ns or (
            port.free_ns == self.now_ns
            and self._links[number * _LINK_FIELDS + _FREED] > self._order
        ):
            self._await_wire(number)
            return
        self._send(number)

    def _await_wire(self, number: int) -> None:
        """Schedule an event for the time at which the wire of a port becomes free."""
        at = number * _LINK_FIELDS
        if not self._links[at + _WAITS]:
            self._links[at + _WAITS] = 1
            port = self._ports[number]
            what = number << _KIND_BITS | _FREE
            if self._is_by_departure:
                self._events.add_at(port.free_ns, self._links[at + _FREED], what)
            else:
                self._events.add(port.free_ns, what)

    def _expect(self, number: int, slot: int) -> None:
        """Schedule the arrival of the first packet on the link of a port."""
        packets = self._packets
        time_ns = packets.cells[slot + TIME]
        if self._is_by_departure:
            order = packets.cells[slot + ORDER]
            self._events.add_at(time_ns, order, number << _KIND_BITS)
        else:
            self._events.add(time_ns, number << _KIND_BITS)

    def _send(self, number: int) -> None:
        """Send the packets that a port may send now."""
        packets = self._packets
        port = self._ports[number]
        at = number * _LINK_FIELDS
        while port.free_ns <= self.now_ns:
            # A packet behind another packet begins up to 1 ns later, because times are
            # rounded down.
            begins_ns = self.now_ns
            if port.rest > 0 and port.free_ns == begins_ns:
                begins_ns += 1
            slot = self._model.transmit(number, self.now_ns)
            if slot < 0:
                return
            self.hops += 1
            arrival_ns = port.sent_ns() + self._delays_ns[number]
            if arrival_ns > LAST_INSTANT_NS:
                raise out_of_time()
            if self._links[at + _CUTS]:
                packets.cells[slot + ENTERED] = arrival_ns
                arrival_ns = begins_ns + self._delays_ns[number]
            packets.cells[slot + TIME] = arrival_ns
            packets.cells[slot + NEXT] = -1
            if self._is_by_departure:
                self._links[at + _FREED] = self._events.next_order()
                packets.cells[slot + ORDER] = self._events.next_order()
            if self._links[at + _HEAD] < 0:
                self._links[at + _HEAD] = slot
                self._expect(number, slot)
            else:
                packets.cells[self._links[at + _TAIL] + NEXT] = slot
            self._links[at + _TAIL] = slot
        if port.waiting:
            self._await_wire(number)

    # Pauses and faults.

    def _settle(self) -> None:
        """Process the model's signals, drops and link changes.

        Also schedule an event for the next time at which the model changes.
        """
        model = self._model
        signal = model.next_signal()
        while signal is not None:
            peer = self._ports[signal.port].peer
            number = len(self._pauses)
            while number in self._pauses:
                number += 1
            self._pauses[number] = (peer, signal.klass, signal.duration_ns)
            time_ns = signal.time_ns + self._delays_ns[signal.port]
            self._events.add(time_ns, number << _KIND_BITS | _PAUSE)
            signal = model.next_signal()
        for slot in model.take_dropped():
            self._forget(slot)
        for number in model.take_link_changes():
            self._lose_link(number)
            self._kick(number)
        next_ns = model.next_ns()
        if self._faults is not None:
            next_ns = min(next_ns, self._faults.next_ns())
        if next_ns < self._model_ns:
            self._model_ns = next_ns
            self._events.add_timer(next_ns, _MODEL)

    def _pause(self, number: int) -> None:
        """Apply a pause frame to a port."""
        peer, klass, duration_ns = self._pauses.pop(number)
        self._model.pause(peer, klass, duration_ns, self.now_ns)
        self._on_pause(peer, klass, duration_ns)
        self._look_at(peer)

    def _advance_model(self) -> None:
        self._model_ns = NEVER
        for number in self._model.advance(self.now_ns):
            self._look_at(number)
        if self._faults is not None:
            for number in self._faults.advance(self.now_ns):
                self._look_at(number)

    def _lose_link(self, number: int) -> None:
        """Drop the packets on the link of a port that went down."""
        packets = self._packets
        at = number * _LINK_FIELDS
        slot = self._links[at + _HEAD]
        self._links[at + _HEAD] = -1
        while slot >= 0:
            after = packets.cells[slot + NEXT]
            if packets.cells[slot + FATE] == 0:
                self._model.lose(slot)
            else:
                self._model.receive(self._ports[number].peer, slot, self.now_ns)
            self._forget(slot)
            slot = after

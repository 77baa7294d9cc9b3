# cython: annotation_typing=False, language_level=3, boundscheck=False
# cython: wraparound=False, initializedcheck=False
"""Modeled switches that forward frames between hosts in real time.

The model processes events in order of time, up to the present. Event times do not
depend on when the process runs. A frame enters at its arrival time, and a port sends as
soon as its link is free. A late process therefore adds delay but does not reduce the
rate of a port.

Hosts are part of the model, too. Frames that a host has sent wait in a queue at its
link, as in a NIC, and can be paused there. A pause frame that reaches a host's port is
also sent to the host. The switch obeys the pause frames that a host sends.

The switch changes only three header fields. It sets the ECN bits of marked packets, and
updates the IPv4 checksum. It also sets the UDP checksum to 0 (no checksum), because the
checksum of frames sent on this machine is incomplete.
"""

from __future__ import annotations

from array import array
from ipaddress import ip_address
from itertools import islice
from typing import TYPE_CHECKING

from chakram.fabric.modeled_switch.frame_io import BATCH
from chakram.predict.simulator.event_queue import NO_EVENT
from chakram.predict.simulator.switch_links import KIND_BITS, Wires
from chakram.switch.ecmp import Flow
from chakram.switch.fault_schedule import FaultSchedule
from chakram.switch.keyed_random import Attempts
from chakram.switch.packet_outcomes import QUEUED
from chakram.switch.packet_slots import (
    CE,
    DESTINATION,
    DSCP,
    ECN,
    ECT,
    FIELDS,
    FLOW,
    NOT_ECT,
    NUMBER,
    POSITION,
    SIZE,
)
from chakram.switch.pause_frames import (
    ETHERTYPE_PAUSE,
    pause_frame,
    pause_ns,
    paused_classes,
    quanta_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.fabric.modeled_switch.frame_io import Frames
    from chakram.predict.simulator.switch_fabric import SwitchFabric
    from chakram.switch.ecmp import EcmpHash
    from chakram.switch.faults import LinkFault

__all__ = ["LiveSwitch"]

_QUEUED = QUEUED
_CE, _ECT, _NOT_ECT = CE, ECT, NOT_ECT
_DESTINATION, _DSCP, _ECN, _FLOW = DESTINATION, DSCP, ECN, FLOW
_NUMBER, _POSITION, _SIZE = NUMBER, POSITION, SIZE
_SLOT_FIELDS = FIELDS
_KIND_BITS = KIND_BITS
_NO_EVENT = NO_EVENT
_BATCH = BATCH
_FRAMES_PER_ROUND = 256
_LONGEST_ROUND_NS = 1_000_000_000
# Maximum number of flows, which no job reaches. Further flows replace the oldest.
_MANY_FLOWS = 1 << 20

_ETHERNET_BYTES = 14
_LEAST_BYTES = _ETHERNET_BYTES + 20
_LEAST_IPV6_BYTES = _ETHERNET_BYTES + 40
_UDP_BYTES = 8
_BTH_BYTES = 12
_OPCODE_ACKNOWLEDGE = 0x11
_ETHERTYPE_IPV4, _ETHERTYPE_IPV6 = 0x0800, 0x86DD
_ETHERTYPE_PAUSE = ETHERTYPE_PAUSE
_UDP = 17


class LiveSwitch(Wires):
    """The switches of a fabric, which forward frames between its hosts.

    Args:
        fabric: Model of the fabric. The ports of *frames* correspond to its hosts, in
            topology order.
        frames: Frames from and to the hosts.
        host_ports: Port number in the model, by host.
        host_nodes: Node number in the model, by host.
        macs: MAC address as a number, by host.
        ecmp: How the switches choose among equal-cost paths.
        places: Maximum number of frames in the switches.

    Attributes:
        received: Total number of frames received.
        delivered: Number of frames delivered to hosts.
        unknown: Number of frames with an unknown destination or type, or longer than
            the MTU.
        late_ns: Maximum lateness of frames sent to hosts.
    """

    __slots__ = (
        "_attempts",
        "_ecmp",
        "_entries",
        "_flow_of",
        "_frames",
        "_free_flows",
        "_host_nodes",
        "_host_of",
        "_host_ports",
        "_leaving",
        "_leaving_count",
        "_limit_ns",
        "_number_of",
        "_places",
        "_spare",
        "delivered",
        "late_ns",
        "received",
        "unknown",
    )

    def __init__(
        self,
        *,
        fabric: SwitchFabric,
        frames: Frames,
        host_ports: Sequence[int],
        host_nodes: Sequence[int],
        macs: Sequence[int],
        ecmp: EcmpHash,
        places: int,
    ) -> None:
        super().__init__(model=fabric.model, delays_ns=fabric.delays_ns)
        self._frames = frames
        self._ecmp = ecmp
        self._places = places
        self._host_ports = array("i", host_ports)
        self._host_nodes = array("i", host_nodes)
        self._host_of = {mac: number for number, mac in enumerate(macs)}
        # Host of each model port, or -1.
        self._number_of = array("i", [-1] * len(self._ports))
        for number, port in enumerate(host_ports):
            self._number_of[port] = number
        # Switch at which each host's packets enter the fabric.
        self._entries = [
            self._ports[self._ports[port].peer].node for port in host_ports
        ]
        # Flow numbers in use, the oldest flow first, and free flow numbers.
        self._flow_of: dict[int, int] = {}
        self._free_flows: list[int] = []
        # The key combines the flow, the queue pair, and whether the packets are
        # acknowledgments.
        self._attempts: dict[int, Attempts] = {}
        self._spare = self._packets.take()
        # Slots of the frames that the next flush sends.
        self._leaving = array("q", [0] * _BATCH)
        self._leaving_count = 0
        self._limit_ns = 0
        self.received = 0
        self.delivered = 0
        self.unknown = 0
        self.late_ns = 0

    def round(self, now_ns: int) -> bool:
        """Receive frames and process due events. Return False if there were none.

        Args:
            now_ns: Current time on the clock of frames.
        """
        frames = self._frames
        left = _FRAMES_PER_ROUND
        hops = self.hops
        self._limit_ns = now_ns
        while (
            left > 0
            and self._packets.in_use < self._places
            and frames.receive(self._spare // _SLOT_FIELDS)
        ):
            left -= 1
            self._take_in()
        self._run(self._limit_ns)
        if self._leaving_count > 0:
            self._flush()
        return left < _FRAMES_PER_ROUND or self.hops > hops

    def disturb(self, faults: Sequence[LinkFault]) -> None:
        """Inject more link faults. An empty sequence ends all faults.

        Args:
            faults: Faults with times on the clock of frames.
        """
        if self._faults is None:
            self._faults = FaultSchedule(self._model)
        self._faults.add(faults)
        if not faults:
            for number in self._faults.end(self.now_ns):
                self._look_at(number)
        self._timed = True
        self._settle()

    def next_ns(self) -> int:
        """Return the time of the next event, or ``NO_EVENT``."""
        return self._events.first_ns()

    # Ingress.

    def _take_in(self) -> None:
        """Put the received frame into the fabric."""
        frames = self._frames
        memory = frames.memory
        slot = self._spare
        self.received += 1
        time_ns = frames.time_ns
        if time_ns > self._limit_ns + _LONGEST_ROUND_NS:
            time_ns = self._limit_ns  # the system clock was changed
        elif time_ns > self._limit_ns:
            # The frame arrived during this round. Extend the round up to its arrival.
            self._limit_ns = time_ns
        self._run(time_ns)
        length = frames.length
        if length < _LEAST_BYTES:
            self.unknown += 1
            return
        at = slot // _SLOT_FIELDS * frames.frame_bytes
        kind = memory[at + 12] << 8 | memory[at + 13]
        if kind == _ETHERTYPE_IPV4:
            traffic_class = memory[at + 15]
            protocol = memory[at + 23]
            transport = _ETHERNET_BYTES + ((memory[at + 14] & 15) << 2)
            if (memory[at + 20] & 0x1F) | memory[at + 21]:
                protocol = 0  # a later IP fragment, without a UDP header
        elif kind == _ETHERTYPE_IPV6 and length >= _LEAST_IPV6_BYTES:
            traffic_class = (memory[at + 14] & 15) << 4 | memory[at + 15] >> 4
            protocol = memory[at + 20]
            transport = _LEAST_IPV6_BYTES
        elif kind == _ETHERTYPE_PAUSE:
            self._receive_pause(bytes(memory[at : at + length]))
            return
        else:
            self.unknown += 1
            return
        ports = 0
        if protocol == _UDP and transport + _UDP_BYTES <= length:
            udp = at + transport
            for place in range(4):
                ports = ports << 8 | memory[udp + place]
            memory[udp + 6] = 0
            memory[udp + 7] = 0
        mac = 0
        for place in range(6):
            mac = mac << 8 | memory[at + place]
        found = self._host_of.get(mac)
        if found is None:
            self.unknown += 1
            return
        source = frames.port
        destination = found
        # Host numbers have 16 bits, which is enough for any lab.
        key = (source << 16 | destination) << 32 | ports
        number = self._flow_of.get(key)
        flow = self._add_flow(key, slot) if number is None else number
        packets = self._packets
        packets.cells[slot + _SIZE] = length
        packets.cells[slot + _DSCP] = traffic_class >> 2
        packets.cells[slot + _FLOW] = flow
        packets.cells[slot + _DESTINATION] = self._host_nodes[destination]
        mark = traffic_class & 3
        packets.cells[slot + _POSITION] = mark
        psn = 0
        if protocol == _UDP and transport + _UDP_BYTES + _BTH_BYTES <= length:
            bth = at + transport + _UDP_BYTES
            key = (flow << 24) + (
                memory[bth + 5] << 16 | memory[bth + 6] << 8 | memory[bth + 7]
            )
            key = key << 1 | (memory[bth] == _OPCODE_ACKNOWLEDGE)
            psn = memory[bth + 9] << 16 | memory[bth + 10] << 8 | memory[bth + 11]
        else:
            key = flow << 25
        packets.cells[slot + _NUMBER] = self._attempts_of(key).number(psn)
        if mark == 0:
            packets.cells[slot + _ECN] = _NOT_ECT
        elif mark == 3:
            packets.cells[slot + _ECN] = _CE
        else:
            packets.cells[slot + _ECN] = _ECT
        self._spare = packets.take()
        port = self._host_ports[source]
        if self._model.send(port, slot, self.now_ns) == _QUEUED:
            self._kick(port)
        else:
            self._forget(slot)

    def _attempts_of(self, key: int) -> Attempts:
        """Return the counter that numbers the packets of a flow's queue pair."""
        attempts = self._attempts.get(key)
        if attempts is None:
            if len(self._attempts) >= _MANY_FLOWS:
                self._attempts.clear()
            attempts = self._attempts[key] = Attempts(key)
        return attempts

    def _add_flow(self, key: int, slot: int) -> int:
        """Return the number of a new flow, whose first packet is in *slot*."""
        source, destination, ports = key >> 48, key >> 32 & 0xFFFF, key & 0xFFFFFFFF
        if len(self._flow_of) >= _MANY_FLOWS:
            self._forget_flows()
        at = slot // _SLOT_FIELDS * self._frames.frame_bytes
        header = bytes(self._frames.memory[at : at + _LEAST_IPV6_BYTES])
        first, size = (26, 4) if header[12:14] == b"\x08\x00" else (22, 16)
        flow = Flow(
            sender=source,
            receiver=destination,
            source=str(ip_address(header[first : first + size])),
            destination=str(ip_address(header[first + size : first + 2 * size])),
            source_port=ports >> 16,
            destination_port=ports & 0xFFFF,
        )
        number = self._model.forwarding.add_flow(
            self._entries[source],
            self._host_nodes[destination],
            lambda: self._ecmp.chooser(flow),
            self._free_flows.pop() if self._free_flows else -1,
        )
        self._flow_of[key] = number
        return number

    def _forget_flows(self) -> None:
        """Free the numbers of the older half of the flows.

        A flow keeps its number while any of its packets are in the switches.
        """
        in_flight = set(self._packets.cells[_FLOW::_SLOT_FIELDS])
        oldest = islice(self._flow_of.items(), (len(self._flow_of) + 1) // 2)
        for key, number in [each for each in oldest if each[1] not in in_flight]:
            del self._flow_of[key]
            self._free_flows.append(number)

    # Egress.

    def _deliver(self, number: int, slot: int) -> None:
        """Send a packet to the host that it has reached."""
        packets = self._packets
        place = slot // _SLOT_FIELDS
        if packets.cells[slot + _ECN] == _CE and packets.cells[slot + _POSITION] != 3:
            self._mark(place)
        self._frames.send(place, packets.cells[slot + _SIZE], self._number_of[number])
        self._leaving[self._leaving_count] = slot
        self._leaving_count += 1
        late_ns = self._limit_ns - self.now_ns
        if late_ns > self.late_ns:
            self.late_ns = late_ns
        if self._leaving_count == _BATCH:
            self._flush()

    def _flush(self) -> None:
        """Send the waiting frames and free their slots."""
        self._frames.flush()
        for at in range(self._leaving_count):
            self._packets.release_bytes(self._leaving[at])
        self.delivered += self._leaving_count
        self._leaving_count = 0

    def _mark(self, place: int) -> None:
        """Set the ECN mark in the IP header of a frame."""
        memory = self._frames.memory
        at = place * self._frames.frame_bytes
        if memory[at + 12] != 0x08:
            memory[at + 15] |= 0x30
            return
        before = memory[at + 14] << 8 | memory[at + 15]
        memory[at + 15] |= 3
        # RFC 1624: incremental update of the checksum.
        total = ~(memory[at + 24] << 8 | memory[at + 25]) & 0xFFFF
        total += (~before & 0xFFFF) + (before | 3)
        total = (total & 0xFFFF) + (total >> 16)
        total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
        memory[at + 24] = total >> 8
        memory[at + 25] = total & 0xFF

    # Time and pauses.

    def _run(self, limit_ns: int) -> None:
        """Process the events due by *limit_ns*, and advance the model to that time."""
        events = self._events
        time_ns = events.first_ns()
        while time_ns <= limit_ns and events.count > 0:
            what = events.take()
            self.now_ns = time_ns
            self._happen(what & 7, what >> _KIND_BITS)
            if self._timed:
                self._settle()
            time_ns = events.first_ns()
        if limit_ns > self.now_ns:
            self.now_ns = limit_ns

    def _receive_pause(self, frame: bytes) -> None:
        """Apply a pause frame from a host to the switch port."""
        peer = self._ports[self._ports[self._host_ports[self._frames.port]].peer]
        for klass, quanta in paused_classes(frame):
            duration_ns = pause_ns(quanta, peer.rate_bps)
            self._model.pause(peer.number, klass, duration_ns, self.now_ns)
            self._look_at(peer.number)
        self._timed = True
        self._settle()

    def _on_pause(self, number: int, klass: int, duration_ns: int) -> None:
        """Send a host the pause frame that its port in the model obeys."""
        host = self._number_of[number]
        if host < 0:
            return
        frame = pause_frame(klass, quanta_of(duration_ns, self._ports[number].rate_bps))
        slot = self._packets.take()
        at = slot // _SLOT_FIELDS * self._frames.frame_bytes
        for place, value in enumerate(frame):
            self._frames.memory[at + place] = value
        # Send the pause frame before all later frames. It is not a packet of the model,
        # so do not count it as delivered.
        self._frames.send(slot // _SLOT_FIELDS, len(frame), host)
        self._leaving[self._leaving_count] = slot
        self._leaving_count += 1
        self.delivered -= 1
        self._flush()

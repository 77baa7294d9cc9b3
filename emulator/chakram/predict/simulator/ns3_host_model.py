# cython: language_level=3, annotation_typing=False, boundscheck=False
# cython: wraparound=False, initializedcheck=False, cdivision=True
"""Hosts with one queue pair per message, as in ns-3's RDMA model.

Each message has a new queue pair, which starts at line rate and has its own UDP source
port. The message is divided into packets, each of which is acknowledged. The
acknowledgment of an ECN-marked packet carries the mark. A host sends acknowledgments
first, then data packets of its queue pairs in round-robin order. It skips queue pairs
that wait for their rate or window. A message is complete, for both ends, when its last
acknowledgment has arrived. There is no retransmission: a packet dropped by the fabric
ends the simulation.

Simultaneous events occur in the order in which their packets began to leave. A message
that is posted at the same time starts after all these events.

Data and acknowledgments have the same class, so a pause stops both.

Source: the RDMA model of HPCC (ns-3), which ASTRA-sim adopted. Measurements compare the
pacing with this model (docs/reference/simulator.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from chakram.foundation.errors import RunFailed
from chakram.foundation.units import LAST_INSTANT_NS
from chakram.predict.simulator.signal_checks import EVENTS_PER_SIGNALS, let_signals_in
from chakram.predict.simulator.switch_links import (
    FIRST_OWN_KIND,
    KIND_BITS,
    Wires,
    out_of_time,
)
from chakram.roce.constants import NEVER
from chakram.switch.ecmp_hashes import ns3_chooser
from chakram.switch.keyed_random import packet_number
from chakram.switch.packet_outcomes import DROP_REASONS, QUEUED
from chakram.switch.packet_slots import (
    CE,
    CHOSEN,
    DESTINATION,
    DSCP,
    ECN,
    ECT,
    FLOW,
    HOP,
    NEXT,
    NUMBER,
    POSITION,
    SIZE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chakram.roce.congestion.base import CongestionControl
    from chakram.switch.model import SwitchModel

__all__ = ["MessageHosts", "MessagePair", "Ns3Hosts"]

_BIT_NS = 8_000_000_000
_WAKE = FIRST_OWN_KIND
_BEGIN = FIRST_OWN_KIND + 1
# Packet types, in the lowest bits of the field POSITION. The other bits are the number
# of the queue pair.
_KIND = 3
_DATA, _ANSWER, _MARKED_ANSWER = range(3)
_DSCP_LOSSLESS = 26
_FIRST_PORT = 10_000
_PORT = 100
_PORTS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Ns3Hosts:
    """Settings of sending hosts, by default those of ns-3's RDMA model.

    Attributes:
        payload_bytes: Payload of a full packet.
        header_bytes: Headers of a packet: PPP 14, IP 20, UDP 8, sequence 6.
        answer_bytes: Size of an acknowledgment.
        window: Limit of unacknowledged data. ``off`` is no limit. ``fixed`` is the
            capacity of the path: its rate times its round-trip time with one full
            packet per link. ``scaled`` is that capacity, times the current rate divided
            by the line rate.
    """

    payload_bytes: int = 1000
    header_bytes: int = 36
    answer_bytes: int = 60
    window: Literal["off", "fixed", "scaled"] = "scaled"


class MessagePair:
    """The queue pair of one message.

    Attributes:
        message: Identifier that the owner assigned to the message.
        size_bytes: Size of the payload.
        first_ns: Time at which the first packet of the message began to leave.
    """

    __slots__ = (
        "acked_packets",
        "answer_flow",
        "control",
        "first_ns",
        "flow",
        "flow_number",
        "message",
        "next_ns",
        "number",
        "packets",
        "peer",
        "sent_packets",
        "size_bytes",
        "source",
        "window_bytes",
    )

    def __init__(self, number: int, source: int, peer: int) -> None:
        self.number = number
        self.source = source
        self.peer = peer
        self.message = 0
        self.size_bytes = 0
        self.packets = 0
        self.sent_packets = 0
        self.acked_packets = 0
        self.flow = 0
        self.answer_flow = 0
        self.flow_number = 0
        self.window_bytes = 0
        self.next_ns = 0
        self.first_ns = -1
        self.control: CongestionControl | None = None


class MessageHosts(Wires):
    """The hosts of a switch model, and the messages in flight between them.

    Args:
        model: Switches and hosts.
        hosts: For each host, the number of its port.
        delays_ns: For each port of the model, the propagation delay of its link.
        settings: Settings of the sending hosts.
        make_control: Function that creates the congestion control of a message. None
            means no congestion control.
        has_choice: Whether there are equal-cost paths.

    Attributes:
        events: Number of events.
        done: Queue pairs of completed messages, until the caller clears the list.
    """

    __slots__ = (
        "_answer_bytes",
        "_answer_heads",
        "_answer_tails",
        "_entries",
        "_flow_of",
        "_free",
        "_has_choice",
        "_header_bytes",
        "_host_of",
        "_hosts",
        "_klass",
        "_make_control",
        "_nodes",
        "_numbers",
        "_pairs",
        "_payload_bytes",
        "_rings",
        "_scales_window",
        "_turns",
        "_wake_ns",
        "_work",
        "done",
        "events",
    )

    def __init__(
        self,
        *,
        model: SwitchModel,
        hosts: Sequence[int],
        delays_ns: Sequence[int],
        settings: Ns3Hosts,
        make_control: Callable[[], CongestionControl] | None,
        has_choice: bool,
    ) -> None:
        super().__init__(model=model, delays_ns=delays_ns, is_by_departure=True)
        self.events = 0
        self._work = 0
        self.done: list[MessagePair] = []
        self._hosts = list(hosts)
        self._host_of = [-1] * len(self._ports)
        for index, number in enumerate(hosts):
            self._host_of[number] = index
        self._nodes = [self._ports[number].node for number in hosts]
        # The switches to which the hosts are attached.
        self._entries = [self._ports[self._ports[number].peer].node for number in hosts]
        self._payload_bytes = settings.payload_bytes
        self._header_bytes = settings.header_bytes
        self._answer_bytes = settings.answer_bytes
        self._scales_window = settings.window == "scaled"
        self._make_control = make_control
        self._has_choice = has_choice
        self._klass = self._ports[hosts[0]].class_of(_DSCP_LOSSLESS) if hosts else 0
        self._answer_heads = [-1] * len(hosts)
        self._answer_tails = [-1] * len(hosts)
        self._rings: list[list[MessagePair]] = [[] for _ in hosts]
        # For each host, the ring index of the queue pair that sent last.
        self._turns = [-1] * len(hosts)
        self._wake_ns = [NEVER] * len(hosts)
        self._pairs: list[MessagePair | None] = []
        self._free: list[int] = []
        self._numbers: dict[int, int] = {}
        self._flow_of: dict[int, int] = {}

    def post(
        self,
        source: int,
        peer: int,
        message: int,
        size_bytes: int,
        window_bytes: int,
        now_ns: int,
    ) -> None:
        """Post a message, which starts after all other events at the current time.

        Args:
            source: Number of the sending host.
            peer: Number of the receiving host.
            message: Identifier that the owner assigned to the message.
            size_bytes: Size of the payload.
            window_bytes: Maximum unacknowledged bytes at line rate. 0 means no limit.
            now_ns: Current time. No later event may have been processed.
        """
        if self._free:
            number = self._free.pop()
        else:
            number = len(self._pairs)
            self._pairs.append(None)
        pair = MessagePair(number, source, peer)
        pair.message = message
        pair.size_bytes = size_bytes
        packets = (size_bytes + self._payload_bytes - 1) // self._payload_bytes
        pair.packets = packets if packets > 0 else 1
        pair.window_bytes = window_bytes
        key = source << 32 | peer
        nth = self._numbers.get(key, 0)
        self._numbers[key] = nth + 1
        own_port = (_FIRST_PORT + nth) % _PORTS
        pair.flow_number = (source << 16 | peer) << 32 | nth
        pair.flow = self._flow(source, peer, own_port, _PORT)
        pair.answer_flow = self._flow(peer, source, _PORT, own_port)
        if self._make_control is not None:
            pair.control = self._make_control()
        self._pairs[number] = pair
        self._events.add(now_ns, number << KIND_BITS | _BEGIN)

    def next_ns(self) -> int:
        """Return the time of the next event, or ``NO_EVENT`` if there is none."""
        return self._events.first_ns()

    def run_until(self, limit_ns: int) -> None:
        """Process events up to a time, or until a message completes."""
        events = self._events
        while not self.done and events.count > 0 and events.first_ns() <= limit_ns:
            self._step()
            self._work += 1
            if self._work >= EVENTS_PER_SIGNALS:
                self._work = 0
                let_signals_in()

    def unfinished(self) -> int:
        """Return the number of messages in flight."""
        return len(self._pairs) - len(self._free)

    # Paths.

    def _flow(self, source: int, peer: int, own_port: int, peer_port: int) -> int:
        """Return the flow of packets, with addresses and ports as in ns-3."""
        key = source << 32 | peer
        entry = self._entries[source]
        # Hosts on one switch have a single path.
        is_hashed = self._has_choice and entry != self._entries[peer]
        if not is_hashed and key in self._flow_of:
            return self._flow_of[key]
        flow = self._model.forwarding.add_flow(
            entry,
            self._nodes[peer],
            ns3_chooser(source, peer, own_port, peer_port, hosts=len(self._hosts)),
        )
        if not is_hashed:
            self._flow_of[key] = flow
        return flow

    # Sending.

    def _send(self, number: int) -> None:
        """Send the packets that a port may send now.

        A host's port gets its packets one by one.
        """
        host = self._host_of[number]
        if host < 0:
            Wires._send(self, number)
            return
        port = self._ports[number]
        while port.free_ns <= self.now_ns:
            if not self._feed(host, number):
                return
            Wires._send(self, number)
        if self._answer_heads[host] >= 0 or self._rings[host]:
            self._await_wire(number)

    def _feed(self, host: int, number: int) -> bool:
        """Queue the next packet at a host's port, or return False if none may leave."""
        packets = self._packets
        port = self._ports[number]
        if port.paused >> self._klass & 1:
            return False
        slot = self._answer_heads[host]
        if slot >= 0:
            self._answer_heads[host] = packets.cells[slot + NEXT]
            self._offer(number, slot)
            return True
        ring = self._rings[host]
        count = len(ring)
        at = self._turns[host]
        earliest_ns = NEVER
        for _ in range(count):
            at += 1
            if at >= count:
                at = 0
            pair = ring[at]
            if pair.window_bytes > 0 and self._is_window_full(pair):
                continue
            if pair.next_ns > self.now_ns:
                if pair.next_ns < earliest_ns:
                    earliest_ns = pair.next_ns
                continue
            self._turns[host] = at
            self._send_packet(pair, number)
            if pair.sent_packets == pair.packets:
                del ring[at]
                self._turns[host] = at - 1
            return True
        if earliest_ns < self._wake_ns[host]:
            self._wake_ns[host] = earliest_ns
            self._events.add(earliest_ns, host << KIND_BITS | _WAKE)
        return False

    def _is_window_full(self, pair: MessagePair) -> bool:
        window_bytes = pair.window_bytes
        control = pair.control
        if self._scales_window and control is not None:
            if control.next_timer_ns <= self.now_ns:
                control.on_timer(self.now_ns)
            port = self._ports[self._hosts[pair.source]]
            line_bps = port.rate_bps
            if control.is_pacing and 0 < control.rate_bps < line_bps:
                window_bytes = int(1.0 * window_bytes * control.rate_bps / line_bps)
                if window_bytes < 1:
                    window_bytes = 1
        in_flight = (pair.sent_packets - pair.acked_packets) * self._payload_bytes
        return in_flight >= window_bytes

    def _send_packet(self, pair: MessagePair, number: int) -> None:
        """Send the next packet of a message, and pace the one after it."""
        packets = self._packets
        payload_bytes = self._payload_bytes
        if pair.sent_packets + 1 == pair.packets:
            payload_bytes = pair.size_bytes - pair.sent_packets * payload_bytes
        size_bytes = payload_bytes + self._header_bytes
        slot = packets.take()
        packets.cells[slot + SIZE] = size_bytes
        packets.cells[slot + FLOW] = pair.flow
        packets.cells[slot + DESTINATION] = self._nodes[pair.peer]
        packets.cells[slot + DSCP] = _DSCP_LOSSLESS
        packets.cells[slot + ECN] = ECT
        packets.cells[slot + NUMBER] = packet_number(
            pair.flow_number, pair.sent_packets, 0
        )
        packets.cells[slot + POSITION] = pair.number << 2 | _DATA
        pair.sent_packets += 1
        if pair.first_ns < 0:
            pair.first_ns = self.now_ns
        control = pair.control
        if control is not None:
            if control.next_timer_ns <= self.now_ns:
                control.on_timer(self.now_ns)
            rate_bps = control.rate_bps
            if control.is_pacing and rate_bps > 0:
                took_ns = (size_bytes * _BIT_NS + rate_bps // 2) // rate_bps
                pair.next_ns = self.now_ns + took_ns
            control.on_sent(size_bytes, self.now_ns)
        self._offer(number, slot)

    def _offer(self, number: int, slot: int) -> None:
        if self._model.send(number, slot, self.now_ns) != QUEUED:
            self._forget(slot)

    def _step(self) -> None:
        """Process the next event, which must exist."""
        time_ns = self._events.first_ns()
        self._order = self._events.first_order()
        what = self._events.take()
        if time_ns > LAST_INSTANT_NS:
            raise out_of_time()
        kind = what & 7
        index = what >> KIND_BITS
        self.now_ns = time_ns
        self.events += 1
        if kind < _WAKE:
            self._happen(kind, index)
        elif kind == _BEGIN:
            pair = self._pairs[index]
            if pair is not None:
                self._rings[pair.source].append(pair)
                self._kick(self._hosts[pair.source])
        elif self._wake_ns[index] == time_ns:
            self._wake_ns[index] = NEVER
            self._kick(self._hosts[index])
        if self._timed:
            self._settle()

    # Receiving.

    def _deliver(self, number: int, slot: int) -> None:
        """Acknowledge a data packet, or process an acknowledgment."""
        packets = self._packets
        pair = self._pairs[packets.cells[slot + POSITION] >> 2]
        if pair is None:
            raise RunFailed(
                "simulation", "a packet belongs to no message", "report this bug"
            )
        what = packets.cells[slot + POSITION] & _KIND
        if what == _DATA:
            host = self._host_of[number]
            packets.cells[slot + POSITION] = pair.number << 2 | (
                _MARKED_ANSWER if packets.cells[slot + ECN] == CE else _ANSWER
            )
            packets.cells[slot + SIZE] = self._answer_bytes
            packets.cells[slot + FLOW] = pair.answer_flow
            packets.cells[slot + DESTINATION] = self._nodes[pair.source]
            packets.cells[slot + ECN] = ECT
            packets.cells[slot + HOP] = 0
            packets.cells[slot + CHOSEN] = 0
            packets.cells[slot + NEXT] = -1
            if self._answer_heads[host] < 0:
                self._answer_heads[host] = slot
            else:
                packets.cells[self._answer_tails[host] + NEXT] = slot
            self._answer_tails[host] = slot
            self._kick(number)
            return
        packets.release_bytes(slot)
        pair.acked_packets += 1
        control = pair.control
        if control is not None:
            if what == _MARKED_ANSWER:
                control.on_cnp(self.now_ns)
            control.on_ack(self._payload_bytes, 0, self.now_ns)
        if pair.acked_packets == pair.packets:
            self._pairs[pair.number] = None
            self._free.append(pair.number)
            self.done.append(pair)
        elif pair.window_bytes > 0:
            self._kick(number)

    def _forget(self, slot: int) -> None:
        """End the simulation, because a dropped packet is not retransmitted."""
        reasons = {
            text: sum(
                port.counted(self.now_ns)["drops_by_reason"][reason]
                for port in self._ports
            )
            for reason, text in DROP_REASONS.items()
        }
        why = ", ".join(text for text, count in reasons.items() if count)
        raise RunFailed(
            "simulation",
            f"a packet was dropped ({why}), but queue pairs for single messages do not "
            "retransmit",
            "use a larger fabric.switches.buffer, or simulate without "
            "simulation.cost_model",
        )

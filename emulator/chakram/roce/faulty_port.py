"""A port that injects faults into its packets.

Fault rules apply between the network and the queue pairs. Arriving packets pass the
rules first, and departing packets pass them last. Queue pairs and pacing work as in a
`PortEngine`. Ports without faults use that class, so they have no extra cost.

A departing packet has already left the queue pair and occupied the link when the rules
process it. The rules take effect afterward. Any wait for space in the socket buffer
also comes afterward.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count as counter
from typing import TYPE_CHECKING, Any, NamedTuple

from chakram.plan.packet_faults import FaultAction
from chakram.records.counter_definitions import (
    FAULT_COUNTERS,
    PortStatistics,
    sampled_of,
)
from chakram.roce.fault_selection import (
    Hit,
    PacketFaults,
    bits_of_burst,
    bits_of_datagram,
    class_of_burst,
    class_of_datagram,
)
from chakram.roce.pacing import Line
from chakram.roce.packet_verification import PacketVerifier
from chakram.roce.port import PortEngine

if TYPE_CHECKING:
    from chakram.roce.burst import Burst


_NOBODY = (-1, 0, 0, 0)
"""Queue pair, class, PSN and source port of a packet to which no rule applies."""


def flip_bit(data: bytearray, bit: int) -> None:
    """Flip one bit of a packet, counted from the lowest bit of its first byte."""
    data[bit >> 3] ^= 1 << (bit & 7)


def _damaged(burst: Burst, position: int, hit: Hit, faults: PacketFaults) -> Burst:
    """Return the packet at *position* as a burst, with one bit flipped."""
    damaged = burst.part(position, 1)
    bits = bits_of_burst(burst, position, hit.rule.fault.part)
    damaged.flipped_bit = faults.draw(bits, hit)
    return damaged


class _Packets(NamedTuple):
    """Packets that arrive or leave together, by position from 0.

    Attributes:
        describe: Returns queue pair, class, PSN and source port of a packet.
        forward: Passes on the packets from a first position up to an end position,
            which is excluded.
        hold: Delays a packet, and returns a function that releases the packet.
        corrupt: Passes on a packet with one bit flipped, in the part that the rule
            selects.
        refuse: Responds with a receiver-not-ready NAK, and returns whether that was
            possible.
    """

    describe: Callable[[int], tuple[int, int, int, int]]
    forward: Callable[..., None]
    hold: Callable[[int], Callable[[int], None]]
    corrupt: Callable[[int, Hit], None]
    refuse: Callable[[int], bool]


@dataclass(slots=True, eq=False)
class _Held:
    """A delayed packet, released earlier if ``behind`` packets overtake it."""

    let_go: Callable[[int], None]
    behind: int
    is_gone: bool = False


class FaultyPort(PortEngine):
    """A port that injects faults, with the methods of any other port."""

    def __init__(
        self,
        *,
        rate_bps: int | None,
        burst_bound_ns: int,
        max_burst_packets: int,
        verifier: PacketVerifier | None = None,
        line: Line | None = None,
        at_receive: PacketFaults,
        at_send: PacketFaults,
    ) -> None:
        """Create a port without queue pairs.

        Args:
            rate_bps: See `PortEngine`.
            burst_bound_ns: See `PortEngine`.
            max_burst_packets: See `PortEngine`.
            verifier: See `PortEngine`.
            line: See `PortEngine`.
            at_receive: Faults of packets that arrive.
            at_send: Faults of packets that leave.
        """
        self._own_line = line or Line(
            rate_bps=rate_bps or 0, burst_bound_ns=burst_bound_ns
        )
        super().__init__(
            rate_bps=rate_bps,
            burst_bound_ns=burst_bound_ns,
            max_burst_packets=max_burst_packets,
            verifier=verifier,
            line=self._own_line,
        )
        self._at_receive = at_receive
        self._at_send = at_send
        self._injected = dict.fromkeys(FaultAction, 0)
        # Number of packets that arrived, minus the number that were passed on.
        self._kept = 0
        self._number = counter()
        # Delayed packets of both directions: (time, number, packet).
        self._held: list[tuple[int, int, _Held]] = []
        # Packets to be overtaken, by direction and queue pair.
        self._overtaken: dict[tuple[bool, int], list[_Held]] = {}
        # Bursts that have left the queue pairs and go to the wire next. If there are
        # rules for sending, all bursts pass through the outbox. The rules are thus
        # applied to each packet only once, even if the socket is full.
        self._outbox: deque[Burst] = deque()
        # First burst of the outbox, once it has been offered, and the time of the
        # offer.
        self._offered: Burst | None = None
        self._offered_ns = 0

    # Arriving packets.

    def receive_datagrams(
        self,
        buffer: bytes | bytearray | memoryview,
        length: int,
        segment_size: int,
        now_ns: int,
        ce: bool = False,
        source_port: int = 0,
        source_high: int = 0,
        source_low: int = 0,
    ) -> None:
        """Receive bytes from a UDP socket: see `PortEngine`."""
        receive = super().receive_datagrams
        source = (source_port, source_high, source_low)

        def take(
            data: bytes | bytearray | memoryview,
            length: int,
            segment_size: int,
            now_ns: int,
            ce: bool,
        ) -> None:
            receive(data, length, segment_size, now_ns, ce, *source)

        length = min(length, len(buffer))
        if length <= 0 or not self._at_receive:
            take(buffer, length, segment_size, now_ns, ce)
            return
        size = segment_size if 0 < segment_size < length else length
        view = memoryview(buffer)

        def describe(position: int) -> tuple[int, int, int, int]:
            at = position * size
            rest = min(size, length - at)
            qpn = int.from_bytes(view[at + 5 : at + 8], "big") if rest > 8 else -1
            if self.is_foreign(qpn, source_high, source_low):
                return _NOBODY  # no rule applies to it, and it overtakes nothing
            psn = int.from_bytes(view[at + 9 : at + 12], "big")
            return qpn, class_of_datagram(view, at, rest), psn, source_port

        def forward(first: int, end: int, is_marked: bool = False) -> None:
            part = view[first * size : min(end * size, length)]
            take(part, len(part), size, now_ns, ce or is_marked)

        def hold(position: int) -> Callable[[int], None]:
            kept = bytes(view[position * size : min((position + 1) * size, length)])
            return lambda later_ns: take(kept, len(kept), 0, later_ns, ce)

        def corrupt(position: int, hit: Hit) -> None:
            at = position * size
            damaged = bytearray(view[at : min(at + size, length)])
            bits = bits_of_datagram(damaged, 0, len(damaged), hit.rule.fault.part)
            flip_bit(damaged, self._at_receive.draw(bits, hit))
            take(damaged, len(damaged), 0, now_ns, ce)

        def refuse(position: int) -> bool:
            at = position * size
            psn = int.from_bytes(view[at + 9 : at + 12], "big")
            return self.set_not_ready(describe(position)[0], psn, now_ns, int(ce))

        packets = -(-length // size)
        if not self._disturb(
            _Packets(describe, forward, hold, corrupt, refuse), False, packets, now_ns
        ):
            take(buffer, length, segment_size, now_ns, ce)

    def receive_burst(
        self,
        burst: Burst,
        now_ns: int,
        first: int = 0,
        count: int | None = None,
        ce: int = 0,
    ) -> None:
        """Receive packets of a peer's *burst*: see `PortEngine`."""
        take = super().receive_burst
        packets = burst.count - first if count is None else count
        if not self._at_receive:
            take(burst, now_ns, first, packets, ce)
            return

        def describe(position: int) -> tuple[int, int, int, int]:
            at = first + position
            kind = class_of_burst(burst, at)
            return burst.destination_qpn, kind, burst.psn_at(at), burst.source_port

        def forward(start: int, end: int, is_marked: bool = False) -> None:
            # It is unknown which packets are marked. Assume the first packets.
            marked = end - start if is_marked else max(0, min(end, ce) - start)
            take(burst, now_ns, first + start, end - start, marked)

        def hold(position: int) -> Callable[[int], None]:
            at, marked = first + position, int(position < ce)
            return lambda later_ns: take(burst, later_ns, at, 1, marked)

        def corrupt(position: int, hit: Hit) -> None:
            damaged = _damaged(burst, first + position, hit, self._at_receive)
            take(damaged, now_ns, 0, 1, int(position < ce))

        def refuse(position: int) -> bool:
            psn = burst.psn_at(first + position)
            marked = int(burst.is_marked or position < ce)
            qpn = burst.destination_qpn
            return self.set_not_ready(qpn, psn, now_ns, marked)

        if not self._disturb(
            _Packets(describe, forward, hold, corrupt, refuse), False, packets, now_ns
        ):
            take(burst, now_ns, first, packets, ce)

    # Departing packets.

    def peek_burst(self, now_ns: int) -> Burst | None:
        """Return the burst that would leave now: see `PortEngine`."""
        self._let_go(now_ns)
        while not self._outbox:
            burst = super().peek_burst(now_ns)
            if burst is None or not self._at_send:
                return burst
            super().commit_burst(burst, now_ns)
            self._send(burst, now_ns)
        if self._offered is not self._outbox[0]:
            self._offered = self._outbox[0]
            self._offered_ns = now_ns
        return self._offered

    def commit_burst(self, burst: Burst, now_ns: int) -> None:
        """Record that *burst* has left: see `PortEngine`."""
        if self._outbox and burst is self._outbox[0]:
            self._outbox.popleft()
            self._offered = None
            if now_ns > self._offered_ns:
                # The socket was full, so the delay of later bursts is not due to the
                # data plane.
                self._own_line.demand(now_ns)
            return
        super().commit_burst(burst, now_ns)

    def _send(self, burst: Burst, now_ns: int) -> None:
        """Apply the rules to a burst that has left its queue pair."""

        def describe(position: int) -> tuple[int, int, int, int]:
            kind = class_of_burst(burst, position)
            return burst.source_qpn, kind, burst.psn_at(position), burst.source_port

        def forward(first: int, end: int, is_marked: bool = False) -> None:
            part = burst.part(first, end - first)
            part.is_marked = is_marked
            self._outbox.append(part)

        def hold(position: int) -> Callable[[int], None]:
            return lambda _: self._outbox.append(burst.part(position, 1))

        def corrupt(position: int, hit: Hit) -> None:
            self._outbox.append(_damaged(burst, position, hit, self._at_send))

        packets = _Packets(describe, forward, hold, corrupt, lambda _: False)
        if not self._disturb(packets, True, burst.count, now_ns):
            self._outbox.append(burst)

    # Clock.

    def next_wakeup_ns(self) -> int:
        """Return when the port next has work to do: see `PortEngine`."""
        if self._outbox:
            return 0
        wakeup_ns = super().next_wakeup_ns()
        return min(wakeup_ns, self._held[0][0]) if self._held else wakeup_ns

    def has_news(self) -> bool:
        """Return whether the port needs a call: see `PortEngine`."""
        return True

    def handle_timers(self, now_ns: int) -> None:
        """Run the timers that are due: see `PortEngine`."""
        super().handle_timers(now_ns)
        self._let_go(now_ns)

    def statistics(self) -> PortStatistics:
        """Return the current counters."""
        counted = super().statistics()
        return replace(
            counted,
            packets_received=counted.packets_received + self._kept,
            **dict[str, Any](zip(FAULT_COUNTERS, self._injected.values(), strict=True)),
        )

    def sampled(self) -> tuple[tuple[int, ...], int]:
        """Return the sampled counters: see `PortEngine`."""
        return sampled_of(self.statistics())

    def faults_disturbed(self) -> dict[int, int]:
        """Return how many packets each fault of the run has disturbed at this port."""
        return self._at_receive.disturbed() | self._at_send.disturbed()

    # Internal.

    def _disturb(
        self, packets: _Packets, is_sent: bool, count: int, now_ns: int
    ) -> bool:
        """Apply the rules to *count* packets. Return whether any rule has an effect."""
        describe, forward, hold, corrupt, refuse = packets
        faults = self._at_send if is_sent else self._at_receive
        verdicts = [faults.judge(*describe(position)) for position in range(count)]
        if not self._overtaken and not any(verdicts):
            return False
        start = 0
        for position, verdict in enumerate(verdicts):
            qpn = describe(position)[0] if self._overtaken or verdict else 0
            if verdict is not None and start < position:
                forward(start, position)
                start = position
            if verdict is None or (
                verdict.rule.fault.action is FaultAction.NOT_READY
                and not refuse(position)
            ):
                gone = self._overtake((is_sent, qpn)) if self._overtaken else ()
                if gone:
                    forward(start, position + 1)
                    start = position + 1
                for held in gone:
                    held.let_go(now_ns)
                continue
            start = position + 1
            fault = verdict.rule.fault
            action = fault.action
            self._injected[action] += 1
            verdict.rule.disturbed += 1
            if action is FaultAction.MARK:
                forward(position, position + 1, True)
                continue
            if action is FaultAction.CORRUPT:
                corrupt(position, verdict)
                continue
            if action is FaultAction.DUPLICATE:
                forward(position, position + 1)
                forward(position, position + 1)
                self._kept -= not is_sent
                continue
            if action in (FaultAction.DELAY, FaultAction.REORDER):
                held = _Held(hold(position), fault.behind)
                due_ns = now_ns + fault.delay_ns
                heappush(self._held, (due_ns, next(self._number), held))
                if action is FaultAction.REORDER:
                    self._overtaken.setdefault((is_sent, qpn), []).append(held)
            elif not is_sent:
                self._kept += 1
        if start < count:
            forward(start, count)
        return True

    def _overtake(self, key: tuple[bool, int]) -> list[_Held]:
        """Let a packet overtake delayed packets, and return the packets to release."""
        waiting = self._overtaken.get(key, [])
        for held in waiting:
            held.behind -= 1
        gone = [held for held in waiting if held.behind <= 0 and not held.is_gone]
        for held in gone:
            held.is_gone = True
        if gone:
            self._forget_gone(key)
        return gone

    def _forget_gone(self, key: tuple[bool, int]) -> None:
        still = [held for held in self._overtaken[key] if not held.is_gone]
        if still:
            self._overtaken[key] = still
        else:
            del self._overtaken[key]

    def _let_go(self, now_ns: int) -> None:
        """Release the packets whose delay is over."""
        while self._held and self._held[0][0] <= now_ns:
            _, _, held = heappop(self._held)
            if not held.is_gone:
                held.is_gone = True
                for key in list(self._overtaken):
                    self._forget_gone(key)
                held.let_go(now_ns)

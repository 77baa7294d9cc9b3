"""Two ports joined by a virtual wire that loses, repeats and delays packets.

The clock jumps from event to event, so a second of waiting costs nothing, and what
happens is decided by callables, so it can be chosen and repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from chakram.plan.plan import QueuePairPlan
from chakram.plan.transport import TransportPlan
from chakram.roce.congestion import CongestionControl
from chakram.roce.constants import IPV4_OVERHEAD_BYTES, NEVER, UDP_PORT, Verb
from chakram.roce.notification_point import CnpLimiter
from chakram.roce.port import PortEngine
from chakram.roce.queue_pair import QueuePair

if TYPE_CHECKING:
    from chakram.roce.burst import Burst
    from chakram.roce.events import Event
    from chakram.roce.packet_encoder import WireEncoder
    from chakram.roce.receive_memory import MemoryRegion


class VirtualClock:
    """Time in ns that only `advance_to` moves, and never back."""

    def __init__(self, now_ns: int = 0) -> None:
        """Start at *now_ns*."""
        self.now_ns = now_ns

    def advance_to(self, time_ns: int) -> None:
        """Jump to *time_ns*; a time in the past changes nothing."""
        if time_ns > self.now_ns:
            self.now_ns = time_ns


class Livelock(AssertionError):
    """The pair was still busy at the time when it had to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A burst and when it left."""

    time_ns: int
    burst: Burst


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A packet on the wire; those on one wire compare by time and order."""

    time_ns: int
    order: int
    side: Side
    burst: Burst
    position: int
    data: bytes | None
    ce: bool

    def __lt__(self, other: Arrival) -> bool:
        return (self.time_ns, self.order) < (other.time_ns, other.order)

    def follows(self, last: Arrival, *, first: Arrival) -> bool:
        """Return whether this packet is received together with those up to *last*.

        As bytes they must be what the kernel joins: equal in size, but the last may be
        shorter, and equal in marks.
        """
        return (
            self.time_ns == last.time_ns
            and self.side is last.side
            and self.burst is last.burst
            and self.position == last.position + 1
            and (
                self.data is None
                or last.data is None
                or first.data is None
                or (
                    self.ce == first.ce
                    and len(last.data) == len(first.data) >= len(self.data)
                )
            )
        )


class Side:
    """One end of a `Pair`.

    Attributes:
        port: The port engine.
        events: What it has reported, with the QPN, oldest first.
        departures: The bursts that it has sent, oldest first.
    """

    def __init__(self, end: PortEngine | QueuePair) -> None:
        """Wrap a port; a queue pair gets its own port, without a rate."""
        if isinstance(end, QueuePair):
            self.port = PortEngine(
                rate_bps=None, burst_bound_ns=15_000, max_burst_packets=15
            )
            self.port.add_queue_pair(end)
        else:
            self.port = end
        self.events: list[tuple[int, Event]] = []
        self.departures: list[Departure] = []

    def events_of(self, qpn: int) -> list[Event]:
        """Return the reports of queue pair *qpn*, oldest first."""
        return [event for number, event in self.events if number == qpn]


class Pair:
    """Two ports and the wire between them.

    Attributes:
        left: The first end.
        right: The other one.
        clock: Their clock.
        dropped: Packets that the wire lost.
    """

    def __init__(
        self,
        left: PortEngine | QueuePair,
        right: PortEngine | QueuePair,
        *,
        delay_ns: int = 1_000,
        drop: Callable[[], bool] | None = None,
        duplicate: Callable[[], bool] | None = None,
        extra_delay_ns: Callable[[], int] | None = None,
        ce: Callable[[], bool] | None = None,
        encoders: tuple[WireEncoder, WireEncoder] | None = None,
    ) -> None:
        """Join two ends.

        Args:
            left: A port, or a queue pair that gets its own port.
            right: The other port or queue pair.
            delay_ns: From departure to arrival, whatever the size.
            drop: Asked once for each packet on the wire: is it lost?
            duplicate: Asked for each that is not: does it arrive twice?
            extra_delay_ns: Asked for each arrival: how much later does it come? This
                is what changes the order.
            ce: Asked for each arrival: is it marked "congestion experienced"?
            encoders: Those of the two ends: then bytes travel, and the other end
                decodes them. None: bursts travel.
        """
        self.left = Side(left)
        self.right = Side(right)
        self.clock = VirtualClock()
        self.dropped = 0
        self._delay_ns = delay_ns
        self._drop = drop
        self._duplicate = duplicate
        self._extra_delay_ns = extra_delay_ns
        self._ce = ce
        self._encoders = encoders
        self._order = count()
        self._wire: list[Arrival] = []

    @property
    def now_ns(self) -> int:
        """The time."""
        return self.clock.now_ns

    def post(self, message_id: int, size_bytes: int, *, qpn: int | None = None) -> None:
        """Send a message from left to right, on queue pair *qpn* (None: the first)."""
        if qpn is None:
            qpn = self.left.port.queue_pairs()[0].qpn
        self.left.port.post_send(qpn, message_id, size_bytes, self.clock.now_ns)

    def run(self, *, limit_ns: int = 10**12) -> None:
        """Continue until there is no event.

        Raises:
            Livelock: If that is not the case at *limit_ns*.
        """
        while self.step():
            if self.clock.now_ns > limit_ns:
                raise Livelock(f"still busy at {self.clock.now_ns} ns")

    def step(self) -> bool:
        """Jump to the next event and handle it; False: there is none."""
        time_ns = min(
            self.left.port.next_wakeup_ns(),
            self.right.port.next_wakeup_ns(),
            self._wire[0].time_ns if self._wire else NEVER,
        )
        if time_ns == NEVER:
            return False
        self.clock.advance_to(time_ns)
        while self._wire and self._wire[0].time_ns <= self.clock.now_ns:
            self._arrive()
        self._serve(self.left, self.right)
        self._serve(self.right, self.left)
        return True

    def _serve(self, side: Side, other: Side) -> None:
        now_ns = self.clock.now_ns
        side.port.handle_timers(now_ns)
        while (burst := side.port.next_burst(now_ns)) is not None:
            side.departures.append(Departure(time_ns=now_ns, burst=burst))
            self._send(burst, side, other)
        while (event := side.port.next_event()) is not None:
            side.events.append(event)

    def _send(self, burst: Burst, side: Side, other: Side) -> None:
        """Put the packets of a burst on the wire."""
        packets: list[bytes] | None = None
        if self._encoders is not None:
            packets = split(*self._encoders[side is self.right].encode(burst))
        for position in range(burst.count):
            if self._drop is not None and self._drop():
                self.dropped += 1
                continue
            copies = 1 + (self._duplicate is not None and self._duplicate())
            for _ in range(copies):
                extra_ns = self._extra_delay_ns() if self._extra_delay_ns else 0
                arrival = Arrival(
                    time_ns=self.clock.now_ns + self._delay_ns + extra_ns,
                    order=next(self._order),
                    side=other,
                    burst=burst,
                    position=position,
                    data=None if packets is None else packets[position],
                    ce=(self._ce is not None and self._ce()) or burst.is_marked,
                )
                heappush(self._wire, arrival)

    def _arrive(self) -> None:
        """Deliver the next packet, with the following ones of its burst."""
        arrival = heappop(self._wire)
        together = [arrival]
        while self._wire and self._wire[0].follows(together[-1], first=arrival):
            together.append(heappop(self._wire))
        port = arrival.side.port
        if arrival.data is None:
            port.receive_burst(
                arrival.burst,
                arrival.time_ns,
                arrival.position,
                len(together),
                sum(each.ce for each in together),
            )
        else:
            data = b"".join(each.data or b"" for each in together)
            port.receive_datagrams(
                data,
                len(data),
                len(arrival.data) if len(together) > 1 else 0,
                arrival.time_ns,
                arrival.ce,
                arrival.burst.source_port,
            )


def split(data: memoryview, segment_size: int) -> list[bytes]:
    """Return the packets of an encoded burst."""
    return [
        bytes(data[start : start + segment_size])
        for start in range(0, len(data), segment_size)
    ]


def make_queue_pair(
    qpn: int = 0x11,
    remote_qpn: int = 0x12,
    *,
    send_psn: int = 0,
    receive_psn: int = 0,
    source_port: int = 0xC000,
    destination: int = 0,
    congestion_control: CongestionControl | None = None,
    cnp_interval_ns: int | None = None,
    burst_ns: int = 15_000,
    overhead_bytes: int = IPV4_OVERHEAD_BYTES,
    remote_address: int = 0,
    remote_key: int = 0,
    memory: MemoryRegion | None = None,
    verb: Verb = Verb.WRITE,
    **settings: Any,
) -> QueuePair:
    """Return a queue pair with values that suit most tests.

    *settings* are those of ``TransportPlan``.
    """
    return QueuePair(
        QueuePairPlan(
            group="world",
            channel=0,
            peer_rank=1,
            qpn=qpn,
            remote_qpn=remote_qpn,
            remote_port=1,
            remote_address="192.0.2.1",
            remote_udp_port=UDP_PORT,
            source_port=source_port,
            send_psn=send_psn,
            receive_psn=receive_psn,
        ),
        TransportPlan(**(_USUAL | settings), verb=verb.name.lower()),
        destination=destination,
        congestion_control=congestion_control or CongestionControl(),
        burst_ns=burst_ns,
        cnp_limiter=None if cnp_interval_ns is None else CnpLimiter(cnp_interval_ns),
        overhead_bytes=overhead_bytes,
        remote_address=remote_address,
        remote_key=remote_key,
        memory=memory,
    )


_USUAL: dict[str, Any] = {
    "path_mtu": 1024,
    "retransmit_timeout_ns": 1_000_000,
    "ack_interval_packets": 16,
    "burst_bound_ns": 15_000,
}

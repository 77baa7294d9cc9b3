# cython: language_level=3, annotation_typing=False
"""The virtual fabric: endpoints joined by links with rate and delay, in virtual time.

Every direction of a link is a FIFO queue without limit in front of a wire: a burst that
comes at *t* begins to leave at ``max(t, wire free)``, occupies the wire for its bytes
at the link's rate, and reaches the next node one propagation delay after its last bit
left (store and forward).  Hosts and switches take no time of their own, and no wire
lies between two ranks on one port.  Nothing is random and ties are broken by the order
in which events were made, so a run repeats exactly.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from chakram.errors import RunFailed
from chakram.roce.constants import NEVER, BurstKind
from chakram.units import LAST_INSTANT_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from chakram.predict.simulator.marking import EcnMarker
    from chakram.replay.endpoint import Endpoint
    from chakram.roce.burst import Burst

__all__ = ["VirtualFabric", "Wire"]

_NEVER = NEVER
_DATA = int(BurstKind.DATA)
_BITS_PER_BYTE_NS = 8_000_000_000  # bits in a byte x nanoseconds in a second
_LARGEST = (1 << 63) - 1
_EVENTS_PER_REPORT = 20_000
_LAST_NS = LAST_INSTANT_NS
_YEAR_NS = 365 * 24 * 3600 * 10**9


def _out_of_time() -> RunFailed:
    return RunFailed(
        "simulation",
        f"would take more than {_LAST_NS // _YEAR_NS} years of virtual time",
        "raise the rates of links, or lower delays, gaps, starts and compute.scale",
    )


class Wire:
    """One direction of a link.

    Attributes:
        name: The port where it begins.
        rate_bps: 0: no limit.
        delay_ns: Propagation.
        marker: What marks data that finds a long queue here, or None.
        sent_bytes: What has entered it.
        bursts: In how many parts.
    """

    __slots__ = (
        "_free_ns",
        "_remainder",
        "bursts",
        "delay_ns",
        "marker",
        "name",
        "rate_bps",
        "sent_bytes",
    )

    def __init__(
        self,
        *,
        name: str,
        rate_bps: int | None,
        delay_ns: int,
        marker: EcnMarker | None = None,
    ) -> None:
        self.name = name
        self.marker = marker
        self.rate_bps = rate_bps or 0
        self.delay_ns = delay_ns
        # When its last bit leaves: whole nanoseconds, and rate_bps-ths of one.
        self._free_ns = 0
        self._remainder = 0
        self.sent_bytes = 0
        self.bursts = 0

    def enter(self, wire_bytes: int, now_ns: int) -> int:
        """Queue a burst; return when its last bit reaches the other end."""
        self.sent_bytes += wire_bytes
        self.bursts += 1
        if self.rate_bps == 0:
            return now_ns + self.delay_ns
        if now_ns > self._free_ns:
            self._free_ns = now_ns
            self._remainder = 0
        # At 400 Gbit/s an ACK takes 1.24 ns: rounding each one would be a tenth.
        work = wire_bytes * _BITS_PER_BYTE_NS + self._remainder
        self._free_ns += work // self.rate_bps
        self._remainder = work % self.rate_bps
        if self._free_ns > _LAST_NS:
            raise _out_of_time()
        if self._remainder:
            return self._free_ns + 1 + self.delay_ns
        return self._free_ns + self.delay_ns

    def queue_bytes(self, now_ns: int) -> int:
        """Return what has entered and not left yet."""
        waiting_ns = self._free_ns - now_ns
        if waiting_ns <= 0:
            return 0
        if waiting_ns > _LARGEST // self.rate_bps:
            # More than a gigabyte: the exact product would not fit.
            return waiting_ns // 8_000 * self.rate_bps // 1_000_000
        return waiting_ns * self.rate_bps // _BITS_PER_BYTE_NS


class VirtualFabric:
    """Endpoints and the wires between them, driven by events.

    Args:
        endpoints: One per port.
        route: For (sending endpoint, destination index of the burst, source port) the
            wires of the path in order, and the endpoint at its end.

    Attributes:
        now_ns: The virtual time.
        events: How many there were: bursts that came to a node, and wake-ups.
    """

    __slots__ = (
        "_endpoints",
        "_finished",
        "_has_failed",
        "_heap",
        "_marks",
        "_number",
        "_paths",
        "_route",
        "_unfinished",
        "_wake_ns",
        "events",
        "now_ns",
    )

    def __init__(
        self,
        *,
        endpoints: list[Endpoint],
        route: Callable[[int, int, int], tuple[list[Wire], int]],
    ) -> None:
        self.now_ns = 0
        self.events = 0
        self._endpoints = endpoints
        self._route = route
        self._paths: dict[int, tuple[list[Wire], int]] = {}
        # (time, number, receiving endpoint, wires of the path, how many of them are
        # crossed, burst); an endpoint without a burst is woken.
        self._heap: list[tuple[int, int, int, list[Wire], int, Burst | None]] = []
        # Packets marked so far, of those bursts under way that have any.
        self._marks: dict[Burst, int] = {}
        self._number = 0
        self._wake_ns = [NEVER] * len(endpoints)
        self._finished = [False] * len(endpoints)
        self._unfinished = len(endpoints)
        self._has_failed = False

    def run(
        self, *, start_ns: int, report: Callable[[int], None] | None = None
    ) -> bool:
        """Run until every endpoint has finished; return whether that was reached.

        It is not if an endpoint failed, or if no event is left: timers of congestion
        control rest with their queue pairs, so a job that hangs comes to an end.

        Args:
            start_ns: When all ranks start.
            report: Called now and then with the iterations that all ranks have done.
        """
        for index, endpoint in enumerate(self._endpoints):
            endpoint.arm(start_ns)
            self._wake(index)
        report_at = _EVENTS_PER_REPORT
        while self._unfinished and not self._has_failed:
            if not self._step():
                return False
            if self.events >= report_at:
                report_at = self.events + _EVENTS_PER_REPORT
                if report is not None:
                    report(min(each.iterations_done() for each in self._endpoints))
        return not self._has_failed

    def _step(self) -> bool:
        """Let the next event happen; False: there is none."""
        if not self._heap:
            return False
        time_ns, _, index, wires, crossed, burst = heappop(self._heap)
        if burst is None:
            if self._wake_ns[index] != time_ns:
                return True  # woken earlier meanwhile
            self._wake_ns[index] = _NEVER
        if time_ns > _LAST_NS:
            raise _out_of_time()
        self.now_ns = time_ns
        self.events += 1
        if burst is None:
            self._drive(index)
        elif crossed < len(wires):
            self._forward(burst, index, wires, crossed)
        else:
            engine = self._endpoints[index].engine
            if self._marks:
                ce = self._marks.pop(burst, 0)
                engine.receive_burst(burst, time_ns, 0, None, ce)
            else:
                engine.receive_burst(burst, time_ns)
            self._drive(index)
        return True

    def _drive(self, index: int) -> None:
        """Let an endpoint act now: completions, timers, whatever may leave."""
        endpoint = self._endpoints[index]
        engine = endpoint.engine
        now_ns = self.now_ns
        endpoint.advance(now_ns)
        if not self._finished[index] and endpoint.finished():
            self._finished[index] = True
            self._unfinished -= 1
        if endpoint.failed() is not None:
            self._has_failed = True
        burst = engine.next_burst(now_ns)
        while burst is not None:
            # 24 bits of QPN bound the destinations of a port.
            key = (index << 24 | burst.destination) << 16 | burst.source_port
            path = self._paths.get(key)
            if path is None:
                path = self._route(index, burst.destination, burst.source_port)
                self._paths[key] = path
            wires, receiver = path
            self._forward(burst, receiver, wires, 0)
            burst = engine.next_burst(now_ns)
        self._wake(index)
        if endpoint.woken:
            for other in endpoint.woken:
                self._wake(self._endpoints.index(other))
            endpoint.woken = []

    def _forward(
        self, burst: Burst, receiver: int, wires: list[Wire], crossed: int
    ) -> None:
        """Send a burst over the next wire of its path."""
        arrival_ns = self.now_ns
        if wires:
            wire = wires[crossed]
            if wire.marker is not None and burst.kind == _DATA:
                self._mark(burst, wire)
            arrival_ns = wire.enter(burst.wire_bytes, arrival_ns)
        self._number += 1
        heappush(
            self._heap,
            (arrival_ns, self._number, receiver, wires, crossed + 1, burst),
        )

    def _mark(self, burst: Burst, wire: Wire) -> None:
        """Mark the packets of *burst* that find too much before them on *wire*."""
        marker = wire.marker
        if marker is None:
            return
        count = burst.count
        queue_bytes = wire.queue_bytes(self.now_ns)
        marked = marker.marks(queue_bytes, count, burst.wire_bytes // count)
        if marked > 0:
            # Which ones are marked is not kept: of a burst that is marked on two
            # wires the packets are taken to be different ones.
            marked += self._marks.get(burst, 0)
            self._marks[burst] = marked if marked < count else count

    def _wake(self, index: int) -> None:
        """See that an endpoint is woken when it has something to do."""
        endpoint = self._endpoints[index]
        wake_ns = endpoint.next_wakeup_ns()
        if wake_ns < self.now_ns:
            wake_ns = self.now_ns
        if wake_ns < self._wake_ns[index]:
            self._wake_ns[index] = wake_ns
            self._number += 1
            heappush(self._heap, (wake_ns, self._number, index, [], 0, None))

# cython: language_level=3, annotation_typing=False
"""The virtual fabric: endpoints joined by links with rate and delay, in virtual time.

Every direction of a link is a FIFO queue without limit in front of a wire: a burst that
comes at *t* begins to leave at ``max(t, wire free)``, occupies the wire for its bytes
at the link's rate, and reaches the next node one propagation delay after its last bit
left (store and forward).  Hosts and switches take no time of their own.  Nothing is
random and ties are broken by the order in which events were made, so a run repeats
exactly.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from chakram.roce.constants import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from chakram.replay.endpoint import Endpoint
    from chakram.roce.burst import Burst

_EVENTS_PER_REPORT = 20_000


class Wire:
    """One direction of a link."""

    __slots__ = ("bursts", "delay_ns", "free_ns", "name", "rate_bps", "sent_bytes")

    def __init__(self, *, name: str, rate_bps: int | None, delay_ns: int) -> None:
        self.name = name
        self.rate_bps = rate_bps or 0
        self.delay_ns = delay_ns
        self.free_ns = 0
        self.sent_bytes = 0
        self.bursts = 0

    def enter(self, wire_bytes: int, now_ns: int) -> int:
        """Queue a burst; return when its last bit reaches the other end."""
        start_ns = now_ns if now_ns > self.free_ns else self.free_ns
        if self.rate_bps:
            # Rounded up: a wire never carries more than its rate.
            start_ns += -(-wire_bytes * 8_000_000_000 // self.rate_bps)
        self.free_ns = start_ns
        self.sent_bytes += wire_bytes
        self.bursts += 1
        return start_ns + self.delay_ns


class VirtualFabric:
    """Endpoints and the wires between them, driven by events.

    Args:
        endpoints: One per port.
        route: For (sending endpoint, destination index of the burst, source port) the
            wires of the path in order, and the endpoint at its end.
    """

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
        self._paths: dict[tuple[int, int, int], tuple[list[Wire], int]] = {}
        # (time, number, receiving endpoint, wires still to cross, burst); an endpoint
        # without a burst is woken.
        self._heap: list[tuple[int, int, int, list[Wire], int, Burst | None]] = []
        self._number = 0
        self._wake_ns = [NEVER] * len(endpoints)
        self._finished = [False] * len(endpoints)
        self._unfinished = len(endpoints)

    def run(
        self,
        *,
        start_ns: int,
        limit_ns: int,
        report: Callable[[int], None] | None = None,
    ) -> bool:
        """Run until every endpoint has finished; return whether that was reached.

        Args:
            start_ns: When all ranks start.
            limit_ns: Virtual time at which to give up.
            report: Called now and then with the iterations that all ranks have done.
        """
        endpoints = self._endpoints
        for index, endpoint in enumerate(endpoints):
            endpoint.arm(start_ns)
            self._wake(index)
        heap = self._heap
        while heap and self._unfinished:
            time_ns, _, index, wires, hop, burst = heappop(heap)
            if time_ns > limit_ns:
                return False
            self.now_ns = time_ns
            self.events += 1
            if burst is not None:
                if hop < len(wires):
                    self._forward(burst, index, wires, hop, time_ns)
                    continue
                endpoints[index].engine.receive_burst(burst, time_ns)
            elif self._wake_ns[index] != time_ns:
                continue  # woken earlier meanwhile
            else:
                self._wake_ns[index] = NEVER
            self._drive(index, time_ns)
            if self.events % _EVENTS_PER_REPORT == 0 and report is not None:
                report(min(endpoint.iterations_done() for endpoint in endpoints))
        return not self._unfinished

    def _drive(self, index: int, now_ns: int) -> None:
        """Let an endpoint act now: completions, timers, whatever may leave."""
        endpoint = self._endpoints[index]
        endpoint.advance(now_ns)
        if not self._finished[index] and endpoint.finished():
            self._finished[index] = True
            self._unfinished -= 1
        engine = endpoint.engine
        while (burst := engine.next_burst(now_ns)) is not None:
            key = (index, burst.destination, burst.source_port)
            path = self._paths.get(key)
            if path is None:
                path = self._paths[key] = self._route(*key)
            wires, receiver = path
            self._forward(burst, receiver, wires, 0, now_ns)
        self._wake(index)

    def _forward(
        self, burst: Burst, receiver: int, wires: list[Wire], hop: int, now_ns: int
    ) -> None:
        # No wires: both ranks are on one port, which no network lies between.
        arrival_ns = wires[hop].enter(burst.wire_bytes, now_ns) if wires else now_ns
        self._number += 1
        heappush(
            self._heap, (arrival_ns, self._number, receiver, wires, hop + 1, burst)
        )

    def _wake(self, index: int) -> None:
        wake_ns = self._endpoints[index].next_wakeup_ns()
        if wake_ns < self.now_ns:
            wake_ns = self.now_ns
        if wake_ns < self._wake_ns[index] or self._wake_ns[index] == NEVER:
            if wake_ns == NEVER:
                return
            self._wake_ns[index] = wake_ns
            self._number += 1
            heappush(self._heap, (wake_ns, self._number, index, [], 0, None))

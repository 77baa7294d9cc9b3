"""Laws of a common order: the earliest message is first, and all are sent."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from chakram.roce.burst import Burst
from chakram.roce.constants import BurstKind
from chakram.roce.port import PortEngine
from chakram.roce.queue_pair import QueuePair
from chakram.roce.send_order import SendOrder
from tests.virtual_wire import make_queue_pair

MTU = 256
ORDERED, FREE = (0, 1, 2, 3), (4, 5)

posts = st.tuples(
    st.just("post"),
    st.sampled_from(ORDERED + FREE),
    st.integers(0, 12 * MTU),
    st.integers(0, 5),
)
others = st.tuples(st.sampled_from(["send", "send", "arrive", "arrive", "lose"]))
happenings = st.lists(st.one_of(posts, others), max_size=120)


class Wires:
    """A port whose queue pairs 0 to 3 share an order, and its peers."""

    def __init__(self) -> None:
        self.port = PortEngine(rate_bps=None, burst_bound_ns=0, max_burst_packets=2)
        self.peers: dict[int, QueuePair] = {}
        self.under_way: deque[Burst] = deque()
        self.order_of: dict[tuple[int, int], int] = {}
        self.done: list[tuple[int, int]] = []
        self.now_ns = 0
        shared = SendOrder()
        for qpn in ORDERED + FREE:
            settings = {
                "path_mtu": MTU,
                "window_bytes": 4 * MTU,
                "ack_interval_packets": 2,
                "retransmit_timeout_ns": 1_000,
                "retry_limit": 1_000,
            }
            self.port.add_queue_pair(
                make_queue_pair(qpn, 100 + qpn, **settings),
                shared if qpn in ORDERED else None,
            )
            self.peers[qpn] = make_queue_pair(100 + qpn, qpn, **settings)

    def post(self, qpn: int, size_bytes: int, order: int) -> None:
        number = len(self.order_of)
        self.order_of[qpn, number] = order
        self.port.post_send(qpn, number, size_bytes, self.now_ns, order)

    def send(self) -> bool:
        """Send one burst; check that its message is next."""
        self.port.handle_timers(self.now_ns)
        may_send = [
            self.port.queue_pair(qpn)
            for qpn in ORDERED
            if self.port.queue_pair(qpn).requester.ready_ns() <= self.now_ns
        ]
        earliest = min((each.requester.sending_order() for each in may_send), default=0)
        burst = self.port.next_burst(self.now_ns)
        if burst is None:
            assert not may_send
            return False
        assert burst.kind == BurstKind.DATA
        if burst.source_qpn in ORDERED:
            assert self.order_of[burst.source_qpn, burst.message_id] == earliest
        self.under_way.append(burst)
        return True

    def arrive(self) -> None:
        """Deliver the oldest burst, and the answers to it."""
        burst = self.under_way.popleft()
        peer = self.peers[burst.source_qpn]
        peer.receive_burst(burst, self.now_ns)
        while (answer := peer.next_burst(self.now_ns, 1)) is not None:
            self.port.receive_burst(answer, self.now_ns)
        while (entry := self.port.next_event()) is not None:
            self.done.append((entry[0], entry[1].message_id))


@given(happenings)
def test_the_earliest_message_goes_first_and_all_arrive(
    what: list[tuple[str, ...] | tuple[str, int, int, int]],
) -> None:
    wires = Wires()
    for name, *arguments in what:
        wires.now_ns += 10
        if name == "post":
            wires.post(*arguments)
        elif name == "send":
            wires.send()
        elif wires.under_way:
            if name == "arrive":
                wires.arrive()
            else:
                wires.under_way.popleft()
    for _ in range(10_000):
        if len(wires.done) == len(wires.order_of):
            break
        wires.now_ns += 10
        if not wires.send():
            if wires.under_way:
                wires.arrive()
            else:
                wires.now_ns = max(wires.now_ns, wires.port.next_wakeup_ns())
    assert sorted(wires.done) == sorted(wires.order_of)

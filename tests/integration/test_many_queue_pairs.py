"""What a packet costs does not depend on how many queue pairs a port has."""

from __future__ import annotations

import gc
import time

import pytest

from chakram._compiled import status
from chakram.roce.congestion import FixedRate
from chakram.roce.port import PortEngine
from chakram.roce.turns import SendOrder
from chakram.roce.wire import WireEncoder
from chakram.testing.pair import make_queue_pair

FEW, MANY = 10, 10_000
PACKETS = 20_000
ROUNDS = 12
"""Something else may keep the machine, and its caches, busy for a while."""

MOST = 2.0
"""Ten thousand queue pairs do not fit in the caches; that is all that they may cost:
usually 1.1 to 1.25.  Anything that looks at all of them would cost hundreds."""


class Traffic:
    """Queue pairs of one port that always have something to send to another.

    Args:
        count: Of queue pairs.
        kind: ``turns``: all take turns; ``paced``: a rate spaces the packets of each;
            ``ordered``: each has an earlier message than the next one.
    """

    def __init__(self, count: int, *, kind: str) -> None:
        self._ports = tuple(port(count, end, kind=kind) for end in (1, 2))
        self._encoders = tuple(encoder(end) for end in (1, 2))
        self._now_ns = 0
        for pair in self._ports[0].queue_pairs():
            order = pair.qpn if kind == "ordered" else 0
            self._ports[0].post_send(pair.qpn, 1, 1 << 30, 0, order)
        # Every queue pair has been used.
        self.send(4 * count)

    def send(self, packets: int) -> float:
        """Send about so many; return what each of them cost, in ns of this process."""
        sender, receiver = self._ports
        encode = self._encoders[0].encode
        began_ns, sent = time.process_time_ns(), 0
        while sent < packets:
            self._now_ns = max(self._now_ns, sender.next_wakeup_ns())
            while (burst := sender.next_burst(self._now_ns)) is not None:
                sent += burst.count
                view, segment_size = encode(burst)
                receiver.receive_datagrams(view, len(view), segment_size, self._now_ns)
                self._answer()
                if sent >= packets:
                    break
        return (time.process_time_ns() - began_ns) / sent

    def _answer(self) -> None:
        sender, receiver = self._ports
        while (burst := receiver.next_burst(self._now_ns)) is not None:
            view, segment_size = self._encoders[1].encode(burst)
            sender.receive_datagrams(view, len(view), segment_size, self._now_ns)


def port(count: int, end: int, *, kind: str) -> PortEngine:
    made = PortEngine(rate_bps=None, burst_bound_ns=15_000, max_burst_packets=4)
    shared = SendOrder() if kind == "ordered" else None
    for number in range(2, count + 2):
        made.add_queue_pair(
            make_queue_pair(
                end << 20 | number,
                (3 - end) << 20 | number,
                path_mtu=4096,
                source_port=0xC000 + number % 64,
                congestion_control=FixedRate(rate_bps=10**10 // count)
                if kind == "paced"
                else None,
                retransmit_timeout_ns=10**10,
            ),
            shared,
        )
    return made


def encoder(end: int) -> WireEncoder:
    made = WireEncoder(
        local_address=f"198.18.0.{end}", path_mtu=4096, max_burst_packets=4
    )
    made.set_destination(0, f"198.18.0.{3 - end}")
    return made


@pytest.mark.slow
@pytest.mark.skipif(
    not status().is_compiled(), reason="the compiled form is what counts"
)
@pytest.mark.parametrize("kind", ["turns", "paced", "ordered"])
def test_a_packet_costs_the_same_with_ten_thousand_queue_pairs(kind: str) -> None:
    few, many = (Traffic(count, kind=kind) for count in (FEW, MANY))
    gc.collect()
    gc.freeze()
    try:
        least = [float("inf"), float("inf")]
        for _ in range(ROUNDS):
            costs = few.send(PACKETS), many.send(PACKETS)
            least = [min(pair) for pair in zip(least, costs, strict=True)]
            if least[1] < MOST * least[0]:
                return
    finally:
        gc.unfreeze()
    raise AssertionError(f"{least[1]:.0f} ns with {MANY}, {least[0]:.0f} with {FEW}")

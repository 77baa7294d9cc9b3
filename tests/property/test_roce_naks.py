"""Classification of NAKs: lost or reordered packets."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from chakram.roce.port import PortEngine
from tests.strategies import first_psns
from tests.virtual_wire import Pair, make_queue_pair

MTU = 1024
MESSAGES, PACKETS = 6, 10
"""What is sent: so many messages of so many packets."""


def sent_over(
    *, psn: int, burst_packets: int, lost: int | None = None, late: int | None = None,
    late_ns: int = 0,
) -> tuple[int, int]:  # fmt: skip
    """Return the number of NAKs for a packet, and of those for a late one.

    The wire loses data packet number *lost*, and *late* comes *late_ns* later.
    """
    port = PortEngine(
        rate_bps=10_000_000_000,
        burst_bound_ns=burst_packets * 1_000,
        max_burst_packets=burst_packets,
    )
    sender = make_queue_pair(0x11, 0x12, path_mtu=MTU, send_psn=psn)
    port.add_queue_pair(sender)
    receiver = make_queue_pair(0x12, 0x11, path_mtu=MTU, receive_psn=psn)
    packets = count()
    arrivals = count()
    pair = Pair(
        port,
        receiver,
        drop=None if lost is None else lambda: next(packets) == lost,
        extra_delay_ns=None
        if late is None
        else lambda: late_ns if next(arrivals) == late else 0,
    )
    for number in range(MESSAGES):
        pair.post(number, PACKETS * MTU)
    pair.run()
    counters, asked = receiver.statistics(), sender.statistics()
    assert counters.messages_received == MESSAGES
    return (
        counters.sequence_naks_sent,
        counters.sequence_naks_reordered + asked.naks_overtaken,
    )


positions = st.integers(0, MESSAGES * PACKETS - 1)


@given(psn=first_psns, burst_packets=st.integers(1, 8), lost=positions)
def test_lost_packets_are_not_counted_as_late(
    psn: int, burst_packets: int, lost: int
) -> None:
    naks, late = sent_over(psn=psn, burst_packets=burst_packets, lost=lost)

    assert late == 0
    assert naks <= 1


@given(
    psn=first_psns,
    burst_packets=st.integers(1, 8),
    late=positions,
    late_ns=st.integers(1, 30_000),
)
def test_late_packets_are_not_counted_as_lost(
    psn: int, burst_packets: int, late: int, late_ns: int
) -> None:
    naks, reordered = sent_over(
        psn=psn, burst_packets=burst_packets, late=late, late_ns=late_ns
    )

    assert reordered == naks


def test_lost_and_late_packets_are_requested() -> None:
    """Without these cases, the laws would check nothing."""
    assert sent_over(psn=0, burst_packets=4, lost=20) == (1, 0)
    # It overtakes what was sent again, or is acknowledged before that leaves, or late.
    for late_ns in (500, 1_500, 5_000, 20_000):
        naks, reordered = sent_over(psn=0, burst_packets=4, late=21, late_ns=late_ns)
        assert naks == reordered > 0

"""A law of PSNs: up to half of all PSNs behind are past, others are future."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tests.virtual_wire import make_queue_pair

CIRCLE = 2**24
HALF = CIRCLE // 2
distances = st.integers(-HALF, HALF - 1)
psns = st.integers(0, CIRCLE - 1)


@given(first_psn=psns, distance=distances)
@example(first_psn=0, distance=-HALF)
@example(first_psn=5, distance=1 - HALF)
@example(first_psn=CIRCLE - 1, distance=HALF - 1)
@example(first_psn=7, distance=-1)
@example(first_psn=7, distance=0)
@example(first_psn=CIRCLE - 1, distance=1)
def test_a_packet_is_a_duplicate_up_to_half_a_circle_behind(
    first_psn: int, distance: int
) -> None:
    qp = make_queue_pair(receive_psn=first_psn)
    qp.arrivals.receive_run(
        (first_psn + distance) % CIRCLE, 1, 0, True, True, 9, 9, 1, False, 0, 0
    )

    counters = qp.statistics()
    assert counters.duplicates == (distance < 0)
    assert counters.messages_received == (distance == 0)
    assert counters.out_of_sequence == (distance > 0)


@given(first_psn=psns, distance=distances, is_nak=st.booleans())
@example(first_psn=0, distance=-HALF, is_nak=False)
@example(first_psn=0, distance=-HALF, is_nak=True)
@example(first_psn=9, distance=1 - HALF, is_nak=True)
@example(first_psn=CIRCLE - 1, distance=HALF - 1, is_nak=False)
@example(first_psn=CIRCLE - 1, distance=2, is_nak=False)
@example(first_psn=CIRCLE - 1, distance=3, is_nak=True)
def test_an_answer_is_stale_up_to_half_a_circle_behind(
    first_psn: int, distance: int, is_nak: bool
) -> None:
    """Of five packets two are acknowledged: *distance* counts from the third."""
    qp = make_queue_pair(send_psn=first_psn)
    qp.post_send(1, 5 * 1024, 0)
    while qp.next_burst(0, 5) is not None:
        pass
    qp.arrivals.receive_ack(0x1F, (first_psn + 1) % CIRCLE, 0)
    syndrome = 0x60 if is_nak else 0x1F
    qp.arrivals.receive_ack(syndrome, (first_psn + 2 + distance) % CIRCLE, 0)

    counters = qp.statistics()
    assert counters.acks_invalid == (distance > 2)
    assert counters.naks_stale == (is_nak and distance < 0)
    assert counters.messages_completed == (not is_nak and distance == 2)

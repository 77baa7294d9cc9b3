"""Limits of fields: PSNs, MSNs and timer codes."""

from __future__ import annotations

import pytest

from chakram.roce.constants import MAX_OUTSTANDING_PACKETS, NEVER, Verb
from chakram.roce.opcodes import RNR_TIMER_NS
from chakram.roce.packet_encoder import WireEncoder
from tests.virtual_wire import make_queue_pair

MTU = 256
LONGEST = 2**31

# In units of 10 us, by code (IBA volume 1, table 45).
RNR_TIMERS = [
    *(65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512),
    *(768, 1_024, 1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576),
    *(32_768, 49_152),
]


def test_every_rnr_timer_code_has_a_time() -> None:
    assert [time_ns // 10_000 for time_ns in RNR_TIMER_NS] == RNR_TIMERS
    assert not any(time_ns % 10_000 for time_ns in RNR_TIMER_NS)


@pytest.mark.parametrize("code", range(32))
def test_requester_waits_for_the_requested_rnr_time(
    code: int,
) -> None:
    qp = make_queue_pair(rnr_retry_limit=7)
    qp.post_send(1, 10, 0)
    qp.next_burst(0, 1)
    qp.arrivals.receive_ack(0x20 | code, 0, 1_000)

    until_ns = 1_000 + RNR_TIMERS[code] * 10_000
    assert qp.next_burst(until_ns - 1, 1) is None
    assert qp.next_burst(until_ns, 1) is not None


@pytest.mark.parametrize("verb", list(Verb))
def test_unacknowledged_psns_stay_below_half_of_all(verb: Verb) -> None:
    assert MAX_OUTSTANDING_PACKETS == 2**23
    qp = make_queue_pair(
        path_mtu=MTU,
        send_psn=5,
        verb=verb,
        window_bytes=2**40,
        ack_interval_packets=2**30,
    )
    qp.post_send(1, 1, 0)
    qp.post_send(2, LONGEST, 0)  # as many packets, so it ends behind the limit
    bursts = list(iter(lambda: qp.next_burst(0, 2**21), None))

    assert sum(burst.count for burst in bursts) == 2**23
    # At the end of a message, and where nothing more may leave, an ACK is asked for.
    assert [burst.ack_request for burst in bursts] == [
        True,
        *(False for _ in bursts[2:]),
        True,
    ]
    assert qp.requester.ready_ns() == NEVER
    qp.arrivals.receive_ack(0x1F, 5 + 2, 0)
    more = qp.next_burst(0, 2**21)
    assert more is not None
    assert (more.count, more.psn, more.ack_request) == (1, 5 + 2**23, True)


def test_msn_wraps_without_changing_the_syndrome() -> None:
    qp = make_queue_pair()
    qp.responder.messages_received = 2**24 - 2
    encoder = WireEncoder(local_address="10.0.0.1", path_mtu=1024, max_burst_packets=1)
    encoder.set_destination(0, "10.0.0.2")
    aeths = []
    for psn in (0, 1, 2, 5):  # behind a gap, a NAK
        qp.arrivals.receive_run(psn, 1, 0, True, True, 1, 1, 1, True, 0, 0)
        answer = qp.next_burst(0, 1)
        assert answer is not None
        aeths.append(bytes(encoder.encode(answer)[0])[12:16].hex())

    assert aeths == ["1fffffff", "1f000000", "1f000001", "60000001"]

"""Lost, repeated, reordered and unanswered packets to and from Soft-RoCE."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.interop.softroce.disturbance import ARRIVING, LEAVING, lose
from tests.interop.softroce.host import exchange
from tests.interop.softroce.machine import LIMIT_S, Machine
from tests.interop.softroce.orders import LOSSY_TIMEOUT, LOSSY_TRANSPORT, Order

pytestmark = [pytest.mark.timeout(LIMIT_S), pytest.mark.slow]

MESSAGES = 512
"""On each of two queue pairs, in soak: so 1,024 each way and IP version."""
FEW = MESSAGES // 16
PACKETS_PER_MESSAGE = 5.5
"""On average more than that, without those that are sent again."""
LOSS = 0.05
WRAPPING_PSN = 0xFFFFFF - 500
"""PSNs begin again at 0 within what each of these exchanges sends."""


@pytest.mark.parametrize(
    ("version", "messages"),
    [
        (4, FEW),
        pytest.param(4, MESSAGES, marks=pytest.mark.soak),
        pytest.param(6, MESSAGES, marks=pytest.mark.soak),
    ],
)
def test_all_messages_arrive_when_packets_are_lost(
    disturbed: Machine, version: int, messages: int
) -> None:
    packets = PACKETS_PER_MESSAGE * messages
    for device in (LEAVING, ARRIVING):
        lose(disturbed, device, f"loss {LOSS:.0%}")
    outcome = exchange(
        disturbed,
        Order(
            version=version,
            to_guest=messages,
            to_host=messages,
            seed=f"loss {version}",
            first_psn=WRAPPING_PSN,
            transport=LOSSY_TRANSPORT,
            guest_timeout=LOSSY_TIMEOUT,
            limit_s=300,
        ),
    )

    outcome.check()
    for pair in outcome.pairs.values():
        assert pair.messages_completed == pair.messages_received == messages
        assert pair.packets_sent - pair.packets_retransmitted > packets
        # A busy guest stalls until timers run out, as often as it likes: so they
        # are not compared with NAKs.
        assert pair.retransmitted_for_nak > packets * LOSS
        assert pair.naks_sent > 0
        assert pair.acks_invalid == 0
    assert outcome.counters["out_of_seq_request"] > 0
    assert outcome.counters["rcvd_pkts"] < outcome.port.packets_sent


def test_duplicate_and_late_packets_and_answers_are_accepted(
    disturbed: Machine,
) -> None:
    for device in (LEAVING, ARRIVING):
        lose(disturbed, device, "delay 2ms reorder 97% duplicate 10%")
    outcome = exchange(
        disturbed,
        Order(
            version=4,
            to_guest=40,
            to_host=40,
            seed="twice",
            first_psn=WRAPPING_PSN,
            transport=LOSSY_TRANSPORT,
            guest_timeout=LOSSY_TIMEOUT,
        ),
    )

    outcome.check()
    for pair in outcome.pairs.values():
        assert pair.messages_completed == pair.messages_received == 40
        assert pair.duplicates > 0
        # A NAK that comes twice moves nothing the second time.
        assert pair.naks_stale > 0
        assert pair.acks_invalid == 0
    assert outcome.counters["duplicate_request"] > 0


@pytest.mark.parametrize("loss", [pytest.param("0%", marks=pytest.mark.soak), "5%"])
def test_receiver_that_is_not_ready_gets_the_message_later(
    disturbed: Machine, loss: str
) -> None:
    for device in (LEAVING, ARRIVING):
        lose(disturbed, device, f"loss {loss}")
    outcome = exchange(
        disturbed,
        Order(
            version=4,
            to_guest=40,
            to_host=40,
            largest_bytes=100_000,
            seed="not ready",
            transport=LOSSY_TRANSPORT,
            guest_timeout=LOSSY_TIMEOUT,
            receives_after_s=0.5,
        ),
    )

    outcome.check()
    assert all(pair.receiver_not_ready > 0 for pair in outcome.pairs.values())
    # Where answers are lost, too, the guest may spend that time waiting for timeouts.
    least = 3 if loss == "0%" else 1
    assert outcome.pairs["send"].receiver_not_ready_sent >= least
    assert outcome.counters["rcvd_rnr_err"] >= least
    assert outcome.counters["send_rnr_err"] > 0


@pytest.mark.parametrize("device", [LEAVING, ARRIVING])
def test_requester_without_answers_gives_up(disturbed: Machine, device: str) -> None:
    lose(disturbed, device, "loss 100%")
    messages, retries = 5, 3
    outcome = exchange(
        disturbed,
        Order(
            version=4,
            to_guest=messages,
            to_host=messages,
            largest_bytes=10_000,
            seed="nothing",
            first_psn=WRAPPING_PSN,
            transport=replace(LOSSY_TRANSPORT, retry_limit=retries),
            guest_timeout=LOSSY_TIMEOUT,
            guest_retries=retries,
        ),
    )

    reason = f"gave up after {retries} retries: no ACK for PSN {WRAPPING_PSN}"
    assert outcome.failures == [reason, reason]
    assert all(pair.timeouts == retries + 1 for pair in outcome.pairs.values())
    assert all(pair.messages_completed == 0 for pair in outcome.pairs.values())
    # IBV_WC_RETRY_EXC_ERR for the first, IBV_WC_WR_FLUSH_ERR for the others: nothing
    # that was posted there hangs.
    assert outcome.guest["missing"] == 0
    for statuses in outcome.guest["statuses"].values():
        assert statuses["12"] == 1
        assert statuses["5"] >= messages - 1
    assert outcome.counters["retry_exceeded_err"] == 2

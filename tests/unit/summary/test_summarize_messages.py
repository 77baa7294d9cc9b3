"""Summaries of point-to-point messages, compared with hand-computed values."""

from __future__ import annotations

import pytest

from chakram.plan.wire_cost import wire_bytes
from chakram.summary.message_summary import MessageSummary, SentMessage, SharedPath
from chakram.summary.summarize_messages import busy_periods, summarize_messages
from tests.messages import JOB, message, transport


def summary(messages: list[SentMessage], nranks: int = 8) -> MessageSummary:
    found = summarize_messages(messages, transport(nranks))
    assert found is not None
    return found


def test_messages_that_overlap_are_one_busy_period() -> None:
    messages = [message(1, 0, 0, 10), message(2, 0, 5, 10), message(3, 0, 14, 2)]
    (period,) = busy_periods(reversed(messages))
    assert (period.begin_ns, period.end_ns, period.fan) == (0, 16_000, 2)
    assert period.messages == messages


def test_a_message_posted_when_the_last_is_acknowledged_begins_another() -> None:
    periods = busy_periods([message(1, 0, 0, 10), message(2, 0, 10, 5)])
    assert [(each.begin_ns, each.end_ns) for each in periods] == (
        [(0, 10_000), (10_000, 15_000)]
    )
    assert [each.fan for each in periods] == [1, 1]


def test_a_message_within_another_does_not_end_the_period() -> None:
    (period,) = busy_periods([message(1, 0, 0, 100), message(2, 0, 10, 5)])
    assert (period.end_ns, period.fan) == (100_000, 2)


def test_an_incast_is_judged_by_the_port_of_its_receiver() -> None:
    # Three messages of 1 Mbit into 1 Gbit/s: 3 ms, and some for headers and latency.
    messages = [
        message(src, 0, src * 10, 3800 - src * 10, fair_us=3040) for src in (1, 2, 3)
    ]
    found = summary(messages)
    (row,) = found.receivers
    assert (row.ranks, row.port, row.host) == ((0,), 0, "h0")
    assert (row.peers, row.fan, row.messages, row.periods) == (3, 3, 3, 1)
    assert row.busy_ns == row.time_ns == 3_790_000
    assert row.goodput_bps == pytest.approx(3_000_000 / 3.79e-3)
    assert row.goodput_share == pytest.approx(3 / 3.79)
    wire = wire_bytes(125_000, path_mtu=4096)
    assert row.wire_bytes == 3 * wire
    assert row.wire_share == pytest.approx(3 * wire * 8 / 3.79e6)
    # The last one is posted 20 us after the first and has its fair time then.
    assert row.fair_ns == 3_060_000
    assert row.fair_share == pytest.approx(3.06 / 3.79)
    assert (row.skew_ns, row.skew_max_ns) == (20_000, 20_000)
    assert row.fct.min_ns == 3_770_000
    assert row.fct.p50_ns == 3_780_000
    assert row.fct.max_ns == row.fct.p95_ns == row.fct.p99_ns == 3_790_000
    assert [sender.fan for sender in found.senders] == [1, 1, 1]


def test_a_sender_of_several_is_judged_by_its_own_port() -> None:
    messages = [message(0, dst, 0, 2030, fair_us=2030) for dst in (1, 2)]
    found = summary(messages)
    (row,) = found.senders
    assert (row.peers, row.fan, row.fair_share) == (2, 2, 1.0)
    assert row.wire_share == pytest.approx(1.0, rel=0.001)
    # Each receiver got half its rate, and that is all there was for it.
    assert [each.wire_share for each in found.receivers] == (
        pytest.approx([0.5, 0.5], rel=0.001)
    )
    assert [each.fair_share for each in found.receivers] == [1.0, 1.0]


def test_fairness_is_1_for_equal_delays() -> None:
    alike = [message(src, 0, 0, 400, fair_us=200) for src in (1, 2)]
    assert summary(alike).receivers[0].fairness == pytest.approx(1.0)
    # One has its fair time, the other a third of its share: (4/3)^2 / (2 * 10/9).
    apart = [message(1, 0, 0, 200, fair_us=200), message(2, 0, 0, 600, fair_us=200)]
    (row,) = summary(apart).receivers
    assert row.fairness == row.fairness_min == pytest.approx(0.8)


def test_small_messages_that_end_first_are_not_unfair() -> None:
    messages = [
        message(1, 0, 0, 20, size_bytes=1000, fair_us=20),
        message(2, 0, 0, 1000, fair_us=1000),
    ]
    assert summary(messages).receivers[0].fairness == pytest.approx(1.0)


def test_sequential_messages_share_no_time() -> None:
    messages = [message(src, 0, src * 2000, 1020, fair_us=1020) for src in (1, 2, 3)]
    (row,) = summary(messages).receivers
    assert (row.periods, row.fan) == (3, 1)
    assert row.fairness is row.fairness_min is row.skew_ns is None
    assert (row.time_ns, row.fair_ns) == (1_020_000, 1_020_000)


def test_pairs_begin_with_the_slowest() -> None:
    messages = [
        message(0, 1, 0, 1000, fair_us=1000),
        message(2, 3, 0, 1500, fair_us=1000, retransmitted=7, cnp=2),
        message(4, 5, 0, 1100, fair_us=1000),
        message(4, 5, 2000, 1100, fair_us=1000),
    ]
    found = summary(messages)
    assert [(row.src, row.dst) for row in found.pairs] == [(2, 3), (4, 5), (0, 1)]
    assert found.worst_over_median == pytest.approx(1.5 / 1.1)
    slowest, second, _ = found.pairs
    assert slowest.fair_share == pytest.approx(1 / 1.5)
    assert (slowest.retransmitted, slowest.cnp) == (7, 2)
    assert slowest.goodput_share == pytest.approx(1 / 1.5)
    assert (second.messages, second.mean_ns, second.fair_ns) == (2, 1.1e6, 1e6)
    # Two busy periods of 1.1 ms: what lies between them does not count.
    assert second.goodput_bps == pytest.approx(2e6 / 2.2e-3)


def test_counts_of_nics_are_unknown() -> None:
    messages = [
        message(0, 1, 0, 1000, retransmitted=3, cnp=1),
        message(0, 1, 2000, 1000, retransmitted=None, cnp=None),
    ]
    found = summary(messages)
    for row in (*found.pairs, *found.senders, *found.receivers):
        assert row.retransmitted is row.cnp is None


def test_slowest_messages_list_the_messages_that_they_share_ports_with() -> None:
    up, other = ("leaf0:up0", "spine0:down1"), ("leaf0:up1", "spine1:down1")
    messages = [
        message(0, 4, 0, 2000, fair_us=1000, path=up),
        message(1, 5, 0, 1500, fair_us=1000, path=up),
        message(2, 6, 0, 1000, fair_us=1000, path=other),
        message(3, 7, 1900, 1000, fair_us=1000, path=up),
        # It shares the sender's port too: that is in its fair time already.
        message(0, 6, 0, 2000, fair_us=2000, path=up),
    ]
    slowest = summary(messages).pairs[0]
    assert slowest.paths == (up,)
    assert slowest.met == (
        SharedPath(at="leaf0:up0", job=JOB, src=1, dst=5, share=0.75),
        SharedPath(at="leaf0:up0", job=JOB, src=3, dst=7, share=0.05),
    )


def test_pairs_of_two_jobs_are_two_whatever_their_ranks() -> None:
    up = ("leaf0:up0", "spine0:down1")
    messages = [
        message(0, 4, 0, 2000, fair_us=1000, path=up),
        message(1, 5, 0, 1000, fair_us=1000, path=up),
        message(1, 5, 0, 500, fair_us=500, path=up, job="other"),
        # The same ranks, but of another job: it is not in the fair time.
        message(0, 4, 0, 200, fair_us=200, path=up, job="other"),
    ]
    found = summarize_messages(messages, transport(8, jobs=(JOB, "other")))
    assert found is not None
    assert found.pairs[0].met == (
        SharedPath(at="leaf0:up0", job=JOB, src=1, dst=5, share=0.5),
        SharedPath(at="leaf0:up0", job="other", src=1, dst=5, share=0.25),
        SharedPath(at="leaf0:up0", job="other", src=0, dst=4, share=0.1),
    )


def test_pair_with_two_messages_at_once_is_listed_once() -> None:
    up = ("leaf0:up0", "spine0:down1")
    messages = [
        message(0, 4, 0, 2000, fair_us=1000, path=up),
        message(1, 5, 0, 600, fair_us=600, path=up),
        message(1, 5, 200, 800, fair_us=800, path=up),
    ]
    (met,) = summary(messages).pairs[0].met
    assert met.share == 0.5


def test_concurrent_messages_of_a_pair_count_separately() -> None:
    up = ("leaf0:up0", "spine0:down1")
    messages = [
        message(0, 4, 0, 2000, fair_us=500, path=up),
        message(0, 4, 0, 1000, fair_us=500, path=up),
        message(1, 5, 500, 1000, fair_us=1000, path=up),
    ]
    (met,) = summary(messages).pairs[0].met
    # Of 3 ms in all: of the long one 1 ms, of the short one half of that.
    assert met.share == pytest.approx(0.5)


def test_divided_message_shares_links_on_all_its_paths() -> None:
    ways = (("leaf0:up0", "spine0:down1"), ("leaf0:up1", "spine1:down1"))
    messages = [
        message(0, 4, 0, 2000, fair_us=1000)._replace(ways=ways),
        message(1, 5, 0, 1000, fair_us=1000, path=ways[1]),
    ]
    slowest = summary(messages).pairs[0]
    assert slowest.paths == ways
    (met,) = slowest.met
    assert (met.at, met.src, met.share) == ("leaf0:up1", 1, 0.5)


def test_pairs_without_a_fair_time_are_not_compared_with_those_that_have_one() -> None:
    messages = [
        message(0, 1, 0, 2000, fair_us=1000),
        message(2, 3, 0, 1000, fair_us=1000),
        # A thousand times slower by the byte, which says nothing beside the others.
        message(4, 5, 0, 1000, size_bytes=100),
        message(6, 7, 0, 1000, size_bytes=200),
    ]
    found = summary(messages)
    assert [row.src for row in found.pairs] == [0, 2, 4, 6]
    assert found.worst_over_median == 2.0


def test_paths_that_join_behind_the_first_switch_share_that_link() -> None:
    messages = [
        message(0, 4, 0, 2000, fair_us=1000, path=("leaf0:up0", "spine0:down2")),
        message(2, 5, 0, 2000, fair_us=1900, path=("leaf1:up0", "spine0:down2")),
    ]
    (met,) = summary(messages).pairs[0].met
    assert (met.at, met.src, met.dst) == ("spine0:down2", 2, 5)


def test_times_are_undilated() -> None:
    messages = [message(src, 0, 0, 3000, fair_us=2000) for src in (1, 2)]
    plain = summarize_messages(messages, transport(3))
    slow = summarize_messages(messages, transport(3), dilation=100)
    assert plain is not None
    assert slow is not None
    before, after = plain.receivers[0], slow.receivers[0]
    assert after.time_ns == before.time_ns / 100
    assert after.fct.p99_ns == before.fct.p99_ns / 100
    assert after.rate_bps == 10**11
    assert before.goodput_bps is not None
    assert after.goodput_bps == pytest.approx(100 * before.goodput_bps)
    assert after.goodput_share == before.goodput_share
    assert slow.pairs[0].fair_share == plain.pairs[0].fair_share


def test_messages_that_cross_no_port_are_left_out() -> None:
    within = [message(0, 1, 0, 100, fair_us=100)]
    assert summarize_messages(within, transport(4, ranks_per_port=2)) is None
    assert summarize_messages(within, transport(4, within_hosts=[(0, 1)])) is None
    assert summarize_messages([], transport(4)) is None
    both = [*within, message(0, 2, 0, 100, fair_us=100)]
    found = summarize_messages(both, transport(4, ranks_per_port=2))
    assert found is not None
    assert found.messages == 1


def test_ranks_of_one_port_share_a_row() -> None:
    messages = [message(0, 2, 0, 2000, fair_us=2000), message(1, 3, 0, 2000, fair_us=1)]
    found = summarize_messages(messages, transport(4, ranks_per_port=2))
    assert found is not None
    (row,) = found.receivers
    assert (row.ranks, row.peers, row.fan) == ((2, 3), 2, 2)


def test_marks_and_drops_are_counted_per_port() -> None:
    found = summarize_messages(
        [message(1, 0, 0, 10), message(2, 0, 0, 10), message(2, 3, 0, 10)],
        transport(4),
        marked={(JOB, 1, 0): 3, (JOB, 2, 0): 4, (JOB, 2, 3): 50},
        drops={("h0", "down"): 9, ("h2", "up"): 1},
    )
    assert found is not None
    zero, three = found.receivers
    assert (zero.marked, zero.drops) == (7, 9)
    assert (three.marked, three.drops) == (50, None)
    assert [sender.drops for sender in found.senders] == [None, 1]


def test_without_models_only_the_fair_time_is_missing() -> None:
    messages = [message(1, 0, 0, 1000), message(2, 0, 0, 3000)]
    found = summarize_messages(messages, transport(3, rate_bps=None))
    assert found is not None
    (row,) = found.receivers
    assert row.fair_ns is row.fair_share is row.goodput_share is row.rate_bps is None
    assert row.goodput_bps == pytest.approx(2e6 / 3e-3)
    assert row.fairness == pytest.approx(0.8)
    assert [(each.src, each.fair_ns) for each in found.pairs] == [(2, None), (1, None)]
    assert found.worst_over_median is None


def test_unknown_rates_give_no_fair_time() -> None:
    messages = [message(1, 0, 0, 1000, fair_us=0), message(2, 0, 50, 900, fair_us=0)]
    found = summarize_messages(messages, transport(3, rate_bps=None))
    assert found is not None
    (row,) = found.receivers
    assert row.fair_ns is row.fair_share is None
    assert [pair.fair_ns for pair in found.pairs] == [None, None]
    assert found.worst_over_median is None


def test_one_message_without_a_fair_time_removes_that_of_all() -> None:
    messages = [message(1, 0, 0, 10, fair_us=10), message(2, 0, 0, 10)]
    (row,) = summary(messages).receivers
    assert row.fair_ns is None


def test_empty_messages_are_accepted() -> None:
    found = summary([message(1, 0, 5, 0, size_bytes=0, fair_us=0)])
    (row,) = found.receivers
    assert row.goodput_bps is row.fair_share is None
    assert row.fct.max_ns == 0


def test_message_faster_than_fair_is_not_clipped() -> None:
    # The first took all of the port, so the second is late; together they are not.
    messages = [
        message(1, 0, 0, 1015, fair_us=2030),
        message(2, 0, 0, 2030, fair_us=2030),
    ]
    found = summary(messages)
    assert found.receivers[0].fair_share == 1.0
    assert [row.fair_share for row in found.pairs] == [1.0, 1.0]
    assert [row.fair_ns for row in found.pairs] == [1_015_000, 2_030_000]


def test_fair_time_does_not_depend_on_the_order_of_completion() -> None:
    # A small message that is due early ends last: the port was busy all along.
    messages = [
        message(1, 0, 0, 1000, fair_us=1100),
        message(2, 0, 0, 1150, size_bytes=12_500, fair_us=200),
    ]
    (row,) = summary(messages).receivers
    assert row.fair_ns == pytest.approx(1_120_000, rel=0.01)
    assert row.fair_share == pytest.approx(1_120 / 1_150, rel=0.01)


def test_port_above_its_rate_has_no_utilization() -> None:
    # 125 kB in half of the time that they take at 1 Gbit/s, as a burst that a shaper
    # lets pass.
    found = summary([message(1, 0, 0, 500, fair_us=1000)])
    (row,) = found.receivers
    assert row.is_faster
    assert row.goodput_bps == pytest.approx(2e9, rel=0.01)
    assert (row.goodput_share, row.wire_share) == (None, None)
    assert (row.fair_ns, row.fair_share) == (500_000, 1.0)
    assert found.pairs[0].goodput_share is None

"""Progress lines of a run, one per interval."""

from __future__ import annotations

from array import array

from chakram.records.counter_slots import TOTAL_SLOTS, slot
from chakram.summary.interval_lines import (
    HEADING,
    AgentSample,
    Intervals,
    agent_sample,
    time_left,
)

SECOND_NS = 10**9


def sample(megabytes: float, **more: object) -> AgentSample:
    return AgentSample(delivered_bytes=round(megabytes * 1e6), **more)  # type: ignore[arg-type] # any of its fields


def take(
    intervals: Intervals, agent: str, found: AgentSample, at_s: float, done: int = 0
) -> str | None:
    now_ns = round(at_s * SECOND_NS)
    return intervals.take(agent, found, now_ns=now_ns, done=done, total=6)


def test_line_covers_only_its_interval() -> None:
    intervals = Intervals(every_ns=SECOND_NS, begin_ns=0)
    first = sample(12.5, retransmitted=3, marked=10, busy_ns={0: 500_000_000})
    line = take(intervals, "a", first, 1.0, done=1)
    assert line is not None
    assert " ".join(line.split()) == "0.0-1.0 1/6 12.5 MB 100 Mbit/s 3 10 50% -"
    second = sample(14.5, retransmitted=4, marked=10, busy_ns={0: 600_000_000})
    line = take(intervals, "a", second, 3.0, done=2)
    assert line is not None
    assert " ".join(line.split()) == "1.0-3.0 2/6 2 MB 8 Mbit/s 1 0 5% -"
    assert len(HEADING) == len(line) <= 82


def test_rates_are_those_of_the_undilated_fabric() -> None:
    intervals = Intervals(every_ns=SECOND_NS, begin_ns=0, dilation=800)
    line = take(intervals, "a", sample(12.5), 1.0)
    assert line is not None
    assert " ".join(line.split()[:6]) == "0.0-1.0 0/6 12.5 MB 80 Gbit/s"


def test_a_line_waits_for_its_time_and_for_all_agents() -> None:
    intervals = Intervals(every_ns=SECOND_NS, begin_ns=0)
    assert take(intervals, "a", sample(1), 0.3) is None
    assert take(intervals, "b", sample(1), 0.4) is None
    # Nearly: counters of every second do not come at the very second.
    first = take(intervals, "a", sample(2), 0.98)
    assert first is not None
    assert " 3 MB " in first
    assert take(intervals, "a", sample(3), 1.99) is None
    second = take(intervals, "b", sample(4), 2.1)
    assert second is not None
    assert "1.0-2.1" in second
    # 1 MB of a in 1.01 s and 3 MB of b in 1.7 s.
    assert " 4 MB " in second
    assert "  22 Mbit/s" in second


def test_data_at_the_start_counts_for_one_nanosecond() -> None:
    intervals = Intervals(every_ns=0, begin_ns=0)
    line = take(intervals, "a", sample(1), 0.0)
    assert line is not None
    assert " 1 MB " in line


def test_the_busiest_process_counts() -> None:
    intervals = Intervals(every_ns=SECOND_NS, begin_ns=0)
    busy_ns = {0: 100_000_000, 1: 900_000_000, 2: 0}
    line = take(intervals, "a", sample(0, busy_ns=busy_ns), 1.0)
    assert line is not None
    assert line.endswith(" 90%       -")
    assert "     0 bit/s" in line.replace("  bit", " bit")


def test_samples_are_made_of_counters() -> None:
    values = array("q", bytes(8 * TOTAL_SLOTS))
    values[slot("delivered_bytes")] = 7
    values[slot("retransmitted_packets_nak")] = 1
    values[slot("retransmitted_packets_timeout")] = 2
    values[slot("retransmitted_packets_rnr")] = 4
    values[slot("ecn_marked_packets")] = 8
    assert agent_sample(values, {1: 5}) == AgentSample(
        delivered_bytes=7, retransmitted=7, marked=8, busy_ns={1: 5}
    )


def test_remaining_times_have_at_most_six_characters() -> None:
    seconds = [None, 0, 1, 59, 60, 3599, 3600, 99 * 3600]
    texts = [time_left(None if s is None else s * SECOND_NS) for s in seconds]
    assert texts == ["-", "0s", "1s", "59s", "1m00s", "59m59s", "1h00m", "99h00m"]
    assert time_left(1) == "1s"


def test_nearly_the_whole_interval_is_enough() -> None:
    # Three quarters of it; the next one counts from when this one was printed.
    intervals = Intervals(every_ns=SECOND_NS, begin_ns=0)
    assert take(intervals, "a", sample(1), 0.74) is None
    assert take(intervals, "a", sample(1), 0.75) is not None
    assert take(intervals, "a", sample(2), 1.49) is None
    assert take(intervals, "a", sample(2), 1.5) is not None

"""Counters of a switch become totals, samples, gaps and resets."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from chakram.telemetry import counter_history
from chakram.telemetry.counter_history import CounterHistory, Gap, grown
from chakram.telemetry.mapping import ALL_CLASSES, Reading

S = 10**9


def history(bits: int = 64, **settings: Any) -> CounterHistory:
    settings = {"spacing_ns": S // 2, "gap_ns": 3 * S, **settings}
    return CounterHistory(["p0", "p1"], bits=bits, **settings)


def sent(nbytes: int, port: str = "p0", traffic_class: int = ALL_CLASSES) -> Reading:
    return Reading(port, traffic_class, "sent_bytes", nbytes)


def test_what_was_counted_before_is_not_part_of_the_run() -> None:
    found = history()
    found.add(S, [sent(100)])
    before = found.mark(0)
    found.add(2 * S, [sent(170)])
    assert grown(before, found.mark(2 * S), "p0", "sent_bytes") == 70
    assert grown(before, found.mark(0), "p1", "sent_bytes") is None


def test_classes_are_summed_if_the_port_has_no_counter() -> None:
    found = history()
    found.add(S, [sent(1, traffic_class=0), sent(2, traffic_class=3)])
    before = found.mark(0)
    found.add(2 * S, [sent(11, traffic_class=0), sent(22, traffic_class=3)])
    assert grown(before, found.mark(0), "p0", "sent_bytes") == 30
    # A class that is missing at the end makes the sum unknown.
    found.add(3 * S, [sent(12, traffic_class=0)])
    assert grown(before, found.mark(3 * S), "p0", "sent_bytes") is None


def test_classes_do_not_replace_a_counter_of_the_port() -> None:
    found = history()
    found.add(S, [sent(5), sent(1, traffic_class=0)])
    before = found.mark(0)
    found.add(2 * S, [sent(9, traffic_class=0)])
    assert grown(before, found.mark(2 * S), "p0", "sent_bytes") is None


@pytest.mark.parametrize(
    ("bits", "first", "last", "expected"),
    [
        (32, (1 << 32) - 10, 5, 15),
        (32, (1 << 31) - 1, 5, None),  # less than half of the range: a reset
        (32, (1 << 32) - 10, 1 << 31, None),
        (64, (1 << 32) - 10, 5, None),
    ],
)
def test_wraps_and_resets(
    bits: int, first: int, last: int, expected: int | None
) -> None:
    found = history(bits)
    found.add(S, [sent(first)])
    before = found.mark(0)
    found.add(2 * S, [sent(last)])
    assert grown(before, found.mark(0), "p0", "sent_bytes") == expected
    assert found.resets == ([] if expected is not None else [("p0", 2 * S)])


def test_a_reset_concerns_all_counters_of_its_port() -> None:
    found = history()
    drops = Reading("p0", ALL_CLASSES, "drops", 0)
    found.add(S, [sent(100), sent(100, "p1"), drops])
    before = found.mark(0)
    found.add(2 * S, [sent(1), sent(101, "p1"), drops])
    after = found.mark(0)
    assert grown(before, after, "p0", "drops") is None
    assert grown(before, after, "p1", "sent_bytes") == 1


def test_gauges_may_go_back() -> None:
    found = history()
    found.add(S, [Reading("p0", 3, "queue_bytes", 100)])
    found.add(2 * S, [Reading("p0", 3, "queue_bytes", 10)])
    assert found.mark(0).value("p0", 3, "queue_bytes") == 10
    assert found.resets == []


def test_older_readings_and_unknown_ports_are_left_out() -> None:
    found = history()
    found.add(2 * S, [sent(100)])
    found.add(S, [sent(50), sent(1, "p7")])
    assert found.mark(0).value("p0", ALL_CLASSES, "sent_bytes") == 100
    assert found.unseen() == ["p1"]


def test_times_of_the_last_change_are_recognized() -> None:
    """Arista EOS repeats the time of a value until the value changes."""
    found = history()
    hour_ns = 3600 * S

    def send(now_s: int, nbytes: int, changed_s: int) -> None:
        arrived_ns = hour_ns + now_s * S
        for port in ("p0", "p1"):
            counted, moment_ns = (nbytes, changed_s) if port == "p0" else (7, 3)
            for reading, time_ns in (
                (sent(counted, port), hour_ns + moment_ns * S),
                (Reading(port, ALL_CLASSES, "drops", 0), S),
            ):
                found.add(time_ns, [reading], arrived_ns=arrived_ns)

    send(10, 100, 5)
    assert not found.is_complete(hour_ns + 7 * S)
    send(11, 100, 5)
    assert found.are_changes
    send(13, 300, 12)
    assert found.is_complete(hour_ns + 12 * S)  # up to an interval before its arrival
    assert not found.is_complete(hour_ns + 13 * S)
    after = found.mark(hour_ns + 12 * S)
    assert after.value("p0", ALL_CLASSES, "sent_bytes") == 300
    assert after.value("p1", ALL_CLASSES, "drops") == 0
    # Samples have the times of changes, and idle ports have no gaps.
    times = [(time_ns - hour_ns) // S for time_ns, port, *_ in found.samples()]
    assert 5 in times
    assert 12 in times
    assert found.gaps == []
    send(30, 300, 12)
    assert [gap.port for gap in found.gaps] == ["p0", "p1"]


def test_values_that_are_read_rarely_are_not_current_when_they_are_sent() -> None:
    found = history()
    for now_s in range(1, 40):
        # The switch reads its counters every 30 s, and sends them every second.
        found.add(S + now_s // 30 * 30 * S, [sent(5)], arrived_ns=S + now_s * S)
    assert not found.are_changes
    assert found.mark(31 * S).value("p0", ALL_CLASSES, "sent_bytes") == 5
    assert found.mark(32 * S).value("p0", ALL_CLASSES, "sent_bytes") is None


def test_a_late_message_does_not_move_a_sample_back() -> None:
    found = history()
    found.add(10 * S, [sent(5)])
    found.add(2 * S, [Reading("p0", ALL_CLASSES, "drops", 0)])
    assert [time_ns for time_ns, *_ in found.samples()] == [10 * S]


def test_a_mark_has_only_what_is_new_enough() -> None:
    found = history()
    found.add(S, [sent(1), sent(1, "p1")])
    found.add(2 * S, [sent(2)])
    assert found.is_complete(S)
    assert not found.is_complete(2 * S)
    assert found.mark(2 * S).value("p1", ALL_CLASSES, "sent_bytes") is None


def test_a_long_time_without_samples_is_a_gap() -> None:
    found = history()
    for time_s in (1, 2, 5, 9):
        found.add(time_s * S, [sent(time_s)])
    assert found.gaps == [Gap("p0", 5 * S, 9 * S)]


def test_samples_are_kept_where_something_changed() -> None:
    found = history()
    for time_s, nbytes in ((1, 0), (2, 0), (3, 0), (4, 7), (5, 7), (6, 9)):
        found.add(time_s * S, [sent(nbytes)])
    kept = [(row[0] // S, row[3]["sent_bytes"]) for row in found.samples()]
    # The change lies between the last two of each.
    assert kept == [(1, 0), (3, 0), (4, 7), (5, 7), (6, 9)]


def test_samples_that_are_too_close_are_left_out() -> None:
    found = history()
    for number in range(100):
        found.add(S + number * S // 100, [sent(number)])
    kept = [(row[0], row[3]["sent_bytes"]) for row in found.samples()]
    # Each has the last values of its half second.
    assert kept == [(S + 49 * S // 100, 49), (S + 99 * S // 100, 99)]


def test_values_of_one_interval_may_come_one_after_the_other() -> None:
    found = history()
    for time_s in (1, 2, 3):
        marked = Reading("p0", 3, "marked", time_s)
        found.add(time_s * S, [sent(10 * time_s, traffic_class=3)])
        found.add(time_s * S + 5, [marked])
    kept = [row[3] for row in found.samples()]
    assert [(row["sent_bytes"], row["marked"]) for row in kept] == [
        *((10, 1), (20, 2), (30, 3))
    ]


def test_watermarks_are_the_longest_queue_of_their_interval() -> None:
    def lengths(*, are_cleared: bool, has_length: bool = True) -> list[int | None]:
        found = history(are_cleared=are_cleared)
        for time_s, mark in ((1, 50), (2, 50), (3, 70), (4, 60)):
            readings = [
                Reading("p0", 3, "queue_max_bytes", mark),
                sent(time_s, "p0", 3),
            ]
            if has_length:
                readings.append(Reading("p0", 3, "queue_bytes", time_s))
            found.add(time_s * S, readings)
        return [row[3].get("queue_max_bytes") for row in found.samples()]

    # What did not rise says nothing of the interval.
    assert lengths(are_cleared=False) == [1, 2, 70, 4]
    assert lengths(are_cleared=False, has_length=False) == [None, None, 70, None]
    assert lengths(are_cleared=True) == [50, 50, 70, 60]


def test_counters_of_classes_may_be_older() -> None:
    found = history()
    found.add(10 * S, [sent(1), sent(1, "p1")])
    found.add(11 * S, [sent(1, traffic_class=3)])
    assert found.is_complete(10 * S)
    assert not found.is_complete(10 * S, 2 * S)
    assert found.mark(10 * S, 2 * S).value("p0", 3, "sent_bytes") is None
    found.add(12 * S, [sent(1, traffic_class=3)])
    assert found.is_complete(10 * S, 2 * S)


def test_a_port_was_down_for_as_long_as_the_run_saw() -> None:
    found = history()
    found.set_state(S, "p0", is_down=True)
    found.set_state(4 * S, "p0", is_down=False)
    found.set_state(8 * S, "p0", is_down=True)  # and stays so
    assert found.down_ns("p0", 3 * S, 10 * S) == (1 + 2) * S
    assert found.down_ns("p1", 3 * S, 10 * S) == 0


def test_many_samples_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter_history, "_MOST_ROWS", 1000)
    found = history(spacing_ns=1)
    tracemalloc.start()
    for number in range(20_000):
        found.add(number * S, [sent(number), sent(number, "p1")])
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    rows = list(found.samples())
    assert 100 < len(rows) < 1000
    assert most_bytes < 2_000_000
    # What is left covers the whole time, of both ports.
    assert {port for _, port, *_ in rows} == {"p0", "p1"}
    assert rows[0][0] == 0
    assert rows[-1][0] > 15_000 * S


def test_states_become_outages() -> None:
    found = history()
    for time_s, is_down in ((1, False), (2, True), (3, True), (5, False), (6, True)):
        found.set_state(time_s * S, "p0", is_down=is_down)
    found.set_state(S, "p7", is_down=True)
    assert found.outages == [Gap("p0", 2 * S, 5 * S)]
    assert found.down == {"p0": 6 * S}

"""Links have what the switches at their ends counted."""

from __future__ import annotations

from typing import Any

from chakram.preparation.link_records import directions_of
from chakram.records.row_layout import LINK_SAMPLE_FIELDS
from chakram.records.run_records import LinkRecord
from chakram.telemetry.counter_history import UNKNOWN, CounterHistory, Mark
from chakram.telemetry.device_clock import DeviceClock, Exchange
from chakram.telemetry.link_totals import SwitchCounters, link_records, link_samples
from chakram.telemetry.mapping import ALL_CLASSES, Reading
from tests.leaf_spines import clos

S = 10**9
TOPOLOGY = clos(2, 1, 1, S, S)


def counted(
    ports: dict[str, str],
    before: dict[tuple[str, int, str], int],
    after: dict[tuple[str, int, str], int],
    *,
    ahead_ns: int = 0,
    history: CounterHistory | None = None,
) -> SwitchCounters:
    return SwitchCounters(
        ports=ports,
        before=Mark(before),
        after=Mark(after),
        history=history or CounterHistory([], bits=64, spacing_ns=1, gap_ns=1),
        fcs_bytes=4,
        ahead_ns=ahead_ns,
    )


def totals(**values: int) -> dict[tuple[str, int, str], int]:
    """Return counters of the whole port e0."""
    return {("e0", ALL_CLASSES, name): value for name, value in values.items()}


def links(**switches: SwitchCounters) -> dict[str, LinkRecord]:
    found = link_records(directions_of(TOPOLOGY), TOPOLOGY, switches)
    return {record.port or "": record for record in found}


def uplink() -> tuple[str, str]:
    """Return both ends of the first uplink."""
    link = TOPOLOGY.uplinks()[0]
    return str(link.a), str(link.b)


def test_of_an_uplink_both_ends_count_drops() -> None:
    near, far = uplink()
    before = totals(sent_bytes=0, sent_packets=0, drops=0, ingress_drops=0)
    after = totals(sent_bytes=10_040, sent_packets=10, drops=3, ingress_drops=0)
    other = totals(sent_bytes=0, sent_packets=0, drops=0, ingress_drops=4)
    found = links(
        leaf0=counted({near: "e0"}, before, after),
        spine0=counted({far: "e0"}, before, other),
    )
    assert (found[near].bytes, found[near].drops) == (10_000, 7)
    assert (found[far].bytes, found[far].drops) == (0, 0)
    # The switch reports no other links.
    assert set(found) == {near, far}
    # The switch that may have dropped them is not read.
    alone = links(spine0=counted({far: "e0"}, before, other | after))
    assert alone[far].drops is None


def test_the_far_end_counts_for_a_switch_that_is_not_read() -> None:
    near, far = uplink()
    before = totals(received_bytes=0, pauses_sent=0)
    after = totals(received_bytes=5000, pauses_sent=2)
    found = links(spine0=counted({far: "e0"}, before, after))
    record = found[near]
    # Without a count of packets, the FCS cannot be taken off.
    assert (record.bytes, record.pauses) == (5000, 2)
    assert (record.drops, record.marked, record.paused_ns) == (None, None, None)


def test_bytes_of_a_counter_that_wrapped_before_the_run_are_not_negative() -> None:
    near, _ = uplink()
    before = totals(sent_bytes=100, sent_packets=3_000_000_000)
    after = totals(sent_bytes=10_140, sent_packets=3_000_000_010)
    record = links(leaf0=counted({near: "e0"}, before, after))[near]
    assert record.bytes == 10_000
    assert record.bytes_before >= 0


def test_packets_that_are_read_after_the_bytes_do_not_make_bytes_negative() -> None:
    near, _ = uplink()
    before = totals(sent_bytes=10_000, sent_packets=10)
    after = totals(sent_bytes=10_000, sent_packets=12)
    assert links(leaf0=counted({near: "e0"}, before, after))[near].bytes == 0
    history = CounterHistory(["e0"], bits=64, spacing_ns=1, gap_ns=S)
    history.add(S, [Reading("e0", ALL_CLASSES, "sent_bytes", 10_000)])
    history.add(2 * S, [Reading("e0", ALL_CLASSES, "sent_packets", 12)])
    switch = counted({near: "e0"}, before, after, history=history)
    rows = link_samples([near], TOPOLOGY, {"leaf0": switch}, start_ns=0, end_ns=5 * S)
    at = LINK_SAMPLE_FIELDS.index("bytes")
    assert list(rows[at :: len(LINK_SAMPLE_FIELDS)]) == [0, 0]


def test_samples_have_the_time_of_this_machine_and_begin_at_0() -> None:
    near, _ = uplink()
    history = CounterHistory(["e0"], bits=64, spacing_ns=1, gap_ns=S)
    for time_s, nbytes in ((101, 1004), (102, 3012), (109, 9036)):
        history.add(
            time_s * S,
            [
                Reading("e0", 3, "sent_bytes", nbytes),
                Reading("e0", 3, "sent_packets", nbytes // 1004),
                Reading("e0", 3, "queue_bytes", 7),
            ],
        )
    begin = {("e0", 3, "sent_bytes"): 1004, ("e0", 3, "sent_packets"): 1}
    switch = counted({near: "e0"}, begin, {}, ahead_ns=100 * S, history=history)
    ports = ["other", near]
    rows = link_samples(ports, TOPOLOGY, {"leaf0": switch}, start_ns=0, end_ns=5 * S)
    width = len(LINK_SAMPLE_FIELDS)
    found: list[dict[str, Any]] = [
        dict(zip(LINK_SAMPLE_FIELDS, rows[at : at + width], strict=True))
        for at in range(0, len(rows), width)
    ]
    assert [(row["time_ns"], row["bytes"]) for row in found] == [(S, 0), (2 * S, 2000)]
    for row in found:
        assert (row["port"], row["traffic_class"], row["queue_bytes"]) == (1, 3, 7)
        assert row["marked"] == row["pauses"] == row["paused_ns"] == UNKNOWN


def test_samples_of_a_host_have_the_pauses_that_the_switch_sent() -> None:
    host = TOPOLOGY.hosts[0]
    link = TOPOLOGY.host_link(host)
    history = CounterHistory(["e0"], bits=64, spacing_ns=1, gap_ns=S)
    for time_s, pauses in ((1, 4), (2, 9)):
        history.add(time_s * S, [Reading("e0", 3, "pauses_sent", pauses)])
    begin = {("e0", 3, "pauses_sent"): 4}
    switch = counted({str(link.b): "e0"}, begin, {}, history=history)
    ports = [str(link.a), str(link.b)]
    rows = link_samples(ports, TOPOLOGY, {"leaf0": switch}, start_ns=0, end_ns=5 * S)
    width = len(LINK_SAMPLE_FIELDS)
    found: list[dict[str, Any]] = [
        dict(zip(LINK_SAMPLE_FIELDS, rows[at : at + width], strict=True))
        for at in range(0, len(rows), width)
    ]
    assert [
        (row["time_ns"], row["port"], row["traffic_class"], row["pauses"])
        for row in found
    ] == [(S, 0, 3, 0), (2 * S, 0, 3, 5)]
    for row in found:
        assert row["bytes"] == row["marked"] == row["paused_ns"] == UNKNOWN


def test_the_lead_of_a_clock_has_half_a_round_trip_of_error() -> None:
    clock = DeviceClock()
    clock.add([Exchange(0, 1000, 400), Exchange(500, 1230, 520)])
    assert (clock.ahead_ns, clock.bound_ns) == (720, 10)
    # The clock drifts.
    clock.add([Exchange(10_000, 10_810, 10_020)])
    assert (clock.ahead_ns, clock.bound_ns) == (760, 50)
    assert clock.to_device(100) == 860


def test_the_steps_of_a_clock_are_part_of_its_error() -> None:
    """Some switches give times in whole seconds."""
    clock = DeviceClock()
    # Its clock is 7 s ahead; the second answer comes after a step.
    clock.add(
        [
            Exchange(2 * S + 980_000_000, 9 * S, 2 * S + 990_000_000),
            Exchange(3 * S + 2_000_000, 10 * S, 3 * S + 8_000_000),
        ]
    )
    assert clock.advances
    assert clock.bound_ns is not None
    assert abs(clock.ahead_ns - 7 * S) <= clock.bound_ns
    assert clock.bound_ns > 900_000_000


def test_a_clock_that_stands_still_bounds_nothing() -> None:
    clock = DeviceClock()
    clock.add([Exchange(0, 5, 10), Exchange(20, 5, 30)])
    assert not clock.advances
    assert clock.bound_ns is None


def test_times_of_arrival_do_not_move_when_a_clock_stands_still_again() -> None:
    """Their lead is arbitrary, so it must be the same for all samples."""
    clock = DeviceClock()
    clock.add([Exchange(0, 5, 10), Exchange(20, 5, 30)])
    arrived = clock.to_device(1000)
    clock.add([Exchange(5000, 5, 5010), Exchange(5020, 5, 5030)])
    assert arrived - clock.ahead_ns == 1000
    # It does not matter if it advances later, in steps of a second.
    clock.add([Exchange(6000, 900, 6010), Exchange(6020, 1900, 6030)])
    assert arrived - clock.ahead_ns == 1000
    assert not clock.advances

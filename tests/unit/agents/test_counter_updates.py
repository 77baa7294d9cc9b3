"""Sample column and shared slot of each counter of the engine.

The values that go in are all different and none is the sum of two others, so a counter
that is left out, swapped with another or taken twice shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from chakram.plan.plan import AgentPlan, RunSettings
from chakram.records.counter_definitions import (
    HistogramCounts,
    PortStatistics,
    QueuePairStatistics,
    sampled_of,
)
from chakram.records.counter_slots import (
    COUNTER_NAMES,
    DISTRIBUTIONS,
    FCT_BUCKETS,
    distribution_slot,
    fault_slot,
    slot,
)
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS, SHARE_UNIT
from chakram.replay.samples import queue_pair_row
from chakram.roce.histogram import Histogram
from chakram_agent.counter_updates import (
    TURNS_PER_DISTRIBUTION,
    TURNS_PER_PORT,
    Tally,
    port_row,
)
from chakram_agent.shared_counters import SharedCounters
from tests.made_plans import collective, world_plan

SOCKET_DROPS, SEND_RETRIES, RECEIVED_BYTES = 3, 5, 11

QUEUE_PAIR_COLUMNS = {
    "data_frames_tx": "packets_sent",
    "data_frames_rx": "packets_received",
    "data_frames_retransmitted": "packets_retransmitted",
    "retransmitted_nak": "retransmitted_for_nak",
    "retransmitted_timeout": "retransmitted_for_timeout",
    "retransmitted_rnr": "retransmitted_for_rnr",
    "frame_sequence_error": "out_of_sequence",
    "tx_bytes": "bytes_sent",
    "rx_bytes": "bytes_received",
    "message_tx": "messages_posted",
    "message_complete_rx": "messages_received",
    "message_fail": "messages_flushed",
    "ecn_ce_rx": "ce",
    "cnp_tx": "cnps_sent",
    "cnp_rx": "cnps_received",
    "ack_tx": "acks_sent",
    "ack_rx": "acks_received",
    "nak_tx": "naks_sent",
    "nak_rx": "naks_received",
    "ack_timeouts": "timeouts",
    "nak_sequence_tx": "sequence_naks_sent",
    "nak_reordered_tx": "sequence_naks_reordered",
    "nak_reordered_rx": "naks_overtaken",
    "reordered_rx": "kept_out_of_order",
    "beyond_window_rx": "beyond_window",
}
"""Column of a sample and the statistic of the queue pair that it has to be."""

INVALID = {
    "invalid_header": "malformed",
    "invalid_partition_key": "partition_key_errors",
    "invalid_queue_pair": "unknown_queue_pair",
    "invalid_address": "foreign_address",
    "invalid_opcode": "unsupported",
    "invalid_icrc": "icrc_errors",
}
DISTURBED = (
    "delayed",
    "duplicated",
    "reordered",
    "marked",
    "not_ready",
    "corrupted",
)

SLOTS_OF_QUEUE_PAIRS = {
    "flows_started": ("messages_posted",),
    "flows_completed": ("messages_completed",),
    "flows_failed": ("messages_flushed",),
    "retransmitted_packets_nak": ("retransmitted_for_nak",),
    "retransmitted_packets_timeout": ("retransmitted_for_timeout",),
    "retransmitted_packets_rnr": ("retransmitted_for_rnr",),
    "out_of_sequence_packets": ("out_of_sequence",),
    "duplicate_packets": ("duplicates",),
    "kept_out_of_order_packets": ("kept_out_of_order",),
    "beyond_window_packets": ("beyond_window",),
    "invalid_request": ("invalid_requests",),
    "invalid_ack": ("acks_invalid",),
    "nak_sent": ("naks_sent",),
    "nak_received": ("naks_received",),
    "ack_timeouts": ("timeouts",),
    "ecn_marked_packets": ("ce",),
    "cnp_sent": ("cnps_sent",),
    "cnp_received": ("cnps_received",),
}
SLOTS_OF_PORTS = {
    "tx_bytes": ("bytes_sent",),
    "tx_packets": ("packets_sent",),
    "rx_packets": ("packets_received",),
    **{slot: (name,) for slot, name in INVALID.items()},
    "injected_drops": ("faults_dropped",),
    "injected_delays": ("faults_delayed",),
    "injected_duplicates": ("faults_duplicated",),
    "injected_reorders": ("faults_reordered",),
    "injected_marks": ("faults_marked",),
    "injected_not_ready": ("faults_not_ready",),
    "injected_corruptions": ("faults_corrupted",),
    "verified_packets": ("verified",),
    "wrong_payload_packets": ("wrong_payloads",),
    "generator_wait_ns": ("generator_wait_ns",),
    "paused_ns": ("paused_ns",),
}
ELSEWHERE = {
    "rx_bytes",  # of the line
    "socket_drops",  # of the socket
    "send_retries",
    "cpu_ns",  # of the process
    "delivered_bytes",  # of the records: the agent adds it
    "samples_dropped",  # of the records
}
"""Slots that no statistics fill."""


def distinct(kind: type[Any], first: int, **values: object) -> Any:
    """Return statistics whose counters all differ, from 2 ** *first* on."""
    return kind(
        **{
            each.name: values.get(each.name, (1 << (first + index)) + 1)
            for index, each in enumerate(fields(kind))
        }
    )


def queue_pair_statistics(first: int = 0, **values: object) -> QueuePairStatistics:
    usual: dict[str, object] = {"alpha": 0.25, "failure": None}
    made: QueuePairStatistics = distinct(QueuePairStatistics, first, **(usual | values))
    return made


def port_statistics(first: int = 0) -> PortStatistics:
    none = HistogramCounts(counts=(0,) * FCT_BUCKETS, sum_ns=0)
    made: PortStatistics = distinct(
        PortStatistics, first, round_trips=none, pacing_errors=none
    )
    return made


class QueuePair:
    """Something with a number and statistics."""

    def __init__(self, qpn: int) -> None:
        self.qpn = qpn
        self.now = queue_pair_statistics()

    def statistics(self) -> QueuePairStatistics:
        return self.now


class Engine:
    """A port's statistics, its queue pairs and its distributions."""

    def __init__(self, pairs: list[QueuePair]) -> None:
        self.pairs = pairs
        self.now = port_statistics()
        self.round_trips = Histogram()
        self.pacing_errors = Histogram()
        self.disturbed: dict[int, int] = {}

    def faults_disturbed(self) -> dict[int, int]:
        return dict(self.disturbed)

    def statistics(self) -> PortStatistics:
        return self.now

    def queue_pairs(self) -> list[QueuePair]:
        return self.pairs


def made_plan() -> AgentPlan:
    plan, _ = world_plan(
        [collective("all_gather", 8)],
        nranks=2,
        settings=RunSettings(warmup=0, measured=1),
    )
    return plan.agents[0]


def made_plane(plan: AgentPlan) -> Any:
    """Return a data plane of fakes, with the queue pairs of *plan*."""
    lines = [
        SimpleNamespace(
            endpoint=SimpleNamespace(
                port=port,
                is_measuring=lambda: False,
                engine=Engine(
                    [
                        QueuePair(pair.qpn)
                        for rank in plan.ranks
                        if rank.port == port.number
                        for pair in rank.queue_pairs
                    ]
                ),
            ),
            port=SimpleNamespace(socket_drops=0, send_retries=0),
            received_bytes=0,
        )
        for port in plan.ports
    ]
    return SimpleNamespace(
        lines=lines,
        lags=Histogram(),
        max_lag_ns=7,
        late_rounds=2,
        rounds=9,
        busy_ns=13,
    )


@pytest.fixture
def shared() -> Iterator[SharedCounters]:
    counters = SharedCounters.create("test", queue_pairs=2, ports=2)
    yield counters
    counters.close()


def sums(statistics: list[Any], sources: dict[str, tuple[str, ...]]) -> dict[str, int]:
    return {
        name: sum(getattr(each, source) for each in statistics for source in all_of)
        for name, all_of in sources.items()
    }


def test_every_column_of_a_queue_pair_is_its_statistic() -> None:
    counters = queue_pair_statistics()
    row = dict(
        zip(QUEUE_PAIR_FIELDS, queue_pair_row(1, 2, 3, 4, counters), strict=True)
    )

    assert row == {
        "time_ns": 1,
        "rank": 2,
        "peer": 3,
        "qpn": 4,
        "rate_bps": counters.rate_bps,
        "target_bps": counters.target_bps,
        "alpha": SHARE_UNIT // 4,
        **{
            name: getattr(counters, source)
            for name, source in QUEUE_PAIR_COLUMNS.items()
        },
    }


def test_missing_values_of_congestion_control_are_marked() -> None:
    counters = queue_pair_statistics(rate_bps=None, target_bps=None, alpha=None)
    row = dict(
        zip(QUEUE_PAIR_FIELDS, queue_pair_row(1, 2, 3, 4, counters), strict=True)
    )

    assert (row["rate_bps"], row["target_bps"], row["alpha"]) == (0, 0, -1)


def test_every_column_of_a_port_is_its_statistic() -> None:
    counters = port_statistics()
    line: Any = SimpleNamespace(
        port=SimpleNamespace(socket_drops=SOCKET_DROPS, send_retries=SEND_RETRIES),
        received_bytes=RECEIVED_BYTES,
    )
    sampled = port_row(line, 6, *sampled_of(counters))
    row = dict(zip(PORT_FIELDS[2:], sampled, strict=True))

    assert row == {
        "shard": 6,
        "tx_bytes": counters.bytes_sent,
        "rx_bytes": RECEIVED_BYTES,
        "tx_packets": counters.packets_sent,
        "rx_packets": counters.packets_received,
        "socket_drops": SOCKET_DROPS,
        "send_retries": SEND_RETRIES,
        "invalid_packets": sum(getattr(counters, name) for name in INVALID.values()),
        **{column: getattr(counters, name) for column, name in INVALID.items()},
        "verified_packets": counters.verified,
        "wrong_payloads": counters.wrong_payloads,
        "injected_drops": counters.faults_dropped,
        "injected_disturbances": sum(
            getattr(counters, f"faults_{name}") for name in DISTURBED
        ),
        "generator_wait_ns": counters.generator_wait_ns,
        "paused_ns": counters.paused_ns,
    }


def test_every_slot_is_the_sum_of_its_statistics(shared: SharedCounters) -> None:
    assert {*SLOTS_OF_QUEUE_PAIRS, *SLOTS_OF_PORTS, *ELSEWHERE} == set(COUNTER_NAMES)
    plan = made_plan()
    plane = made_plane(plan)
    tally = Tally(plane, plan, shared, shard=0)
    # Twice: what has been counted once is not counted again.
    for first in (0, 3):
        engines = [line.endpoint.engine for line in plane.lines]
        pairs = [pair for engine in engines for pair in engine.pairs]
        for index, engine in enumerate(engines):
            engine.now = port_statistics(first + index)
            engine.disturbed = {0: first + 5, index + 1: first + 7}
        for index, pair in enumerate(pairs):
            pair.now = queue_pair_statistics(first + index)
        for line in plane.lines:
            line.port.socket_drops += SOCKET_DROPS
            line.port.send_retries += SEND_RETRIES
            line.received_bytes += RECEIVED_BYTES
        tally.finish()

        expected = sums([pair.now for pair in pairs], SLOTS_OF_QUEUE_PAIRS)
        for name, count in sums([each.now for each in engines], SLOTS_OF_PORTS).items():
            expected[name] = expected.get(name, 0) + count
        expected |= {
            "rx_bytes": sum(line.received_bytes for line in plane.lines),
            "socket_drops": sum(line.port.socket_drops for line in plane.lines),
            "send_retries": sum(line.port.send_retries for line in plane.lines),
        }
        values = shared.snapshot()
        assert {name: values[slot(name)] for name in expected} == expected
        disturbed = [values[fault_slot(index)] for index in range(4)]
        assert disturbed == [2 * (first + 5), first + 7, first + 7, 0]
        assert values[slot("cpu_ns")] > 0
        assert values[slot("delivered_bytes")] == values[slot("samples_dropped")] == 0


def test_rows_equal_the_samples(shared: SharedCounters) -> None:
    plan = made_plan()
    plane = made_plane(plan)
    tally = Tally(plane, plan, shared, shard=0)
    tally.finish()

    rows = shared.queue_pair_rows()
    width = len(QUEUE_PAIR_FIELDS)
    found = [tuple(rows[at + 1 : at + width]) for at in range(0, len(rows), width)]
    assert found == [
        queue_pair_row(0, rank, 1 - rank, pair.qpn, pair.now)[1:]
        for rank, line in enumerate(plane.lines)
        for pair in line.endpoint.engine.pairs
    ]
    rows = shared.port_rows()
    width = len(PORT_FIELDS)
    found = [tuple(rows[at + 1 : at + width]) for at in range(0, len(rows), width)]
    assert found == [
        (number, *port_row(line, 0, *sampled_of(line.endpoint.engine.now)))
        for number, line in enumerate(plane.lines)
    ]


def test_load_includes_limited_and_failed_queue_pairs(shared: SharedCounters) -> None:
    plan = made_plan()
    plane = made_plane(plan)
    first, second = (line.endpoint.engine.pairs[0] for line in plane.lines)
    tally = Tally(plane, plan, shared, shard=3)
    first.now = queue_pair_statistics(rate_bps=1)
    second.now = queue_pair_statistics(rate_bps=1, failure="retries exhausted")
    tally.finish()
    tally.finish()

    load = shared.load(3)
    assert (load.queue_pairs, load.queue_pairs_limited) == (2, 1)
    assert load.queue_pairs_failed == 1
    assert (load.max_lag_ns, load.late_rounds, load.rounds) == (7, 2, 9)
    assert load.busy_ns == 13


def test_each_round_reads_few_queue_pairs_and_soon_all(
    shared: SharedCounters,
) -> None:
    plan = made_plan()
    plane = made_plane(plan)
    tally = Tally(plane, plan, shared, shard=0)
    seen = []
    for index, line in enumerate(plane.lines):
        line.endpoint.engine.now = port_statistics(index)
        line.port.socket_drops += 1
    for _ in range(TURNS_PER_PORT):
        before = shared.snapshot()[slot("socket_drops")]
        tally.turn()
        seen.append(shared.snapshot()[slot("socket_drops")] - before)

    # Every port once, and no turn takes several of so few.
    assert sum(seen) == len(plane.lines)
    assert max(seen) == 1
    pairs = sum(len(line.endpoint.engine.pairs) for line in plane.lines)
    width = len(QUEUE_PAIR_FIELDS)
    assert len(shared.queue_pair_rows()) == pairs * width
    assert shared.load(0).queue_pairs == pairs
    for _ in range(TURNS_PER_PORT):
        tally.turn()
    assert shared.snapshot()[slot("socket_drops")] == len(plane.lines)


def times(values: Any, name: str) -> tuple[dict[int, int], int]:
    """Return a distribution in shared memory: its buckets that hold any, its sum."""
    first = distribution_slot(name)
    counts = values[first : first + FCT_BUCKETS]
    return (
        {bucket: count for bucket, count in enumerate(counts) if count},
        values[first + FCT_BUCKETS],
    )


def test_distributions_are_counted_once_and_over_all_ports(
    shared: SharedCounters,
) -> None:
    plan = made_plan()
    plane = made_plane(plan)
    tally = Tally(plane, plan, shared, shard=0)
    one, other = (line.endpoint.engine for line in plane.lines)
    plane.lags.add(1_000)
    one.round_trips.add(2_000)
    other.round_trips.add(2_000)
    other.round_trips.add(3_000)
    other.pacing_errors.add(70_000)
    for _ in range(TURNS_PER_DISTRIBUTION):
        tally.turn()
    expected = {
        "generator_lag": ({0: 1}, 1_000),
        "round_trip": ({1: 2, 2: 1}, 7_000),
        "pacing_error": ({7: 1}, 70_000),
    }
    values = shared.snapshot()
    assert {name: times(values, name) for name in DISTRIBUTIONS} == expected
    one.round_trips.add(2_000)
    tally.finish()
    tally.finish()

    expected["round_trip"] = ({1: 3, 2: 1}, 9_000)
    values = shared.snapshot()
    assert {name: times(values, name) for name in DISTRIBUTIONS} == expected

"""Counters at both ends of an exchange with every fault.

Four ranks on ``memory:`` ports: 0 and 1 send each other messages that are dropped,
repeated, overtaken, marked and not waited for; 2 sends to 3, which hears nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

import pytest

from chakram.collectives.groups import world_group
from chakram.foundation.field_bounds import MAX_FAULTS
from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.plan.plan import AgentPlan, RunSettings
from chakram.plan.transport import TransportPlan
from chakram.records.counter_definitions import PortStatistics, QueuePairStatistics
from chakram.records.counter_slots import (
    COUNTER_NAMES,
    DISTRIBUTIONS,
    FCT_BUCKETS,
    INJECTED,
    INVALID,
    distribution_slot,
    fault_slot,
    slot,
)
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS
from chakram.replay.samples import queue_pair_owners
from chakram.topology.topology_helpers import single_switch
from chakram_agent.counter_updates import Sampler, Tally
from chakram_agent.dataplane.loop import DataPlane
from chakram_agent.send_limits import Policy
from chakram_agent.shard import build_plane
from chakram_agent.shared_counters import SharedCounters
from tests.made_plans import make_plan, program, receive, send
from tests.plans import dcqcn_arguments
from tests.waiting import PATIENCE_S, Stopwatch

SIZE_BYTES = 100_000
MESSAGES = 4
PACKETS = MESSAGES * -(-SIZE_BYTES // 4096)
QUIET_NS = 30_000_000
"""Longer than anything that is still in flight in the end."""

FAULTS = (
    PacketFault(action=FaultAction.DROP, packets="middle", nth=7, destination=1),
    PacketFault(action=FaultAction.DROP, packets="last", nth=2, destination=1),
    PacketFault(action=FaultAction.DUPLICATE, packets="middle", nth=30, destination=0),
    PacketFault(action=FaultAction.REORDER, packets="middle", nth=50, destination=0),
    PacketFault(action=FaultAction.MARK, nth=10, count=9, destination=0),
    PacketFault(action=FaultAction.MARK, nth=70, count=4, destination=1),
    PacketFault(action=FaultAction.NOT_READY, packets="first", nth=1, destination=0),
    PacketFault(action=FaultAction.DELAY, packets="ack", nth=4, delay_ns=50_000),
    PacketFault(action=FaultAction.DROP, packets="any", probability=1.0, destination=3),
)


@dataclass(slots=True)
class Exchange:
    """Results of an exchange: statistics by rank, and counters.

    Every rank has one queue pair and its own port.
    """

    pairs: dict[int, QueuePairStatistics]
    ports: dict[int, PortStatistics]
    received_bytes: dict[int, int]
    samples: dict[int, dict[str, int]]
    port_samples: dict[int, dict[str, int]]
    rows: dict[int, dict[str, int]]
    values: Any
    lags: tuple[int, ...]
    failed: int


def made_plan() -> AgentPlan:
    world = world_group(4)
    talk = [
        [
            *(send(1 - rank, SIZE_BYTES, number=each) for each in range(MESSAGES)),
            *(receive(1 - rank, SIZE_BYTES, number=each) for each in range(MESSAGES)),
        ]
        for rank in range(2)
    ]
    talk += [[send(3, 5000)], [receive(2, 5000)]]
    plan = make_plan(
        [program(rank, world, operations) for rank, operations in enumerate(talk)],
        single_switch(4, 10**9),
        transport=TransportPlan(
            congestion_control="dcqcn",
            congestion_parameters=dcqcn_arguments(interval="4us", line_bps=10**9),
            retransmit_timeout_ns=4_000_000,
            retry_limit=5,
            rnr_timer=1,
        ),
        settings=RunSettings(warmup=0, measured=1, faults=FAULTS, sync="free"),
    )
    return plan.agents[0]


def by(values: Any, fields: tuple[str, ...], key: str) -> dict[int, dict[str, int]]:
    """Return the last row for each value of *key*."""
    width = len(fields)
    found = {}
    for at in range(0, len(values), width):
        row = dict(zip(fields, values[at : at + width], strict=True))
        found[row[key]] = row
    return found


def run(plane: DataPlane, tally: Tally, sampler: Sampler) -> None:
    """Continue until nothing has happened for a while."""
    plane.arm(time.monotonic_ns())
    watch = Stopwatch()
    counted, since_ns = -1, 0
    while True:
        plane.round()
        now_ns = time.monotonic_ns()
        tally.turn()
        sampler.turn(now_ns)
        packets = sum(
            line.endpoint.engine.statistics().packets_sent for line in plane.lines
        )
        if packets != counted:
            counted, since_ns = packets, now_ns
        elif plane.failure() is not None and now_ns - since_ns > QUIET_NS:
            return
        assert watch.look() < PATIENCE_S
        plane.wait(1_000_000)


@pytest.fixture(scope="module")
def exchange() -> Iterator[Exchange]:
    plan = made_plan()
    plane = build_plane(plan, Policy(allow=(ip_network("198.18.0.0/15"),)))
    counters = SharedCounters.create("test", queue_pairs=4, ports=4)
    try:
        tally = Tally(plane, plan, counters, shard=0)
        sampler = Sampler(plane, plan, bin_ns=1_000_000)
        run(plane, tally, sampler)
        tally.finish()
        sampler.finish(time.monotonic_ns())
        owners = queue_pair_owners(plan)
        pairs = {
            owners[line.endpoint.port.number, pair.qpn][0]: pair.statistics()
            for line in plane.lines
            for pair in line.endpoint.engine.queue_pairs()
        }
        rank_of = {rank.port: rank.number for rank in plan.ranks}
        ports = {rank_of[line.endpoint.port.number]: line for line in plane.lines}
        yield Exchange(
            pairs=pairs,
            ports={
                rank: line.endpoint.engine.statistics() for rank, line in ports.items()
            },
            received_bytes={rank: line.received_bytes for rank, line in ports.items()},
            samples=by(sampler.rows.queue_pairs, QUEUE_PAIR_FIELDS, "rank"),
            port_samples={
                rank_of[port]: row
                for port, row in by(sampler.rows.ports, PORT_FIELDS, "port").items()
            },
            rows=by(counters.queue_pair_rows(), QUEUE_PAIR_FIELDS, "rank"),
            values=counters.snapshot(),
            lags=plane.lags.snapshot().counts,
            failed=counters.load(0).queue_pairs_failed,
        )
    finally:
        plane.close()
        counters.close()


def test_every_counter_of_a_disturbed_run_is_used(exchange: Exchange) -> None:
    """Without that the other tests would compare noughts."""
    total = {
        name: sum(getattr(each, name) for each in exchange.pairs.values())
        for name in (
            "retransmitted_for_nak",
            "retransmitted_for_timeout",
            "retransmitted_for_rnr",
            "duplicates",
            "out_of_sequence",
            "naks_sent",
            "naks_received",
            "receiver_not_ready",
            "cnps_sent",
            "cnps_received",
            "timeouts",
            "ce",
            "messages_flushed",
        )
    }
    assert {name: count for name, count in total.items() if not count} == {}
    assert exchange.pairs[2].failure is not None
    assert exchange.failed == 1


def test_samples_and_rows_equal_the_counters_of_the_engine(exchange: Exchange) -> None:
    for rank, pair in exchange.pairs.items():
        expected = {
            "data_frames_tx": pair.packets_sent,
            "data_frames_rx": pair.packets_received,
            "data_frames_retransmitted": pair.packets_retransmitted,
            "retransmitted_nak": pair.retransmitted_for_nak,
            "retransmitted_timeout": pair.retransmitted_for_timeout,
            "retransmitted_rnr": pair.retransmitted_for_rnr,
            "frame_sequence_error": pair.out_of_sequence,
            "tx_bytes": pair.bytes_sent,
            "rx_bytes": pair.bytes_received,
            "message_tx": pair.messages_posted,
            "message_complete_rx": pair.messages_received,
            "message_fail": pair.messages_flushed,
            "ecn_ce_rx": pair.ce,
            "cnp_tx": pair.cnps_sent,
            "cnp_rx": pair.cnps_received,
            "ack_tx": pair.acks_sent,
            "ack_rx": pair.acks_received,
            "nak_tx": pair.naks_sent,
            "nak_rx": pair.naks_received,
            "ack_timeouts": pair.timeouts,
            "nak_sequence_tx": pair.sequence_naks_sent,
            "nak_reordered_tx": pair.sequence_naks_reordered,
            "nak_reordered_rx": pair.naks_overtaken,
            "reordered_rx": pair.kept_out_of_order,
            "beyond_window_rx": pair.beyond_window,
        }
        assert exchange.rows[rank] | expected == exchange.rows[rank]
        # What nothing has happened to has no sample.
        if rank in exchange.samples:
            assert exchange.samples[rank] | expected == exchange.samples[rank]
        else:
            assert not any(expected.values())
    assert exchange.samples.keys() >= {0, 1, 2}
    for rank, port in exchange.ports.items():
        row = exchange.port_samples[rank]
        assert (row["tx_bytes"], row["tx_packets"]) == (
            port.bytes_sent,
            port.packets_sent,
        )
        assert (row["rx_bytes"], row["rx_packets"]) == (
            exchange.received_bytes[rank],
            port.packets_received,
        )
        assert row["injected_drops"] == port.faults_dropped


def test_slots_are_the_sums_over_the_engine(exchange: Exchange) -> None:
    found = {name: exchange.values[slot(name)] for name in COUNTER_NAMES}
    pairs, ports = exchange.pairs.values(), exchange.ports.values()
    expected = {
        "flows_started": sum(each.messages_posted for each in pairs),
        "flows_completed": sum(each.messages_completed for each in pairs),
        "flows_failed": sum(each.messages_flushed for each in pairs),
        "tx_bytes": sum(each.bytes_sent for each in ports),
        "rx_bytes": sum(exchange.received_bytes.values()),
        "tx_packets": sum(each.packets_sent for each in ports),
        "rx_packets": sum(each.packets_received for each in ports),
        "retransmitted_packets_nak": sum(each.retransmitted_for_nak for each in pairs),
        "retransmitted_packets_timeout": sum(
            each.retransmitted_for_timeout for each in pairs
        ),
        "retransmitted_packets_rnr": sum(each.retransmitted_for_rnr for each in pairs),
        "out_of_sequence_packets": sum(each.out_of_sequence for each in pairs),
        "duplicate_packets": sum(each.duplicates for each in pairs),
        **{f"invalid_{reason}": 0 for reason in INVALID},
        "injected_drops": sum(each.faults_dropped for each in ports),
        "injected_delays": sum(each.faults_delayed for each in ports),
        "injected_duplicates": sum(each.faults_duplicated for each in ports),
        "injected_reorders": sum(each.faults_reordered for each in ports),
        "injected_marks": sum(each.faults_marked for each in ports),
        "injected_not_ready": sum(each.faults_not_ready for each in ports),
        "nak_sent": sum(each.naks_sent for each in pairs),
        "nak_received": sum(each.naks_received for each in pairs),
        "ack_timeouts": sum(each.timeouts for each in pairs),
        "ecn_marked_packets": sum(each.ce for each in pairs),
        "cnp_sent": sum(each.cnps_sent for each in pairs),
        "cnp_received": sum(each.cnps_received for each in pairs),
        "generator_wait_ns": sum(each.generator_wait_ns for each in ports),
    }
    assert found | expected == found
    assert found["flows_completed"] == 2 * MESSAGES
    assert found["flows_failed"] == 1


def test_every_fault_has_its_own_counter(exchange: Exchange) -> None:
    found = [exchange.values[fault_slot(index)] for index in range(MAX_FAULTS)]
    assert all(found[: len(FAULTS)])
    assert not any(found[len(FAULTS) :])
    of_action = dict(zip(FaultAction, INJECTED, strict=True))
    for action, name in of_action.items():
        expected = exchange.values[slot(f"injected_{name}")]
        counts = zip(FAULTS, found, strict=False)
        assert expected == sum(n for fault, n in counts if fault.action is action)


def test_both_ends_count_the_same(exchange: Exchange) -> None:
    """Data sent by one end equals data received by the other, except for faults."""
    for rank in (0, 1):
        sender, receiver = exchange.pairs[rank], exchange.pairs[1 - rank]
        port = exchange.ports[1 - rank]
        assert sender.messages_posted == sender.messages_completed == MESSAGES
        assert receiver.messages_received == MESSAGES
        # Accepted once, whatever came how often.
        assert receiver.bytes_received == MESSAGES * SIZE_BYTES
        assert sender.packets_sent - sender.packets_retransmitted == PACKETS
        assert sender.packets_retransmitted == (
            sender.retransmitted_for_nak
            + sender.retransmitted_for_timeout
            + sender.retransmitted_for_rnr
        )
        # A packet that is answered with receiver-not-ready has come, too.
        assert receiver.packets_received == (
            sender.packets_sent - port.faults_dropped + port.faults_duplicated
        )
        assert receiver.ce == port.faults_marked
        # No fault touches how many of these arrive.
        assert sender.acks_received == receiver.acks_sent
        assert sender.naks_received == receiver.naks_sent
        assert sender.cnps_received == receiver.cnps_sent
        assert sender.receiver_not_ready == receiver.receiver_not_ready_sent
    assert exchange.pairs[3].packets_received == 0
    assert exchange.ports[3].faults_dropped == exchange.pairs[2].packets_sent
    sent, got = exchange.values[slot("tx_packets")], exchange.values[slot("rx_packets")]
    assert sent == got
    assert exchange.values[slot("tx_bytes")] == exchange.values[slot("rx_bytes")]


def test_distributions_are_counted(exchange: Exchange) -> None:
    ports = exchange.ports.values()
    expected = {
        "round_trip": [each.round_trips.counts for each in ports],
        "pacing_error": [each.pacing_errors.counts for each in ports],
        "generator_lag": [exchange.lags],
    }
    for name in DISTRIBUTIONS:
        first = distribution_slot(name)
        counts = list(exchange.values[first : first + FCT_BUCKETS])
        assert counts == [sum(bucket) for bucket in zip(*expected[name], strict=True)]
        assert sum(counts) > 0
        assert exchange.values[first + FCT_BUCKETS] > 0

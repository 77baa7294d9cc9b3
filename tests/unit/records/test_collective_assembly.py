"""Shares of ranks become records of collectives."""

from __future__ import annotations

import itertools
from array import array

import pytest

from chakram.records.collective_assembly import CollectiveJoiner
from chakram.records.named_rows import OperationTable
from chakram.records.row_layout import (
    CAUSE_OPERATION,
    FLOW_FIELDS,
    SHARE_FIELDS,
    UNKNOWN,
    FlowRow,
    RecordRows,
    rows_of,
)
from chakram.records.run_records import CollectiveKey, CollectiveRecord
from tests.small_run import (
    ALL_REDUCE_NS,
    ALL_TO_ALL_NS,
    COMPUTE_NS,
    ITERATION_NS,
    MARKED_PER_SHARE,
    MESSAGE_NS,
    row_of,
    small_plan,
    small_rows,
)

WORLD = CollectiveKey("moe", "world", 0)
MESSAGE = CollectiveKey("moe", "p2p:0>1", 0)


def joiner() -> CollectiveJoiner:
    return CollectiveJoiner(OperationTable(small_plan()), warmup=1)


def by_key(records: list[CollectiveRecord]) -> dict[CollectiveKey, CollectiveRecord]:
    return {record.identity.key: record for record in records}


def test_time_runs_from_first_start_to_last_end() -> None:
    record = by_key(joiner().add(small_rows(1, slower_ns=9000)))[WORLD]
    assert record.complete
    assert record.measured
    assert record.start_ns == ITERATION_NS + COMPUTE_NS
    assert record.duration_ns == ALL_REDUCE_NS + 9000
    assert record.mean_duration_ns == ALL_REDUCE_NS + 9000 // 4
    assert record.sent_bytes == 4 * 6 * 2**18
    assert record.start_spread_ns == 0
    assert record.ce == 4 * MARKED_PER_SHARE


def test_critical_flow_is_the_one_acknowledged_last() -> None:
    critical = by_key(joiner().add(small_rows(1, slower_ns=1)))[WORLD].critical
    assert critical is not None
    assert (critical.src, critical.dst, critical.step) == (3, 0, 5)
    assert critical.last_acked_ns == ITERATION_NS + COMPUTE_NS + ALL_REDUCE_NS + 1


def test_message_starts_when_its_sender_starts() -> None:
    record = by_key(joiner().add(small_rows(1)))[MESSAGE]
    assert record.duration_ns == MESSAGE_NS
    assert record.mean_duration_ns == MESSAGE_NS


def test_order_of_ranks_does_not_matter() -> None:
    expected = by_key(joiner().add(small_rows(1)))
    for order in itertools.permutations(range(4)):
        joining = joiner()
        records = []
        for rank in order:
            records += joining.add(small_rows(1, ranks=[rank]))
        found = by_key(records)
        assert found.keys() == expected.keys()
        for key, record in found.items():
            assert record.duration_ns == expected[key].duration_ns
        assert joining.unfinished() == []


def test_last_share_completes_the_collective() -> None:
    joining = joiner()
    assert joining.add(small_rows(1, ranks=[0, 1, 2])) != []
    (last, other) = joining.add(small_rows(1, ranks=[3]))
    assert {last.identity.key.group, other.identity.key.group} == {"world", "ep1"}


def test_unfinished_collectives_are_partial() -> None:
    joining = joiner()
    joining.add(small_rows(1, ranks=[0, 1]))
    rows = small_rows(1, ranks=[2])
    # The last rank got as far as its flows.
    joining.add(RecordRows(flows=rows.flows))
    records = by_key(joining.unfinished())
    assert set(records) == {WORLD, CollectiveKey("moe", "ep1", 0)}
    assert not records[WORLD].complete
    assert records[WORLD].shares == 2
    only_flows = records[CollectiveKey("moe", "ep1", 0)]
    assert only_flows.shares == 0
    assert only_flows.duration_ns == ALL_TO_ALL_NS


def test_collectives_with_only_an_arrival_are_not_reported() -> None:
    joining = joiner()
    joining.add(arrivals(1, received_ns=7000))
    assert joining.unfinished() == []


def test_message_reported_only_by_its_receiver_is_partial() -> None:
    joining = joiner()
    joining.add(small_rows(1, ranks=[1]))
    record = by_key(joining.unfinished())[MESSAGE]
    assert (record.duration_ns, record.mean_duration_ns) == (0, 0)


def test_waits_of_steps_add_up() -> None:
    record = by_key(joiner().add(small_rows(1, generator_wait_ns=100)))[WORLD]
    assert record.generator_wait_ns == 6 * 100


def test_waits_of_flows_released_together_do_not_add_up() -> None:
    rows = small_rows(1, ranks=[0], generator_wait_ns=100)
    width, cause = len(FLOW_FIELDS), FLOW_FIELDS.index("cause_kind")
    for start in range(0, len(rows.flows), width):
        rows.flows[start + cause] = CAUSE_OPERATION
    joining = joiner()
    joining.add(rows)
    assert by_key(joining.unfinished())[WORLD].generator_wait_ns == 100


@pytest.mark.parametrize(("wait_ns", "bound"), [(3333, False), (3334, True)])
def test_generator_bound_means_more_than_five_percent(
    wait_ns: int, bound: bool
) -> None:
    record = by_key(joiner().add(small_rows(1, generator_wait_ns=wait_ns)))[WORLD]
    assert record.generator_bound is bound


def test_warm_up_is_marked() -> None:
    joining = joiner()
    assert not any(record.measured for record in joining.add(small_rows(0)))
    assert all(record.measured for record in joining.add(small_rows(1)))


def test_communication_of_a_compute_operation_is_refused() -> None:
    rows = RecordRows(shares=array("q", row_of(SHARE_FIELDS, operation=0)))
    with pytest.raises(ValueError, match="compute operation"):
        joiner().add(rows)


def numbered(rows: RecordRows) -> RecordRows:
    """Give the flows of ``small_rows`` the numbers that messages of runs have."""
    flows = [flow._replace(number=flow.step) for flow in rows_of(FlowRow, rows.flows)]
    return RecordRows(flows=array("q", itertools.chain(*flows)), shares=rows.shares)


def arrivals(rank: int, *, received_ns: int) -> RecordRows:
    """Return when the messages of the all-reduce to a rank were complete."""
    found = [
        [1, rank, 1, (rank - 1) % 4, step, received_ns + step] for step in range(6)
    ]
    return RecordRows(arrivals=array("q", itertools.chain(*found)))


def received(rows: RecordRows, sender: int) -> list[int]:
    return [
        flow.received_ns
        for flow in rows_of(FlowRow, rows.flows)
        if (flow.rank, flow.operation) == (sender, 1)
    ]


def telling() -> CollectiveJoiner:
    return CollectiveJoiner(OperationTable(small_plan()), warmup=1, has_arrivals=True)


@pytest.mark.parametrize("comes_first", [True, False])
def test_flows_get_the_arrival_time_of_their_receivers(comes_first: bool) -> None:
    joining = telling()
    told = arrivals(1, received_ns=7000)
    if comes_first:
        joining.add(told)
        assert not told.arrivals
    sent = numbered(small_rows(1, ranks=[0]))
    joining.add(sent)
    if not comes_first:
        assert received(sent, 0) == []
        sent = told
        joining.add(sent)
    assert received(sent, 0) == [7000 + step for step in range(6)]
    left = rows_of(FlowRow, joining.waiting())
    assert {flow.operation for flow in left} == {2, 3}


def test_flows_wait_for_receivers_until_their_collective_is_complete() -> None:
    joining = telling()
    for rank in range(3):
        joining.add(numbered(small_rows(1, ranks=[rank])))
    last = numbered(small_rows(1, ranks=[3]))
    records = by_key(joining.add(last))
    assert records[WORLD].complete
    assert [received(last, sender) for sender in range(4)] == [[UNKNOWN] * 6] * 4


def test_flows_that_still_wait_are_not_lost() -> None:
    joining = telling()
    rows = numbered(small_rows(1, ranks=[0]))
    count = len(rows.flows)
    joining.add(rows)
    assert len(rows.flows) + len(joining.waiting()) == count
    assert not joining.waiting()


def test_arrival_from_an_unplanned_rank_is_refused() -> None:
    rows = RecordRows(arrivals=array("q", [1, 1, 1, 9, 0, 7000]))
    with pytest.raises(ValueError, match="the plan has no rank number 9"):
        telling().add(rows)


def test_the_waits_of_one_rank_add_up_and_the_longest_counts() -> None:
    joining = joiner()
    joining.add(small_rows(1, ranks=[0], generator_wait_ns=100))
    joining.add(small_rows(1, ranks=[1], generator_wait_ns=300))
    assert by_key(joining.unfinished())[WORLD].generator_wait_ns == 6 * 300


def test_starts_of_a_collective_whose_flows_alone_came_do_not_differ() -> None:
    rows = small_rows(1, ranks=[2])
    joining = joiner()
    joining.add(RecordRows(flows=rows.flows))
    record = by_key(joining.unfinished())[WORLD]
    assert (record.start_spread_ns, record.mean_duration_ns) == (0, 0)
    assert record.start_ns == ITERATION_NS + COMPUTE_NS

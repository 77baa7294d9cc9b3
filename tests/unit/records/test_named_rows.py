"""Rows become records through the plan."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import PlanError
from chakram.records.named_rows import OperationTable, rank_records
from chakram.records.row_layout import FLOW_FIELDS, columns
from chakram.records.run_records import CollectiveKey
from tests.small_run import (
    ALL_REDUCE_NS,
    ALL_TO_ALL_NS,
    ITERATION_NS,
    MESSAGE_NS,
    small_plan,
    small_rows,
)


@pytest.fixture
def operations() -> OperationTable:
    return OperationTable(small_plan())


def test_identities_join_the_shares_of_all_ranks(operations: OperationTable) -> None:
    found = {identity.key: identity for identity in operations.identities}
    assert {key: identity.shares for key, identity in found.items()} == {
        CollectiveKey("moe", "world", 0): 4,
        CollectiveKey("moe", "ep0", 0): 2,
        CollectiveKey("moe", "ep1", 0): 2,
        CollectiveKey("moe", "p2p:0>1", 0): 2,
    }
    world = found[CollectiveKey("moe", "world", 0)]
    assert (world.op, world.algorithm, world.nranks) == ("all_reduce", "ring", 4)
    assert (world.size_bytes, world.trace_size_bytes) == (2**20, 2**24)
    assert world.root is None
    message = found[CollectiveKey("moe", "p2p:0>1", 0)]
    assert (message.op, message.nranks) == (CollectiveOp.SEND_RECV, 2)


def test_a_message_names_the_nodes_of_both_its_ends(
    operations: OperationTable,
) -> None:
    (message,) = (each for each in operations.identities if each.op == "send_recv")
    assert (message.send_node_id, message.name) == (20, "activations")
    assert message.receive_node_id == 21
    assert message.receive_name == "activations, received"
    others = [each for each in operations.identities if each is not message]
    assert all(each.send_node_id is each.receive_node_id is None for each in others)


def test_compute_belongs_to_no_collective(operations: OperationTable) -> None:
    for rank in range(4):
        number = operations.operation_number(rank, 0)
        assert operations.identity_of[number] == -1


@pytest.mark.parametrize(("rank", "operation"), [(4, 0), (-1, 0), (3, 3), (0, -1)])
def test_operations_that_are_not_in_the_plan_are_refused(
    operations: OperationTable, rank: int, operation: int
) -> None:
    with pytest.raises(ValueError, match="the plan has no operation"):
        operations.operation_number(rank, operation)


def test_only_the_receiving_side_is_a_receive(operations: OperationTable) -> None:
    assert operations.is_receive(operations.operation_number(1, 3))
    assert not operations.is_receive(operations.operation_number(0, 3))


def test_ranks_with_gaps_in_their_numbers_are_refused() -> None:
    plan = small_plan()
    agent = plan.agents[0]
    plan = replace(plan, agents=(replace(agent, ranks=agent.ranks[1:]),))
    with pytest.raises(PlanError, match="not numbered 0, 1, 2"):
        OperationTable(plan)


def test_incomplete_row_is_refused() -> None:
    with pytest.raises(ValueError, match="5 numbers are not rows of"):
        columns(array("q", [1, 2, 3, 4, 5]), FLOW_FIELDS)


def test_iterations_of_ranks_are_marked_as_measured(
    operations: OperationTable,
) -> None:
    rows = small_rows(0, ranks=[2])
    rows.extend(small_rows(1, ranks=[0]))
    first, second = rank_records(rows.iterations, operations, warmup=1)
    assert (first.job, first.rank, first.number) == ("moe", 2, 2)
    assert (first.measured, second.measured) == (False, True)
    assert (first.start_ns, second.start_ns) == (0, ITERATION_NS)
    assert second.exposed_ns == ALL_REDUCE_NS + ALL_TO_ALL_NS + MESSAGE_NS

"""Laws of uneven all_to_alls, on random matrices of bytes from rank to rank."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakram.collectives.algorithms import algorithm, algorithm_names
from chakram.collectives.groups import ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.collectives.uneven_messages import uneven_schedule
from chakram.control.plan_codec import decode_plan, encode_plan
from chakram.foundation.errors import MatchingError
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.program.job_check import check_job
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.program.operations import CollectiveOperation, split_matrices
from chakram.topology.topology_helpers import single_switch
from tests.made_graphs import collective, job
from tests.made_plans import flow_rows, make_plan, matrix_splits
from tests.strategies import byte_matrices
from tests.support import examples

Matrix = list[list[int]]

NAMES = algorithm_names(CollectiveOp.ALL_TO_ALL_V)


def graphs_of(matrix: Matrix, order: list[int], *, bystander: bool) -> dict:
    """One all_to_all_v of the group *order*; perhaps one rank more is in no group."""
    rows: list[list] = [[] for _ in range(len(order) + bystander)]
    for position, rank in enumerate(order):
        rows[rank].append(
            collective(
                7,
                CollectiveOp.ALL_TO_ALL_V,
                size=sum(matrix[position]),
                group="g",
                splits=matrix_splits(matrix, position),
            )
        )
    return job(*rows)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Matrix, list[int]]:
    matrix = draw(byte_matrices())
    return matrix, draw(st.permutations(range(len(matrix))))


@given(cases(), st.booleans(), st.sampled_from([Fraction(1), Fraction(1, 64)]))
@settings(deadline=None)
def test_lowering_keeps_every_part_and_a_program_survives_its_message(
    case: tuple[Matrix, list[int]], bystander: bool, scale: Fraction
) -> None:
    matrix, order = case
    nranks = len(matrix)
    graphs = graphs_of(matrix, order, bystander=bystander)
    groups = {"g": ProcessGroup(name="g", ranks=tuple(order))}
    how = LoweringOptions(size_scale=scale, sync_barrier=False)
    programs = lower_job("j", graphs, groups, how).programs
    assert check_job(programs) == []
    if nranks == 1:
        assert not any(each.operations for each in programs)
        return
    scaled = [
        [-(-part * scale.numerator // scale.denominator) for part in row]
        for row in matrix
    ]
    assert split_matrices(programs) == {("j", "g", 0): tuple(map(tuple, scaled))}
    for program in programs:
        for operation in program.operations:
            assert isinstance(operation, CollectiveOperation)
            assert operation.op is CollectiveOp.ALL_TO_ALL_V
            assert operation.input_bytes == -(-sum(map(sum, scaled)) // nranks)
            assert operation.trace_bytes == -(-sum(map(sum, matrix)) // nranks)
    (agent,) = make_plan(programs, single_switch(len(programs), None)).agents
    assert decode_plan(encode_plan(agent)) == agent


@given(cases(), st.data())
def test_mismatched_ends_are_refused_with_both_locations(
    case: tuple[Matrix, list[int]], data: st.DataObject
) -> None:
    matrix, order = case
    nranks = len(matrix)
    src = data.draw(st.integers(0, nranks - 1))
    dst = data.draw(st.integers(0, nranks - 1))
    if src == dst:
        return
    graphs = graphs_of(matrix, order, bystander=False)
    received = list(matrix_splits(matrix, dst).received_bytes)
    received[src] += 1
    wrong = Splits(tuple(matrix[dst]), tuple(received))
    rows = [
        collective(7, CollectiveOp.ALL_TO_ALL_V, size=1, group="g", splits=wrong)
        if rank == order[dst]
        else {
            **collective(7, CollectiveOp.ALL_TO_ALL_V, size=1, group="g"),
            "splits": graphs[rank].splits(0),
        }
        for rank in range(nranks)
    ]
    groups = {"g": ProcessGroup(name="g", ranks=tuple(order))}
    with pytest.raises(MatchingError) as caught:
        lower_job("j", job(*([row] for row in rows)), groups, LoweringOptions())
    message = str(caught.value)
    assert f"t.{order[src]}.et" in message
    assert f"t.{order[dst]}.et" in message
    assert f"sends {matrix[src][dst]} bytes to rank {order[dst]}" in message


@given(byte_matrices(), st.sampled_from(NAMES))
def test_both_ends_number_every_part_equally(matrix: Matrix, name: str) -> None:
    how = algorithm(CollectiveOp.ALL_TO_ALL_V, name)
    nranks = len(matrix)
    shares = [
        uneven_schedule(how, matrix_splits(matrix, position), position=position)
        for position in range(nranks)
    ]
    sent = Counter(
        (src, send.peer, send.message, send.step)
        for src, share in enumerate(shares)
        for send in share.sends
    )
    received = Counter(
        (receive.peer, dst, receive.message, receive.step)
        for dst, share in enumerate(shares)
        for receive in share.receives
    )
    assert sent == received
    assert sorted((src, dst) for src, dst, _, _ in sent) == [
        (src, dst)
        for src in range(nranks)
        for dst in range(nranks)
        if src != dst and matrix[src][dst]
    ]
    for share in shares:
        for send in share.sends:
            assert all(share.receives[need].step < send.step for need in send.needs)


@given(byte_matrices(most=20_000), st.sampled_from(NAMES))
@settings(max_examples=examples(30), deadline=None)
def test_flows_carry_the_matrix_and_nothing_else(matrix: Matrix, name: str) -> None:
    nranks = len(matrix)
    graphs = graphs_of(matrix, list(range(nranks)), bystander=False)
    groups = {"g": ProcessGroup(name="g", ranks=tuple(range(nranks)))}
    how = LoweringOptions(
        sync_barrier=False, algorithms={CollectiveOp.ALL_TO_ALL_V: name}
    )
    programs = lower_job("j", graphs, groups, how).programs
    topology = single_switch(nranks, None)
    plan = make_plan(programs, topology)
    records = simulate_plan(plan, topology, seed=1).records
    moved = {(flow.rank, flow.peer): flow.size_bytes for flow in flow_rows(records)}
    assert moved == {
        (src, dst): part
        for src, row in enumerate(matrix)
        for dst, part in enumerate(row)
        if src != dst and part
    }


@given(st.integers(0, 9_000), st.integers(2, 6), st.data())
def test_members_without_splits_have_even_ones(
    size: int, nranks: int, data: st.DataObject
) -> None:
    size *= nranks
    part = size // nranks
    even = Splits((part,) * nranks, (part,) * nranks)
    stated = data.draw(st.lists(st.booleans(), min_size=nranks, max_size=nranks))
    graphs = job(
        *(
            [
                collective(
                    1, CollectiveOp.ALL_TO_ALL, size=size, splits=even if has else None
                )
            ]
            for has in stated
        )
    )
    programs = lower_job("j", graphs, {}, LoweringOptions()).programs
    ops = {each.operations[0].op for each in programs}  # type: ignore[union-attr] # all are of one kind
    assert ops == {
        CollectiveOp.ALL_TO_ALL_V if any(stated) else CollectiveOp.ALL_TO_ALL
    }
    rows = {
        replace(each.operations[0], dependencies=(), node_id=None) for each in programs
    }
    assert len(rows) == 1

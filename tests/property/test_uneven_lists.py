"""Laws of users' algorithms for uneven all-to-alls: splits and forwarding."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakram.collectives.algorithms import UserAlgorithm, algorithm
from chakram.collectives.algorithms.transfer_lists import (
    ListedAlgorithm,
    check_listed,
    listed_from,
)
from chakram.collectives.ops import CollectiveOp
from chakram.control.plan_codec import decode_plan, encode_plan
from chakram.control.plan_file import decode, encode
from chakram.foundation.errors import PlanError
from chakram.predict.simulator.burst_size import program_traffic
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.predict.topology_to_fabric_model import fabric_model
from chakram.preparation.plan_summary import summarize_plan
from chakram.program.job_check import check_job
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.program.operations import CollectiveOperation
from chakram.program.program_check import ProgramChecks
from chakram.topology.topology_helpers import single_switch
from tests.made_graphs import collective, job
from tests.made_plans import flow_rows, make_plan, matrix_splits
from tests.plans import rewritten, saved_plan
from tests.single_bounds import bound_ns
from tests.strategies import byte_matrices
from tests.support import examples

if TYPE_CHECKING:
    from fractions import Fraction

    from chakram.program.operations import RankProgram

Matrix = list[list[int]]

V = CollectiveOp.ALL_TO_ALL_V
USER = UserAlgorithm(kind="python", path="mine.py", function="mine")


class Source:
    """One of our algorithms as if it were a user's, every part cut into chunks."""

    def __init__(self, name: str, chunks: int) -> None:
        self._name = name
        self._chunks = chunks

    def listed(
        self, op: CollectiveOp, *, nranks: int, root: int, size_scale: Fraction
    ) -> ListedAlgorithm:
        assert op is V
        ours = algorithm(CollectiveOp.ALL_TO_ALL, self._name)
        how = listed_from(ours, name=USER.name, nranks=nranks)
        k = self._chunks
        listed = replace(
            how,
            op=op,
            nparts=how.nparts * k,
            transfers=tuple(
                replace(
                    each,
                    parts=tuple((first * k, count * k) for first, count in each.parts),
                )
                for each in how.transfers
            ),
        )
        assert not check_listed(
            listed.transfers, op=op, nranks=nranks, nparts=listed.nparts
        )
        return listed

    def made_for(self) -> tuple[CollectiveOp | None, int | None]:
        return None, None

    def warnings(self) -> list[str]:
        return []


NAMES = st.sampled_from(["direct", "pairwise", "bruck", "pxn(ranks_per_node=2)"])


def lowered(matrix: Matrix, name: str, chunks: int = 1) -> tuple[RankProgram, ...]:
    graphs = job(
        *(
            [collective(7, V, size=sum(row), splits=matrix_splits(matrix, position))]
            for position, row in enumerate(matrix)
        )
    )
    how = LoweringOptions(
        sync_barrier=False,
        algorithms={V: USER},
        sources={USER: Source(name, chunks)},
    )
    return tuple(lower_job("j", graphs, {}, how).programs)


def expected(how: ListedAlgorithm, matrix: Matrix) -> Counter[tuple[int, int, int]]:
    """Return (source, destination, size) of all messages, part by part."""
    nranks = len(matrix)
    each = how.nparts // nranks**2

    def part_bytes(part: int) -> int:
        pair, place = divmod(part, each)
        whole = matrix[pair // nranks][pair % nranks]
        return whole * (place + 1) // each - whole * place // each

    return Counter(
        (
            transfer.src,
            transfer.dst,
            sum(
                part_bytes(part)
                for first, count in transfer.parts
                for part in range(first, first + count)
            ),
        )
        for transfer in how.transfers
    )


@given(byte_matrices(least_ranks=2, most=20_000), NAMES, st.integers(1, 3))
@settings(max_examples=examples(40), deadline=None)
def test_every_message_has_the_bytes_of_its_parts(
    matrix: Matrix, name: str, chunks: int
) -> None:
    nranks = len(matrix)
    programs = lowered(matrix, name, chunks)
    assert check_job(programs) == []
    (how,) = {each for program in programs for each in program.algorithms}
    topology = single_switch(nranks, 10**9)
    plan = make_plan(programs, topology)
    (agent,) = plan.agents
    assert decode_plan(encode_plan(agent)) == agent
    wanted = expected(how, matrix)
    records = simulate_plan(plan, topology, seed=1).records
    flows = flow_rows(records)
    assert Counter((flow.rank, flow.peer, flow.size_bytes) for flow in flows) == wanted
    payload = sum(size * count for (_, _, size), count in wanted.items())
    summary = summarize_plan(plan, ())
    assert (summary.messages, summary.payload_bytes) == (wanted.total(), payload)
    traffic = program_traffic(programs, path_mtu=4096)
    assert traffic.messages == wanted.total()
    bound = bound_ns(
        how,
        ranks=range(nranks),
        root=0,
        input_bytes=0,
        fabric=fabric_model(topology, {rank: f"h{rank}" for rank in range(nranks)}),
        path_mtu=4096,
        matrix=tuple(map(tuple, matrix)),
    )
    # Nothing is faster than its busiest port.
    out: Counter[int] = Counter()
    for (src, _, size), count in wanted.items():
        out[src] += size * count
    assert bound >= max(out.values()) * 8


@given(byte_matrices(least_ranks=2, most=20_000), st.integers(1, 3))
def test_rank_that_forwards_nothing_needs_no_splits_of_others(
    matrix: Matrix, chunks: int
) -> None:
    for program in lowered(matrix, "direct", chunks):
        (operation,) = program.operations
        assert isinstance(operation, CollectiveOperation)
        assert operation.passed_bytes == ()


@given(byte_matrices(least_ranks=2, most=9), NAMES)
@settings(max_examples=examples(25), deadline=None)
def test_saved_plan_keeps_forwarded_sizes(matrix: Matrix, name: str) -> None:
    plan = saved_plan(lowered(matrix, name))
    assert decode(encode(plan), where="f") == plan


def test_saved_plan_with_other_forwarded_sizes_is_refused() -> None:
    programs = relayed()
    (operation,) = programs[1].operations
    assert isinstance(operation, CollectiveOperation)
    more = tuple(size + 1 for size in operation.passed_bytes)
    for passed, told in (
        ((), "has sizes of 0 parts to forward, but its algorithm forwards 1"),
        (more, "the parts that a member forwards do not match the splits"),
    ):
        plan = saved_plan(passing_on(programs, passed))
        with pytest.raises(PlanError, match=told):
            decode(encode(plan), where="f")


def relayed() -> tuple[RankProgram, ...]:
    return lowered([[0, 1, 2, 3], [4, 0, 5, 6], [7, 8, 0, 9], [1, 1, 1, 0]], "bruck")


def passing_on(programs: tuple[RankProgram, ...], passed: tuple[int, ...]) -> list:
    (operation,) = programs[1].operations
    assert isinstance(operation, CollectiveOperation)
    assert operation.passed_bytes
    wrong = rewritten(programs[1], [replace(operation, passed_bytes=passed)])
    return [programs[0], wrong, *programs[2:]]


def test_members_that_forward_other_sizes_are_refused() -> None:
    programs = relayed()
    (operation,) = programs[1].operations
    assert isinstance(operation, CollectiveOperation)
    more = tuple(size + 1 for size in operation.passed_bytes)
    (told,) = check_job(passing_on(programs, more))
    assert "the parts that a member forwards do not match the splits" in told
    (told,) = check_job(passing_on(programs, ()))
    assert "has sizes of 0 parts to forward, but its algorithm forwards" in told


def test_agent_refuses_a_program_without_forwarded_sizes() -> None:
    plan = make_plan(relayed(), single_switch(4, None))
    message = encode_plan(plan.agents[0])
    of_job = message.programs[0]
    del of_job.splits[of_job.programs[1].splits[0]].passed_bytes[:]
    with pytest.raises(PlanError, match="has sizes of 0 parts to forward"):
        decode_plan(message)


def test_only_an_uneven_all_to_all_forwards_parts_of_splits() -> None:
    (program, *_) = relayed()
    (operation,) = program.operations
    assert isinstance(operation, CollectiveOperation)
    wrong = replace(operation, op=CollectiveOp.ALL_TO_ALL, splits=None)
    wrong = replace(wrong, passed_bytes=(1,))
    (told,) = ProgramChecks().problems(rewritten(program, [wrong]))
    assert "all_to_all with splits" in told

"""Laws of matching, ordering and lowering, on random jobs.

``tests.random_traces`` says what a random job is.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import MatchingError
from chakram.program.job_check import check_job
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.program.operations import CollectiveOperation
from tests.random_traces import RandomJob, copies, random_jobs

options = st.builds(
    LoweringOptions,
    compute_from=st.sampled_from(["none", "trace"]),
    size_scale=st.sampled_from([Fraction(1), Fraction(1, 64)]),
    sync_barrier=st.booleans(),
    ordering=st.sampled_from(["serial", "overlap"]),
    select=st.sampled_from([None, frozenset({CollectiveOp.ALL_REDUCE})]),
)


@given(random_jobs(distinct=True), options)
def test_consistent_job_lowers_to_terminating_programs(
    random_job: RandomJob, how: LoweringOptions
) -> None:
    programs = lower_job("j", random_job.graphs, random_job.groups, how).programs
    assert check_job(programs) == []


@given(random_jobs(distinct=False), options)
def test_any_job_is_refused_or_lowers_to_terminating_programs(
    random_job: RandomJob, how: LoweringOptions
) -> None:
    try:
        programs = lower_job("j", random_job.graphs, random_job.groups, how).programs
    except MatchingError:
        return
    assert check_job(programs) == []


@given(random_jobs(distinct=True), options)
def test_lowering_keeps_every_dependency(
    random_job: RandomJob, how: LoweringOptions
) -> None:
    programs = lower_job("j", random_job.graphs, random_job.groups, how).programs
    for program in programs:
        graph = random_job.graphs[program.rank]
        in_trace = ancestors(
            [graph.dependencies(position) for position in range(len(graph))]
        )
        in_program = ancestors([each.dependencies for each in program.operations])
        row_of = {
            each.node_id: row
            for row, each in enumerate(program.operations)
            if each.node_id is not None
        }
        for position, before in enumerate(in_trace):
            row = row_of.get(graph.node_id(position))
            for other in before if row is not None else ():
                other_row = row_of.get(graph.node_id(other))
                assert other_row is None or other_row in in_program[row]


@given(random_jobs(distinct=True), st.booleans())
def test_collectives_of_a_group_run_one_at_a_time_in_one_order(
    random_job: RandomJob, barrier: bool
) -> None:
    how = LoweringOptions(sync_barrier=barrier)
    for program in lower_job("j", random_job.graphs, random_job.groups, how).programs:
        in_program = ancestors([each.dependencies for each in program.operations])
        rows = {
            (each.group, each.number): row
            for row, each in enumerate(program.operations)
            if isinstance(each, CollectiveOperation)
        }
        for (group, number), row in rows.items():
            if number:
                assert rows[group, number - 1] in in_program[row]


@given(random_jobs(distinct=True))
def test_barrier_follows_everything(random_job: RandomJob) -> None:
    for program in lower_job(
        "j", random_job.graphs, random_job.groups, LoweringOptions()
    ).programs:
        if len(random_job.graphs) > 1:
            last = len(program.operations) - 1
            in_program = ancestors([each.dependencies for each in program.operations])
            assert in_program[last] == set(range(last))


@given(random_jobs(distinct=False), st.sampled_from(["serial", "overlap"]))
def test_copies_of_a_job_lower_to_copies_of_its_programs(
    one: RandomJob, ordering: str
) -> None:
    how = LoweringOptions(ordering=ordering, sync_barrier=False)
    many = copies(one, 6)
    try:
        programs = lower_job("j", one.graphs, one.groups, how).programs
    except MatchingError:
        with pytest.raises(MatchingError):
            lower_job("j", many.graphs, many.groups, how)
        return
    lowered = lower_job("j", many.graphs, many.groups, how).programs
    assert check_job(lowered) == []
    for program in lowered:
        copy, rank = divmod(program.rank, len(programs))
        assert program.columns == programs[rank].columns
        first = copy * len(programs)
        assert program.peers == tuple(each + first for each in programs[rank].peers)
        assert [each.name for each in program.groups] == [
            f"{each.name}{copy}" for each in programs[rank].groups
        ]


def ancestors(dependencies: list) -> list[set[int]]:
    """Return, for every node, all that must end before it."""
    found: dict[int, set[int]] = {}

    def of(node: int) -> set[int]:
        if node not in found:
            found[node] = set()
            for each in dependencies[node]:
                found[node] |= {each} | of(each)
        return found[node]

    return [of(node) for node in range(len(dependencies))]

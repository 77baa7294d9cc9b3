"""Laws of matching, ordering and lowering, on random jobs.

A random job is a sequence of events that could really have happened: collectives of
random groups, messages, computations.  Every rank gets its share, with random
dependencies on what it did before; then the ids are shuffled, so that neither file
order nor id order says what came first.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from chakram.core.collectives import CollectiveOp
from chakram.core.groups import ProcessGroup
from chakram.core.job_check import check_job
from chakram.core.lowering import LoweringOptions, lower_job
from chakram.core.program import CollectiveOperation
from chakram.errors import MatchingError
from chakram.testing.graphs import collective, compute, job, receive, send

OPS = [CollectiveOp.ALL_REDUCE, CollectiveOp.ALL_GATHER, CollectiveOp.ALL_TO_ALL]


@dataclass
class RandomJob:
    graphs: dict
    groups: dict[str, ProcessGroup]


@st.composite
def jobs(draw: st.DrawFn, *, distinct: bool) -> RandomJob:
    """Return a job; *distinct*: no two collectives, or messages, look alike."""
    nranks = draw(st.integers(1, 5))
    groups = {
        name: ProcessGroup(name=name, ranks=tuple(ranks))
        for name in "abc"
        if (
            ranks := draw(st.lists(st.integers(0, nranks - 1), min_size=1, unique=True))
        )
    }
    nevents = draw(st.integers(1, 14))
    ids = draw(st.permutations(range(nevents)))
    done: list[list[int]] = [[] for _ in range(nranks)]
    rows: list[list] = [[] for _ in range(nranks)]

    def after(rank: int) -> list[int]:
        if not done[rank]:
            return []
        return draw(st.lists(st.sampled_from(done[rank]), max_size=3, unique=True))

    for event, node_id in enumerate(ids):
        size = event + 1 if distinct else draw(st.integers(1, 2))
        kind = draw(st.sampled_from(["collective", "message", "compute"]))
        new: dict[int, dict] = {}
        if kind == "collective":
            group = groups[draw(st.sampled_from(sorted(groups)))]
            op = draw(st.sampled_from(OPS))
            new = {
                rank: collective(
                    node_id,
                    op,
                    size=size,
                    group=group.name,
                    after=after(rank),
                    name=f"e{event}",
                )
                for rank in group.ranks
            }
        elif kind == "message" and nranks > 1:
            src, dst = draw(st.permutations(range(nranks)))[:2]
            tag = event if distinct else 0
            new = {
                src: send(node_id, dst, size=size, tag=tag, after=after(src)),
                dst: receive(node_id, src, size=size, tag=tag, after=after(dst)),
            }
        else:
            rank = draw(st.integers(0, nranks - 1))
            new = {
                rank: compute(
                    node_id, after=after(rank), duration_ns=draw(st.integers(0, 1))
                )
            }
        for rank, row in new.items():
            done[rank].append(node_id)
            rows[rank].append(row)
    shuffled = [draw(st.permutations(mine)) for mine in rows]
    return RandomJob(graphs=job(*shuffled), groups=groups)


options = st.builds(
    LoweringOptions,
    compute_from=st.sampled_from(["none", "trace"]),
    size_scale=st.sampled_from([Fraction(1), Fraction(1, 64)]),
    sync_barrier=st.booleans(),
    ordering=st.sampled_from(["serial", "overlap"]),
    select=st.sampled_from([None, frozenset({CollectiveOp.ALL_REDUCE})]),
)


@given(jobs(distinct=True), options)
def test_a_job_that_could_have_happened_becomes_programs_that_end(
    random_job: RandomJob, how: LoweringOptions
) -> None:
    programs = lower_job("j", random_job.graphs, random_job.groups, how).programs
    assert check_job(programs) == []


@given(jobs(distinct=False), options)
def test_a_job_is_refused_or_becomes_programs_that_end(
    random_job: RandomJob, how: LoweringOptions
) -> None:
    try:
        programs = lower_job("j", random_job.graphs, random_job.groups, how).programs
    except MatchingError:
        return
    assert check_job(programs) == []


@given(jobs(distinct=True), options)
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


@given(jobs(distinct=True), st.booleans())
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


@given(jobs(distinct=True))
def test_the_barrier_comes_after_everything(random_job: RandomJob) -> None:
    for program in lower_job(
        "j", random_job.graphs, random_job.groups, LoweringOptions()
    ).programs:
        if len(random_job.graphs) > 1:
            last = len(program.operations) - 1
            in_program = ancestors([each.dependencies for each in program.operations])
            assert in_program[last] == set(range(last))


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

"""Ranks of one shape share results, which equal those of ranks that share nothing."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakram.chakra.lint.computation_warnings import check_computation
from chakram.chakra.lint.replay_blockers import check_across_ranks, check_trace_set
from chakram.chakra.lint.traffic_warnings import check_traffic
from chakram.collectives.groups import WORLD, ProcessGroup
from chakram.program.job_check import check_job
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.trace.graph import TraceGraph
from tests.random_traces import RandomJob, copies, random_jobs

_COPIES = 4

changes = st.lists(
    st.tuples(
        st.integers(0, 24),
        st.sampled_from(["time", "peer", "group", "member"]),
        st.integers(-1, 30),
    ),
    max_size=4,
)


def changed(one: RandomJob, which: list[tuple[int, str, int]]) -> RandomJob:
    """Return new copies of a job, in which a few ranks differ in their values."""
    many = copies(one, _COPIES)
    graphs, groups = many.graphs, many.groups
    for number, what, value in which:
        rank = number % len(graphs)
        columns = graphs[rank].columns
        if what == "time":
            durations_ns = array("q", [abs(value)]) * len(columns)
            columns = replace(columns, durations_ns=durations_ns)
        elif what == "peer":
            peers = array("q", [value]) * len(columns.peers)
            columns = replace(columns, peers=peers)
        elif what == "group" and columns.group_names:
            others = [WORLD, "unknown", *groups]
            names = [others[value % len(others)], *columns.group_names[1:]]
            columns = replace(columns, group_names=names)
        elif what == "member" and groups:
            name = sorted(groups)[value % len(groups)]
            if len(groups[name].ranks) > 1:
                ranks = groups[name].ranks[1:]
                groups[name] = ProcessGroup(name=name, ranks=ranks)
        graphs[rank] = replace(graphs[rank], columns=columns)
    return RandomJob(graphs=graphs, groups=groups)


def findings(job: RandomJob) -> list[object]:
    graphs, groups = job.graphs, job.groups
    problems = check_trace_set(graphs, groups)
    if problems:
        return [problems]
    across = check_across_ranks(graphs, groups)
    if across[0]:
        return [across]
    lowered = lower_job("j", graphs, groups, LoweringOptions(compute_from="trace"))
    return [
        across,
        check_computation(graphs),
        check_traffic(graphs, groups, recorded=True),
        lowered,
        check_job(lowered.programs),
    ]


@settings(max_examples=40)
@given(random_jobs(distinct=False), changes)
def test_alike_ranks_have_the_findings_and_programs_of_single_ranks(
    one: RandomJob, which: list[tuple[int, str, int]]
) -> None:
    together = findings(changed(one, which))
    with pytest.MonkeyPatch.context() as patch:
        # No two ranks have the same shape.
        patch.setattr(TraceGraph, "shape", lambda graph: b"%d" % id(graph))
        assert findings(changed(one, which)) == together

"""Laws of cutting parts out of trace sets."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chakram.chakra.cut.cut import Cut, CutOptions
from chakram.chakra.cut.node_removal import bridge
from chakram.chakra.lint.replay_blockers import check_across_ranks, check_trace_set
from chakram.chakra.sets.trace_set import TraceSet, assemble
from chakram.chakra.write.writer import encode_trace
from chakram.collectives.groups import WORLD, world_group
from chakram.program.matching import match_ranks
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind
from tests.made_graphs import collective, compute, trace
from tests.random_traces import RandomJob, random_jobs
from tests.support import examples
from tests.trace_bytes import read_stream

SMALL = settings(max_examples=examples(60))
COMMUNICATION = (NodeKind.COLLECTIVE, NodeKind.SEND, NodeKind.RECEIVE)


def read_again(job: RandomJob, options: CutOptions) -> TraceSet:
    """Return the set that the files of the cut give."""
    cut = Cut(job.graphs, job.groups | {WORLD: world_group(len(job.graphs))}, options)
    traces = {}
    for rank in cut.ranks:
        graph = cut.rank(rank).graph
        records = b"".join(encode_trace(graph, producer="t"))
        traces[graph.rank] = read_stream(
            io.BytesIO(records), rank=graph.rank, source="t"
        )
    groups = {
        cut.renamed.get(name, name): members
        for name, members in cut.groups.items()
        if name != WORLD
    }
    return assemble(name="t", traces=traces, file_groups=groups)


def reached(graph: TraceGraph) -> dict[int, set[int]]:
    """Return all that each node depends on, by position."""
    above: dict[int, set[int]] = {}
    for position in graph.topological_order():
        own = graph.dependencies(position)
        above[position] = set(own).union(*(above[each] for each in own))
    return above


def relation(graph: TraceGraph) -> set[tuple[object, object]]:
    """Return which communication depends on which; names tell nodes apart."""

    def of(position: int) -> object:
        node = graph.node(position)
        return node.name, node.kind, node.comm_bytes

    nodes = set(graph.communication())
    above = reached(graph)
    return {(of(a), of(b)) for a in nodes for b in above[a] & nodes}


def operations(graph: TraceGraph) -> Counter[object]:
    return Counter(
        (node.kind, node.op, node.comm_bytes, node.peer, node.tag)
        for node in map(graph.node, graph.communication())
    )


def lints_clean(graphs: Any, groups: Any) -> bool:
    return (
        not check_trace_set(graphs, groups)
        and not check_across_ranks(graphs, groups)[0]
    )


@SMALL
@given(job=random_jobs(distinct=True))
def test_cut_to_communication_keeps_reachability(
    job: RandomJob,
) -> None:
    left = read_again(job, CutOptions(communication_only=True))
    for rank, graph in job.graphs.items():
        got = left.graphs[rank]
        # What is left beside it joins dependencies, and takes no time.
        assert all(
            (node.kind, node.name, node.duration_ns, node.num_ops)
            == (NodeKind.COMPUTE, "join", 0, 0)
            for node in got.nodes()
            if node.kind not in COMMUNICATION
        )
        assert operations(got) == operations(graph)
        assert relation(got) == relation(graph)


@st.composite
def computing_graphs(draw: st.DrawFn) -> TraceGraph:
    """Return a graph of collectives and computations, with dense dependencies."""
    rows = []
    for number in range(draw(st.integers(1, 24))):
        after = draw(st.sets(st.integers(0, number - 1))) if number else ()
        make = collective if draw(st.booleans()) else compute
        rows.append(make(number, after=after))
    return trace(0, draw(st.permutations(rows)))


@SMALL
@given(graph=computing_graphs())
def test_bridging_keeps_reachability_without_more_edges(graph: TraceGraph) -> None:
    kept = [graph.kind(at) is NodeKind.COLLECTIVE for at in range(len(graph))]
    bridged = bridge(graph, kept)
    above: dict[int, set[int]] = {}
    for position, own in bridged.dependencies.items():
        above[position] = set(own).union(*(above[each] for each in own))
    assert {at for at in bridged.dependencies if kept[at]} == {
        at for at, keep in enumerate(kept) if keep
    }
    for position, all_above in reached(graph).items():
        if kept[position]:
            assert {each for each in above[position] if kept[each]} == {
                each for each in all_above if kept[each]
            }
    edges = sum(map(len, bridged.dependencies.values()))
    assert edges <= sum(len(graph.dependencies(at)) for at in range(len(graph)))


@SMALL
@given(job=random_jobs(distinct=False), data=st.data())
def test_a_cut_of_a_clean_set_is_clean_and_in_the_same_order(
    job: RandomJob, data: st.DataObject
) -> None:
    groups = job.groups | {WORLD: world_group(len(job.graphs))}
    assume(lints_clean(job.graphs, groups))
    ranks = data.draw(st.sets(st.sampled_from(sorted(job.graphs)), min_size=1))
    ids = [
        job.graphs[rank].node_id(at)
        for rank in ranks
        for at in range(len(job.graphs[rank]))
    ]
    first = data.draw(st.sampled_from(ids)) if ids else None
    options = CutOptions(
        ranks=tuple(sorted(ranks)),
        node_ids=None if first is None else (first, data.draw(st.integers(first, 14))),
        communication_only=data.draw(st.booleans()),
    )
    left = read_again(job, options)
    assert lints_clean(left.graphs, left.groups)
    orders = match_ranks(job.graphs, groups).orders
    for number, rank in enumerate(sorted(ranks)):
        graph, before = left.graphs[number], job.graphs[rank]
        names = [graph.name(at) for at in graph.topological_order()]
        in_order = iter([before.name(at) for at in orders[rank]])
        communication = {before.name(at) for at in before.communication()}
        assert all(name in in_order for name in names if name in communication)

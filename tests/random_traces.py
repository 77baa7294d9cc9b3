"""Random consistent traces, for Hypothesis tests of lowering.

A random job is a sequence of events: collectives of random groups, messages,
computations.  Every rank gets its share, with random dependencies on what it did
before; then the ids are shuffled, so that neither file order nor id order says what
came first.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from chakram.collectives.groups import ProcessGroup
from chakram.collectives.ops import CollectiveOp
from tests.made_graphs import Row, collective, compute, job, receive, send

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.trace.graph import TraceGraph

__all__ = ["RandomJob", "copies", "random_jobs"]

_OPS = [CollectiveOp.ALL_REDUCE, CollectiveOp.ALL_GATHER, CollectiveOp.ALL_TO_ALL]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomJob:
    """The traces of all ranks, and their groups."""

    graphs: dict[int, TraceGraph]
    groups: dict[str, ProcessGroup]


@st.composite
def random_jobs(
    draw: st.DrawFn, *, distinct: bool, timed: bool = False, max_time_ns: int = 1
) -> RandomJob:
    """Return a job.

    Args:
        draw: From Hypothesis.
        distinct: No two collectives, or messages, look alike.
        timed: Nodes have recorded starts, in any order, and streams.
        max_time_ns: Longest computation, and latest start.
    """
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
    rows: list[list[Row]] = [[] for _ in range(nranks)]
    # Traces lack edges, or have one from each event of a rank to the next.
    is_chained = draw(st.booleans())

    def after(rank: int) -> list[int]:
        if not done[rank]:
            return []
        if is_chained:
            return done[rank][-1:]
        return draw(st.lists(st.sampled_from(done[rank]), max_size=3, unique=True))

    for event, node_id in enumerate(ids):
        size = event + 1 if distinct else draw(st.integers(1, 2))
        kind = draw(st.sampled_from(["collective", "message", "compute"]))
        new: dict[int, Row] = {}
        if kind == "collective":
            group = groups[draw(st.sampled_from(sorted(groups)))]
            op = draw(st.sampled_from(_OPS))
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
                    node_id,
                    after=after(rank),
                    duration_ns=draw(st.integers(0, max_time_ns)),
                )
            }
        for rank, row in new.items():
            if timed:
                row["start_ns"] = draw(st.integers(0, max_time_ns))
            if timed and kind == "compute":
                row["stream"] = draw(st.sampled_from([None, 1]))
            done[rank].append(node_id)
            rows[rank].append(row)
    shuffled = [draw(st.permutations(mine)) for mine in rows]
    return RandomJob(graphs=job(*shuffled), groups=groups)


def copies(one: RandomJob, count: int) -> RandomJob:
    """Return several copies of a job, as one job whose copies share no group."""
    graphs: dict[int, TraceGraph] = {}
    groups: dict[str, ProcessGroup] = {}
    for copy in range(count):
        first = copy * len(one.graphs)
        for name, group in one.groups.items():
            ranks = tuple(rank + first for rank in group.ranks)
            groups[f"{name}{copy}"] = ProcessGroup(name=f"{name}{copy}", ranks=ranks)
        for rank, graph in one.graphs.items():
            nodes = map(graph.node, graph.communication())
            graphs[rank + first] = graph.replica(
                rank + first,
                group_names={name: f"{name}{copy}" for name in one.groups},
                messages={
                    node.position: (node.peer + first, node.tag or 0)
                    for node in nodes
                    if node.peer is not None
                },
                splits={},
            )
    return RandomJob(graphs=graphs, groups=groups)


def mean_size(points: Sequence[tuple[int, float]]) -> float:
    """Return the mean of a distribution."""
    return sum(
        (low + high) / 2 * (above - below) / 100
        for (low, below), (high, above) in itertools.pairwise(points)
    )

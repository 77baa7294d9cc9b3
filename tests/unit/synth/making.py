"""Views of synthetic traces for tests."""

from __future__ import annotations

from collections import Counter
from typing import Any

from chakram.chakra.sets.trace_set import TraceSet
from chakram.collectives.ops import CollectiveOp
from chakram.synth.settings import KINDS
from chakram.synth.synthesize import synthesize, synthesized_trace_set
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind

Traffic = Counter[tuple[str, int, str]]
"""How many of each: kind or op, bytes, and what its group is for."""


def make(kind: str, **parameters: Any) -> TraceSet:
    trace = KINDS[kind].model_validate({"synth": kind, **parameters})
    return synthesized_trace_set(synthesize(trace))


def graph(kind: str, rank: int = 0, **parameters: Any) -> TraceGraph:
    trace = KINDS[kind].model_validate({"synth": kind, **parameters})
    return synthesize(trace).graph_of(rank)


def traffic(kind: str, rank: int = 0, **parameters: Any) -> Traffic:
    trace = KINDS[kind].model_validate({"synth": kind, **parameters})
    synthesis = synthesize(trace)
    found: Traffic = Counter()
    for node in synthesis.graph_of(rank).nodes():
        if node.op is not None:
            purpose = synthesis.purposes[node.group] if node.group else ""
            found[node.op.value, node.comm_bytes, purpose] += 1
        elif node.kind in (NodeKind.SEND, NodeKind.RECEIVE):
            found[node.kind.name.lower(), node.comm_bytes, str(node.peer)] += 1
    return found


def ops(made: TraceGraph) -> Counter[CollectiveOp]:
    return Counter(node.op for node in made.nodes() if node.op is not None)


def names_before(made: TraceGraph, name: str) -> set[str]:
    """Return the names of all nodes that *name* waits for, near or far."""
    nodes = list(made.nodes())
    todo = [node.position for node in nodes if node.name == name]
    seen: set[int] = set()
    while todo:
        for position in nodes[todo.pop()].dependencies:
            if position not in seen:
                seen.add(position)
                todo.append(position)
    return {nodes[position].name for position in seen}

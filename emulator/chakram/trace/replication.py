"""SPMD: the trace of one rank, taken for that of all ranks.

Training frameworks run one program on every rank; what differs is with whom.  So every
rank gets the nodes of the recorded one, and

* a process group becomes, on every rank, the group in which it stands as the recorded
  rank stands in its own: groups whose members are equally far apart (tp = 8 neighbours,
  dp = every 8th rank) cut the job into groups of that shape;
* a message goes as many ranks further, modulo their number, as that of the recorded
  rank.  Where what it receives does not mirror what it sends (the first stage of a
  pipeline receives from the one it sends to), each receive is taken for the other end
  of the first message of its size that has none;
* an uneven all_to_all is turned: every rank sends to the one d places further what the
  recorded rank did; in a group of another size it is even.

What ranks did differently (uneven computation, other stages of a pipeline) is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from chakram.collectives.groups import WORLD, ProcessGroup, world_group
from chakram.collectives.split_sizes import Splits, even_splits
from chakram.foundation.errors import TraceError
from chakram.trace.node import NodeKind

if TYPE_CHECKING:
    from chakram.trace.graph import TraceGraph


ALL = "all"
"""Stands for all ranks where the shape of a group is given."""

_ALL_RANKS_NAMES = frozenset({"", "0", WORLD})

Shape = tuple[tuple[int, int], ...]
"""(ranks between two members, members), innermost first: one pair for each dimension of
a group; none: the rank alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """How one rank's trace becomes that of all.

    Attributes:
        nranks: Ranks of the job.
        dimensions: Sizes of its dimensions, innermost first, by name: of
            ``{tp: 8, dp: 4}``, tp groups are 8 neighbours, dp groups every 8th rank.
        groups: By process group of the trace, the names of its dimensions, or ``ALL``.
        peer_offset: How many ranks further messages go that say no rank.
    """

    nranks: int
    dimensions: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    peer_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """What one trace has become.

    ``notes`` say in sentences what was made of it.
    """

    graphs: Mapping[int, TraceGraph]
    groups: Mapping[str, ProcessGroup]
    notes: tuple[str, ...]


def replicate(
    graph: TraceGraph,
    groups: Mapping[str, ProcessGroup],
    replication: Replication,
    *,
    recorded_ranks: int,
) -> Replicas:
    """Return the traces of all ranks, made of one.

    Args:
        graph: The trace of the recorded rank.
        groups: Its process groups.
        replication: How.
        recorded_ranks: Ranks of the job in which it was recorded, as far as one knows.

    Raises:
        TraceError: If a group cannot be cut out of that many ranks, or a message has no
            other end.
    """
    nranks = replication.nranks
    shapes = {
        name: _shape(name, graph, groups, replication, recorded_ranks)
        for name in _used_groups(graph)
    }
    made: dict[str, ProcessGroup] = {WORLD: world_group(nranks)}
    messages = _messages(graph, replication, recorded_ranks)
    uneven = {
        position: splits
        for position in range(len(graph))
        if (splits := graph.splits(position)) is not None
    }
    # Found once, and then shared by all replicas.
    graph.topological_order()
    graphs: dict[int, TraceGraph] = {}
    for rank in range(nranks):
        names: dict[str, str] = {}
        for name, shape in shapes.items():
            members = range(nranks) if shape is None else members_of(shape, rank)
            if shape is None:
                names[name] = WORLD if name in _ALL_RANKS_NAMES else name
            else:
                names[name] = f"{name}@{members[0]}"
            made.setdefault(
                names[name], ProcessGroup(name=names[name], ranks=tuple(members))
            )
        graphs[rank] = graph.replica(
            rank,
            group_names=names,
            messages={
                position: ((rank + offset) % nranks, tag)
                for position, (offset, tag) in messages.items()
            },
            splits={
                position: _turned(
                    splits,
                    _recorded_position(graph, position, groups),
                    made[names[graph.group(position) or WORLD]],
                    rank,
                )
                for position, splits in uneven.items()
            },
        )
    return Replicas(
        graphs=graphs,
        groups=made,
        notes=(_note(graph.rank, nranks, shapes, messages),),
    )


def shape_of(ranks: Sequence[int]) -> Shape | None:
    """Return the shape of a group, None if its members are not evenly apart.

    ``0 1 4 5`` are 2 ranks 1 apart, twice, 4 apart: ``((1, 2), (4, 2))``.
    """
    members = sorted(ranks)
    offsets = [rank - members[0] for rank in members]
    shape: list[tuple[int, int]] = []
    found = 1
    while found < len(offsets):
        stride = offsets[found]
        count = 1
        block = offsets[:found]
        while offsets[count * found : (count + 1) * found] == [
            count * stride + offset for offset in block
        ]:
            count += 1
        if count == 1:
            return None
        shape.append((stride, count))
        found *= count
    return tuple(shape) if found == len(offsets) else None


def members_of(shape: Shape, rank: int) -> list[int]:
    """Return the members of the group of that shape that *rank* is in, ascending."""
    base = rank - sum(stride * (rank // stride % count) for stride, count in shape)
    steps = [[stride * index for index in range(count)] for stride, count in shape]
    return sorted(base + sum(each) for each in product(*steps))


def _used_groups(graph: TraceGraph) -> list[str]:
    """Return the names of the groups of its collectives; ``world`` where none is."""
    return list(
        dict.fromkeys(
            graph.group(position) or WORLD
            for position, kind in enumerate(graph.kinds())
            if kind == NodeKind.COLLECTIVE
        )
    )


def _shape(
    name: str,
    graph: TraceGraph,
    groups: Mapping[str, ProcessGroup],
    replication: Replication,
    recorded_ranks: int,
) -> Shape | None:
    """Return the shape of a group of the trace; None: all ranks."""
    nranks = replication.nranks
    where = f"{graph.source}: process group {name!r}"
    wanted = replication.groups.get(name)
    if wanted is None and name in replication.dimensions:
        wanted = (name,)
    if wanted is not None:
        if ALL in wanted or set(wanted) == set(replication.dimensions):
            return None
        return _dimensions(wanted, replication.dimensions)
    group = groups.get(name)
    if name == WORLD or (group is None and name in _ALL_RANKS_NAMES):
        return None
    hint = (
        f"say what it is: trace.groups: {{{name!r}: {ALL}}}, or a name of "
        "trace.dimensions"
    )
    if group is None:
        raise TraceError(where, "is defined nowhere", hint)
    if len(group.ranks) == recorded_ranks:
        return None
    if graph.rank not in group:
        raise TraceError(where, f"does not have rank {graph.rank}", hint)
    shape = shape_of(group.ranks)
    if shape is None or sorted(group.ranks) != members_of(shape, graph.rank):
        raise TraceError(
            where,
            f"has ranks not evenly apart: {list(group.ranks)[:16]}",
            hint,
        )
    for stride, count in shape:
        if nranks % (stride * count):
            raise TraceError(
                where,
                f"is {count} ranks {stride} apart; {nranks} ranks do not divide so",
                hint,
            )
    return shape


def _dimensions(names: Sequence[str], sizes: Mapping[str, int]) -> Shape:
    shape = []
    stride = 1
    for name, size in sizes.items():
        if name in names and size > 1:
            shape.append((stride, size))
        stride *= size
    return tuple(shape)


def _messages(
    graph: TraceGraph, replication: Replication, recorded_ranks: int
) -> dict[int, tuple[int, int]]:
    """Return of every send and receive how many ranks further it leads, and its tag."""
    nranks = replication.nranks
    found: dict[int, tuple[int, int]] = {}
    ends: dict[NodeKind, list[tuple[int, int]]] = {
        NodeKind.SEND: [],
        NodeKind.RECEIVE: [],
    }
    for position in graph.topological_order():
        kind = graph.kind(position)
        if kind not in ends:
            continue
        node = graph.node(position)
        if node.peer is not None:
            # Beyond the recorded ranks the shorter way round is meant.
            offset = node.peer - graph.rank
            if recorded_ranks > 1 and offset > recorded_ranks // 2:
                offset -= recorded_ranks
        elif replication.peer_offset is not None:
            further = replication.peer_offset
            offset = further if kind == NodeKind.SEND else -further
        else:
            raise TraceError(
                graph.locate(position),
                "is a message without its other side",
                "say how many ranks further messages go: trace.peer_offset: 1",
            )
        found[position] = (offset % nranks, node.tag or 0)
        ends[kind].append((position, node.comm_bytes))
    sends, receives = ends[NodeKind.SEND], ends[NodeKind.RECEIVE]
    mirrored = Counter(
        (-found[position][0] % nranks, found[position][1], size)
        for position, size in sends
    )
    if mirrored != Counter((*found[position], size) for position, size in receives):
        _pair_by_size(graph, found, sends, receives, nranks)
    for position, (offset, _) in found.items():
        if not offset:
            raise TraceError(
                graph.locate(position),
                f"would be a message of each of {nranks} ranks to itself",
                "replicate the trace to more ranks",
            )
    return found


def _pair_by_size(
    graph: TraceGraph,
    found: dict[int, tuple[int, int]],
    sends: Sequence[tuple[int, int]],
    receives: Sequence[tuple[int, int]],
    nranks: int,
) -> None:
    """Take each receive for the other end of the first message of its size."""
    left = list(sends)
    for position, size_bytes in receives:
        send = next((each for each in left if each[1] == size_bytes), None)
        if send is None:
            raise TraceError(
                graph.locate(position),
                f"receives {size_bytes} bytes, and the rank sends no other message of "
                "that size: replicated, nobody would send it",
                "replicate another rank, or replay the traces of all ranks",
            )
        left.remove(send)
        offset, tag = found[send[0]]
        found[position] = (-offset % nranks, tag)
    if left:
        raise TraceError(
            graph.locate(left[0][0]),
            f"sends {left[0][1]} bytes, and the rank receives no other message of that "
            "size: replicated, nobody would receive it",
            "replicate another rank, or replay the traces of all ranks",
        )


def _recorded_position(
    graph: TraceGraph, position: int, groups: Mapping[str, ProcessGroup]
) -> int:
    """Return the place of the recorded rank in the group of a collective."""
    group = groups.get(graph.group(position) or WORLD)
    if group is None or graph.rank not in group:
        return graph.rank
    return group.position(graph.rank)


def _turned(splits: Splits, recorded: int, group: ProcessGroup, rank: int) -> Splits:
    """Return the splits of *rank*: those of the recorded rank, by distance."""
    nranks = len(group.ranks)
    place = group.position(rank)
    sent = splits.sent_bytes
    if len(sent) != nranks or recorded >= nranks:
        return even_splits(sum(sent), nranks=nranks, position=place)
    return Splits(
        tuple(sent[(other - place + recorded) % nranks] for other in range(nranks)),
        tuple(sent[(place - other + recorded) % nranks] for other in range(nranks)),
    )


def _note(
    rank: int,
    nranks: int,
    shapes: Mapping[str, Shape | None],
    messages: Mapping[int, tuple[int, int]],
) -> str:
    parts = [f"{name}: {_shape_text(shape)}" for name, shape in shapes.items()]
    if messages:
        offsets = sorted({offset for offset, _ in messages.values()})
        listed = ", ".join(f"+{offset}" for offset in offsets[:6])
        parts.append(f"messages to ranks {listed}")
    text = (
        f"REPLICATED: all {nranks} ranks do what the trace of rank {rank} says; what "
        "other ranks did is not known"
    )
    return f"{text} ({'; '.join(parts)})" if parts else text


def _shape_text(shape: Shape | None) -> str:
    if shape is None:
        return "all ranks"
    if not shape:
        return "one rank"
    return " x ".join(f"{count} ranks {stride} apart" for stride, count in shape)

"""SPMD replication: derive the traces of all ranks from the trace of one rank.

Training frameworks run the same program on every rank. Only the communication partners
differ. Each rank gets the nodes of the recorded rank, with these changes:

* Process groups: a rank gets the group of the same shape that contains it. Groups with
  evenly spaced members (tp = 8 neighbors, dp = every 8th rank) divide the job into
  groups of that shape.
* Messages: the distance to the peer stays the same, modulo the number of ranks.
  Receives do not always mirror sends. For example, the first stage of a pipeline
  receives from the rank that it sends to. In that case, each receive is paired with the
  first unpaired send of the same size, if possible of the same process group.
* Uneven all_to_all: the splits are rotated. Each rank sends to the member d positions
  ahead as many bytes as the recorded rank sent d positions ahead. In a group of a
  different size, the splits are even.

Differences between ranks, such as uneven computation or different pipeline stages, are
lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import itemgetter
from typing import NamedTuple

from chakram.collectives.groups import WORLD, ProcessGroup, world_group
from chakram.collectives.split_sizes import Splits, even_splits
from chakram.foundation.errors import TraceError
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind

ALL = "all"
"""Placeholder for all ranks in a group's list of dimensions."""

_ALL_RANKS_NAMES = frozenset({"", "0", WORLD})

Shape = tuple[tuple[int, int], ...]
"""One pair (stride in ranks, number of members) per group dimension, innermost first.

An empty shape is a group of one rank.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """How to derive the traces of all ranks from the trace of one rank.

    Attributes:
        nranks: Number of ranks in the job.
        dimensions: Sizes of the job's dimensions by name, innermost first. With
            ``{tp: 8, dp: 4}``, tp groups are 8 neighbors and dp groups are every 8th
            rank.
        groups: Names of the dimensions of each process group in the trace, or ``ALL``.
        peer_offset: Distance in ranks from sender to receiver, for messages without a
            peer.
    """

    nranks: int
    dimensions: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    peer_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The traces, groups and notes of a replicated job.

    ``notes`` describe the replication in sentences.
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
    """Return the traces of all ranks, derived from the trace of one rank.

    Args:
        graph: The trace of the recorded rank.
        groups: The process groups of that trace.
        replication: The settings.
        recorded_ranks: Number of ranks in the recorded job, as far as it is known.

    Raises:
        TraceError: If the job cannot be divided into groups of the same shape, or if a
            message has no peer or no matching message.
    """
    nranks = replication.nranks
    shapes = {
        name: _shape(name, graph, groups, replication, recorded_ranks)
        for name in _used_groups(graph)
    }
    orders = {name: _order(groups.get(name)) for name in shapes}
    # Tags distinguish the messages of different groups. A group that only messages
    # refer to may be undefined.
    of_messages = {
        name: WORLD for name in graph.columns.group_names if name not in shapes
    }
    made: dict[str, ProcessGroup] = {WORLD: world_group(nranks)}
    messages = _messages(graph, replication, recorded_ranks)
    uneven = {
        position: splits
        for position in range(len(graph))
        if (splits := graph.splits(position)) is not None
    }
    # Compute the order once. All replicas share it.
    graph.topological_order()
    graphs: dict[int, TraceGraph] = {}
    for rank in range(nranks):
        names = dict(of_messages)
        for name, shape in shapes.items():
            members: Sequence[int] = range(nranks)
            if shape is None:
                names[name] = WORLD if name in _ALL_RANKS_NAMES else name
            else:
                members = members_of(shape, rank)
                names[name] = f"{name}@{members[0]}"
            if names[name] not in made:
                order = orders[name]
                if len(order) == len(members):
                    members = [members[place] for place in order]
                made[names[name]] = ProcessGroup(name=names[name], ranks=tuple(members))
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
    notes = [_note(graph.rank, nranks, shapes, messages)]
    resized = sum(
        len(splits.sent_bytes) != len(made[graphs[0].group(position) or WORLD].ranks)
        for position, splits in uneven.items()
    )
    if resized:
        notes.append(
            f"REPLICATED: {resized} uneven all-to-alls have even parts, because their "
            "groups have another size than the recorded ones"
        )
    return Replicas(graphs=graphs, groups=made, notes=tuple(notes))


def shape_of(ranks: Sequence[int]) -> Shape | None:
    """Return the shape of a group, or None if its members are not evenly spaced.

    For ``0 1 4 5`` the shape is ``((1, 2), (4, 2))``: 2 ranks with stride 1, repeated 2
    times with stride 4.
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
    """Return the sorted members of the group with this shape that contains *rank*."""
    base = rank - sum(stride * (rank // stride % count) for stride, count in shape)
    steps = [[stride * index for index in range(count)] for stride, count in shape]
    return sorted(base + sum(each) for each in product(*steps))


def _order(group: ProcessGroup | None) -> Sequence[int]:
    """Return the index of each group member in the ascending list of members.

    The result is empty if the group is unknown or already in ascending order.
    """
    ascending = [] if group is None else sorted(group.ranks)
    if group is None or list(group.ranks) == ascending:
        return ()
    place_of = {rank: place for place, rank in enumerate(ascending)}
    return [place_of[rank] for rank in group.ranks]


def _used_groups(graph: TraceGraph) -> list[str]:
    """Return the groups of the collectives, with ``world`` for a missing group."""
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
    """Return the shape of a group in the trace, or None for the group of all ranks."""
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
        f"set its ranks: trace.groups: {{{name!r}: {ALL}}}, or a name of "
        "trace.dimensions"
    )
    if group is None:
        raise TraceError(where, "is not defined", hint)
    if len(group.ranks) == recorded_ranks:
        return None
    if graph.rank not in group:
        raise TraceError(
            where,
            f"does not have rank {graph.rank}",
            f"name the rank that recorded the trace: trace.rank; or {hint}",
        )
    shape = shape_of(group.ranks)
    if shape is None or sorted(group.ranks) != members_of(shape, graph.rank):
        raise TraceError(
            where,
            f"has ranks that are not evenly spaced: {list(group.ranks)[:16]}",
            hint,
        )
    for stride, count in shape:
        if nranks % (stride * count):
            raise TraceError(
                where,
                f"has {count} ranks with stride {stride}, which do not divide {nranks} "
                "ranks",
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


class _End(NamedTuple):
    """A send or a receive."""

    position: int
    size_bytes: int
    group: str | None


def _messages(
    graph: TraceGraph, replication: Replication, recorded_ranks: int
) -> dict[int, tuple[int, int]]:
    """Return the rank offset and the tag of each send and receive, by position."""
    nranks = replication.nranks
    found: dict[int, tuple[int, int]] = {}
    ends: dict[NodeKind, list[_End]] = {NodeKind.SEND: [], NodeKind.RECEIVE: []}
    for position in graph.topological_order():
        kind = graph.kind(position)
        if kind not in ends:
            continue
        node = graph.node(position)
        if node.peer is not None:
            # If a peer is more than half the ranks away, count in the other direction.
            # The last rank of a ring then has the same offset to the next rank as all
            # other ranks.
            offset = node.peer - graph.rank
            if recorded_ranks > 1 and offset > recorded_ranks // 2:
                offset -= recorded_ranks
            elif recorded_ranks > 1 and offset < -((recorded_ranks - 1) // 2):
                offset += recorded_ranks
        elif replication.peer_offset is not None:
            further = replication.peer_offset
            offset = further if kind == NodeKind.SEND else -further
        else:
            raise TraceError(
                graph.locate(position),
                "is a message without a peer",
                "set the distance to the destination in ranks: trace.peer_offset: 1",
            )
        found[position] = (offset % nranks, node.tag or 0)
        ends[kind].append(_End(position, node.comm_bytes, node.group))
    sends, receives = ends[NodeKind.SEND], ends[NodeKind.RECEIVE]
    if not _is_mirrored(found, sends, receives, nranks, of_groups=False):
        _pair_by_size(graph, found, sends, receives, nranks)
    if _is_mirrored(found, sends, receives, nranks, of_groups=True):
        _separate_groups(found, (*sends, *receives))
    for position, (offset, _) in found.items():
        if not offset:
            raise TraceError(
                graph.locate(position),
                f"would be a message of each of {nranks} ranks to itself",
                "replicate the trace to more ranks",
            )
    return found


def _is_mirrored(
    found: Mapping[int, tuple[int, int]],
    sends: Sequence[_End],
    receives: Sequence[_End],
    nranks: int,
    *,
    of_groups: bool,
) -> bool:
    """Return whether there are as many sends as receives of each kind.

    Messages of a kind have the same distance, tag and size. With *of_groups*, they also
    have the same process group.
    """
    last = None if of_groups else -1
    sent = Counter(
        (-found[each.position][0] % nranks, found[each.position][1], *each[1:last])
        for each in sends
    )
    return sent == Counter((*found[each.position], *each[1:last]) for each in receives)


def _separate_groups(found: dict[int, tuple[int, int]], ends: Sequence[_End]) -> None:
    """Give each group of messages its own tags, if groups share tags.

    The copies of a group have different names, so messages cannot match by group name.
    """
    kinds = dict.fromkeys((found[each.position][1], each.group) for each in ends)
    if len(kinds) == len({tag for tag, _ in kinds}):
        return
    tags = {kind: tag for tag, kind in enumerate(sorted(kinds, key=itemgetter(0)))}
    for each in ends:
        offset, tag = found[each.position]
        found[each.position] = offset, tags[tag, each.group]


def _pair_by_size(
    graph: TraceGraph,
    found: dict[int, tuple[int, int]],
    sends: Sequence[_End],
    receives: Sequence[_End],
    nranks: int,
) -> None:
    """Pair each receive with the first unpaired send of the same size.

    A send of the same group takes precedence.
    """
    left = list(sends)
    for position, size_bytes, group in receives:
        send = next(
            (each for each in left if each[1:] == (size_bytes, group)), None
        ) or next((each for each in left if each.size_bytes == size_bytes), None)
        if send is None:
            raise TraceError(
                graph.locate(position),
                f"receives {size_bytes} bytes, but the rank sends no other message of "
                "that size, so in a replicated job no rank would send it",
                "replicate another rank, or replay the traces of all ranks",
            )
        left.remove(send)
        offset, tag = found[send.position]
        found[position] = (-offset % nranks, tag)
    if left:
        raise TraceError(
            graph.locate(left[0].position),
            f"sends {left[0].size_bytes} bytes, but the rank receives no other message "
            "of that size, so in a replicated job no rank would receive it",
            "replicate another rank, or replay the traces of all ranks",
        )


def _recorded_position(
    graph: TraceGraph, position: int, groups: Mapping[str, ProcessGroup]
) -> int:
    """Return the position of the recorded rank in the group of a collective."""
    group = groups.get(graph.group(position) or WORLD)
    if group is None or graph.rank not in group:
        return graph.rank
    return group.position(graph.rank)


def _turned(splits: Splits, recorded: int, group: ProcessGroup, rank: int) -> Splits:
    """Return the splits of *rank*: the recorded splits, rotated to its position."""
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
        f"REPLICATED: all {nranks} ranks do the same as the trace of rank {rank}; the "
        "operations of the other ranks are unknown"
    )
    return f"{text} ({'; '.join(parts)})" if parts else text


def _shape_text(shape: Shape | None) -> str:
    if shape is None:
        return "all ranks"
    if not shape:
        return "one rank"
    return " x ".join(f"{count} ranks {stride} apart" for stride, count in shape)

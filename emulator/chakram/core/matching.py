"""Which node of one rank is which collective, or which message, of the others.

Nothing in a Chakra trace says that two nodes of two ranks are the same collective: node
ids match by accident only, and the order in which ranks happen to issue collectives
changes with timing.  So the identity is found before anything runs: every rank's nodes
are taken in topological order, ties by node id, and the collectives of each process
group are counted in that order.  The k-th of every member belong together, and must
agree on operation, size and root.

Where members count differently, nodes of the same name, operation, size and root are
taken for the same collective, if every member has the same set of them.

An all_to_all with splits on any member is an all_to_all_v: its members need not agree
on a size, but what one sends another must be what that one expects from it.  Members
without splits have even ones.

A message belongs to the messages of the same source, destination and tag; those of one
tag are counted in the order of dependencies on both sides.  Its number in the program
counts all messages of a source to a destination, by tag, then by that order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from chakram.core.collectives import CollectiveOp
from chakram.core.groups import WORLD, ProcessGroup
from chakram.core.splits import Splits, even_splits, mismatch
from chakram.core.trace import NodeKind
from chakram.errors import MatchingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chakram.core.trace import TraceGraph

__all__ = ["CollectiveId", "Matching", "MessageId", "match_ranks"]

_ALL_RANKS_NAMES = frozenset({None, "", "0"})
"""What stands for all ranks where no group of that name is defined."""

_ALL_TO_ALLS = (CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_TO_ALL_V)

_SAME_RUN = "do the traces come from one run, and from all of its ranks?"


class CollectiveId(NamedTuple):
    """Identity of a collective within an iteration: the k-th of its group."""

    group: str
    number: int


class MessageId(NamedTuple):
    """A message as one side sees it: the other rank, and its number between them."""

    peer: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """What belongs together, by rank and position in its graph.

    Attributes:
        groups: The process groups that collectives use, by name.
        orders: Of every rank, all positions in topological order, ties by node id.
        collectives: Of every rank, what its collectives are.
        messages: Of every rank, what its sends and receives are.
        splits: Of every all_to_all_v, the splits of the members in the group's order.
        warnings: What was odd, in sentences.
    """

    groups: Mapping[str, ProcessGroup]
    orders: Mapping[int, Sequence[int]]
    collectives: Mapping[int, Mapping[int, CollectiveId]]
    messages: Mapping[int, Mapping[int, MessageId]]
    splits: Mapping[CollectiveId, tuple[Splits, ...]]
    warnings: tuple[str, ...]


class _Signature(NamedTuple):
    """What members of a group must agree on; *name* only where the order fails.

    The sizes of an all_to_all_v are None: its splits are compared instead.
    """

    op: CollectiveOp | None
    size_bytes: int | None
    root: int
    name: str


def match_ranks(
    graphs: Mapping[int, TraceGraph], groups: Mapping[str, ProcessGroup]
) -> Matching:
    """Return which nodes of the ranks of one job belong together.

    Args:
        graphs: The trace of every rank.
        groups: The process groups by name; ``world``, all ranks, needs no entry.

    Raises:
        MatchingError: If members of a group disagree, a message has no counterpart, or
            a node names a group or rank that is not there.
        TraceError: If dependencies of a rank form a cycle.
    """
    orders = {rank: graphs[rank].topological_order() for rank in sorted(graphs)}
    used: dict[str, ProcessGroup] = {}
    of_group: dict[str, dict[int, list[int]]] = {}
    sends: dict[tuple[int, int], dict[int, list[int]]] = {}
    receives: dict[tuple[int, int], dict[int, list[int]]] = {}
    for rank, order in orders.items():
        graph = graphs[rank]
        kinds = graph.kinds()
        group_named: dict[str | None, ProcessGroup] = {}
        for position in order:
            kind = kinds[position]
            if kind == NodeKind.COLLECTIVE:
                name = graph.group(position)
                group = group_named.get(name)
                if group is None:
                    group = _group_of(graph, position, graphs, groups)
                    group_named[name] = used[group.name] = group
                of_group.setdefault(group.name, {}).setdefault(rank, []).append(
                    position
                )
            elif kind in (NodeKind.SEND, NodeKind.RECEIVE):
                peer, tag = _peer_of(graph, position, graphs)
                if kind == NodeKind.SEND:
                    tags = sends.setdefault((rank, peer), {})
                else:
                    tags = receives.setdefault((peer, rank), {})
                tags.setdefault(tag, []).append(position)
    collectives: dict[int, dict[int, CollectiveId]] = {rank: {} for rank in orders}
    messages: dict[int, dict[int, MessageId]] = {rank: {} for rank in orders}
    warnings: list[str] = []
    splits: dict[CollectiveId, tuple[Splits, ...]] = {}
    for name in sorted(of_group):
        numbered = _match_group(graphs, used[name], of_group[name], warnings)
        splits.update(_match_splits(graphs, used[name], numbered))
        for rank, positions in numbered.items():
            for number, position in enumerate(positions):
                collectives[rank][position] = CollectiveId(name, number)
    for src, dst in sorted(sends.keys() | receives.keys()):
        pairs = _match_messages(
            graphs[src],
            graphs[dst],
            sends.get((src, dst), {}),
            receives.get((src, dst), {}),
        )
        for number, (send, receive) in enumerate(pairs):
            messages[src][send] = MessageId(dst, number)
            messages[dst][receive] = MessageId(src, number)
    return Matching(
        groups=used,
        orders=orders,
        collectives=collectives,
        messages=messages,
        splits=splits,
        warnings=tuple(warnings),
    )


def _group_of(
    graph: TraceGraph,
    position: int,
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
) -> ProcessGroup:
    """Return the process group of a collective, of which its rank is a member."""
    name = graph.group(position)
    group = groups.get(name) if name is not None else None
    if group is None:
        if name not in _ALL_RANKS_NAMES and name != WORLD:
            raise MatchingError(
                graph.locate(position),
                f"names process group {name!r}, which is not defined",
                "groups come from comm_group.json or from the trace itself",
            )
        group = groups.get(WORLD) or ProcessGroup(
            name=WORLD, ranks=tuple(sorted(graphs))
        )
    if graph.rank not in group.ranks:
        raise MatchingError(
            graph.locate(position),
            f"is a collective of process group {group.name!r}, of which rank "
            f"{graph.rank} is not a member",
            f"its members are {_ranks(group.ranks)}",
        )
    missing = [rank for rank in group.ranks if rank not in graphs]
    if missing:
        raise MatchingError(
            graph.locate(position),
            f"process group {group.name!r} has rank {missing[0]}, of which there is "
            "no trace",
            _SAME_RUN,
        )
    return group


def _peer_of(
    graph: TraceGraph, position: int, graphs: Mapping[int, TraceGraph]
) -> tuple[int, int]:
    """Return the other rank of a message, and its tag (0 where it has none)."""
    node = graph.node(position)
    if node.peer is None:
        raise MatchingError(
            graph.locate(position),
            "is a message that does not say to or from whom",
            "its producer must write comm_dst and comm_src",
        )
    if node.peer == graph.rank:
        raise MatchingError(
            graph.locate(position), "is a message of a rank to itself", _SAME_RUN
        )
    if node.peer not in graphs:
        raise MatchingError(
            graph.locate(position),
            f"names rank {node.peer}, of which there is no trace",
            _SAME_RUN,
        )
    return node.peer, node.tag or 0


def _match_group(
    graphs: Mapping[int, TraceGraph],
    group: ProcessGroup,
    positions_of: Mapping[int, list[int]],
    warnings: list[str],
) -> dict[int, list[int]]:
    """Return the collectives of each member, those of one index belonging together."""
    members = {rank: positions_of.get(rank, []) for rank in group.ranks}
    uneven = _has_splits(graphs, members)
    signatures = {
        rank: [_signature(graphs[rank], group, p, uneven=uneven) for p in positions]
        for rank, positions in members.items()
    }
    first, *others = group.ranks
    order = [_without_name(signature) for signature in signatures[first]]
    differing = [
        rank
        for rank in others
        if order != [_without_name(signature) for signature in signatures[rank]]
    ]
    if not differing:
        return members
    index_of = {key: index for index, key in enumerate(_occurrences(signatures[first]))}
    matched = dict(members)
    for rank in differing:
        keys = _occurrences(signatures[rank])
        if index_of.keys() != set(keys):
            raise _disagreement(graphs, group, members, signatures, first, rank)
        matched[rank] = [0] * len(keys)
        for key, position in zip(keys, members[rank], strict=True):
            matched[rank][index_of[key]] = position
    warnings.append(
        f"process group {group.name!r}: its members order its collectives "
        "differently; they are matched by node name"
    )
    return matched


def _has_splits(
    graphs: Mapping[int, TraceGraph], members: Mapping[int, Sequence[int]]
) -> bool:
    return any(
        graphs[rank].splits(position) is not None
        for rank, positions in members.items()
        if graphs[rank].has_splits
        for position in positions
    )


def _signature(
    graph: TraceGraph, group: ProcessGroup, position: int, *, uneven: bool
) -> _Signature:
    root = graph.root(position) or 0
    if root >= len(group.ranks):
        raise MatchingError(
            graph.locate(position),
            f"its root is {root}, but process group {group.name!r} has "
            f"{len(group.ranks)} ranks",
            "a root is counted within the group, from 0",
        )
    op = graph.op(position)
    if uneven and op in _ALL_TO_ALLS:
        return _Signature(CollectiveOp.ALL_TO_ALL_V, None, root, graph.name(position))
    return _Signature(op, graph.comm_bytes(position), root, graph.name(position))


def _without_name(
    signature: _Signature,
) -> tuple[CollectiveOp | None, int | None, int]:
    return signature[:3]


def _match_splits(
    graphs: Mapping[int, TraceGraph],
    group: ProcessGroup,
    numbered: Mapping[int, Sequence[int]],
) -> dict[CollectiveId, tuple[Splits, ...]]:
    """Return the splits of every all_to_all_v of a group, both ends agreeing."""
    found: dict[CollectiveId, tuple[Splits, ...]] = {}
    if not _has_splits(graphs, numbered):
        return found
    members = [graphs[rank] for rank in group.ranks]
    columns = zip(*(numbered[rank] for rank in group.ranks), strict=True)
    for number, positions in enumerate(columns):
        nodes = list(zip(members, positions, strict=True))
        if nodes[0][0].node(positions[0]).op not in _ALL_TO_ALLS:
            continue
        stated = [graph.splits(position) for graph, position in nodes]
        rows: list[Splits] = []
        for index, (graph, position) in enumerate(nodes):
            row = stated[index]
            if row is None:
                row = even_splits(
                    graph.comm_bytes(position),
                    nranks=len(nodes),
                    position=index,
                )
            elif len(row.sent_bytes) != len(nodes):
                raise MatchingError(
                    graph.locate(position),
                    f"has splits for {len(row.sent_bytes)} ranks, but process group "
                    f"{group.name!r} has {len(nodes)}",
                    f"its members are {_ranks(group.ranks)}",
                )
            rows.append(row)
        differing = mismatch(rows)
        if differing is not None:
            source, destination = differing
            raise MatchingError(
                nodes[source][0].locate(nodes[source][1]),
                f"sends {rows[source].sent_bytes[destination]} bytes to rank "
                f"{group.ranks[destination]}, which expects "
                f"{rows[destination].received_bytes[source]} from rank "
                f"{group.ranks[source]} "
                f"({nodes[destination][0].locate(nodes[destination][1])})",
                _SAME_RUN,
            )
        if any(row is not None for row in stated):
            found[CollectiveId(group.name, number)] = tuple(rows)
    return found


def _occurrences(signatures: Sequence[_Signature]) -> list[tuple[_Signature, int]]:
    """Return each signature with how many equal ones stand before it."""
    seen: Counter[_Signature] = Counter()
    keys: list[tuple[_Signature, int]] = []
    for signature in signatures:
        keys.append((signature, seen[signature]))
        seen[signature] += 1
    return keys


def _disagreement(
    graphs: Mapping[int, TraceGraph],
    group: ProcessGroup,
    members: Mapping[int, list[int]],
    signatures: Mapping[int, list[_Signature]],
    first: int,
    second: int,
) -> MatchingError:
    """Return the error that shows the first difference of two members."""
    one, other = signatures[first], signatures[second]
    number = next(
        (
            k
            for k, (a, b) in enumerate(zip(one, other, strict=False))
            if _without_name(a) != _without_name(b)
        ),
        min(len(one), len(other)),
    )

    def text(rank: int) -> str:
        if number >= len(members[rank]):
            return f"rank {rank} has none: only {number} collectives in all"
        signature = signatures[rank][number]
        return (
            f"rank {rank} has {signature.op}{_of_bytes(signature)}"
            f"{f' from root {signature.root}' if signature.root else ''} "
            f"({graphs[rank].locate(members[rank][number])})"
        )

    return MatchingError(
        f"process group {group.name!r}: collective {number}",
        f"{text(first)}; {text(second)}",
        _SAME_RUN,
    )


def _of_bytes(signature: _Signature) -> str:
    size_bytes = signature.size_bytes
    return "" if size_bytes is None else f" of {size_bytes} bytes"


def _match_messages(
    source: TraceGraph,
    destination: TraceGraph,
    sends: Mapping[int, list[int]],
    receives: Mapping[int, list[int]],
) -> list[tuple[int, int]]:
    """Return the pairs of send and receive between two ranks, in their order."""
    pairs: list[tuple[int, int]] = []
    for tag in sorted(sends.keys() | receives.keys()):
        sent, received = sends.get(tag, []), receives.get(tag, [])
        for send, receive in zip(sent, received, strict=False):
            sizes = (source.comm_bytes(send), destination.comm_bytes(receive))
            if sizes[0] != sizes[1]:
                raise MatchingError(
                    source.locate(send),
                    f"sends {sizes[0]} bytes, but its receive "
                    f"({destination.locate(receive)}) expects {sizes[1]}",
                    _SAME_RUN,
                )
            pairs.append((send, receive))
        if len(sent) != len(received):
            paired = min(len(sent), len(received))
            lonely = (
                source.locate(sent[paired])
                if len(sent) > paired
                else destination.locate(received[paired])
            )
            raise MatchingError(
                lonely,
                f"has no counterpart: rank {source.rank} sends {len(sent)} messages "
                f"with tag {tag} to rank {destination.rank}, which receives "
                f"{len(received)}",
                _SAME_RUN,
            )
    return pairs


def _ranks(ranks: Sequence[int]) -> str:
    """Return ranks as text, not more than eight of them."""
    text = ", ".join(map(str, ranks[:8]))
    return f"{text}, ..." if len(ranks) > 8 else text

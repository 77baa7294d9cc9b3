"""Matching of collectives and messages between the ranks of a job.

A Chakra trace does not state which nodes of two ranks are the same collective. Node ids
match only by accident, and the order in which ranks issue collectives depends on
timing. So collectives are matched before the run. Every rank's nodes are sorted
topologically, with ties broken by node id. The collectives of each process group are
counted in that order. The k-th collectives of all members match, and must agree on
operation, size and root.

If members have their collectives in different orders, nodes match by name, operation,
size and root. This requires that all members have the same set of collectives.

An all_to_all with splits on any member is an all_to_all_v. Its members need not agree
on a size, but each member must send exactly the bytes that the receiver expects.
Members without splits have even splits.

A send matches a receive with the same source, destination and tag. Messages with equal
tags are counted on both sides in topological order, and the k-th send matches the k-th
receive. In the program, all messages from a source to a destination are numbered
together: by tag, then in that order.

Matching of collectives between the members of one process group.

Properties that members must agree on are compared in columns. Node names are compared
only where the columns differ.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from chakram.collectives.groups import WORLD, ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits, even_splits, mismatch
from chakram.foundation.errors import MatchingError
from chakram.trace.columns import OP_NUMBERS
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind

_ALL_RANKS_NAMES = frozenset({None, "", "0"})
"""Group names that mean all ranks if no group of that name is defined."""

DISAGREEMENTS_KEPT = 1000
"""Maximum number of disagreements that are reported one by one."""

_ByTag: TypeAlias = "dict[int, array[int]]"


class CollectiveId(NamedTuple):
    """Identity of a collective within an iteration: the k-th of its group."""

    group: str
    number: int


class MessageId(NamedTuple):
    """Identity of a message at one end: the other rank, and the message number."""

    peer: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Matched collectives and messages, by rank and position in its graph.

    Attributes:
        groups: The process groups that collectives use, by name.
        orders: All positions of every rank in topological order, ties by node id.
        collectives: Identities of every rank's collectives.
        messages: Identities of every rank's sends and receives.
        splits: Splits of every all_to_all_v, with members in the group's order.
        warnings: Warnings, as sentences.
    """

    groups: Mapping[str, ProcessGroup]
    orders: Mapping[int, Sequence[int]]
    collectives: Mapping[int, Mapping[int, CollectiveId]]
    messages: Mapping[int, Mapping[int, MessageId]]
    splits: Mapping[CollectiveId, tuple[Splits, ...]]
    warnings: tuple[str, ...]


def match_ranks(
    graphs: Mapping[int, TraceGraph], groups: Mapping[str, ProcessGroup]
) -> Matching:
    """Return the matching nodes of the ranks of one job.

    Args:
        graphs: The trace of every rank.
        groups: The process groups by name. ``world`` (all ranks) needs no entry.

    Raises:
        MatchingError: If members of a group disagree, a message has no counterpart, or
            a node names a group or rank that does not exist.
        TraceError: If dependencies of a rank form a cycle.
    """
    return _match(graphs, groups, Disagreements())


def check_matching(
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
    *,
    limit: int = DISAGREEMENTS_KEPT,
) -> tuple[Matching | None, Disagreements]:
    """Return the matching nodes, and all disagreements between ranks.

    Args:
        graphs: The trace of every rank, without dependency cycles.
        groups: The process groups by name.
        limit: Maximum number of disagreements to keep; the others are only counted.

    Returns:
        The matching, or None if there is a disagreement, and the disagreements.
    """
    faults = Disagreements(limit)
    matching = _match(graphs, groups, faults)
    return (None if faults.total else matching), faults


def _match(
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
    faults: Disagreements,
) -> Matching:
    orders = {rank: graphs[rank].topological_order() for rank in sorted(graphs)}
    found = _Communication(graphs, groups, faults)
    for rank, order in orders.items():
        found.add_rank(graphs[rank], order)
    collectives: dict[int, dict[int, CollectiveId]] = {rank: {} for rank in orders}
    messages: dict[int, dict[int, MessageId]] = {rank: {} for rank in orders}
    warnings: list[str] = []
    splits: dict[CollectiveId, tuple[Splits, ...]] = {}
    for name in sorted(found.collectives):
        group = found.used[name]
        numbered = match_group(graphs, group, found.collectives[name], faults, warnings)
        if numbered is None:
            continue
        # Members share the identity objects, which need most of the memory.
        first = numbered[group.ranks[0]]
        identities = [CollectiveId(name, number) for number in range(len(first))]
        for number, rows in match_splits(graphs, group, numbered, faults).items():
            splits[identities[number]] = rows
        for rank, positions in numbered.items():
            collectives[rank].update(zip(positions, identities, strict=True))
    for src, dst in sorted(found.sends.keys() | found.receives.keys()):
        pairs = _match_messages(
            graphs[src],
            graphs[dst],
            found.sends.get((src, dst), {}),
            found.receives.get((src, dst), {}),
            faults,
        )
        for number, (send, receive) in enumerate(pairs):
            messages[src][send] = MessageId(dst, number)
            messages[dst][receive] = MessageId(src, number)
    return Matching(
        groups=found.used,
        orders=orders,
        collectives=collectives,
        messages=messages,
        splits=splits,
        warnings=tuple(warnings),
    )


@dataclass(slots=True)
class _Communication:
    """The communication of all ranks, in the order of each rank.

    Attributes:
        graphs: The trace of every rank.
        groups: The process groups by name.
        faults: Collects disagreements.
        used: The process groups that collectives use, by name.
        collectives: Positions by group and rank.
        sends: Positions by source and destination, then by tag.
        receives: The same for receives.
    """

    graphs: Mapping[int, TraceGraph]
    groups: Mapping[str, ProcessGroup]
    faults: Disagreements
    used: dict[str, ProcessGroup] = field(default_factory=dict)
    collectives: dict[str, dict[int, array[int]]] = field(default_factory=dict)
    sends: dict[tuple[int, int], _ByTag] = field(default_factory=dict)
    receives: dict[tuple[int, int], _ByTag] = field(default_factory=dict)
    # Groups known to be valid. Thousands of ranks may name the same group.
    _whole: dict[str | None, ProcessGroup] = field(default_factory=dict)

    def add_rank(self, graph: TraceGraph, order: Sequence[int]) -> None:
        """Add the nodes of one rank."""
        kinds = graph.kinds()
        # By group name in the nodes: the array for positions, or None for an invalid
        # group.
        of_group: dict[str | None, array[int] | None] = {}
        for position in order:
            kind = kinds[position]
            if kind == NodeKind.COLLECTIVE:
                name = graph.group(position)
                if name not in of_group:
                    of_group[name] = self._positions(graph, position)
                positions = of_group[name]
                if positions is not None:
                    positions.append(position)
            elif kind in (NodeKind.SEND, NodeKind.RECEIVE):
                self._add_message(graph, position, sends=kind == NodeKind.SEND)

    def _positions(self, graph: TraceGraph, position: int) -> array[int] | None:
        """Return the array for a rank's collectives of a group, or None if invalid."""
        try:
            name = graph.group(position)
            whole = self._whole.get(name)
            group = _group_of(graph, position, self.graphs, self.groups, whole)
            self._whole[name] = group
        except MatchingError as error:
            if self.faults.takes_one_more():
                self.faults.add(error)
            return None
        self.used[group.name] = group
        of_rank = self.collectives.setdefault(group.name, {})
        return of_rank.setdefault(graph.rank, array("i"))

    def _add_message(self, graph: TraceGraph, position: int, *, sends: bool) -> None:
        try:
            peer, tag = _peer_of(graph, position, self.graphs)
        except MatchingError as error:
            if self.faults.takes_one_more():
                self.faults.add(error)
            return
        ends = (graph.rank, peer) if sends else (peer, graph.rank)
        tags = (self.sends if sends else self.receives).setdefault(ends, {})
        tags.setdefault(tag, array("i")).append(position)


def _group_of(
    graph: TraceGraph,
    position: int,
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
    whole: ProcessGroup | None,
) -> ProcessGroup:
    """Return the process group of a collective; its rank must be a member.

    *whole* is the group if another rank's collective used it before: all ranks of the
    group then have traces.
    """
    name = graph.group(position)
    group = whole or (groups.get(name) if name is not None else None)
    if group is None:
        if name not in _ALL_RANKS_NAMES and name != WORLD:
            raise MatchingError(
                graph.locate(position),
                f"names process group {name!r}, which is not defined",
                "define the group in comm_group.json or in the trace",
            )
        group = groups.get(WORLD) or ProcessGroup(
            name=WORLD, ranks=tuple(sorted(graphs))
        )
    if graph.rank not in group:
        raise MatchingError(
            graph.locate(position),
            f"is a collective of process group {group.name!r}, but rank {graph.rank} "
            "is not a member",
            f"the members are {members_text(group.ranks)}",
        )
    if whole is not None:
        return group
    missing = [rank for rank in group.ranks if rank not in graphs]
    if missing:
        raise MatchingError(
            graph.locate(position),
            f"process group {group.name!r} has rank {missing[0]}, which has no trace",
            SAME_RUN,
        )
    return group


def _peer_of(
    graph: TraceGraph, position: int, graphs: Mapping[int, TraceGraph]
) -> tuple[int, int]:
    """Return the other rank and the tag of a message (0 if it has no tag)."""
    node = graph.node(position)
    if node.peer is None:
        raise MatchingError(
            graph.locate(position),
            "is a message without a peer",
            "fix the producer: it must write comm_dst and comm_src",
        )
    if node.peer == graph.rank:
        raise MatchingError(
            graph.locate(position), "is a message of a rank to itself", SAME_RUN
        )
    if node.peer not in graphs:
        raise MatchingError(
            graph.locate(position),
            f"names rank {node.peer}, which has no trace",
            SAME_RUN,
        )
    return node.peer, node.tag or 0


def _match_messages(
    source: TraceGraph,
    destination: TraceGraph,
    sends: Mapping[int, Sequence[int]],
    receives: Mapping[int, Sequence[int]],
    faults: Disagreements,
) -> list[tuple[int, int]]:
    """Return the pairs of send and receive between two ranks, in order."""
    pairs: list[tuple[int, int]] = []
    for tag in sorted(sends.keys() | receives.keys()):
        sent, received = sends.get(tag, ()), receives.get(tag, ())
        for send, receive in zip(sent, received, strict=False):
            pairs.append((send, receive))
            sizes = (source.comm_bytes(send), destination.comm_bytes(receive))
            if sizes[0] != sizes[1] and faults.takes_one_more():
                faults.add(
                    MatchingError(
                        source.locate(send),
                        f"sends {sizes[0]} bytes, but its receive "
                        f"({destination.locate(receive)}) expects {sizes[1]}",
                        SAME_RUN,
                    )
                )
        if len(sent) != len(received) and faults.takes_one_more():
            paired = min(len(sent), len(received))
            lonely = (
                source.locate(sent[paired])
                if len(sent) > paired
                else destination.locate(received[paired])
            )
            faults.add(
                MatchingError(
                    lonely,
                    f"has no counterpart: rank {source.rank} sends {len(sent)} "
                    f"messages with tag {tag} to rank {destination.rank}, but rank "
                    f"{destination.rank} receives {len(received)}",
                    SAME_RUN,
                )
            )
    return pairs


def without_zero_time(
    graphs: Mapping[int, TraceGraph],
    matching: Matching,
    select: frozenset[CollectiveOp] | None,
) -> Matching:
    """Return the matching without operations that take no time, renumbered.

    These are collectives of a single rank, and operations outside *select*.
    """

    def kept(identity: CollectiveId, rank: int, position: int) -> bool:
        if len(matching.groups[identity.group].ranks) == 1:
            return False
        if select is None:
            return True
        if identity in matching.splits:
            return CollectiveOp.ALL_TO_ALL_V in select
        return graphs[rank].op(position) in select

    remaining = {
        rank: {
            position: identity
            for position, identity in collectives.items()
            if kept(identity, rank, position)
        }
        for rank, collectives in matching.collectives.items()
    }
    counts: dict[str, int] = {}
    number_of: dict[CollectiveId, CollectiveId] = {}
    for identity in sorted({each for of in remaining.values() for each in of.values()}):
        number = counts.get(identity.group, 0)
        counts[identity.group] = number + 1
        number_of[identity] = CollectiveId(identity.group, number)
    messages = matching.messages
    if select is not None and CollectiveOp.SEND_RECV not in select:
        messages = {rank: {} for rank in messages}
    return replace(
        matching,
        collectives={
            rank: {position: number_of[each] for position, each in of_rank.items()}
            for rank, of_rank in remaining.items()
        },
        messages=messages,
        splits={
            number_of[identity]: rows
            for identity, rows in matching.splits.items()
            if identity in number_of
        },
    )


SAME_RUN = "check that the traces come from one run and include all of its ranks"

_ALL_TO_ALLS = (CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_TO_ALL_V)
_OPS = tuple(CollectiveOp)
_NO_OP = -1
_BY_SPLITS = -2
"""Placeholder size of an all_to_all_v, whose splits are compared instead."""

_SHOWN_OF_MEMBER = 8
"""Maximum number of collectives shown per member that disagrees with the first one."""

_Key: TypeAlias = tuple[int, int, int, str, int]


class _Columns(NamedTuple):
    """Columns that must be equal on all members: operation, size and root."""

    ops: array[int]
    sizes_bytes: array[int]
    roots: array[int]


def match_group(
    graphs: Mapping[int, TraceGraph],
    group: ProcessGroup,
    positions_of: Mapping[int, Sequence[int]],
    faults: Disagreements,
    warnings: list[str],
) -> dict[int, Sequence[int]] | None:
    """Return the collectives of each member, in an order in which equal indices match.

    Args:
        graphs: The trace of every rank.
        group: The group.
        positions_of: The collectives of the group's members, in each member's order.
        faults: Collects disagreements.
        warnings: Collects warnings about the match.

    Returns:
        Positions by rank, or None if the members disagree.
    """
    members = {rank: positions_of.get(rank, ()) for rank in group.ranks}
    uneven = _has_splits(graphs, members)
    known = faults.total
    columns = {
        rank: _columns(graphs[rank], group, positions, faults, uneven=uneven)
        for rank, positions in members.items()
    }
    if faults.total > known:
        return None
    first, *others = group.ranks
    differing = [rank for rank in others if columns[rank] != columns[first]]
    if not differing:
        return members
    matched = dict(members)
    keys = _keys(graphs[first], members[first], columns[first])
    index_of = {key: index for index, key in enumerate(keys)}
    for rank in differing:
        keys = _keys(graphs[rank], members[rank], columns[rank])
        if index_of.keys() != set(keys):
            _disagree(graphs, group, members, columns, first, rank, faults)
            continue
        positions = array("i", bytes(4 * len(keys)))
        for key, position in zip(keys, members[rank], strict=True):
            positions[index_of[key]] = position
        matched[rank] = positions
    if faults.total > known:
        return None
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


def _columns(
    graph: TraceGraph,
    group: ProcessGroup,
    positions: Sequence[int],
    faults: Disagreements,
    *,
    uneven: bool,
) -> _Columns:
    columns = _Columns(array("b"), array("q"), array("q"))
    nranks = len(group.ranks)
    for position in positions:
        op, size_bytes = graph.op(position), graph.comm_bytes(position)
        root = graph.root(position) or 0
        if root >= nranks and faults.takes_one_more():
            faults.add(
                MatchingError(
                    graph.locate(position),
                    f"its root is {root}, but process group {group.name!r} has "
                    f"{nranks} ranks",
                    "number roots within the group, from 0",
                )
            )
        if uneven and op in _ALL_TO_ALLS:
            op, size_bytes = CollectiveOp.ALL_TO_ALL_V, _BY_SPLITS
        columns.ops.append(_NO_OP if op is None else OP_NUMBERS[op])
        columns.sizes_bytes.append(size_bytes)
        columns.roots.append(root)
    return columns


def _keys(graph: TraceGraph, positions: Sequence[int], columns: _Columns) -> list[_Key]:
    """Return a key for each collective, numbering collectives with equal properties."""
    seen: Counter[tuple[int, int, int, str]] = Counter()
    keys: list[_Key] = []
    for position, *agreed in zip(positions, *columns, strict=True):
        op, size_bytes, root = agreed
        key = (op, size_bytes, root, graph.name(position))
        keys.append((*key, seen[key]))
        seen[key] += 1
    return keys


def _disagree(
    graphs: Mapping[int, TraceGraph],
    group: ProcessGroup,
    members: Mapping[int, Sequence[int]],
    columns: Mapping[int, _Columns],
    first: int,
    second: int,
    faults: Disagreements,
) -> None:
    """Report where two members differ.

    If the numbers of collectives differ, only the first difference is reported, because
    everything after it may be shifted.
    """
    ours = list(zip(*columns[first], strict=True))
    theirs = list(zip(*columns[second], strict=True))
    shorter = min(len(ours), len(theirs))
    differing = [k for k in range(shorter) if ours[k] != theirs[k]]
    if len(ours) != len(theirs):
        differing = [*differing, shorter][:1]

    def text(rank: int, number: int) -> str:
        if number >= len(members[rank]):
            return f"rank {rank} has none, only {number} collectives in total"
        op, size_bytes, root = (column[number] for column in columns[rank])
        return (
            f"rank {rank} has {None if op == _NO_OP else _OPS[op]}"
            f"{'' if size_bytes == _BY_SPLITS else f' of {size_bytes} bytes'}"
            f"{f' from root {root}' if root else ''} "
            f"({graphs[rank].locate(members[rank][number])})"
        )

    for number in differing[:_SHOWN_OF_MEMBER]:
        if faults.takes_one_more():
            faults.add(
                MatchingError(
                    f"process group {group.name!r}: collective {number}",
                    f"{text(first, number)}; {text(second, number)}",
                    SAME_RUN,
                )
            )
    faults.more += max(0, len(differing) - _SHOWN_OF_MEMBER)


def match_splits(
    graphs: Mapping[int, TraceGraph],
    group: ProcessGroup,
    numbered: Mapping[int, Sequence[int]],
    faults: Disagreements,
) -> dict[int, tuple[Splits, ...]]:
    """Return the splits of every all_to_all_v of a group, by number.

    Args:
        graphs: The trace of every rank.
        group: The group.
        numbered: The collectives of the group's members, by number.
        faults: Collects disagreements between members.
    """
    found: dict[int, tuple[Splits, ...]] = {}
    if not _has_splits(graphs, numbered):
        return found
    members = [graphs[rank] for rank in group.ranks]
    columns = zip(*(numbered[rank] for rank in group.ranks), strict=True)
    for number, positions in enumerate(columns):
        nodes = list(zip(members, positions, strict=True))
        if nodes[0][0].op(positions[0]) not in _ALL_TO_ALLS:
            continue
        stated = [graph.splits(position) for graph, position in nodes]
        rows = _rows(group, nodes, stated, faults)
        if rows is None:
            continue
        differing = mismatch(rows)
        if differing is not None:
            source, destination = differing
            if faults.takes_one_more():
                faults.add(
                    MatchingError(
                        nodes[source][0].locate(nodes[source][1]),
                        f"sends {rows[source].sent_bytes[destination]} bytes to rank "
                        f"{group.ranks[destination]}, but rank "
                        f"{group.ranks[destination]} expects "
                        f"{rows[destination].received_bytes[source]} from rank "
                        f"{group.ranks[source]} "
                        f"({nodes[destination][0].locate(nodes[destination][1])})",
                        SAME_RUN,
                    )
                )
        elif any(row is not None for row in stated):
            found[number] = tuple(rows)
    return found


def _rows(
    group: ProcessGroup,
    nodes: Sequence[tuple[TraceGraph, int]],
    stated: Sequence[Splits | None],
    faults: Disagreements,
) -> list[Splits] | None:
    """Return the splits of every member. Members that state none get even splits."""
    rows: list[Splits] = []
    for index, (graph, position) in enumerate(nodes):
        row = stated[index]
        if row is None:
            row = even_splits(
                graph.comm_bytes(position), nranks=len(nodes), position=index
            )
        elif len(row.sent_bytes) != len(nodes):
            if faults.takes_one_more():
                faults.add(
                    MatchingError(
                        graph.locate(position),
                        f"has splits for {len(row.sent_bytes)} ranks, but process "
                        f"group {group.name!r} has {len(nodes)}",
                        f"use one split per member: {members_text(group.ranks)}",
                    )
                )
            return None
        rows.append(row)
    return rows


def members_text(ranks: Sequence[int]) -> str:
    """Return ranks as text, at most eight of them."""
    text = ", ".join(map(str, ranks[:8]))
    return f"{text}, ..." if len(ranks) > 8 else text


@dataclass(slots=True, eq=False)
class Disagreements:
    """Collector of disagreements between ranks.

    Args:
        limit: Maximum number to keep. 0: raise the first disagreement.

    Attributes:
        kept: The first disagreements.
        more: Number of further disagreements.
    """

    limit: int = 0
    kept: list[MatchingError] = field(init=False, default_factory=list)
    more: int = field(init=False, default=0)

    @property
    def total(self) -> int:
        """Total number of disagreements."""
        return len(self.kept) + self.more

    def takes_one_more(self) -> bool:
        """Return whether to add the next disagreement. If not, only count it."""
        if self.limit and len(self.kept) >= self.limit:
            self.more += 1
            return False
        return True

    def add(self, error: MatchingError) -> None:
        """Keep a disagreement.

        Raises:
            MatchingError: The disagreement, if the limit is 0.
        """
        if not self.limit:
            raise error
        self.kept.append(error)

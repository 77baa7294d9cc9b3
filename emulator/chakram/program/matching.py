"""Matching of collectives and messages between the ranks of a job.

A Chakra trace does not state which nodes of two ranks represent the same collective.
Node IDs match only by accident, and the order in which ranks issue collectives depends
on timing. Therefore, Chakram matches collectives before the run. Every rank's nodes are
sorted topologically, with ties broken by node ID. The collectives of each process group
are counted in that order. The k-th collectives of all members match, and must agree on
operation, size and root.

If members have their collectives in different orders, nodes match by name, operation,
size and root. This requires that all members have the same set of collectives.

An all_to_all with splits on any member is an all_to_all_v. Its members need not agree
on a size, but each member must send exactly the bytes that the receiver expects.
Members without splits have even splits.

A send matches a receive with the same source, destination and tag. Messages with equal
tags are counted on both sides in topological order, and the k-th send matches the k-th
receive. If both sides name the same process groups equally often, messages of each
group are counted separately. In the program, all messages from a source to a
destination are numbered together: by tag, then in the order of the sends.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from chakram.collectives.groups import WORLD, ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import MatchingError
from chakram.program.match_collectives import (
    SAME_RUN,
    Disagreements,
    GroupColumns,
    match_group,
    match_splits,
    members_text,
)
from chakram.trace.node import NodeKind
from chakram.trace.shared_columns import once_per_shape

if TYPE_CHECKING:
    from chakram.collectives.split_sizes import Splits
    from chakram.trace.graph import TraceGraph


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


class Collectives(Mapping[int, Mapping[int, CollectiveId]]):
    """Identities of every rank's collectives by position, created on first use.

    Few identities are used if most ranks do the same work.

    Args:
        ranks: All ranks.
        positions: Positions of the collectives of every group, by name and rank, in
            order of their numbers. Ranks of one shape mostly share them.

    Attributes:
        positions: As in the arguments.
        of_rank: The same positions by rank, then by name of the group.
    """

    def __init__(
        self,
        ranks: Iterable[int],
        positions: Mapping[str, Mapping[int, Sequence[int]]],
    ) -> None:
        self.positions = positions
        self.of_rank: dict[int, dict[str, Sequence[int]]] = {each: {} for each in ranks}
        for name, of_group in positions.items():
            for rank, own in of_group.items():
                if own:
                    self.of_rank[rank][name] = own
        self._created: dict[int, dict[int, CollectiveId]] = {}
        # Members share the identity objects, which need most of the memory.
        self._identities: dict[str, list[CollectiveId]] = {}

    def __getitem__(self, rank: int) -> Mapping[int, CollectiveId]:
        created = self._created.get(rank)
        if created is None:
            created = self._created[rank] = {}
            for name, own in self.of_rank[rank].items():
                if name not in self._identities:
                    self._identities[name] = [
                        CollectiveId(name, number) for number in range(len(own))
                    ]
                created.update(zip(own, self._identities[name], strict=True))
        return created

    def __iter__(self) -> Iterator[int]:
        return iter(self.of_rank)

    def __len__(self) -> int:
        return len(self.of_rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Matched collectives and messages, by rank and position in its graph.

    Attributes:
        groups: The process groups that collectives use, by name.
        orders: All positions of every rank in topological order, with ties in order of
            node ID.
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
        limit: Maximum number of disagreements to keep. Further ones are only counted.

    Returns:
        The matching (None if there is a disagreement) and the disagreements.
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
    messages: dict[int, dict[int, MessageId]] = {rank: {} for rank in orders}
    warnings: list[str] = []
    splits: dict[CollectiveId, tuple[Splits, ...]] = {}
    positions_of: dict[str, dict[int, Sequence[int]]] = {}
    alike: dict[tuple[bytes, int, int], GroupColumns] = {}
    for name in sorted(found.collectives):
        group = found.used[name]
        numbered = match_group(
            graphs, group, found.collectives[name], faults, warnings, alike
        )
        if numbered is None:
            continue
        positions_of[name] = numbered
        for number, rows in match_splits(graphs, group, numbered, faults).items():
            splits[CollectiveId(name, number)] = rows
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
        collectives=Collectives(orders, positions_of),
        messages=messages,
        splits=splits,
        warnings=tuple(warnings),
    )


@dataclass
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

    def __post_init__(self) -> None:
        self._sequence = once_per_shape(_sequence)

    def add_rank(self, graph: TraceGraph, order: Sequence[int]) -> None:
        """Add the nodes of one rank."""
        for position, of_group in self._sequence(graph):
            if of_group is None:
                sends = graph.kind(position) is NodeKind.SEND
                self._add_message(graph, position, sends=sends)
                continue
            group = self._group(graph, position)
            if group is None:
                continue
            self.used[group.name] = group
            of_rank = self.collectives.setdefault(group.name, {})
            if graph.rank in of_rank:  # the rank has two names for the group
                both = {*of_rank[graph.rank], *of_group}
                of_group = array("i", filter(both.__contains__, order))
            of_rank[graph.rank] = of_group

    def _group(self, graph: TraceGraph, position: int) -> ProcessGroup | None:
        """Return the group of a collective, or None if it is invalid."""
        try:
            name = graph.group(position)
            whole = self._whole.get(name)
            group = _group_of(graph, position, self.graphs, self.groups, whole)
            self._whole[name] = group
        except MatchingError as error:
            if self.faults.takes_one_more():
                self.faults.add(error)
            return None
        return group

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


def _sequence(graph: TraceGraph) -> list[tuple[int, array[int] | None]]:
    """Return the messages and the groups of collectives, in order of their first nodes.

    Each entry is the position of a node, and all positions of its group, or None if the
    node is a message.
    """
    found: list[tuple[int, array[int] | None]] = []
    of_group: dict[int, array[int]] = {}
    kinds = graph.kinds()
    for position in graph.topological_order():
        kind = kinds[position]
        if kind == NodeKind.COLLECTIVE:
            number = graph.group_number(position)
            if number not in of_group:
                of_group[number] = array("i")
                found.append((position, of_group[number]))
            of_group[number].append(position)
        elif kind in (NodeKind.SEND, NodeKind.RECEIVE):
            found.append((position, None))
    return found


def _group_of(
    graph: TraceGraph,
    position: int,
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
    whole: ProcessGroup | None,
) -> ProcessGroup:
    """Return the process group of a collective, which must contain the graph's rank.

    *whole* is the group if a collective of another rank already used it. All ranks of
    such a group have traces.
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
        if len(sent) == len(received) > 1:
            received = _in_order_of_groups(source, sent, destination, received)
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


def _in_order_of_groups(
    source: TraceGraph,
    sent: Sequence[int],
    destination: TraceGraph,
    received: Sequence[int],
) -> Sequence[int]:
    """Return receives ordered by the groups of their sends, if the groups agree."""
    names = [source.group(position) for position in sent]
    others = [destination.group(position) for position in received]
    if names == others or Counter(names) != Counter(others):
        return received
    of_group: dict[str | None, deque[int]] = {}
    for name, position in zip(others, received, strict=True):
        of_group.setdefault(name, deque()).append(position)
    return [of_group[name].popleft() for name in names]


def without_zero_time(
    graphs: Mapping[int, TraceGraph],
    matching: Matching,
    select: frozenset[CollectiveOp] | None,
) -> Matching:
    """Return the matching without operations that take no time, renumbered.

    These operations are collectives of a single rank, and operations outside *select*.
    """
    own = matching.collectives
    if select is None and isinstance(own, Collectives):
        positions = {
            name: of_group
            for name, of_group in own.positions.items()
            if len(matching.groups[name].ranks) > 1
        }
        return replace(
            matching,
            collectives=Collectives(own, positions),
            splits={
                identity: rows
                for identity, rows in matching.splits.items()
                if identity.group in positions
            },
        )

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

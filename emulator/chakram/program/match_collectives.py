"""Matching of collectives between the members of one process group.

Properties that members must agree on are compared in columns. Node names are compared
only where the columns differ.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits, even_splits, mismatch
from chakram.foundation.errors import MatchingError
from chakram.trace.columns import OP_NUMBERS

if TYPE_CHECKING:
    from chakram.collectives.groups import ProcessGroup
    from chakram.trace.graph import TraceGraph


SAME_RUN = "check that the traces come from one run and include all of its ranks"

_ALL_TO_ALLS = (CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_TO_ALL_V)
_OPS = tuple(CollectiveOp)
_NO_OP = -1
_BY_SPLITS = -2
"""Placeholder size of an all_to_all_v, whose splits are compared instead."""

_SHOWN_OF_MEMBER = 8
"""Maximum number of collectives shown per member that disagrees with the first one."""

_Key: TypeAlias = tuple[int, int, int, str, int]


class GroupColumns(NamedTuple):
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
    alike: dict[tuple[bytes, int, int], GroupColumns],
) -> dict[int, Sequence[int]] | None:
    """Return the collectives of each member, in an order in which equal indices match.

    Args:
        graphs: The trace of every rank.
        group: The group.
        positions_of: The collectives of the group's members, in each member's order.
        faults: Collects disagreements.
        warnings: Collects warnings about the match.
        alike: Cache of columns by shape, identity of the positions and size of the
            group. This function adds the missing columns. Ranks of one shape share
            their positions.

    Returns:
        Positions by rank, or None if the members disagree.
    """
    members = {rank: positions_of.get(rank, ()) for rank in group.ranks}
    uneven = _has_splits(graphs, members)
    known = faults.total
    columns: dict[int, GroupColumns] = {}
    for rank, positions in members.items():
        which = graphs[rank].shape(), id(positions), len(members)
        found = None if uneven else alike.get(which)
        if found is None:
            found = _columns(graphs[rank], group, positions, faults, uneven=uneven)
            if not uneven and faults.total == known:
                alike[which] = found
        columns[rank] = found
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
) -> GroupColumns:
    columns = GroupColumns(array("b"), array("q"), array("q"))
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
        elif op is CollectiveOp.BARRIER:
            size_bytes = 0  # a barrier moves no data, whatever its producer writes
        columns.ops.append(_NO_OP if op is None else OP_NUMBERS[op])
        columns.sizes_bytes.append(size_bytes)
        columns.roots.append(root)
    return columns


def _keys(
    graph: TraceGraph, positions: Sequence[int], columns: GroupColumns
) -> list[_Key]:
    """Return a key for each collective. Numbers distinguish equal collectives."""
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
    columns: Mapping[int, GroupColumns],
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


class Disagreements:
    """Collector of disagreements between ranks.

    Args:
        limit: Maximum number of disagreements to keep. With 0, the first disagreement
            raises an error.

    Attributes:
        kept: The first disagreements.
        more: Number of further disagreements.
    """

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self.kept: list[MatchingError] = []
        self.more = 0

    @property
    def total(self) -> int:
        """Total number of disagreements."""
        return len(self.kept) + self.more

    def takes_one_more(self) -> bool:
        """Return whether to add the next disagreement. If not, only count it."""
        if self._limit and len(self.kept) >= self._limit:
            self.more += 1
            return False
        return True

    def add(self, error: MatchingError) -> None:
        """Keep a disagreement.

        Raises:
            MatchingError: The disagreement, if the limit is 0.
        """
        if not self._limit:
            raise error
        self.kept.append(error)

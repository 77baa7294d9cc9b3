"""Traffic matrix of a trace set: the bytes that each rank sends to each other rank.

``auto`` selects the algorithms that expand collectives, as it does by default in an
experiment. Traffic is counted at the sender only. Nodes of different ranks need not
match, so a set with problems can be measured too.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import NamedTuple

from chakram.collectives.algorithms import automatic_algorithm
from chakram.collectives.groups import WORLD, ProcessGroup
from chakram.collectives.ops import CollectiveOp, nccl_size_bytes
from chakram.collectives.schedule import transfer_bytes
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import TraceError
from chakram.plan.wire_cost import wire_bytes
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind

PATH_MTU = 4096
"""Payload of a full packet when headers are counted. It is the default MTU of runs."""

MATRIX_RANKS = 2048
"""Maximum number of ranks with a matrix, which has up to four million cells."""


class Work(NamedTuple):
    """One kind of communication in one process group.

    ``group`` is None for messages between two ranks.
    """

    what: str
    group: str | None


@dataclass(slots=True, kw_only=True)
class WorkTraffic:
    """The traffic of all nodes of one kind and group, over all ranks.

    Attributes:
        sizes: Number of nodes by size. The size is one rank's contribution in bytes.
        sent_bytes: Payload that the ranks send to each other.
        wire_bytes: ``sent_bytes`` plus the headers of all packets, at layer 2.
        algorithms: Names of the collective algorithms.
    """

    sizes: Counter[int] = field(default_factory=Counter)
    sent_bytes: int = 0
    wire_bytes: int = 0
    algorithms: set[str] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class Traffic:
    """The traffic of all ranks in one iteration.

    Attributes:
        work: Traffic by kind and group.
        sent_bytes: Payload that each rank sends, in order of rank.
        received_bytes: Payload that each rank receives, in order of rank.
        messages: Number of messages by size.
        matrix: Payload from rank to rank, row by row. None if there are too many ranks.
        unplaced: Number of nodes with unknown destinations, for example because their
            group is undefined or they have no peer.
    """

    work: dict[Work, WorkTraffic]
    sent_bytes: array[int]
    received_bytes: array[int]
    messages: Counter[int]
    matrix: array[int] | None
    unplaced: int = 0

    def row(self, rank: int) -> array[int]:
        """Return the bytes that *rank* sends to each rank.

        Raises:
            ValueError: If there is no matrix.
        """
        if self.matrix is None:
            raise ValueError("there is no matrix")
        nranks = len(self.sent_bytes)
        return self.matrix[rank * nranks : (rank + 1) * nranks]


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestPairs:
    """The pairs of ranks with the most traffic.

    Attributes:
        pairs: Source, destination and payload. The largest come first, with ties
            ordered by rank.
        as_large: Number of further pairs with as much traffic as the last listed pair.
        all_pairs: Number of pairs with any traffic.
    """

    pairs: tuple[tuple[int, int, int], ...]
    as_large: int
    all_pairs: int


def largest_pairs(traffic: Traffic, limit: int) -> LargestPairs | None:
    """Return the largest cells of the matrix, or None if there is no matrix.

    Args:
        traffic: The traffic of all ranks.
        limit: Maximum number of pairs.
    """
    if traffic.matrix is None:
        return None
    nranks = len(traffic.sent_bytes)
    cells = nlargest(
        limit,
        ((size_bytes, -cell) for cell, size_bytes in enumerate(traffic.matrix)),
    )
    pairs = tuple(
        (*divmod(-cell, nranks), size_bytes) for size_bytes, cell in cells if size_bytes
    )
    last = pairs[-1][2] if pairs else 0
    alike = traffic.matrix.count(last) - sum(pair[2] == last for pair in pairs)
    return LargestPairs(
        pairs=pairs,
        as_large=alike if pairs else 0,
        all_pairs=len(traffic.matrix) - traffic.matrix.count(0),
    )


class _Share(NamedTuple):
    """One rank's contribution to identical collectives."""

    op: CollectiveOp
    group: str
    size_bytes: int
    root: int
    splits: Splits | None


def measure_traffic(
    graphs: Mapping[int, TraceGraph],
    groups: Mapping[str, ProcessGroup],
    *,
    on_rank: Callable[[int, int], None] | None = None,
) -> Traffic:
    """Return the traffic of all ranks when every node runs once.

    Args:
        graphs: The trace of every rank, from 0.
        groups: The process groups by name.
        on_rank: Called with (ranks done, total ranks) after every rank.

    Raises:
        TraceError: If a rank or a pair of ranks has 2**63 bytes of traffic or more.
    """
    nranks = len(graphs)
    traffic = Traffic(
        work={},
        sent_bytes=array("q", bytes(8 * nranks)),
        received_bytes=array("q", bytes(8 * nranks)),
        messages=Counter(),
        matrix=array("q", bytes(8 * nranks * nranks))
        if nranks <= MATRIX_RANKS
        else None,
    )
    for done, rank in enumerate(sorted(graphs), start=1):
        try:
            _add_rank(traffic, graphs[rank], groups)
        except OverflowError:
            raise TraceError(
                graphs[rank].source,
                "its traffic adds up to 2**63 bytes or more in one iteration",
                "check the unit of sizes: chakram trace lint",
            ) from None
        if on_rank is not None:
            on_rank(done, nranks)
    return traffic


def _add_rank(
    traffic: Traffic, graph: TraceGraph, groups: Mapping[str, ProcessGroup]
) -> None:
    """Add the traffic that one rank sends."""
    shares: Counter[_Share] = Counter()
    for node in graph.nodes():
        # Communication without a size counts as 0 bytes.
        size_bytes = max(0, node.comm_bytes)
        if node.op is CollectiveOp.BARRIER:
            size_bytes = 0
        if node.kind is NodeKind.COLLECTIVE and (op := node.collective):
            group = node.group or WORLD
            root, splits = node.root or 0, node.splits
            shares[_Share(op, group, size_bytes, root, splits)] += 1
        elif node.kind in (NodeKind.SEND, NodeKind.RECEIVE):
            of = _of(traffic, node.kind.name.lower(), None)
            of.sizes[size_bytes] += 1
            if node.kind is NodeKind.SEND:
                ends = graph.rank, node.peer
                traffic.unplaced += not _send(traffic, of, *ends, size_bytes, 1)
    for share, count in shares.items():
        _collective(traffic, share, count, graph.rank, groups.get(share.group))


def _of(traffic: Traffic, what: str, group: str | None) -> WorkTraffic:
    return traffic.work.setdefault(Work(what, group), WorkTraffic())


def _collective(
    traffic: Traffic,
    share: _Share,
    count: int,
    rank: int,
    group: ProcessGroup | None,
) -> None:
    of = _of(traffic, str(share.op), share.group)
    of.sizes[share.size_bytes] += count
    if group is None or rank not in group or share.root >= len(group.ranks):
        traffic.unplaced += count
        return
    nranks = len(group.ranks)
    how = automatic_algorithm(
        share.op,
        size_bytes=nccl_size_bytes(
            share.op, input_bytes=share.size_bytes, nranks=nranks
        ),
        nranks=nranks,
    )
    of.algorithms.add(how.name)
    if share.splits is not None:
        # With uneven splits, every part is sent directly to its receiver.
        own = group.position(rank)
        sends = [
            (peer, size_bytes)
            for peer, size_bytes in enumerate(share.splits.sent_bytes[:nranks])
            if peer != own and size_bytes
        ]
    else:
        sends = [
            (
                transfer.dst,
                transfer_bytes(
                    how, transfer, nranks=nranks, input_bytes=share.size_bytes
                ),
            )
            for transfer in how.sends(
                group.position(rank), nranks=nranks, root=share.root
            )
        ]
    are_placed = [
        _send(traffic, of, rank, group.ranks[peer], size_bytes, count)
        for peer, size_bytes in sends
    ]
    if not all(are_placed):
        traffic.unplaced += count


def _send(
    traffic: Traffic,
    of: WorkTraffic,
    src: int,
    dst: int | None,
    size_bytes: int,
    count: int,
) -> bool:
    """Add messages, and return whether their destination is a rank of the set."""
    nranks = len(traffic.sent_bytes)
    if dst is None or dst >= nranks:
        return False
    total = size_bytes * count
    of.sent_bytes += total
    of.wire_bytes += wire_bytes(size_bytes, path_mtu=PATH_MTU) * count
    traffic.messages[size_bytes] += count
    traffic.sent_bytes[src] += total
    traffic.received_bytes[dst] += total
    if traffic.matrix is not None:
        traffic.matrix[src * nranks + dst] += total
    return True

"""Programs that measure latency and rate between ports, and figures from their flows.

All ranks synchronize before every round, over a tree of working paths, so that pairs
are alone on their links.  Then the two ranks of a pair send each other small messages,
first in one direction, then in the other.  After that, each rank sends a large message,
again one direction after the other.  At the end, all ranks send at the same time, each
to a different rank.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from chakram.foundation.errors import PeerError
from chakram.foundation.grouping import grouped
from chakram.preflight.report import PreflightSettings
from chakram.program.operations import (
    Operation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
    program_of,
)
from chakram.records.row_layout import FlowRow, rows_of

JOB = "preflight"

PING_BYTES = 8

_PING, _RATE, _ALL = "ping", "rate", "permutation"

Pair = tuple[int, int]
"""Positions of the sending and the receiving port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Purpose of a message (``ping``, ``rate`` or ``permutation``), and its pair."""

    kind: str
    pair: Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Programs, and their measured messages by rank and index of the operation."""

    programs: tuple[RankProgram, ...]
    messages: dict[tuple[int, int], Message]


@dataclass(slots=True)
class Figures:
    """Measurements of a pair in one direction.

    Attributes:
        size_bytes: Payload of the large message, or 0 if it did not arrive.
        elapsed_ns: Time of the large message from first packet to last acknowledgment.
        packets: Number of packets of the large message, each counted once.
        retransmitted: Number of retransmissions of the large message, including
            repeated ones.
        generator_wait_ns: How long the sender's data plane delayed the large message.
        round_trips_ns: Round trips of the small messages, in order.
    """

    size_bytes: int = 0
    elapsed_ns: int = 0
    packets: int = 0
    retransmitted: int = 0
    generator_wait_ns: int = 0
    round_trips_ns: list[int] = field(default_factory=list)


class _Programs:
    """Builds the programs of all ranks."""

    def __init__(self, ranks: Collection[int]) -> None:
        self.operations: dict[int, list[Operation]] = {rank: [] for rank in ranks}
        self.messages: dict[tuple[int, int], Message] = {}
        # Operations that the next phase of each rank must wait for.
        self.last: dict[int, tuple[int, ...]] = dict.fromkeys(ranks, ())
        self._numbers: dict[Pair, int] = {}

    def message(
        self,
        pair: Pair,
        size_bytes: int,
        *,
        after: tuple[int, ...] | None = None,
        kind: str = "meet",
    ) -> tuple[int, int]:
        """Add a message, and return the indexes of its send and receive operations.

        *after* lists operations of the source that must end before the message is sent.
        If None, these are the last operations of the source.
        """
        source, destination = pair
        after = self.last[source] if after is None else after
        number = self._numbers.get(pair, 0)
        self._numbers[pair] = number + 1
        sent, received = len(self.operations[source]), len(self.operations[destination])
        common: dict[str, Any] = {
            "node_id": None,
            "name": kind,
            "number": number,
            "tag": 0,
            "size_bytes": size_bytes,
            "trace_bytes": size_bytes,
        }
        self.operations[source].append(
            SendOperation(dependencies=after, peer=destination, **common)
        )
        self.operations[destination].append(
            ReceiveOperation(dependencies=(), peer=source, **common)
        )
        if kind != "meet":
            self.messages[source, sent] = Message(kind=kind, pair=pair)
        return sent, received

    def meet(self, trees: Sequence[Sequence[Pair]]) -> None:
        """Synchronize all ranks of each tree."""
        for tree in trees:
            # Up: a rank sends to its parent when all its children have sent.
            heard: dict[int, list[int]] = {}
            for parent, child in reversed(tree):
                _, received = self.message(
                    (child, parent),
                    1,
                    after=(*self.last[child], *heard.pop(child, ())),
                )
                heard.setdefault(parent, []).append(received)
            for root, indices in heard.items():
                self.last[root] = (*self.last[root], *indices)
            # Down: from the root, in the order in which the tree was built.
            for parent, child in tree:
                _, received = self.message((parent, child), 1)
                self.last[child] = (received,)


def measurement(
    *,
    rounds: Sequence[Sequence[Pair]],
    reached: Collection[Pair],
    passes: Collection[Pair],
    permutation: Sequence[Pair],
    size_of: Callable[[Pair], int],
    settings: PreflightSettings,
) -> Measurement:
    """Return the programs of all ranks that measure latency and rate.

    Args:
        rounds: Rounds of disjoint pairs, lower rank first.
        reached: Source and destination of pairs whose small packets arrive.
        passes: Source and destination of pairs whose packets of the path MTU arrive.
        permutation: Pairs that send when all ranks send at once.
        size_of: Function that returns how many bytes a pair sends to measure its rate.
        settings: Checks and limits.
    """
    both = {(a, b) for a, b in reached if (b, a) in reached}
    trees = _trees(both)
    programs = _Programs(sorted({rank for pair in both for rank in pair}))
    for pairs in rounds:
        tested = [pair for pair in pairs if pair in both]
        if not tested:
            continue
        programs.meet(trees)
        for pair in tested:
            _measure_pair(programs, pair, passes, size_of, settings)
    if settings.check_permutation:
        programs.meet(trees)
        for pair in permutation:
            if pair in both and pair in passes:
                programs.message(pair, size_of(pair), kind=_ALL)
    return Measurement(
        programs=tuple(
            program_of(operations, job=JOB, rank=rank, groups=())
            for rank, operations in programs.operations.items()
        ),
        messages=programs.messages,
    )


def _measure_pair(
    programs: _Programs,
    pair: Pair,
    passes: Collection[Pair],
    size_of: Callable[[Pair], int],
    settings: PreflightSettings,
) -> None:
    a, b = pair
    ways: tuple[Pair, Pair] = ((a, b), (b, a))
    if settings.check_latency:
        for source, destination in ways:
            # Ignore the first message, because it resolves addresses and warms caches.
            for _ in range(settings.pings + 1):
                sent, received = programs.message(
                    (source, destination), PING_BYTES, kind=_PING
                )
                programs.last[source] = (sent,)
            # The other rank starts to send when it has received the last message.
            programs.last[destination] = (*programs.last[destination], received)
    if not settings.check_rate:
        return
    # Measure one direction after the other.  Otherwise, full queues in a slow direction
    # would delay the acknowledgments of the other direction.
    for way in ways:
        if way not in passes:
            continue
        source, destination = way
        sent, received = programs.message(way, size_of(way), kind=_RATE)
        programs.last[source] = (*programs.last[source], sent)
        programs.last[destination] = (*programs.last[destination], received)


def _trees(both: Collection[Pair]) -> list[list[Pair]]:
    """Return a spanning tree of each connected component of the ranks.

    A tree is a list of (parent, child), in the order of a search from its root.
    """
    neighbors = grouped(sorted(both))
    seen: set[int] = set()
    trees = []
    # The rank that reaches most ranks is the root. Usually, all other ranks are its
    # children.
    for root in sorted(neighbors, key=lambda rank: (-len(neighbors[rank]), rank)):
        if root in seen:
            continue
        seen.add(root)
        tree: list[Pair] = []
        waiting = deque([root])
        while waiting:
            parent = waiting.popleft()
            for child in neighbors[parent]:
                if child not in seen:
                    seen.add(child)
                    tree.append((parent, child))
                    waiting.append(child)
        trees.append(tree)
    return trees


def read_flows(
    rows: array[int], measured: Measurement
) -> tuple[dict[Pair, Figures], dict[Pair, Figures]]:
    """Return the figures of pairs that send alone, and figures while all ranks send.

    Raises:
        PeerError: If a row does not belong to an operation of the programs.
    """
    alone: dict[Pair, Figures] = {}
    together: dict[Pair, Figures] = {}
    pings: dict[Pair, list[Pair]] = {}
    spans: dict[int, tuple[int, int]] = {}
    ranks = [program.rank for program in measured.programs]
    operations = {program.rank: len(program.columns) for program in measured.programs}
    for row in rows_of(FlowRow, rows):
        number = row.rank
        if not 0 <= number < len(ranks) or row.operation >= operations[ranks[number]]:
            raise PeerError(
                "records of an agent",
                f"name operation {row.operation}, which does not exist",
            )
        message = measured.messages.get((ranks[number], row.operation))
        if message is None:
            continue
        first_ns, last_ns = row.first_sent_ns, row.last_acked_ns
        if message.kind == _PING:
            pings.setdefault(message.pair, []).append((first_ns, last_ns))
            continue
        figures = (alone if message.kind == _RATE else together).setdefault(
            message.pair, Figures()
        )
        # A message may be split over several queue pairs.
        before = spans.get(id(figures), (first_ns, last_ns))
        span = min(before[0], first_ns), max(before[1], last_ns)
        spans[id(figures)] = span
        figures.elapsed_ns = span[1] - span[0]
        figures.size_bytes += row.size_bytes
        figures.packets += row.packets
        figures.retransmitted += row.retransmitted
        figures.generator_wait_ns += row.generator_wait_ns
    for pair, times in pings.items():
        # The first message of each pair is the warm-up.
        alone.setdefault(pair, Figures()).round_trips_ns = [
            last_ns - first_ns for first_ns, last_ns in sorted(times)[1:]
        ]
    return alone, together

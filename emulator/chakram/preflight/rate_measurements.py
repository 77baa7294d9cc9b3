"""From ports to programs that measure latency and rate, and from flows to figures.

All ranks meet before every round (over a tree of paths that work), so that pairs are
alone on their links; then the two of a pair send each other small messages, first one
and then the other, and after that a large one each, again one after the other.  At the
end all send at the same time, each to another one.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chakram.foundation.errors import PeerError
from chakram.program.operations import (
    Operation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
    program_of,
)
from chakram.records.row_layout import FlowRow, rows_of

if TYPE_CHECKING:
    from chakram.preflight.report import PreflightSettings


JOB = "preflight"

PING_BYTES = 8

_PING, _RATE, _ALL = "ping", "rate", "permutation"

Pair = tuple[int, int]
"""Who sends and who receives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a message measures: ``ping``, ``rate`` or ``permutation``, of which pair."""

    kind: str
    pair: Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Programs, and what their messages measure by (rank, index of the operation)."""

    programs: tuple[RankProgram, ...]
    messages: dict[tuple[int, int], Message]


@dataclass(slots=True)
class Figures:
    """What was measured of a pair, in one direction.

    Attributes:
        size_bytes: Payload of the large message; 0: it has not arrived.
        elapsed_ns: From its first packet to its last acknowledgement.
        packets: Its packets, each once.
        retransmitted: How many were sent again, some more than once.
        generator_wait_ns: How long the sender's data plane held it up.
        round_trips_ns: Of the small messages, in their order.
    """

    size_bytes: int = 0
    elapsed_ns: int = 0
    packets: int = 0
    retransmitted: int = 0
    generator_wait_ns: int = 0
    round_trips_ns: list[int] = field(default_factory=list)


class _Programs:
    """The programs of all ranks while they grow."""

    def __init__(self, ranks: Collection[int]) -> None:
        self.operations: dict[int, list[Operation]] = {rank: [] for rank in ranks}
        self.messages: dict[tuple[int, int], Message] = {}
        # What the next phase of a rank has to wait for.
        self.last: dict[int, tuple[int, ...]] = dict.fromkeys(ranks, ())
        self._numbers: dict[Pair, int] = {}

    def message(
        self,
        pair: Pair,
        size_bytes: int,
        *,
        after: tuple[int, ...],
        kind: str = "meet",
    ) -> tuple[int, int]:
        """Add a message; return the index of its sending and of its receiving.

        It is sent after some operations of its source.
        """
        source, destination = pair
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
        """Let all ranks of each tree wait for one another."""
        for tree in trees:
            # Up: who has heard of all below tells who is above.
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
            # Down: from the root, in the order in which the tree has grown.
            for parent, child in tree:
                _, received = self.message(
                    (parent, child),
                    1,
                    after=self.last[parent],
                )
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
    """Return what all ranks do to measure latency and rate.

    Args:
        rounds: Disjoint pairs, lower rank first.
        reached: (source, destination) of the small packets that arrive.
        passes: Likewise of packets of the path MTU.
        permutation: Who sends to whom when all send at once.
        size_of: What a pair sends to measure its rate.
        settings: What is tested.
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
        after = dict(programs.last)
        ends: dict[int, list[int]] = {}
        for pair in permutation:
            if pair not in both or pair not in passes:
                continue
            source, destination = pair
            sent, received = programs.message(
                pair,
                size_of(pair),
                after=after[source],
                kind=_ALL,
            )
            ends.setdefault(source, []).append(sent)
            ends.setdefault(destination, []).append(received)
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
            # The first one finds addresses and warms caches: it is not counted.
            for _ in range(settings.pings + 1):
                sent, received = programs.message(
                    (source, destination),
                    PING_BYTES,
                    after=programs.last[source],
                    kind=_PING,
                )
                programs.last[source] = (sent,)
            # The other one begins when it has got the last.
            programs.last[destination] = (*programs.last[destination], received)
    if not settings.check_rate:
        return
    # One direction after the other: of a slow link, full queues would else hold up the
    # acknowledgements of the direction that is sound.
    for way in ways:
        if way not in passes:
            continue
        source, destination = way
        sent, received = programs.message(
            way,
            size_of(way),
            after=programs.last[source],
            kind=_RATE,
        )
        programs.last[source] = (*programs.last[source], sent)
        programs.last[destination] = (*programs.last[destination], received)


def _trees(both: Collection[Pair]) -> list[list[Pair]]:
    """Return a spanning tree of each part of the ranks that reach each other.

    A tree is a list of (parent, child) in the order in which it grew from its root.
    """
    neighbours: dict[int, list[int]] = {}
    for a, b in sorted(both):
        neighbours.setdefault(a, []).append(b)
    seen: set[int] = set()
    trees = []
    # Who reaches most is the root: usually all others hang on it.
    for root in sorted(neighbours, key=lambda rank: (-len(neighbours[rank]), rank)):
        if root in seen:
            continue
        seen.add(root)
        tree: list[Pair] = []
        waiting = deque([root])
        while waiting:
            parent = waiting.popleft()
            for child in neighbours[parent]:
                if child not in seen:
                    seen.add(child)
                    tree.append((parent, child))
                    waiting.append(child)
        trees.append(tree)
    return trees


def read_flows(
    rows: array[int], measured: Measurement
) -> tuple[dict[Pair, Figures], dict[Pair, Figures]]:
    """Return the figures of all pairs by themselves, and those of all at once.

    Raises:
        PeerError: If a row is of no message of the plan.
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
            raise PeerError("records of an agent", f"name operation {row.operation}")
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
        # A message may go in parts, over several queue pairs.
        before = spans.get(id(figures), (first_ns, last_ns))
        span = min(before[0], first_ns), max(before[1], last_ns)
        spans[id(figures)] = span
        figures.elapsed_ns = span[1] - span[0]
        figures.size_bytes += row.size_bytes
        figures.packets += row.packets
        figures.retransmitted += row.retransmitted
        figures.generator_wait_ns += row.generator_wait_ns
    for pair, times in pings.items():
        # The first of each pair is there to warm up.
        alone.setdefault(pair, Figures()).round_trips_ns = [
            last_ns - first_ns for first_ns, last_ns in sorted(times)[1:]
        ]
    return alone, together

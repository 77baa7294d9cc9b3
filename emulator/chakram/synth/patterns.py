"""Patterns of messages and collectives, for fabric tests.

A pattern consists of repeats. Within a repeat, a rank posts its messages all at once,
or one after another. A rank begins the next repeat when its own messages of this repeat
are complete. With ``barrier``, all ranks begin the next repeat together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from chakram.collectives.groups import WORLD, ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Matrix
from chakram.synth.grid import GroupTable, RankGrid
from chakram.synth.trace_builder import (
    After,
    RankSynthesizer,
    Roofline,
    Synthesis,
    both,
)
from chakram.trace.alike_ranks import AlikeRanks
from chakram.trace.graph import TraceGraph

if TYPE_CHECKING:
    from random import Random

    from chakram.synth.settings.patterns import CollectivesTrace

_NO_COMPUTATION = Roofline(peak_flops=1)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a repeat.

    Attributes:
        source: Rank that sends.
        destination: Rank that receives.
        size_bytes: Size of the message.
        gap_ns: Time that the source waits before it posts the message.
    """

    source: int
    destination: int
    size_bytes: int
    gap_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Repeats of messages between ranks.

    Attributes:
        kind: Kind of trace, for names.
        nranks: Number of ranks.
        repeats: Messages of each repeat, in the order in which a rank posts them.
        barrier: Whether all ranks begin a repeat together.
        one_at_a_time: Whether a rank posts a message only when its previous one is
            complete.
        gap_ns: Time between two repeats.
    """

    kind: str
    nranks: int
    repeats: Sequence[Sequence[Message]]
    barrier: bool = False
    one_at_a_time: bool = False
    gap_ns: int = 0


def derangement(nranks: int, random: Random) -> list[int]:
    """Return random destinations: all distinct, and none equal to its source rank.

    All such permutations are equally likely. The function shuffles until no rank is at
    its own place, which takes e = 2.72 shuffles on average.
    """
    while True:
        order = list(range(nranks))
        random.shuffle(order)
        if all(rank != destination for rank, destination in enumerate(order)):
            return order


def synthesize_pattern(pattern: Pattern) -> Synthesis:
    """Return the trace of a pattern."""
    by_rank: list[list[list[Message]]] = [
        [[] for _ in pattern.repeats] for _ in range(pattern.nranks)
    ]
    for number, messages in enumerate(pattern.repeats):
        for message in messages:
            by_rank[message.source][number].append(message)
            by_rank[message.destination][number].append(message)

    def graph_of(rank: int) -> TraceGraph:
        program = RankSynthesizer(pattern.kind, rank, _NO_COMPUTATION)
        last: After = ()
        for number, messages in enumerate(by_rank[rank]):
            if number and pattern.gap_ns:
                last = program.compute(
                    f"repeat{number}.gap", last, duration_ns=pattern.gap_ns
                )
            if number and pattern.barrier:
                last = program.barrier(f"repeat{number}.barrier", last, WORLD)
            last = _add_repeat(pattern, program, number, messages, last)
        return program.graph()

    return Synthesis(
        kind=pattern.kind, nranks=pattern.nranks, groups=(), graph_of=graph_of
    )


def _add_repeat(
    pattern: Pattern,
    program: RankSynthesizer,
    number: int,
    messages: Sequence[Message],
    after: After,
) -> After:
    done: list[int] = []
    posted = waited = after
    for message in messages:
        if message.source != program.rank:
            name = f"repeat{number}.receive{message.source}"
            received = program.receive(
                name,
                after,
                source=message.source,
                size_bytes=message.size_bytes,
                tag=number,
            )
            done.extend(received)
            continue
        name = f"repeat{number}.send{message.destination}"
        if message.gap_ns:
            # Each gap starts when the previous gap ends, even if the posted messages
            # are not complete.
            waited = program.compute(f"{name}.gap", waited, duration_ns=message.gap_ns)
        sent = program.send(
            name,
            both(waited, posted if pattern.one_at_a_time else ()),
            to=message.destination,
            size_bytes=message.size_bytes,
            tag=number,
        )
        posted = sent
        done.extend(sent)
    return tuple(done) or after


def synthesize_collectives(
    trace: CollectivesTrace,
    splits: Mapping[int, Sequence[Matrix]] = MappingProxyType({}),
) -> Synthesis:
    """Return the trace of concurrent streams of collectives.

    Every stream has its own groups, so streams delay each other only in the fabric.

    Args:
        trace: Parameters of the streams.
        splits: By stream number, the matrices that its all-to-alls use in round-robin
            order.
    """
    groups = GroupTable(RankGrid({}), {})
    for number, stream in enumerate(trace.streams):
        for ranks in stream.groups(trace.ranks):
            groups.add(f"stream {number}", ranks)

    def graph_of(rank: int) -> TraceGraph:
        program = RankSynthesizer(trace.synth, rank, _NO_COMPUTATION)
        for number, stream in enumerate(trace.streams):
            last: After = ()
            group = groups.groups[int(groups.named(f"stream {number}", rank)) - 1]
            for index, size_bytes in enumerate(stream.contributions):
                name = f"stream{number}.{stream.op}{index}"
                gap_ns = stream.gap_ns if index else stream.start_ns
                if gap_ns:
                    last = program.compute(
                        f"{name}.gap", last, duration_ns=gap_ns, stream=number
                    )
                if stream.barrier:
                    last = program.barrier(f"{name}.barrier", last, group.name)
                op = CollectiveOp(stream.op)
                if number in splits:
                    matrix = splits[number][index % len(splits[number])]
                    own = group.ranks.index(rank)
                    last = program.uneven_all_to_all(
                        name,
                        last,
                        group=group.name,
                        sent=matrix[own],
                        received=tuple(row[own] for row in matrix),
                    )
                elif op is CollectiveOp.SEND_RECV:
                    last = _to_the_next(program, name, last, group, size_bytes)
                else:
                    last = program.collective(
                        name,
                        last,
                        op,
                        group=group.name,
                        input_bytes=size_bytes,
                        root=stream.root,
                    )
        return program.graph()

    def group_of(group: str, rank: int) -> str:
        return groups.named(groups.purposes[group], rank)

    has_messages = any(stream.op == "send_recv" for stream in trace.streams)
    alike = AlikeRanks(
        nranks=trace.ranks, firsts=(0,), first_of=lambda _: 0, group_of=group_of
    )
    return Synthesis(
        kind=trace.synth,
        nranks=trace.ranks,
        groups=tuple(groups.groups),
        purposes=groups.purposes,
        graph_of=graph_of,
        # Uneven splits, and the peers of messages, differ between ranks.
        alike=None if splits or has_messages else alike,
    )


def _to_the_next(
    program: RankSynthesizer,
    name: str,
    after: After,
    group: ProcessGroup,
    size_bytes: int,
) -> After:
    """Add a message to the next rank of a group, and one from the previous rank."""
    place = group.ranks.index(program.rank)
    to = group.ranks[(place + 1) % len(group.ranks)]
    source = group.ranks[place - 1]
    sent = program.send(f"{name}.send", after, to=to, size_bytes=size_bytes)
    received = program.receive(
        f"{name}.receive", after, source=source, size_bytes=size_bytes
    )
    return both(sent, received)


def drawn_size(points: Sequence[tuple[int, float]], random: Random) -> int:
    """Return a size drawn from a distribution, at least one byte."""
    percent = random.uniform(0, 100)
    for (low, below), (high, above) in itertools.pairwise(points):
        if percent <= above:
            part = (percent - below) / (above - below)
            return max(1, round(low + (high - low) * part))
    return points[-1][0]


def random_messages(
    *,
    nranks: int,
    count: int,
    size: Callable[[Random], int],
    mean_gap_ns: int,
    random: Random,
) -> list[Message]:
    """Return *count* messages of every rank to randomly drawn ranks.

    Args:
        nranks: Number of ranks, at least 2.
        count: Number of messages per rank.
        size: Function that draws a size.
        mean_gap_ns: Mean of the exponentially distributed time between two messages. 0
            means no gaps.
        random: Source of all random numbers.
    """
    messages: list[Message] = []
    for source in range(nranks):
        for _ in range(count):
            away = random.randrange(1, nranks)
            gap_ns = round(random.expovariate(1 / mean_gap_ns)) if mean_gap_ns else 0
            messages.append(
                Message(source, (source + away) % nranks, size(random), gap_ns)
            )
    return messages

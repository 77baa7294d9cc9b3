"""Synthesize a trace from its parameters, in memory or as files."""

from __future__ import annotations

import hashlib
import io
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.chakra.read.reader import ReadTrace, open_stream, settle
from chakram.chakra.sets.trace_set import TraceSet, assemble
from chakram.chakra.write.compatibility import GraphCompatibility
from chakram.chakra.write.writer import encode_trace, write_trace_set
from chakram.collectives.groups import ProcessGroup
from chakram.foundation.errors import ConfigError
from chakram.synth.expert_routing import LawRouter, RecordedRouter, Router
from chakram.synth.inference import synthesize_inference, synthesize_kv_cache
from chakram.synth.patterns import (
    Message,
    Pattern,
    derangement,
    drawn_size,
    random_messages,
    synthesize_collectives,
    synthesize_pattern,
)
from chakram.synth.recorded_splits import read_splits
from chakram.synth.settings.base import SynthTrace
from chakram.synth.settings.inference import InferenceTrace, KvCacheTrace
from chakram.synth.settings.patterns import (
    SIZE_DISTRIBUTIONS,
    CollectivesTrace,
    IncastTrace,
    OneToAllTrace,
    PatternTrace,
    PermutationTrace,
    RandomPairsTrace,
)
from chakram.synth.settings.training import DenseTrace, MoeTrace
from chakram.synth.trace_builder import MAX_NODES, Synthesis
from chakram.synth.training import synthesize_training
from chakram.trace.alike_ranks import AlikeRanks
from chakram.trace.graph import TraceGraph

if TYPE_CHECKING:
    from random import Random


LEAST_NODES = 250_000
"""Minimum nodes of a set in which one rank represents all ranks of its class."""

LEAST_RANKS = 16_384
"""Minimum ranks of a set in which one rank represents its class despite few nodes."""


def synthesize(trace: SynthTrace) -> Synthesis:
    """Return the synthetic trace with the parameters *trace*.

    The same parameters give the same trace on every machine.

    Raises:
        ConfigError: If parameters contradict each other.
        TraceError: If recorded splits cannot be read.
    """
    first = next(trace.doubts(), None)
    if first is not None:
        raise ConfigError(f"{trace.synth}: {first.key}", first.found, first.hint)
    match trace:
        case MoeTrace():
            tokens = trace.micro_batch * trace.sample_tokens // (trace.cp * trace.tp)
            return synthesize_training(trace, _router(trace, tokens))
        case DenseTrace():
            return synthesize_training(trace, None)
        case InferenceTrace():
            router = None
            if trace.shape.experts:
                router = _router(trace, trace.tokens // trace.tp)
            return synthesize_inference(trace, router)
        case KvCacheTrace():
            return synthesize_kv_cache(trace)
        case CollectivesTrace():
            return synthesize_collectives(
                trace,
                {
                    number: read_splits(
                        stream.splits,
                        nranks=stream.members or trace.ranks,
                        token_bytes=1,
                    )
                    for number, stream in enumerate(trace.streams)
                    if stream.splits is not None
                },
            )
        case _:
            return synthesize_pattern(_pattern(trace))


def _router(trace: MoeTrace | InferenceTrace, tokens: int) -> Router:
    """Return the routing of the *tokens* that a rank sends to experts."""
    routing, shape = trace.routing, trace.shape
    token_bytes = routing.dispatch_token_bytes(shape, trace.bytes_per_element)
    if routing.splits is not None:
        return RecordedRouter(
            read_splits(routing.splits, nranks=trace.ep, token_bytes=token_bytes)
        )
    return LawRouter(
        routing,
        experts=shape.experts,
        nranks=trace.ep,
        tokens=tokens,
        top_k=shape.top_k,
        token_bytes=token_bytes,
        random_of=partial(_random, routing.seed),
    )


def _random(seed: int, purpose: str) -> Random:
    """Return a random generator that depends only on *seed* and *purpose*."""
    # Python hashes a text seed with SHA-512, so the result is the same on every
    # machine.
    return random.Random(f"{seed} {purpose}")


def _pattern(trace: SynthTrace) -> Pattern:
    if isinstance(trace, RandomPairsTrace):
        messages = random_messages(
            nranks=trace.ranks,
            count=trace.messages,
            size=_sizes(trace),
            mean_gap_ns=trace.mean_gap_ns,
            random=_random(trace.seed, "pairs"),
        )
        return Pattern(
            kind=trace.synth,
            nranks=trace.ranks,
            repeats=[messages],
            one_at_a_time=not trace.mean_gap_ns,
        )
    if not isinstance(trace, PatternTrace):
        raise TypeError(f"{type(trace).__name__} is not a pattern")
    return Pattern(
        kind=trace.synth,
        nranks=trace.ranks,
        repeats=[
            [Message(*pair, trace.size_bytes) for pair in _pairs(trace, number)]
            for number in range(trace.repeats)
        ],
        barrier=trace.barrier,
        one_at_a_time=getattr(trace, "one_at_a_time", False),
        gap_ns=trace.gap_ns,
    )


def _pairs(trace: PatternTrace, number: int) -> list[tuple[int, int]]:
    """Return (source, destination) of a repeat's messages, in posting order."""
    ranks = trace.ranks
    senders: Iterable[int] = range(ranks)
    match trace:
        case IncastTrace():
            receiver = (trace.receiver + (number if trace.rotate else 0)) % ranks
            behind = range(receiver + 1, receiver + trace.senders + 1)
            return [(sender % ranks, receiver) for sender in behind]
        case PermutationTrace(order="shift"):
            return [(rank, (rank + trace.shift) % ranks) for rank in senders]
        case PermutationTrace():
            draw = _random(trace.seed, f"permutation {0 if trace.keep else number}")
            return list(enumerate(derangement(ranks, draw)))
        case OneToAllTrace():
            senders = (trace.sender,)
    # Neighbors come first, so that destinations differ between senders.
    return [
        (sender, (sender + away) % ranks)
        for sender in senders
        for away in range(1, ranks)
    ]


def _sizes(trace: RandomPairsTrace) -> Callable[[Random], int]:
    size_bytes = trace.size_bytes
    match trace.sizes:
        case "fixed":
            return lambda _: size_bytes
        case "uniform":
            return lambda draw: draw.randint(1, 2 * size_bytes)
        case "log_normal":
            # The mean of a log-normal distribution is exp(mu + sigma**2 / 2).
            mu = math.log(size_bytes) - trace.sigma**2 / 2
            return lambda draw: max(1, round(draw.lognormvariate(mu, trace.sigma)))
    points = SIZE_DISTRIBUTIONS[trace.sizes]
    return lambda draw: drawn_size(points, draw)


def synthesized_trace_set(synthesis: Synthesis) -> TraceSet:
    """Return the trace set that ``chakram trace synth`` would write.

    The traces are encoded and decoded, so the result is the same as from files,
    including digest and offsets.
    """
    return assemble(
        name=f"synth:{synthesis.kind}",
        traces={rank: _read_back(synthesis, rank) for rank in range(synthesis.nranks)},
        file_groups={group.name: group.ranks for group in synthesis.groups},
    )


def _read_back(synthesis: Synthesis, rank: int) -> ReadTrace:
    """Return the trace of a rank as if it were read from its file."""
    records = encode_trace(
        synthesis.graph_of(rank),
        producer=synthesis.producer,
        groups=synthesis.descriptions_of(rank),
    )
    stream = io.BytesIO(b"".join(records))
    source = f"synth:{synthesis.kind}.{rank}.et"
    return settle({rank: open_stream(stream, rank=rank, source=source)})[rank]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTraces:
    """The traces of the first rank of each class of a synthetic set.

    Attributes:
        graphs: The traces, by rank.
        groups: All process groups, by name.
        alike: The classes.
        nodes: Number of nodes of all ranks.
        digest: SHA-256 of these traces and of all groups.
    """

    graphs: Mapping[int, TraceGraph]
    groups: Mapping[str, ProcessGroup]
    alike: AlikeRanks
    nodes: int
    digest: str


def first_traces(
    synthesis: Synthesis, *, least_nodes: int | None = None
) -> FirstTraces | None:
    """Return the traces that represent a large set, or None.

    The result is None if ranks differ in more than groups and peers. It is also None if
    the set has fewer than *least_nodes* nodes and fewer than ``LEAST_RANKS`` ranks. The
    default of *least_nodes* is ``LEAST_NODES``.
    """
    alike = synthesis.alike
    if alike is None:
        return None
    found = {rank: _read_back(synthesis, rank) for rank in alike.firsts}
    graphs = {rank: each.trace.graph for rank, each in found.items()}
    nodes = sum(map(len, graphs.values())) * (alike.nranks // len(graphs))
    least_nodes = LEAST_NODES if least_nodes is None else least_nodes
    if nodes < least_nodes and alike.nranks < LEAST_RANKS:
        return None
    digest = hashlib.sha256(f"{alike.nranks} alike\n".encode())
    for rank, read in found.items():
        digest.update(f"{rank} {read.sha256}\n".encode())
    for group in synthesis.groups:
        digest.update(f"{group.name} {group.ranks}\n".encode())
    return FirstTraces(
        graphs=graphs,
        groups={group.name: group for group in synthesis.groups},
        alike=alike,
        nodes=nodes,
        digest=digest.hexdigest(),
    )


def write_synthesis(
    folder: Path,
    synthesis: Synthesis,
    *,
    replace: bool = False,
    on_rank: Callable[[int], None] | None = None,
    elsewhere: GraphCompatibility | None = None,
) -> list[Path]:
    """Write the files of a synthetic trace set (see `write_trace_set`).

    Raises:
        ConfigError: If the set is too large to be written.
    """
    if synthesis.alike is not None:
        firsts = synthesis.alike.firsts
        nodes = sum(len(synthesis.graph_of(rank)) for rank in firsts)
        nodes *= synthesis.nranks // len(firsts)
        if nodes > MAX_NODES:
            raise ConfigError(
                synthesis.kind,
                f"has {nodes} nodes on {synthesis.nranks} ranks",
                f"files have at most {MAX_NODES}; name its parameters in an experiment "
                "instead",
            )
    return write_trace_set(
        folder,
        prefix=synthesis.kind,
        graphs=synthesis.graphs(),
        groups=synthesis.groups,
        producer=synthesis.producer,
        descriptions_of=synthesis.descriptions_of,
        replace=replace,
        on_rank=on_rank,
        elsewhere=elsewhere,
    )

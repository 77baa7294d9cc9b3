"""From the parameters of a made-up trace to the trace."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import TYPE_CHECKING

from chakram.errors import ConfigError
from chakram.synth.inference import synthesize_inference, synthesize_kv_cache
from chakram.synth.patterns import (
    Message,
    Pattern,
    derangement,
    drawn_size,
    incast,
    random_messages,
    shifted,
    synthesize_collectives,
    synthesize_pattern,
)
from chakram.synth.recorded_splits import read_splits
from chakram.synth.routing import LawRouter, RecordedRouter
from chakram.synth.settings import (
    SIZE_DISTRIBUTIONS,
    AllToAllTrace,
    CollectivesTrace,
    DenseTrace,
    IncastTrace,
    InferenceTrace,
    KvCacheTrace,
    MoeTrace,
    OneToAllTrace,
    PermutationTrace,
    RandomPairsTrace,
)
from chakram.synth.training import synthesize_training

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from chakram.synth.program import Synthesis
    from chakram.synth.routing import Router
    from chakram.synth.settings import SynthTrace


def synthesize(trace: SynthTrace) -> Synthesis:
    """Return the trace that *trace* describes.

    The same parameters give the same trace, on every machine.

    Raises:
        ConfigError: If parameters do not fit together.
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
            return synthesize_collectives(trace)
        case _:
            return synthesize_pattern(_pattern(trace))


def _router(trace: MoeTrace | InferenceTrace, tokens: int) -> Router:
    """Return where the *tokens* that a rank sends off go."""
    routing, shape = trace.routing, trace.shape
    token_bytes = shape.hidden * trace.bytes_per_element
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
    """Return random numbers that depend on nothing but *seed* and *purpose*."""
    # A text is hashed by SHA-512, the same everywhere.
    return random.Random(f"{seed} {purpose}")


def _pattern(trace: SynthTrace) -> Pattern:
    match trace:
        case IncastTrace():
            receivers = [
                (trace.receiver + (number if trace.rotate else 0)) % trace.ranks
                for number in range(trace.repeats)
            ]
            senders = incast(
                receivers=receivers, fan_in=trace.senders, nranks=trace.ranks
            )
            repeats = [
                [Message(sender, receiver, trace.size_bytes) for sender in repeat]
                for receiver, repeat in zip(receivers, senders, strict=True)
            ]
        case PermutationTrace():
            repeats = [
                [
                    Message(rank, destination, trace.size_bytes)
                    for rank, destination in enumerate(_permutation(trace, number))
                ]
                for number in range(trace.repeats)
            ]
        case AllToAllTrace():
            # Neighbours first, so that no rank is everybody's first destination.
            messages = [
                Message(rank, (rank + away) % trace.ranks, trace.size_bytes)
                for rank in range(trace.ranks)
                for away in range(1, trace.ranks)
            ]
            repeats = [messages] * trace.repeats
        case OneToAllTrace():
            messages = [
                Message(trace.sender, (trace.sender + away) % trace.ranks, size)
                for size in [trace.size_bytes]
                for away in range(1, trace.ranks)
            ]
            repeats = [messages] * trace.repeats
        case RandomPairsTrace():
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
        case _:
            raise TypeError(f"{type(trace).__name__} is no pattern")
    return Pattern(
        kind=trace.synth,
        nranks=trace.ranks,
        repeats=repeats,
        barrier=trace.barrier,
        one_at_a_time=getattr(trace, "one_at_a_time", False),
        gap_ns=trace.gap_ns,
    )


def _permutation(trace: PermutationTrace, number: int) -> list[int]:
    if trace.order == "shift":
        return shifted(trace.ranks, trace.shift)
    drawn = 0 if trace.keep else number
    return derangement(trace.ranks, _random(trace.seed, f"permutation {drawn}"))


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

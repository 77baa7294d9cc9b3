"""From the parameters of a made-up trace to the trace."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import TYPE_CHECKING

from chakram.collectives.ops import CollectiveOp
from chakram.errors import ConfigError
from chakram.synth.gradients import GradientSettings
from chakram.synth.grid import RankGrid
from chakram.synth.inference import (
    InferenceSettings,
    KvCacheSettings,
    synthesize_inference,
    synthesize_kv_cache,
)
from chakram.synth.patterns import (
    SIZE_DISTRIBUTIONS,
    Message,
    Pattern,
    Stream,
    derangement,
    drawn_size,
    incast,
    random_messages,
    shifted,
    synthesize_collectives,
    synthesize_pattern,
)
from chakram.synth.program import Roofline
from chakram.synth.recorded_splits import read_splits
from chakram.synth.routing import LawRouter, RecordedRouter, SkewLaw
from chakram.synth.settings import (
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
from chakram.synth.training import TrainingSettings, synthesize_training

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from chakram.synth.models import ModelShape
    from chakram.synth.program import Synthesis
    from chakram.synth.routing import Router
    from chakram.synth.settings import SynthTrace
    from chakram.synth.settings.base import ModelTrace, Routing


def synthesize(trace: SynthTrace) -> Synthesis:
    """Return the trace that *trace* describes.

    The same parameters give the same trace, on every machine.

    Raises:
        ConfigError: If parameters do not fit together.
        TraceError: If recorded splits cannot be read.
    """
    problems = trace.problems()
    if problems:
        first = problems[0]
        raise ConfigError(f"{trace.synth}: {first.key}", first.found, first.hint)
    match trace:
        case MoeTrace() | DenseTrace():
            return synthesize_training(_training(trace))
        case InferenceTrace():
            return synthesize_inference(_inference(trace))
        case KvCacheTrace():
            return synthesize_kv_cache(
                KvCacheSettings(
                    shape=trace.shape,
                    prefill=trace.prefill,
                    prefill_tp=trace.prefill_tp,
                    decode=trace.decode,
                    decode_tp=trace.decode_tp,
                    requests=trace.requests,
                    prompt=trace.prompt,
                    steps=trace.steps,
                    per_layer=trace.transfer == "layer",
                    bytes_per_element=trace.bytes_per_element,
                    roofline=_roofline(trace),
                )
            )
        case CollectivesTrace():
            streams = [
                Stream(
                    op=CollectiveOp(stream.op),
                    input_bytes=stream.size_bytes,
                    count=stream.count,
                    members=stream.members or trace.ranks,
                    stride=stream.stride,
                    gap_ns=stream.gap_ns,
                    start_ns=stream.start_ns,
                )
                for stream in trace.streams
            ]
            return synthesize_collectives(nranks=trace.ranks, streams=streams)
        case _:
            return synthesize_pattern(_pattern(trace))


def _training(trace: MoeTrace | DenseTrace) -> TrainingSettings:
    shape = trace.shape
    settings = partial(
        TrainingSettings,
        kind=trace.synth,
        shape=shape,
        grid=RankGrid(trace.degrees, trace.rank_order),
        sequence=trace.sample_tokens,
        micro_batch=trace.micro_batch,
        micro_batches=trace.micro_batches,
        bytes_per_element=trace.bytes_per_element,
        sequence_parallel=trace.sequence_parallel and trace.tp > 1,
        pipeline=trace.pipeline,
        gradients=GradientSettings(
            bytes_per_element=trace.gradient_bytes_per_element
            or trace.bytes_per_element,
            weight_bytes_per_element=trace.bytes_per_element,
            overlap=trace.overlap,
            bucket_bytes=trace.bucket_bytes,
            distributed_optimizer=trace.distributed_optimizer,
        ),
        roofline=_roofline(trace),
    )
    if isinstance(trace, DenseTrace):
        return settings()
    tokens = trace.micro_batch * trace.sample_tokens // (trace.cp * trace.tp)
    return settings(
        router=_router(trace.routing, shape, trace.ep, tokens, trace.bytes_per_element),
        dispatch_bytes=trace.all_to_all_bytes,
        expert_gradient_bytes=trace.all_reduce_bytes,
        dense_gradient_bytes=trace.dense_bytes,
        attention_ns=trace.attention_ns,
        expert_ns=trace.expert_ns,
    )


def _inference(trace: InferenceTrace) -> InferenceSettings:
    shape = trace.shape
    router = None
    if shape.experts:
        router = _router(
            trace.routing,
            shape,
            trace.ep,
            trace.tokens // trace.tp,
            trace.bytes_per_element,
        )
    return InferenceSettings(
        shape=shape,
        grid=RankGrid({"tp": trace.tp, "ep": trace.ep, "dp": trace.dp}),
        tokens=trace.tokens,
        answers=trace.batch,
        context=trace.context,
        steps=trace.steps,
        bytes_per_element=trace.bytes_per_element,
        roofline=_roofline(trace),
        router=router,
    )


def _router(
    routing: Routing, shape: ModelShape, ep: int, tokens: int, bytes_per_element: int
) -> Router:
    token_bytes = shape.hidden * bytes_per_element
    if routing.splits is not None:
        return RecordedRouter(
            read_splits(routing.splits, nranks=ep, token_bytes=token_bytes)
        )
    law = SkewLaw(
        law=routing.law,
        share=routing.share,
        target=routing.target,
        period=routing.period,
        length=routing.length,
        sigma=routing.sigma,
    )
    return LawRouter(
        law,
        experts=shape.experts,
        nranks=ep,
        tokens=tokens,
        top_k=shape.top_k,
        token_bytes=token_bytes,
        random_of=partial(_random, routing.seed),
    )


def _random(seed: int, purpose: str) -> Random:
    """Return random numbers that depend on nothing but *seed* and *purpose*."""
    # A text is hashed by SHA-512, the same everywhere.
    return random.Random(f"{seed} {purpose}")


def _roofline(trace: ModelTrace) -> Roofline:
    return Roofline(
        peak_flops=trace.speed_flops, memory_bytes_per_s=trace.memory_bytes_per_s
    )


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

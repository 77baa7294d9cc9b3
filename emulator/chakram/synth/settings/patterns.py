"""Parameters of synthetic patterns of messages and collectives, for fabric tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from chakram.settings.field_types import FilePath, Model, Size, Time, Whole
from chakram.synth.settings.base import (
    MAX_MESSAGES,
    MAX_RANKS,
    Count,
    SynthProblem,
    SynthTrace,
)

_Ranks = Annotated[int, Field(strict=True, ge=2, le=MAX_RANKS)]
_Rank = Annotated[int, Field(strict=True, ge=0, le=MAX_RANKS)]


class RanksTrace(SynthTrace):
    """A synthetic trace with a given number of ranks."""

    ranks: _Ranks
    """Number of ranks."""

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return self.ranks


class PatternTrace(RanksTrace):
    """Repeats of messages between ranks."""

    size_bytes: Size = Field(default=1 << 20, alias="size")
    """Size of every message."""
    repeats: Count = 1
    """Repeats of the pattern."""
    barrier: Annotated[bool, Field(strict=True)] = True
    """Whether all ranks begin a repeat together."""
    gap_ns: Time = Field(default=0, alias="gap")
    """Time between two repeats, rounded to 1us."""

    @property
    def messages_per_repeat(self) -> int:
        """Number of messages in one repeat."""
        return self.ranks

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield the contradictions between parameters."""
        return _too_many(self.messages_per_repeat * self.repeats, "repeats")


class IncastTrace(PatternTrace):
    """Several ranks send to one rank at the same time."""

    synth: Literal["incast"]
    """Kind of synthetic trace."""
    fan_in: Annotated[int, Field(strict=True, ge=1)] | None = None
    """Number of senders. Default: all other ranks."""
    receiver: _Rank = 0
    """Rank that receives; the senders are the ranks after it."""
    rotate: Annotated[bool, Field(strict=True)] = False
    """Whether the receiver is the next rank in each repeat."""

    @property
    def senders(self) -> int:
        """Number of senders."""
        return self.ranks - 1 if self.fan_in is None else self.fan_in

    @property
    def messages_per_repeat(self) -> int:
        """Number of messages in one repeat."""
        return self.senders

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield the contradictions between parameters."""
        yield from super().doubts()
        yield from _among(self.receiver, self.ranks, "receiver")
        if self.senders >= self.ranks:
            yield SynthProblem(
                "fan_in",
                f"{self.senders} senders and a receiver exceed {self.ranks} ranks",
                f"use at most {self.ranks - 1}",
            )


class PermutationTrace(PatternTrace):
    """Every rank sends to one other rank and receives from one."""

    synth: Literal["permutation"]
    """Kind of synthetic trace."""
    order: Literal["random", "shift"] = "random"
    """random: drawn for each repeat unless keep is set; shift: each rank sends to the
    rank that is shift positions ahead."""
    shift: Whole = Field(default=1, ge=1, le=MAX_RANKS)
    """Distance to the destination, for order shift."""
    keep: Annotated[bool, Field(strict=True)] = False
    """Whether all repeats use the permutation of the first repeat."""
    seed: Whole = Field(default=1, ge=0, lt=1 << 63)
    """Seed of the random numbers."""

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield the contradictions between parameters."""
        yield from super().doubts()
        if self.order == "shift" and self.shift % self.ranks == 0:
            yield SynthProblem(
                "shift",
                f"a shift of {self.shift} maps each of {self.ranks} ranks to itself",
                f"use 1 to {self.ranks - 1}",
            )


class AllToAllTrace(PatternTrace):
    """Every rank sends a message to every other rank, point to point."""

    synth: Literal["all_to_all"]
    """Kind of synthetic trace."""
    one_at_a_time: Annotated[bool, Field(strict=True)] = False
    """Whether a rank posts a message only when its previous message is complete."""

    @property
    def messages_per_repeat(self) -> int:
        """Number of messages in one repeat."""
        return self.ranks * (self.ranks - 1)


class OneToAllTrace(PatternTrace):
    """One rank sends a message to every other rank."""

    synth: Literal["one_to_all"]
    """Kind of synthetic trace."""
    sender: _Rank = 0
    """Rank that sends."""
    one_at_a_time: Annotated[bool, Field(strict=True)] = False
    """Whether the sender posts a message only when the previous message is complete."""

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield the contradictions between parameters."""
        yield from super().doubts()
        yield from _among(self.sender, self.ranks, "sender")


SIZE_DISTRIBUTIONS: dict[str, tuple[tuple[int, float], ...]] = {
    # Size in bytes, and percentage of messages that are not larger.
    "web_search": (
        (0, 0), (10_000, 15), (20_000, 20), (30_000, 30), (50_000, 40), (80_000, 53),
        (200_000, 60), (1_000_000, 70), (2_000_000, 80), (5_000_000, 90),
        (10_000_000, 97), (30_000_000, 100),
    ),
    "hadoop": (
        (0, 0), (100, 1), (200, 2), (300, 5), (350, 15), (400, 20), (500, 30),
        (600, 40), (700, 50), (1_000, 60), (2_000, 67), (7_000, 70), (30_000, 72),
        (50_000, 82), (80_000, 87), (120_000, 90), (300_000, 95), (1_000_000, 97.5),
        (2_000_000, 99), (10_000_000, 100),
    ),
}  # fmt: skip
"""Distributions of message sizes by name, as points with linear interpolation.
``web_search`` is from a search cluster (DCTCP, SIGCOMM 2010), ``hadoop`` from a
Facebook cluster (Roy et al., SIGCOMM 2015). Both use the points of the HPCC evaluation
(SIGCOMM 2019, alibaba-edu/High-Precision-Congestion-Control, traffic_gen)."""


class RandomPairsTrace(RanksTrace):
    """Messages between randomly drawn ranks."""

    synth: Literal["random_pairs"]
    """Kind of synthetic trace."""
    messages: Count = 16
    """Messages that each rank sends."""
    sizes: Literal["fixed", "uniform", "log_normal", "web_search", "hadoop"] = "fixed"
    """fixed: size; uniform: from 1 B to twice size; log_normal: mean size, spread
    sigma; web_search, hadoop: as measured in such clusters."""
    size_bytes: Size = Field(default=1 << 20, alias="size")
    """Size of a message, or the mean size."""
    sigma: Annotated[float, Field(strict=True, ge=0.0, le=5.0)] = 1.0
    """Spread of log_normal: standard deviation of the logarithm."""
    mean_gap_ns: Time = Field(default=0, alias="mean_gap")
    """Mean time between two messages of a rank, exponentially distributed, and rounded
    to 1us; 0s: each message follows when the previous message is complete."""
    seed: Whole = Field(default=1, ge=0, lt=1 << 63)
    """Seed of the random numbers."""

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield the contradictions between parameters."""
        yield from _too_many(self.ranks * self.messages, "messages")
        # Recorded experiments have all defaults.
        default = type(self).model_fields["size_bytes"].default
        if self.sizes in SIZE_DISTRIBUTIONS and self.size_bytes != default:
            yield SynthProblem(
                "size",
                f"{self.sizes} determines the sizes",
                "remove size or sizes; size_scale of the job scales the sizes",
            )


class StreamSettings(Model):
    """Collectives of one kind, one after another."""

    op: Literal[
        "all_reduce", "all_to_all", "all_gather", "reduce_scatter", "broadcast",
        "reduce", "gather", "scatter", "send_recv",
    ]  # fmt: skip
    """Type of the collective. send_recv: every rank sends to the next rank of its
    group."""
    size_bytes: Size = Field(default=1 << 20, alias="size")
    """Bytes that one rank contributes; for scatter, the bytes of the root."""
    sizes_bytes: tuple[Size, ...] = Field(
        default=(), alias="sizes", max_length=1000, examples=[["1MiB", "2MiB"]]
    )
    """Several sizes, one after another, instead of size."""
    splits: FilePath | None = None
    """For all_to_all: file of recorded splits instead of sizes."""
    count: Count = 10
    """Collectives of each size."""
    root: _Rank = 0
    """Position of the root in the group."""
    barrier: Annotated[bool, Field(strict=True)] = False
    """Whether a barrier precedes each collective."""
    members: Annotated[int, Field(strict=True, ge=2, le=MAX_RANKS)] | None = None
    """Ranks per group. Default: all ranks are one group."""
    stride: Annotated[int, Field(strict=True, ge=1, le=MAX_RANKS)] = 1
    """Distance between neighbors in a group."""
    gap_ns: Time = Field(default=0, alias="gap")
    """Time between two collectives, rounded to 1us."""
    start_ns: Time = Field(default=0, alias="start")
    """Time before the first collective, rounded to 1us."""

    @property
    def contributions(self) -> list[int]:
        """Bytes that one rank contributes to each collective."""
        return [
            size_bytes
            for size_bytes in self.sizes_bytes or (self.size_bytes,)
            for _ in range(self.count)
        ]

    def groups(self, nranks: int) -> list[tuple[int, ...]]:
        """Return the members of every group."""
        span = (self.members or nranks) * self.stride
        return [
            tuple(range(first + offset, first + offset + span, self.stride))
            for first in range(0, nranks, span)
            for offset in range(self.stride)
        ]


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


class CollectivesTrace(RanksTrace):
    """Concurrent streams of collectives, each with its own groups."""

    synth: Literal["collectives"]
    """Kind of synthetic trace."""
    streams: Annotated[
        tuple[StreamSettings, ...],
        BeforeValidator(_one_or_more),
        Field(
            min_length=1,
            max_length=64,
            examples=[{"op": "all_reduce", "size": "64MiB", "count": 10}],
        ),
    ]
    """Streams of collectives that run at the same time."""

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield the contradictions between parameters."""
        for number, stream in enumerate(self.streams):
            members = stream.members or self.ranks
            span = members * stream.stride
            if stream.splits is not None and (
                stream.op != "all_to_all" or stream.sizes_bytes
            ):
                yield SynthProblem(
                    "streams",
                    f"stream {number}: splits requires an all_to_all without sizes",
                    "use op: all_to_all, without sizes",
                )
            if stream.root >= members:
                yield SynthProblem(
                    "streams",
                    f"stream {number}: there is no position {stream.root} in a group "
                    f"of {members}",
                    f"use 0 to {members - 1}",
                )
            if self.ranks % span:
                yield SynthProblem(
                    "streams",
                    f"stream {number}: groups of {members} ranks with stride "
                    f"{stream.stride} do not divide {self.ranks} ranks",
                    "choose members x stride such that it divides ranks",
                )
        nodes = sum(
            stream.count * (len(stream.sizes_bytes) or 1) * (2 + stream.barrier)
            for stream in self.streams
        )
        if self.ranks * nodes > 2 * MAX_MESSAGES:
            yield SynthProblem(
                "streams",
                "the streams have too many collectives",
                "repeat the trace in iterations instead",
            )


def _among(rank: int, ranks: int, key: str) -> Iterator[SynthProblem]:
    if rank >= ranks:
        yield SynthProblem(key, f"there is no rank {rank}", f"use 0 to {ranks - 1}")


def _too_many(messages: int, key: str) -> Iterator[SynthProblem]:
    if messages > MAX_MESSAGES:
        yield SynthProblem(
            key,
            f"{messages} messages are too many",
            f"use at most {MAX_MESSAGES}, and repeat the trace in iterations instead",
        )

"""Made-up patterns of messages and collectives, for tests of fabrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from chakram.settings.quantities import FilePath, Model, Size, Time, Whole
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
    """A made-up trace of so many ranks."""

    ranks: _Ranks
    """Number of ranks."""

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return self.ranks


class PatternTrace(RanksTrace):
    """Rounds of messages between ranks."""

    size_bytes: Size = Field(default=1 << 20, alias="size")
    """Size of every message."""
    repeats: Count = 1
    """How often the pattern comes."""
    barrier: Annotated[bool, Field(strict=True)] = True
    """Whether all ranks begin a repeat together."""
    gap_ns: Time = Field(default=0, alias="gap")
    """Time between two repeats."""

    @property
    def messages_per_repeat(self) -> int:
        """Messages of one repeat."""
        return self.ranks

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield what does not fit together."""
        return _too_many(self.messages_per_repeat * self.repeats, "repeats")


class IncastTrace(PatternTrace):
    """Several ranks send to one at the same time."""

    synth: Literal["incast"]
    """Kind of the made-up trace."""
    fan_in: Annotated[int, Field(strict=True, ge=1)] | None = None
    """Senders; all other ranks if it is not given."""
    receiver: _Rank = 0
    """Rank that receives; the senders are those that follow it."""
    rotate: Annotated[bool, Field(strict=True)] = False
    """Whether the next rank receives in the next repeat."""

    @property
    def senders(self) -> int:
        """Number of senders."""
        return self.ranks - 1 if self.fan_in is None else self.fan_in

    @property
    def messages_per_repeat(self) -> int:
        """Messages of one repeat."""
        return self.senders

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield what does not fit together."""
        yield from super().doubts()
        yield from _among(self.receiver, self.ranks, "receiver")
        if self.senders >= self.ranks:
            yield SynthProblem(
                "fan_in",
                f"{self.senders} senders and a receiver are more than "
                f"{self.ranks} ranks",
                f"at most {self.ranks - 1}",
            )


class PermutationTrace(PatternTrace):
    """Every rank sends to one other and receives from one."""

    synth: Literal["permutation"]
    """Kind of the made-up trace."""
    order: Literal["random", "shift"] = "random"
    """random: drawn, and drawn anew each repeat; shift: by so many ranks."""
    shift: Whole = Field(default=1, ge=1, le=MAX_RANKS)
    """How many ranks further a shift goes."""
    keep: Annotated[bool, Field(strict=True)] = False
    """Whether all repeats have the permutation of the first."""
    seed: Whole = Field(default=1, ge=0, lt=1 << 63)
    """Start of the random numbers."""

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield what does not fit together."""
        yield from super().doubts()
        if self.order == "shift" and self.shift % self.ranks == 0:
            yield SynthProblem(
                "shift",
                f"by {self.shift} each of {self.ranks} ranks comes to itself",
                f"1 to {self.ranks - 1}",
            )


class AllToAllTrace(PatternTrace):
    """Every rank sends a message to every other, point to point."""

    synth: Literal["all_to_all"]
    """Kind of the made-up trace."""
    one_at_a_time: Annotated[bool, Field(strict=True)] = False
    """Whether a rank posts a message when its last one is done."""

    @property
    def messages_per_repeat(self) -> int:
        """Messages of one repeat."""
        return self.ranks * (self.ranks - 1)


class OneToAllTrace(PatternTrace):
    """One rank sends a message to every other."""

    synth: Literal["one_to_all"]
    """Kind of the made-up trace."""
    sender: _Rank = 0
    """Rank that sends."""
    one_at_a_time: Annotated[bool, Field(strict=True)] = False
    """Whether it posts a message when its last one is done."""

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield what does not fit together."""
        yield from super().doubts()
        yield from _among(self.sender, self.ranks, "sender")


SIZE_DISTRIBUTIONS: dict[str, tuple[tuple[int, float], ...]] = {
    # Bytes and percent of messages that are not larger.
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
"""Sizes of messages by name, as points of their distribution, which is a line between
two points.  ``web_search`` is that of a search cluster (DCTCP, SIGCOMM 2010),
``hadoop`` that of Facebook's (Roy et al., SIGCOMM 2015), both with the points that the
evaluation of HPCC uses (SIGCOMM 2019, alibaba-edu/High-Precision-Congestion-Control,
traffic_gen)."""


class RandomPairsTrace(RanksTrace):
    """Messages between ranks drawn at random."""

    synth: Literal["random_pairs"]
    """Kind of the made-up trace."""
    messages: Count = 16
    """Messages that each rank sends."""
    sizes: Literal["fixed", "uniform", "log_normal", "web_search", "hadoop"] = "fixed"
    """fixed: size; uniform: from 1 B to twice size; log_normal: of mean size and
    spread sigma; web_search, hadoop: as measured in such clusters."""
    size_bytes: Size = Field(default=1 << 20, alias="size")
    """Size of a message, or the mean."""
    sigma: Annotated[float, Field(strict=True, ge=0.0, le=5.0)] = 1.0
    """Spread of log_normal: standard deviation of the logarithm."""
    mean_gap_ns: Time = Field(default=0, alias="mean_gap")
    """Mean time between two messages of a rank, exponentially distributed; 0s: it
    posts the next one when the last is done."""
    seed: Whole = Field(default=1, ge=0, lt=1 << 63)
    """Start of the random numbers."""

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield what does not fit together."""
        yield from _too_many(self.ranks * self.messages, "messages")
        if self.sizes in SIZE_DISTRIBUTIONS and "size_bytes" in self.model_fields_set:
            yield SynthProblem(
                "size",
                f"{self.sizes} has sizes of its own",
                "take one of the two out; size_scale of the job scales them",
            )


class StreamSettings(Model):
    """Collectives of one kind, one after another."""

    op: Literal[
        "all_reduce", "all_to_all", "all_gather", "reduce_scatter", "broadcast",
        "reduce", "gather", "scatter", "send_recv",
    ]  # fmt: skip
    """The collective; of send_recv every rank sends to the next of its group."""
    size_bytes: Size = Field(default=1 << 20, alias="size")
    """What one rank contributes; of scatter what the root has."""
    sizes_bytes: tuple[Size, ...] = Field(
        default=(), alias="sizes", max_length=1000, examples=[["1MiB", "2MiB"]]
    )
    """Several sizes instead, one after the other."""
    splits: FilePath | None = None
    """Of all_to_all: file of recorded splits, e.g. the matrix of nccl-tests' alltoallv,
    instead of sizes: bytes from every rank of a group to every other."""
    count: Count = 10
    """How many, of each size."""
    root: _Rank = 0
    """Place in the group of the rank that is the root, where a collective has one."""
    barrier: Annotated[bool, Field(strict=True)] = False
    """Whether the ranks of a group meet before each."""
    members: Annotated[int, Field(strict=True, ge=2, le=MAX_RANKS)] | None = None
    """Ranks of a group; all ranks are divided into such groups; all of them if it is
    not given."""
    stride: Annotated[int, Field(strict=True, ge=1, le=MAX_RANKS)] = 1
    """Distance of neighbours in a group."""
    gap_ns: Time = Field(default=0, alias="gap")
    """Time between two."""
    start_ns: Time = Field(default=0, alias="start")
    """Time before the first."""

    @property
    def contributions(self) -> list[int]:
        """What one rank contributes to each, in bytes."""
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
    """Streams of collectives that run beside one another, each on groups of its own."""

    synth: Literal["collectives"]
    """Kind of the made-up trace."""
    streams: Annotated[
        tuple[StreamSettings, ...],
        BeforeValidator(_one_or_more),
        Field(
            min_length=1,
            max_length=64,
            examples=[{"op": "all_reduce", "size": "64MiB", "count": 10}],
        ),
    ]
    """The streams, e.g. {op: all_reduce, size: 64MiB, count: 10, members: 8}."""

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield what does not fit together."""
        for number, stream in enumerate(self.streams):
            members = stream.members or self.ranks
            span = members * stream.stride
            if stream.splits is not None and (
                stream.op != "all_to_all" or stream.sizes_bytes
            ):
                yield SynthProblem(
                    "streams",
                    f"stream {number}: splits are the sizes of an all_to_all",
                    "op: all_to_all, without sizes",
                )
            if stream.root >= members:
                yield SynthProblem(
                    "streams",
                    f"stream {number}: there is no place {stream.root} in a group of "
                    f"{members}",
                    f"0 to {members - 1}",
                )
            if self.ranks % span:
                yield SynthProblem(
                    "streams",
                    f"stream {number}: groups of {members} ranks, {stream.stride} "
                    f"apart, do not divide {self.ranks} ranks",
                    "members x stride must divide ranks",
                )
        nodes = sum(
            stream.count * (len(stream.sizes_bytes) or 1) * (2 + stream.barrier)
            for stream in self.streams
        )
        if self.ranks * nodes > 2 * MAX_MESSAGES:
            yield SynthProblem(
                "streams",
                "these are too many collectives",
                "let iterations repeat the trace",
            )


def _among(rank: int, ranks: int, key: str) -> Iterator[SynthProblem]:
    if rank >= ranks:
        yield SynthProblem(
            key, f"there is no rank {rank}", f"ranks are counted from 0 to {ranks - 1}"
        )


def _too_many(messages: int, key: str) -> Iterator[SynthProblem]:
    if messages > MAX_MESSAGES:
        yield SynthProblem(
            key,
            f"{messages} messages are too many",
            f"at most {MAX_MESSAGES}; let iterations repeat the trace",
        )

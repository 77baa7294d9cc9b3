"""Made-up patterns of messages and collectives, for tests of fabrics."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from chakram.settings.quantities import Model, Size, Time, Whole
from chakram.synth.patterns import SIZE_DISTRIBUTIONS
from chakram.synth.settings.base import (
    MAX_MESSAGES,
    MAX_RANKS,
    Count,
    SynthProblem,
    SynthTrace,
)

_Ranks = Annotated[int, Field(strict=True, ge=2, le=MAX_RANKS)]
_Rank = Annotated[int, Field(strict=True, ge=0, le=MAX_RANKS)]


class PatternTrace(SynthTrace):
    """Rounds of messages between ranks."""

    ranks: _Ranks
    """Number of ranks."""
    size_bytes: Size = Field(default=1 << 20, alias="size")
    """Size of every message."""
    repeats: Count = 1
    """How often the pattern comes."""
    barrier: Annotated[bool, Field(strict=True)] = True
    """Whether all ranks begin a repeat together."""
    gap_ns: Time = Field(default=0, alias="gap")
    """Time between two repeats."""

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return self.ranks

    @property
    def messages_per_repeat(self) -> int:
        """Messages of one repeat."""
        return self.ranks

    def problems(self) -> list[SynthProblem]:
        """Return what does not fit together."""
        count = self.messages_per_repeat * self.repeats
        if count <= MAX_MESSAGES:
            return []
        return [
            SynthProblem(
                "repeats",
                f"{count} messages are too many",
                f"at most {MAX_MESSAGES}; let iterations repeat the trace",
            )
        ]


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

    def problems(self) -> list[SynthProblem]:
        """Return what does not fit together."""
        found = [*super().problems(), *_among(self.receiver, self.ranks, "receiver")]
        if self.senders >= self.ranks:
            found.append(
                SynthProblem(
                    "fan_in",
                    f"{self.senders} senders and a receiver are more than "
                    f"{self.ranks} ranks",
                    f"at most {self.ranks - 1}",
                )
            )
        return found


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

    def problems(self) -> list[SynthProblem]:
        """Return what does not fit together."""
        found = super().problems()
        if self.order == "shift" and self.shift % self.ranks == 0:
            found.append(
                SynthProblem(
                    "shift",
                    f"by {self.shift} each of {self.ranks} ranks comes to itself",
                    f"1 to {self.ranks - 1}",
                )
            )
        return found


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

    def problems(self) -> list[SynthProblem]:
        """Return what does not fit together."""
        return [*super().problems(), *_among(self.sender, self.ranks, "sender")]


class RandomPairsTrace(SynthTrace):
    """Messages between ranks drawn at random."""

    synth: Literal["random_pairs"]
    """Kind of the made-up trace."""
    ranks: _Ranks
    """Number of ranks."""
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

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return self.ranks

    def problems(self) -> list[SynthProblem]:
        """Return what does not fit together."""
        count = self.ranks * self.messages
        found: list[SynthProblem] = []
        if count > MAX_MESSAGES:
            found.append(
                SynthProblem(
                    "messages",
                    f"{count} messages are too many",
                    f"at most {MAX_MESSAGES}; let iterations repeat the trace",
                )
            )
        if self.sizes in SIZE_DISTRIBUTIONS and "size_bytes" in self.model_fields_set:
            found.append(
                SynthProblem(
                    "size",
                    f"{self.sizes} has sizes of its own",
                    "take one of the two out; size_scale of the job scales them",
                )
            )
        return found


class StreamSettings(Model):
    """Collectives of one kind, one after another."""

    op: Literal["all_reduce", "all_to_all", "all_gather", "reduce_scatter", "broadcast"]
    """The collective."""
    size_bytes: Size = Field(default=1 << 20, alias="size")
    """What one rank contributes."""
    count: Count = 10
    """How many."""
    members: Annotated[int, Field(strict=True, ge=2, le=MAX_RANKS)] | None = None
    """Ranks of a group; all ranks are divided into such groups; all of them if it is
    not given."""
    stride: Annotated[int, Field(strict=True, ge=1, le=MAX_RANKS)] = 1
    """Distance of neighbours in a group."""
    gap_ns: Time = Field(default=0, alias="gap")
    """Time between two."""
    start_ns: Time = Field(default=0, alias="start")
    """Time before the first."""


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


class CollectivesTrace(SynthTrace):
    """Streams of collectives that run beside one another, each on groups of its own."""

    synth: Literal["collectives"]
    """Kind of the made-up trace."""
    ranks: _Ranks
    """Number of ranks."""
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

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return self.ranks

    def problems(self) -> list[SynthProblem]:
        """Return what does not fit together."""
        found: list[SynthProblem] = []
        for number, stream in enumerate(self.streams):
            span = (stream.members or self.ranks) * stream.stride
            if self.ranks % span:
                found.append(
                    SynthProblem(
                        "streams",
                        f"stream {number}: groups of {stream.members or self.ranks} "
                        f"ranks, {stream.stride} apart, do not divide {self.ranks} "
                        "ranks",
                        "members x stride must divide ranks",
                    )
                )
        if self.ranks * sum(2 * stream.count for stream in self.streams) > (
            2 * MAX_MESSAGES
        ):
            found.append(
                SynthProblem(
                    "streams",
                    "these are too many collectives",
                    "let iterations repeat the trace",
                )
            )
        return found


def _among(rank: int, ranks: int, key: str) -> list[SynthProblem]:
    if rank < ranks:
        return []
    return [
        SynthProblem(
            key, f"there is no rank {rank}", f"ranks are counted from 0 to {ranks - 1}"
        )
    ]

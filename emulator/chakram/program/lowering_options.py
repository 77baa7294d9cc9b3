"""How traces become programs: what an experiment says of compute, sizes and order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from chakram.collectives.algorithms import (
    AlgorithmSource,
    UserAlgorithm,
    user_algorithms,
)
from chakram.errors import ConfigError

if TYPE_CHECKING:
    from chakram.collectives.algorithms import Choice
    from chakram.collectives.ops import CollectiveOp


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringOptions:
    """How traces become programs.

    Attributes:
        compute_from: ``none`` (computation takes no time), ``trace`` (the durations in
            the trace) or ``roofline`` (the longer of operations / peak and bytes /
            memory rate).
        scale: What durations of computation are multiplied with.
        peak_flops: Operations per second, for ``roofline``.
        memory_bytes_per_s: Memory rate, for ``roofline``; None: no bound.
        size_scale: What sizes are multiplied with, rounded up: a message of one byte
            or more keeps at least one.
        algorithms: By operation, the algorithm or rules by size and number of ranks
            (``chakram.collectives.algorithms.choice``); ``auto`` where there is none.
        sources: Who makes the lists of those that users bring along.
        sync_barrier: End every iteration with a barrier of all ranks.
        ordering: ``serial`` (one collective of a group at a time) or ``overlap``.
        order: ``dependencies``, or ``start_times``: what the trace makes wait for one
            another starts at its recorded time instead, times *scale*; collectives of
            one group still follow each other, in the order of those times.
        with_starts: Keep recorded starts, for a policy that goes by them.
        resources: ``streams``: computation has a slot for the CPU and one for each
            stream of a GPU; ``astra-sim``: one for the CPU, one for the GPU, one for
            communication and memory, as that simulator has it.
        select: Operations that are kept (``send_recv`` stands for messages); the rest
            takes no time and moves nothing.  None: all.
    """

    compute_from: str = "trace"
    scale: Fraction = Fraction(1)
    peak_flops: int | None = None
    memory_bytes_per_s: int | None = None
    size_scale: Fraction = Fraction(1)
    algorithms: Mapping[CollectiveOp, Choice] = field(default_factory=dict)
    sources: Mapping[UserAlgorithm, AlgorithmSource] = field(default_factory=dict)
    sync_barrier: bool = True
    ordering: str = "serial"
    order: str = "dependencies"
    with_starts: bool = False
    resources: str = "streams"
    select: frozenset[CollectiveOp] | None = None

    def __post_init__(self) -> None:
        if self.compute_from not in ("none", "trace", "roofline"):
            raise ConfigError(
                "compute.from",
                f"{self.compute_from!r} is no source of durations",
                "choose from none, trace, roofline",
            )
        if self.compute_from == "roofline" and self.peak_flops is None:
            raise ConfigError(
                "compute.peak", "is missing", "roofline needs it, e.g. 989 TFLOPS"
            )
        if self.ordering not in ("serial", "overlap"):
            raise ConfigError(
                "ordering",
                f"{self.ordering!r} is no order of collectives",
                "choose from serial, overlap",
            )
        if self.resources not in ("streams", "astra-sim"):
            raise ConfigError(
                "resources",
                f"{self.resources!r} are no resources of a rank",
                "choose from streams, astra-sim",
            )
        for op, choice in self.algorithms.items():
            for user in user_algorithms(choice):
                if user not in self.sources:
                    raise ConfigError(f"collectives.{op}", f"{user.name} is not loaded")

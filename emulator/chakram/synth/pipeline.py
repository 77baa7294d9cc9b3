"""The order in which a pipeline stage takes micro batches and sums up gradients.

Gradients of data-parallel ranks are summed up in buckets, as they become ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chakram.collectives.ops import CollectiveOp
from chakram.synth.trace_builder import After, RankSynthesizer, both

if TYPE_CHECKING:
    from chakram.synth.settings.training import TrainingTrace


class Turn(NamedTuple):
    """One micro batch going forward or backward through a stage."""

    forward: bool
    micro_batch: int


def one_forward_one_backward(
    *, stage: int, stages: int, micro_batches: int
) -> list[Turn]:
    """Return the order of a stage in the 1F1B schedule.

    As many micro batches go forward first as there are stages behind, then forward and
    backward take turns, so that a stage never holds more than ``stages - stage`` of
    them (PipeDream-Flush, arXiv:2006.09503; Megatron-LM, arXiv:2104.04473, section
    2.2).
    """
    ahead = min(stages - stage - 1, micro_batches)
    order = [Turn(True, number) for number in range(ahead)]
    for number in range(micro_batches - ahead):
        order += [Turn(True, ahead + number), Turn(False, number)]
    order += [
        Turn(False, number) for number in range(micro_batches - ahead, micro_batches)
    ]
    return order


def all_forward_all_backward(*, micro_batches: int) -> list[Turn]:
    """Return the order of every stage in GPipe's schedule (arXiv:1811.06965)."""
    return [
        Turn(forward, number)
        for forward in (True, False)
        for number in range(micro_batches)
    ]


def layers_of(*, stage: int, stages: int, layers: int) -> range:
    """Return the layers of a stage: shares that differ by one layer at most."""
    return range(stage * layers // stages, (stage + 1) * layers // stages)


class GradientSums:
    """Sums up the gradients of one group, in the order in which they are ready.

    With a distributed optimizer every rank updates only its part: a reduce-scatter of
    gradients, then an all-gather of weights (ZeRO stage 1, arXiv:1910.02054).

    Args:
        trace: How.
        program: Where nodes go.
        group: The group, None if a rank is alone.
        members: Its number of ranks.
    """

    def __init__(
        self,
        trace: TrainingTrace,
        program: RankSynthesizer,
        group: str | None,
        *,
        members: int,
    ) -> None:
        self._trace = trace
        self._program = program
        self._group = group
        self._members = members
        self._waiting_bytes = 0
        self._late: list[tuple[str, After, int]] = []
        self._done: list[tuple[str, int]] = []
        self._sums: list[int] = []

    def add(self, name: str, after: After, size_bytes: int) -> None:
        """Take gradients that are ready when *after* is done."""
        if self._group is None or not size_bytes:
            return
        if self._trace.overlap:
            self._take(name, after, size_bytes)
        else:
            self._late.append((name, after, size_bytes))

    def finish(self, after: After) -> After:
        """Sum up what is left when backward has ended; return all sums."""
        for name, ready, size_bytes in self._late:
            self._take(name, both(ready, after), size_bytes)
        if self._waiting_bytes:
            self._sum(self._bucket_name(), after, self._waiting_bytes)
        return tuple(self._sums)

    def spread_weights(self, after: After) -> None:
        """Gather the weights that others have updated, in the order of forward."""
        trace = self._trace
        if not trace.distributed_optimizer:
            return
        for name, size_bytes in reversed(self._done):
            elements = -(-size_bytes // (trace.gradient_bytes * self._members))
            self._program.collective(
                name.replace("gradients", "weights"),
                after,
                CollectiveOp.ALL_GATHER,
                group=self._group,
                input_bytes=elements * trace.bytes_per_element,
            )

    def _take(self, name: str, after: After, size_bytes: int) -> None:
        bucket_bytes = self._trace.bucket_bytes
        if bucket_bytes is None:
            self._sum(name, after, size_bytes)
            return
        self._waiting_bytes += size_bytes
        while self._waiting_bytes >= bucket_bytes:
            self._sum(self._bucket_name(), after, bucket_bytes)
            self._waiting_bytes -= bucket_bytes

    def _bucket_name(self) -> str:
        return f"gradients.group{self._group}.bucket{len(self._done)}"

    def _sum(self, name: str, after: After, size_bytes: int) -> None:
        self._done.append((name, size_bytes))
        op = CollectiveOp.ALL_REDUCE
        if self._trace.distributed_optimizer:
            op = CollectiveOp.REDUCE_SCATTER
            size_bytes = -(-size_bytes // self._members) * self._members
        added = self._program.collective(
            name, after, op, group=self._group, input_bytes=size_bytes
        )
        self._sums.extend(added)

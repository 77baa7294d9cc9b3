"""Order of micro batches in a pipeline stage, and reduction of gradients.

Gradients of data-parallel ranks are reduced in buckets as soon as they are ready.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from chakram.collectives.ops import CollectiveOp
from chakram.synth.trace_builder import After, RankSynthesizer, both

if TYPE_CHECKING:
    from chakram.synth.settings.training import TrainingTrace


class Turn(NamedTuple):
    """One forward or backward pass of a micro batch through a stage."""

    forward: bool
    micro_batch: int


def one_forward_one_backward(
    *, stage: int, stages: int, micro_batches: int
) -> list[Turn]:
    """Return the turns of a stage in the 1F1B schedule, in order.

    First, as many micro batches go forward as there are stages after this one. Then
    forward and backward alternate, so that a stage never has more than ``stages -
    stage`` micro batches in flight (PipeDream-Flush, arXiv:2006.09503; Megatron-LM,
    arXiv:2104.04473, section 2.2).
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
    """Return the turns of any stage in GPipe's schedule (arXiv:1811.06965)."""
    return [
        Turn(forward, number)
        for forward in (True, False)
        for number in range(micro_batches)
    ]


def layers_of(*, stage: int, stages: int, layers: int) -> range:
    """Return the layers of a stage. Stage sizes differ by at most one layer."""
    return range(stage * layers // stages, (stage + 1) * layers // stages)


@dataclass(slots=True, eq=False)
class GradientSums:
    """Reduction of the gradients of one group, in the order in which they are ready.

    With a distributed optimizer every rank updates only its part. A reduce-scatter of
    gradients is then followed by an all-gather of weights (ZeRO stage 1,
    arXiv:1910.02054).

    Attributes:
        trace: Parameters of the training.
        program: The program to which the reductions are added.
        group: The group, or None if the rank is alone.
        members: Number of ranks in the group.
    """

    trace: TrainingTrace
    program: RankSynthesizer
    group: str | None
    _: KW_ONLY
    members: int
    _waiting_bytes: int = 0
    _late: list[tuple[str, After, int]] = field(default_factory=list)
    _done: list[tuple[str, int]] = field(default_factory=list)
    _sums: list[int] = field(default_factory=list)

    def add(self, name: str, after: After, size_bytes: int) -> None:
        """Add gradients that are ready when the nodes in *after* are complete."""
        if self.group is None or not size_bytes:
            return
        if self.trace.overlap:
            self._take(name, after, size_bytes)
        else:
            self._late.append((name, after, size_bytes))

    def finish(self, after: After) -> After:
        """Reduce the remaining gradients, and return all reductions."""
        for name, ready, size_bytes in self._late:
            self._take(name, both(ready, after), size_bytes)
        if self._waiting_bytes:
            self._sum(self._bucket_name(), after, self._waiting_bytes)
        return tuple(self._sums)

    def spread_weights(self, after: After) -> None:
        """Gather the weights that other ranks have updated, in the forward order."""
        trace = self.trace
        if not trace.distributed_optimizer:
            return
        for name, size_bytes in reversed(self._done):
            elements = -(-size_bytes // (trace.gradient_bytes * self.members))
            self.program.collective(
                name.replace("gradients", "weights"),
                after,
                CollectiveOp.ALL_GATHER,
                group=self.group,
                input_bytes=elements * trace.bytes_per_element,
            )

    def _take(self, name: str, after: After, size_bytes: int) -> None:
        bucket_bytes = self.trace.bucket_bytes
        if bucket_bytes is None:
            self._sum(name, after, size_bytes)
            return
        self._waiting_bytes += size_bytes
        while self._waiting_bytes >= bucket_bytes:
            self._sum(self._bucket_name(), after, bucket_bytes)
            self._waiting_bytes -= bucket_bytes

    def _bucket_name(self) -> str:
        return f"gradients.group{self.group}.bucket{len(self._done)}"

    def _sum(self, name: str, after: After, size_bytes: int) -> None:
        self._done.append((name, size_bytes))
        op = CollectiveOp.ALL_REDUCE
        if self.trace.distributed_optimizer:
            op = CollectiveOp.REDUCE_SCATTER
            unit = self.members * self.trace.gradient_bytes
            size_bytes = -(-size_bytes // unit) * unit
        added = self.program.collective(
            name, after, op, group=self.group, input_bytes=size_bytes
        )
        self._sums.extend(added)

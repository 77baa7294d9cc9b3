"""Made-up traces: one training iteration of a mixture-of-experts model.

The traffic is the mix of all-to-all and all-reduce that such training is known for.
Forward, every layer computes its attention and its gate, sends each token to the ranks
of its experts (all-to-all, *dispatch*), computes the experts, and brings the results
back (all-to-all, *combine*).  Backward mirrors that.  When a layer's backward is done,
its gradients are summed up (all-reduce) while the layers below go on with their
all-to-alls: that overlap is where a fabric has to show what it can.  The optimizer ends
the iteration.

Ranks form a grid: ``rank = d * ep + e`` with the expert-parallel position ``e`` and the
data-parallel position ``d``.

* Expert-parallel group ``d``: ``ep`` neighbours that share out the experts; their
  all-to-alls.  Ids 1 to ``dp``.
* Data-parallel group ``e``: ``dp`` ranks, ``ep`` apart, that hold the same experts; the
  all-reduce of the experts' gradients.  Ids ``dp + 1`` to ``dp + ep``.
* All ranks hold the same dense part (attention, gate); the all-reduce of its gradients.

A group of one rank has nothing to send and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from chakram.core.collectives import CollectiveOp
from chakram.core.groups import ProcessGroup
from chakram.core.trace import NodeKind, TraceGraph, TraceGraphBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

_NODE_LIMIT = 20_000_000
_LIMIT = 2**50
_MAY_BE_ZERO = frozenset({"dense_bytes", "attention_ns", "expert_ns"})
_DERIVED_LIMIT = 2**50
_DERIVED = (
    "dispatch_bytes",
    "expert_gradient_bytes",
    "dense_gradient_bytes",
    "attention_ops",
    "gate_ops",
    "expert_ops",
)

_BACKWARD_FACTOR = 2
"""Backward computes two products, for the input and for the weights, where forward
computes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeParameters:
    """A mixture-of-experts model and how it is spread over ranks.

    With the defaults an iteration of 8 ranks keeps a port of 250 Mbit/s busy for about
    half a second and computes for about as long.  So do 50 Gflop/s beside 250 Mbit/s
    what 80 Tflop/s do beside 400 Gbit/s.

    Attributes:
        ranks: Number of ranks, ``ep * dp``.
        ep: Ranks over which the experts of a layer are spread.
        dp: Copies of each expert.
        layers: Layers, each with attention and experts.
        hidden: Length of a token's vector.
        ffn_hidden: Inner width of an expert; it has two matrices.
        sequence: Tokens of one sample.
        micro_batch: Samples of one rank.
        top_k: Experts that each token is sent to.
        experts_per_rank: Experts of one layer that a rank holds.
        bytes_per_element: Bytes of one number, of activations and of gradients.
        peak_flops: Operations per second that a rank computes.
        all_to_all_bytes: Send buffer of one rank in one all-to-all; by default
            ``micro_batch * sequence * top_k * hidden * bytes_per_element``.
        all_reduce_bytes: Gradients of the experts of one layer and rank; by default
            ``experts_per_rank * 2 * hidden * ffn_hidden * bytes_per_element``.
        dense_bytes: Gradients of the dense part of one layer; by default
            ``4 * hidden**2 * bytes_per_element``.  0 leaves its all-reduce out.
        attention_ns: Time of one layer's attention, forward; by default its operations
            at *peak_flops*.  Backward takes twice as long.
        expert_ns: Time of one layer's experts, likewise.
    """

    ranks: int = 8
    ep: int = 4
    dp: int = 2
    layers: int = 4
    hidden: int = 256
    ffn_hidden: int = 1024
    sequence: int = 512
    micro_batch: int = 1
    top_k: int = 2
    experts_per_rank: int = 1
    bytes_per_element: int = 2
    peak_flops: int = 50 * 10**9
    all_to_all_bytes: int | None = None
    all_reduce_bytes: int | None = None
    dense_bytes: int | None = None
    attention_ns: int | None = None
    expert_ns: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"{field.name} is {value!r}, not a whole number")
            least = 0 if field.name in _MAY_BE_ZERO else 1
            if not least <= value <= _LIMIT:
                raise ValueError(
                    f"{field.name} is {value}, not from {least} to {_LIMIT}"
                )
        if self.ranks != self.ep * self.dp:
            raise ValueError(
                f"ranks is {self.ranks}, but ep x dp is {self.ep} x {self.dp} = "
                f"{self.ep * self.dp}"
            )
        if self.top_k > self.ep * self.experts_per_rank:
            raise ValueError(
                f"top_k is {self.top_k}, but a layer has only "
                f"{self.ep * self.experts_per_rank} experts (ep x experts_per_rank)"
            )
        for name in _DERIVED:
            if getattr(self, name) > _DERIVED_LIMIT:
                raise ValueError(
                    f"{name} comes out as {getattr(self, name)}; "
                    f"at most {_DERIVED_LIMIT} fits a trace"
                )
        if self.ranks * self.layers * 12 > _NODE_LIMIT:
            raise ValueError(
                f"{self.ranks} ranks x {self.layers} layers are more than "
                f"{_NODE_LIMIT} nodes"
            )

    @property
    def tokens(self) -> int:
        """Tokens of one rank."""
        return self.micro_batch * self.sequence

    @property
    def dispatch_bytes(self) -> int:
        """Send buffer of one rank in one all-to-all."""
        if self.all_to_all_bytes is not None:
            return self.all_to_all_bytes
        return self.tokens * self.top_k * self.hidden * self.bytes_per_element

    @property
    def expert_gradient_bytes(self) -> int:
        """Gradients of the experts of one layer on one rank."""
        if self.all_reduce_bytes is not None:
            return self.all_reduce_bytes
        return (
            self.experts_per_rank * 2 * self.hidden * self.ffn_hidden
        ) * self.bytes_per_element

    @property
    def dense_gradient_bytes(self) -> int:
        """Gradients of the dense part of one layer: four square matrices."""
        if self.dense_bytes is not None:
            return self.dense_bytes
        return 4 * self.hidden**2 * self.bytes_per_element

    @property
    def attention_ops(self) -> int:
        """Operations of one layer's attention: four projections, scores and values."""
        return 8 * self.tokens * self.hidden**2 + 4 * self.tokens * (
            self.sequence * self.hidden
        )

    @property
    def gate_ops(self) -> int:
        """Operations of one layer's gate: one score per token and expert."""
        return 2 * self.tokens * self.hidden * self.ep * self.experts_per_rank

    @property
    def expert_ops(self) -> int:
        """Operations of one layer's experts on one rank, all ranks loaded alike."""
        return 4 * self.tokens * self.top_k * self.hidden * self.ffn_hidden

    def duration_ns(self, ops: int) -> int:
        """Return the time of *ops* operations, in whole microseconds, at least one."""
        # A trace file stores microseconds.
        return max(1, round(ops * 10**6 / self.peak_flops)) * 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesizedTrace:
    """Graphs by rank and the groups that their nodes name."""

    graphs: tuple[TraceGraph, ...]
    groups: tuple[ProcessGroup, ...]


def moe_groups(parameters: MoeParameters) -> tuple[ProcessGroup, ...]:
    """Return the expert-parallel groups, then the data-parallel ones."""
    ep, dp = parameters.ep, parameters.dp
    members = [tuple(range(d * ep, (d + 1) * ep)) for d in range(dp)]
    members += [tuple(range(e, ep * dp, ep)) for e in range(ep)]
    return tuple(
        ProcessGroup(name=str(number), ranks=ranks)
        for number, ranks in enumerate(members, start=1)
    )


def synth_moe(parameters: MoeParameters) -> SynthesizedTrace:
    """Return one training iteration of a mixture-of-experts model.

    The same parameters give the same trace; all ranks do the same, so that what
    makes one of them late is the fabric.
    """
    return SynthesizedTrace(
        graphs=tuple(_rank(parameters, rank) for rank in range(parameters.ranks)),
        groups=moe_groups(parameters),
    )


def _rank(parameters: MoeParameters, rank: int) -> TraceGraph:
    program = _RankSynthesizer(parameters, rank)
    last: list[int] = []
    for layer in range(parameters.layers):
        last = program.forward(layer, last)
    gradients: list[int] = []
    for layer in reversed(range(parameters.layers)):
        last = program.backward(layer, last)
        gradients += program.sum_gradients(layer, last)
    program.compute("optimizer", ops=0, after=[*last, *gradients])
    return program.graph()


class _RankSynthesizer:
    """Adds the nodes of one rank; every method returns what the next waits for."""

    def __init__(self, parameters: MoeParameters, rank: int) -> None:
        self._parameters = parameters
        self._builder = TraceGraphBuilder(rank=rank, source=f"synth:moe.{rank}")
        self._expert_parallel_group = str(1 + rank // parameters.ep)
        self._data_parallel_group = str(1 + parameters.dp + rank % parameters.ep)

    def forward(self, layer: int, after: Sequence[int]) -> list[int]:
        p = self._parameters
        name = f"layer{layer}.forward"
        last = self.compute(
            f"{name}.attention", ops=p.attention_ops, after=after, given=p.attention_ns
        )
        last = self.compute(f"{name}.gate", ops=p.gate_ops, after=last)
        last = self._all_to_all(f"{name}.dispatch", last)
        last = self.compute(
            f"{name}.expert", ops=p.expert_ops, after=last, given=p.expert_ns
        )
        return self._all_to_all(f"{name}.combine", last)

    def backward(self, layer: int, after: Sequence[int]) -> list[int]:
        p = self._parameters
        name = f"layer{layer}.backward"
        last = self._all_to_all(f"{name}.combine", after)
        last = self.compute(
            f"{name}.expert",
            ops=_BACKWARD_FACTOR * p.expert_ops,
            after=last,
            given=None if p.expert_ns is None else _BACKWARD_FACTOR * p.expert_ns,
        )
        last = self._all_to_all(f"{name}.dispatch", last)
        last = self.compute(
            f"{name}.gate", ops=_BACKWARD_FACTOR * p.gate_ops, after=last
        )
        return self.compute(
            f"{name}.attention",
            ops=_BACKWARD_FACTOR * p.attention_ops,
            after=last,
            given=None if p.attention_ns is None else _BACKWARD_FACTOR * p.attention_ns,
        )

    def sum_gradients(self, layer: int, after: Sequence[int]) -> list[int]:
        p = self._parameters
        name = f"layer{layer}.gradients"
        sums: list[int] = []
        if p.dp > 1:
            sums += self._add(
                f"{name}.expert",
                after,
                kind=NodeKind.COLLECTIVE,
                op=CollectiveOp.ALL_REDUCE,
                comm_bytes=p.expert_gradient_bytes,
                group=self._data_parallel_group,
            )
        if p.ranks > 1 and p.dense_gradient_bytes:
            sums += self._add(
                f"{name}.dense",
                after,
                kind=NodeKind.COLLECTIVE,
                op=CollectiveOp.ALL_REDUCE,
                comm_bytes=p.dense_gradient_bytes,
            )
        return sums

    def compute(
        self, name: str, *, ops: int, after: Sequence[int], given: int | None = None
    ) -> list[int]:
        duration_ns = self._parameters.duration_ns(ops) if given is None else given
        return self._add(
            name, after, kind=NodeKind.COMPUTE, duration_ns=duration_ns, num_ops=ops
        )

    def graph(self) -> TraceGraph:
        return self._builder.build()

    def _all_to_all(self, name: str, after: Sequence[int]) -> list[int]:
        if self._parameters.ep == 1:
            return list(after)
        return self._add(
            name,
            after,
            kind=NodeKind.COLLECTIVE,
            op=CollectiveOp.ALL_TO_ALL,
            comm_bytes=self._parameters.dispatch_bytes,
            group=self._expert_parallel_group,
        )

    def _add(self, name: str, after: Sequence[int], **columns: Any) -> list[int]:
        node_id = len(self._builder)
        self._builder.add(node_id=node_id, name=name, dependencies=after, **columns)
        return [node_id]

"""One training iteration of a transformer, dense or with experts.

Every micro batch goes forward through the layers of a rank's pipeline stage and then
backward.  When the last micro batch's backward of a layer is done, its gradients are
summed up while the layers below go on with what they exchange: that overlap of
all-reduces and all-to-alls of different groups is where a fabric has to show what it
can.  The optimizer ends the iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.collectives.ops import CollectiveOp
from chakram.synth.gradients import GradientSettings, GradientSums
from chakram.synth.grid import GroupTable, RankGrid
from chakram.synth.layer_settings import LayerSettings
from chakram.synth.layers import (
    CONTEXT,
    EXPERT,
    TENSOR,
    LayerProgram,
)
from chakram.synth.pipeline import (
    all_forward_all_backward,
    layers_of,
    one_forward_one_backward,
)
from chakram.synth.program import RankSynthesizer, Synthesis, both
from chakram.synth.vocabulary import VocabularyProgram

if TYPE_CHECKING:
    from chakram.synth.models import ModelShape
    from chakram.synth.pipeline import Turn
    from chakram.synth.program import After, Roofline
    from chakram.synth.routing import Router
    from chakram.trace.graph import TraceGraph

__all__ = ["TrainingSettings", "synthesize_training", "training_groups"]

SHARD, EXPERT_DATA, DATA = "sharded data", "expert data", "data"
"""What groups of gradients and weights are for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """A model, how it is spread over ranks, and how it is trained.

    Attributes:
        kind: Kind of trace, for names.
        shape: The model.
        grid: The ranks.
        sequence: Tokens of one sample.
        micro_batch: Samples of one micro batch of a rank.
        micro_batches: Micro batches of an iteration.
        bytes_per_element: Bytes of one activation or weight.
        sequence_parallel: Whether tensor-parallel ranks divide tokens between layers.
        pipeline: ``1f1b`` or ``gpipe``.
        gradients: How gradients are summed up.
        roofline: How long computation takes.
        router: Where tokens go; None: evenly.
        dispatch_bytes: Send buffer of an all-to-all, if it is given.
        expert_gradient_bytes: Gradients of a layer's experts, if they are given.
        dense_gradient_bytes: Gradients of the rest of a layer, if they are given.
        attention_ns: Time of attention, forward, if it is given.
        expert_ns: Time of the experts, forward, if it is given.
    """

    kind: str
    shape: ModelShape
    grid: RankGrid
    sequence: int
    micro_batch: int
    micro_batches: int
    bytes_per_element: int
    sequence_parallel: bool
    pipeline: str
    gradients: GradientSettings
    roofline: Roofline
    router: Router | None = None
    dispatch_bytes: int | None = None
    expert_gradient_bytes: int | None = None
    dense_gradient_bytes: int | None = None
    attention_ns: int | None = None
    expert_ns: int | None = None

    @property
    def tokens(self) -> int:
        """Tokens of a rank's micro batch, before tensor parallelism divides them."""
        return self.micro_batch * self.sequence // self.grid.degrees["cp"]

    @property
    def even_dispatch_bytes(self) -> int:
        """Send buffer of one rank in one all-to-all to the experts."""
        if self.dispatch_bytes is not None:
            return self.dispatch_bytes
        tokens = self.tokens // self.grid.degrees["tp"]
        elements = tokens * self.shape.top_k * self.shape.hidden
        return elements * self.bytes_per_element

    def dense_weights(self, layer: int) -> int:
        """Return how many weights of *layer*, but for experts, a rank's group holds."""
        return self.shape.dense_parameters(layer, self.grid.degrees["tp"])

    @property
    def expert_weights(self) -> int:
        """How many weights of a layer's experts a rank's group holds."""
        degrees = self.grid.degrees
        held = self.shape.experts // degrees["ep"]
        return held * self.shape.expert_parameters // degrees["tp"]


def training_groups(grid: RankGrid) -> GroupTable:
    """Return the process groups of training."""
    return GroupTable(
        grid,
        {
            TENSOR: ("tp",),
            CONTEXT: ("cp",),
            EXPERT: ("ep",),
            SHARD: ("fsdp",),
            EXPERT_DATA: ("cp", "dp"),
            DATA: ("cp", "ep", "dp"),
        },
    )


def synthesize_training(settings: TrainingSettings) -> Synthesis:
    """Return one training iteration.

    Ranks of a pipeline stage do the same, so that what makes one of them late is the
    fabric, or the experts that it holds.
    """
    groups = training_groups(settings.grid)
    layer_settings = LayerSettings(
        shape=settings.shape,
        grid=settings.grid,
        groups=groups,
        tokens=settings.tokens,
        context=settings.sequence,
        bytes_per_element=settings.bytes_per_element,
        sequence_parallel=settings.sequence_parallel,
        router=settings.router,
        dispatch_bytes=settings.even_dispatch_bytes,
        attention_ns=settings.attention_ns,
        expert_ns=settings.expert_ns,
    )

    def graph_of(rank: int) -> TraceGraph:
        program = RankSynthesizer(settings.kind, rank, settings.roofline)
        _RankTraining(settings, layer_settings, groups, program).add()
        return program.graph()

    return Synthesis(
        kind=settings.kind,
        nranks=settings.grid.nranks,
        groups=tuple(groups.groups),
        purposes=groups.purposes,
        graph_of=graph_of,
    )


class _RankTraining:
    """Adds the iteration of one rank."""

    def __init__(
        self,
        settings: TrainingSettings,
        layer_settings: LayerSettings,
        groups: GroupTable,
        program: RankSynthesizer,
    ) -> None:
        self._settings = settings
        self._program = program
        self._layer = LayerProgram(layer_settings, program)
        self._vocabulary = VocabularyProgram(layer_settings, self._layer, program)
        self._activation_bytes = layer_settings.activation_bytes
        if settings.sequence_parallel:
            self._activation_bytes = layer_settings.shard_bytes
        degrees, rank = settings.grid.degrees, program.rank
        self._shard_group = groups.of(SHARD, rank)
        self._shards = degrees["fsdp"]
        self._stage = settings.grid.position(rank, "pp")
        self._stages = degrees["pp"]
        self._layers = layers_of(
            stage=self._stage, stages=self._stages, layers=settings.shape.layers
        )
        copies = degrees["cp"] * degrees["dp"]
        self._expert_sums, self._dense_sums = (
            GradientSums(
                settings.gradients, program, groups.of(purpose, rank), members=members
            )
            for purpose, members in (
                (EXPERT_DATA, copies),
                (DATA, copies * degrees["ep"]),
            )
        )

    def add(self) -> None:
        """Add everything."""
        last: After = ()
        before: After = ()
        scattered: list[int] = []
        for turn in self._order():
            start = last
            if turn.forward:
                last = self._forward(turn, last, before)
            else:
                last, more = self._backward(turn, last, before)
                scattered.extend(more)
            # What a turn receives is posted when the turn before it begins.
            before = start
        sums = both(self._expert_sums.finish(last), self._dense_sums.finish(last))
        last = self._program.compute("optimizer", both(last, scattered, sums))
        self._expert_sums.spread_weights(last)
        self._dense_sums.spread_weights(last)

    def _order(self) -> list[Turn]:
        count = self._settings.micro_batches
        if self._settings.pipeline == "gpipe":
            return all_forward_all_backward(micro_batches=count)
        return one_forward_one_backward(
            stage=self._stage, stages=self._stages, micro_batches=count
        )

    def _prefix(self, turn: Turn) -> str:
        return f"micro{turn.micro_batch}." if self._settings.micro_batches > 1 else ""

    def _dispatch_number(self, turn: Turn, layer: int) -> int:
        shape = self._settings.shape
        with_experts = shape.layers - shape.dense_layers
        return turn.micro_batch * with_experts + layer - shape.dense_layers

    def _forward(self, turn: Turn, after: After, posted_after: After) -> After:
        prefix = self._prefix(turn)
        last = self._receive(f"{prefix}forward", -1, turn, after, posted_after)
        if self._stage == 0:
            last = self._vocabulary.embed(prefix, last)
        weights = self._gather_weights(f"{prefix}forward", self._layers[:1], last)
        for index, layer in enumerate(self._layers):
            # The weights of a layer are gathered while the one before computes.
            following = self._layers[index + 1 : index + 2]
            upcoming = self._gather_weights(f"{prefix}forward", following, last)
            last = self._layer.forward(
                f"{prefix}layer{layer}.forward",
                layer,
                both(last, weights),
                dispatch=self._dispatch_number(turn, layer),
            )
            weights = upcoming
        if self._stage == self._stages - 1:
            return self._vocabulary.loss(prefix, self._vocabulary.output(prefix, last))
        self._send(f"{prefix}forward", 1, turn, last)
        return last

    def _backward(
        self, turn: Turn, after: After, posted_after: After
    ) -> tuple[After, After]:
        """Add a turn; the second of the results is what only the optimizer awaits."""
        prefix = self._prefix(turn)
        is_last = turn.micro_batch == self._settings.micro_batches - 1
        last = self._receive(f"{prefix}backward", 1, turn, after, posted_after)
        if self._stage == self._stages - 1:
            last = self._vocabulary.output_backward(prefix, last)
            if is_last:
                self._sum_vocabulary("output.gradients", last)
        scattered: list[int] = []
        layers = self._layers[::-1]
        weights = self._gather_weights(f"{prefix}backward", layers[:1], last)
        for index, layer in enumerate(layers):
            name = f"{prefix}layer{layer}.backward"
            following = layers[index + 1 : index + 2]
            upcoming = self._gather_weights(f"{prefix}backward", following, last)
            last = self._layer.backward(
                name,
                layer,
                both(last, weights),
                dispatch=self._dispatch_number(turn, layer),
            )
            weights = upcoming
            part = self._scatter_gradients(name, layer, last)
            scattered.extend(part)
            if is_last:
                self._sum_layer(layer, part or last)
        if self._stage == 0:
            last = self._vocabulary.embed_backward(prefix, last)
            if is_last:
                self._sum_vocabulary("embedding.gradients", last)
        else:
            self._send(f"{prefix}backward", -1, turn, last)
        return last, tuple(scattered)

    def _sum_layer(self, layer: int, after: After) -> None:
        s = self._settings
        size = s.gradients.bytes_per_element
        if s.shape.has_experts(layer):
            given = s.expert_gradient_bytes
            expert_bytes = s.expert_weights * size if given is None else given
            self._expert_sums.add(
                f"layer{layer}.gradients.expert", after, self._part(expert_bytes)
            )
        given = s.dense_gradient_bytes
        dense_bytes = s.dense_weights(layer) * size if given is None else given
        self._dense_sums.add(
            f"layer{layer}.gradients.dense", after, self._part(dense_bytes)
        )

    def _sum_vocabulary(self, name: str, after: After) -> None:
        """Sum up the gradients of embedding or output, which are never sharded."""
        size = self._settings.gradients.bytes_per_element
        size_bytes = self._vocabulary.weights * size
        last = self._program.collective(
            f"{name}.shards",
            after,
            CollectiveOp.ALL_REDUCE,
            group=self._shard_group,
            input_bytes=size_bytes,
        )
        self._dense_sums.add(name, last, size_bytes)

    def _part(self, size_bytes: int) -> int:
        """Return what of weights or gradients one of the sharded ranks keeps."""
        return -(-size_bytes // self._shards)

    def _held_weights(self, layer: int) -> int:
        s = self._settings
        experts = s.expert_weights if s.shape.has_experts(layer) else 0
        return s.dense_weights(layer) + experts

    def _gather_weights(self, name: str, layers: range, after: After) -> After:
        """Gather the sharded weights of one layer, or of none."""
        last: After = ()
        for layer in layers:
            size_bytes = self._held_weights(layer) * self._settings.bytes_per_element
            last = self._program.collective(
                f"{name}.layer{layer}.weights",
                after,
                CollectiveOp.ALL_GATHER,
                group=self._shard_group,
                input_bytes=self._part(size_bytes),
            )
        return last

    def _scatter_gradients(self, name: str, layer: int, after: After) -> After:
        if self._shard_group is None:
            return ()
        size = self._settings.gradients.bytes_per_element
        return self._program.collective(
            f"{name}.gradients",
            after,
            CollectiveOp.REDUCE_SCATTER,
            group=self._shard_group,
            input_bytes=self._part(self._held_weights(layer) * size) * self._shards,
        )

    def _receive(
        self, name: str, away: int, turn: Turn, after: After, posted_after: After
    ) -> After:
        if not 0 <= self._stage + away < self._stages:
            return after
        received = self._program.receive(
            f"{name}.receive",
            posted_after,
            source=self._neighbour(away),
            size_bytes=self._activation_bytes,
            tag=turn.micro_batch,
        )
        return both(after, received)

    def _send(self, name: str, away: int, turn: Turn, after: After) -> None:
        self._program.send(
            f"{name}.send",
            after,
            to=self._neighbour(away),
            size_bytes=self._activation_bytes,
            tag=turn.micro_batch,
        )

    def _neighbour(self, away: int) -> int:
        rank = self._program.rank
        return self._settings.grid.moved(rank, "pp", self._stage + away)

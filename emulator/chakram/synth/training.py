"""One training iteration of a transformer, dense or with experts.

Every micro batch goes forward through the layers of a rank's pipeline stage, and then
backward. When the last micro batch has finished the backward pass of a layer, the
layer's gradients are reduced. Meanwhile, earlier layers continue their exchanges. This
overlap of all-reduces and all-to-alls of different groups puts high load on a fabric.
The optimizer ends the iteration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.collectives.ops import CollectiveOp
from chakram.synth.embedding_and_output import VocabularyProgram
from chakram.synth.grid import GroupTable, RankGrid
from chakram.synth.layer_settings import LayerSettings
from chakram.synth.layers import (
    CONTEXT,
    EXPERT,
    TENSOR,
    LayerProgram,
    node_groups,
)
from chakram.synth.pipeline import (
    GradientSums,
    Turn,
    all_forward_all_backward,
    layers_of,
    one_forward_one_backward,
)
from chakram.synth.settings.base import Routing
from chakram.synth.settings.training import MoeTrace, TrainingTrace
from chakram.synth.trace_builder import After, RankSynthesizer, Synthesis, both
from chakram.trace.alike_ranks import AlikeRanks

if TYPE_CHECKING:
    from chakram.synth.expert_routing import Router
    from chakram.trace.graph import TraceGraph


SHARD, EXPERT_DATA, DATA = "sharded data", "expert data", "data"
EMBEDDING = "embedding"
"""Purposes of the process groups that reduce gradients or gather weights."""


def training_groups(grid: RankGrid, ranks_per_node: int = 0) -> GroupTable:
    """Return the process groups of training.

    Args:
        grid: The ranks.
        ranks_per_node: Number of ranks per node if each node gets a token only once,
            else 0.
    """
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
        node_groups(ranks_per_node),
    )


def synthesize_training(trace: TrainingTrace, router: Router | None) -> Synthesis:
    """Return the trace of one training iteration.

    All ranks of a pipeline stage do the same work. Therefore, only the fabric or a
    rank's experts can delay one rank more than another.

    Args:
        trace: The model, its distribution over ranks, and its training parameters.
        router: Routing of tokens. None means even routing.
    """
    grid = trace.grid
    experts = trace if isinstance(trace, MoeTrace) else None
    routing = experts.routing if experts else Routing.section_defaults()
    nodes = routing.token_nodes(trace.shape, experts.ep) if experts else 0
    if experts and experts.all_to_all_bytes is not None:
        nodes = 0  # the given size is that of one all-to-all
    groups = training_groups(grid, routing.ranks_per_node if nodes else 0)
    if trace.shape.tied and trace.shape.vocabulary:
        # Both ends of the pipeline have a copy of the matrix.
        for rank in range(grid.nranks):
            ends = (rank, grid.moved(rank, "pp", trace.pp - 1))
            if trace.pp > 1 and not grid.position(rank, "pp"):
                groups.add(EMBEDDING, ends)
    settings = LayerSettings(
        shape=trace.shape,
        grid=grid,
        groups=groups,
        tokens=trace.micro_batch * trace.sample_tokens // trace.cp,
        sequences=trace.micro_batch,
        context=trace.sample_tokens,
        bytes_per_element=trace.bytes_per_element,
        sequence_parallel=trace.sequence_parallel and trace.tp > 1,
        dispatch_token_bytes=routing.dispatch_token_bytes(
            trace.shape, trace.bytes_per_element
        ),
        token_nodes=nodes,
        ranks_per_node=routing.ranks_per_node,
        router=router,
        given_dispatch_bytes=experts.all_to_all_bytes if experts else None,
        attention_ns=experts.attention_ns if experts else None,
        expert_ns=experts.expert_ns if experts else None,
    )

    def graph_of(rank: int) -> TraceGraph:
        program = RankSynthesizer(trace.synth, rank, trace.roofline)
        _RankTraining(trace, settings, program).add()
        return program.graph()

    return Synthesis(
        kind=trace.synth,
        nranks=grid.nranks,
        groups=tuple(groups.groups),
        purposes=groups.purposes,
        graph_of=graph_of,
        alike=_alike(grid, groups) if trace.has_alike_ranks else None,
    )


def _alike(grid: RankGrid, groups: GroupTable) -> AlikeRanks:
    """Return the ranks of each pipeline stage, which do the same work."""
    firsts = [grid.moved(0, "pp", stage) for stage in range(grid.degrees["pp"])]
    return AlikeRanks(
        nranks=grid.nranks,
        firsts=tuple(firsts),
        first_of=lambda rank: firsts[grid.position(rank, "pp")],
        group_of=lambda group, rank: groups.named(groups.purposes[group], rank),
    )


class _RankTraining:
    """Builder of one rank's training iteration."""

    def __init__(
        self,
        trace: TrainingTrace,
        settings: LayerSettings,
        program: RankSynthesizer,
    ) -> None:
        self._trace = trace
        self._settings = settings
        self._program = program
        self._layer = LayerProgram(settings, program)
        self._vocabulary = VocabularyProgram(settings, self._layer, program)
        self._activation_bytes = settings.activation_bytes
        if settings.sequence_parallel:
            self._activation_bytes = settings.shard_bytes
        groups = settings.groups
        degrees, rank = settings.grid.degrees, program.rank
        self._shard_group = groups.of(SHARD, rank)
        self._embedding_group = groups.of(EMBEDDING, rank)
        self._shards = degrees["fsdp"]
        self._stage = settings.grid.position(rank, "pp")
        self._stages = degrees["pp"]
        self._layers = layers_of(
            stage=self._stage, stages=self._stages, layers=settings.shape.layers
        )
        copies = degrees["cp"] * degrees["dp"]
        self._expert_sums, self._dense_sums = (
            GradientSums(trace, program, groups.of(purpose, rank), members=members)
            for purpose, members in (
                (EXPERT_DATA, copies),
                (DATA, copies * degrees["ep"]),
            )
        )

    def add(self) -> None:
        """Add all nodes of the iteration."""
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
            # Receives of a turn are posted when the previous turn begins.
            before = start
        sums = both(self._expert_sums.finish(last), self._dense_sums.finish(last))
        ends = self._program.collective(
            "embedding.gradients.ends",
            both(last, sums),
            CollectiveOp.ALL_REDUCE,
            group=self._embedding_group,
            input_bytes=self._vocabulary.weights * self._trace.gradient_bytes,
        )
        last = self._program.compute("optimizer", both(last, scattered, sums, ends))
        self._expert_sums.spread_weights(last)
        self._dense_sums.spread_weights(last)

    def _order(self) -> list[Turn]:
        count = self._trace.micro_batches
        if self._trace.pipeline == "gpipe":
            return all_forward_all_backward(micro_batches=count)
        return one_forward_one_backward(
            stage=self._stage, stages=self._stages, micro_batches=count
        )

    def _prefix(self, turn: Turn) -> str:
        return f"micro{turn.micro_batch}." if self._trace.micro_batches > 1 else ""

    def _forward(self, turn: Turn, after: After, posted_after: After) -> After:
        prefix = self._prefix(turn)
        last = self._receive(f"{prefix}forward", -1, turn, after, posted_after)
        if self._stage == 0:
            last = self._vocabulary.embed(prefix, last)
        weights = self._gather_weights(f"{prefix}forward", self._layers[:1], last)
        for index, layer in enumerate(self._layers):
            # A layer's weights are gathered while the previous layer computes.
            following = self._layers[index + 1 : index + 2]
            upcoming = self._gather_weights(f"{prefix}forward", following, last)
            last = self._layer.forward(
                f"{prefix}layer{layer}.forward",
                layer,
                both(last, weights),
                turn.micro_batch,
            )
            weights = upcoming
        if self._stage == self._stages - 1:
            return self._vocabulary.loss(prefix, self._vocabulary.output(prefix, last))
        self._send(f"{prefix}forward", 1, turn, last)
        return last

    def _backward(
        self, turn: Turn, after: After, posted_after: After
    ) -> tuple[After, After]:
        """Add a backward pass. Only the optimizer waits for the second returned set."""
        prefix = self._prefix(turn)
        is_last = turn.micro_batch == self._trace.micro_batches - 1
        last = self._receive(f"{prefix}backward", 1, turn, after, posted_after)
        if self._stage == self._stages - 1:
            last = self._vocabulary.output_backward(prefix, last)
            shares = self._settings.shape.tied and self._stages == 1
            if is_last and not shares:  # if shared, the embedding includes it
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
                turn.micro_batch,
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
        trace, size = self._trace, self._trace.gradient_bytes
        dense_bytes = self._part(self._dense_weights(layer)) * size
        if isinstance(trace, MoeTrace) and trace.dense_bytes is not None:
            dense_bytes = trace.dense_bytes
        if isinstance(trace, MoeTrace) and self._settings.shape.has_experts(layer):
            expert_bytes = self._part(self._expert_weights) * size
            self._expert_sums.add(
                f"layer{layer}.gradients.expert",
                after,
                trace.all_reduce_bytes or expert_bytes,
            )
        self._dense_sums.add(f"layer{layer}.gradients.dense", after, dense_bytes)

    def _sum_vocabulary(self, name: str, after: After) -> None:
        """Reduce the gradients of embedding or output, which are never sharded."""
        size_bytes = self._vocabulary.weights * self._trace.gradient_bytes
        last = self._program.collective(
            f"{name}.shards",
            after,
            CollectiveOp.ALL_REDUCE,
            group=self._shard_group,
            input_bytes=size_bytes,
        )
        self._dense_sums.add(name, last, size_bytes)

    def _part(self, weights: int) -> int:
        """Return the number of weights or gradients that one sharded rank keeps.

        FSDP pads them to a multiple of the number of shards.
        """
        return -(-weights // self._shards)

    @property
    def _expert_weights(self) -> int:
        """Number of weights of a layer's experts in a rank's group."""
        s = self._settings
        held = s.shape.experts // s.grid.degrees["ep"]
        return held * s.shape.expert_parameters // s.tp

    def _dense_weights(self, layer: int) -> int:
        """Return the number of non-expert weights of *layer* in a rank's group."""
        return self._settings.shape.dense_parameters(layer, self._settings.tp)

    def _held_weights(self, layer: int) -> int:
        with_experts = self._settings.shape.has_experts(layer)
        experts = self._expert_weights if with_experts else 0
        return self._dense_weights(layer) + experts

    def _gather_weights(self, name: str, layers: range, after: After) -> After:
        """Gather the sharded weights of *layers*, which has at most one layer."""
        last: After = ()
        for layer in layers:
            size = self._settings.bytes_per_element
            last = self._program.collective(
                f"{name}.layer{layer}.weights",
                after,
                CollectiveOp.ALL_GATHER,
                group=self._shard_group,
                input_bytes=self._part(self._held_weights(layer)) * size,
            )
        return last

    def _scatter_gradients(self, name: str, layer: int, after: After) -> After:
        if self._shard_group is None:
            return ()
        size = self._trace.gradient_bytes
        return self._program.collective(
            f"{name}.gradients",
            after,
            CollectiveOp.REDUCE_SCATTER,
            group=self._shard_group,
            input_bytes=self._part(self._held_weights(layer)) * self._shards * size,
        )

    def _receive(
        self, name: str, away: int, turn: Turn, after: After, posted_after: After
    ) -> After:
        if not 0 <= self._stage + away < self._stages:
            return after
        received = self._program.receive(
            f"{name}.receive",
            posted_after,
            source=self._neighbor(away),
            size_bytes=self._activation_bytes,
            tag=turn.micro_batch,
        )
        return both(after, received)

    def _send(self, name: str, away: int, turn: Turn, after: After) -> None:
        self._program.send(
            f"{name}.send",
            after,
            to=self._neighbor(away),
            size_bytes=self._activation_bytes,
            tag=turn.micro_batch,
        )

    def _neighbor(self, away: int) -> int:
        rank = self._program.rank
        return self._settings.grid.moved(rank, "pp", self._stage + away)

"""Settings that the layers of all ranks share, with derived sizes and operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.synth.expert_routing import Router
    from chakram.synth.grid import GroupTable, RankGrid
    from chakram.synth.models import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSettings:
    """Settings that the layers of all ranks share.

    Attributes:
        shape: The model.
        grid: The ranks.
        groups: Process groups of the ranks.
        tokens: Number of tokens of one rank before division by tensor parallelism.
        context: Number of tokens that each token attends to.
        bytes_per_element: Bytes of one number.
        sequences: Number of sequences to which the tokens belong, each with its own
            context.
        dispatch_token_bytes: Bytes of one token on its way to the experts.
        token_nodes: Maximum number of nodes to which a token is sent. With 0, each
            token goes directly to its experts.
        ranks_per_node: Number of neighbors in an expert-parallel group that share a
            node.
        sequence_parallel: Whether each tensor-parallel rank has only its part of the
            tokens between attention and feed-forward network.
        router: Routing of tokens, for a model with experts.
        given_dispatch_bytes: Bytes that a rank sends in an even all-to-all to the
            experts. If None, they are computed from the model.
        attention_ns: Forward time of attention. If None, it is computed from the
            operations.
        expert_ns: Forward time of the experts. If None, it is computed from the
            operations.
    """

    shape: ModelShape
    grid: RankGrid
    groups: GroupTable
    tokens: int
    context: int
    bytes_per_element: int
    sequence_parallel: bool
    dispatch_token_bytes: int
    sequences: int = 1
    token_nodes: int = 0
    ranks_per_node: int = 1
    router: Router | None = None
    given_dispatch_bytes: int | None = None
    attention_ns: int | None = None
    expert_ns: int | None = None

    @property
    def tp(self) -> int:
        """Number of tensor-parallel ranks."""
        return self.grid.degrees["tp"]

    @property
    def dispatch_bytes(self) -> int:
        """Bytes that a rank sends in an even all-to-all to the experts."""
        if self.given_dispatch_bytes is not None:
            return self.given_dispatch_bytes
        return self.tokens // self.tp * self.shape.top_k * self.dispatch_token_bytes

    @property
    def to_nodes_bytes(self) -> int:
        """Bytes that a rank sends if each token goes to each of its nodes once."""
        return self.dispatch_bytes * self.token_nodes // self.shape.top_k

    def combined_bytes(self, dispatched: int) -> int:
        """Return the bytes of the results of a dispatch of *dispatched* bytes."""
        if self.given_dispatch_bytes is not None:
            return dispatched
        return dispatched * self.token_bytes // self.dispatch_token_bytes

    def dispatch_number(self, turn: int, layer: int) -> int:
        """Return the number of a layer's dispatch in a pass, counted from 0."""
        with_experts = self.shape.layers - self.shape.dense_layers
        return turn * with_experts + layer - self.shape.dense_layers

    @property
    def activation_bytes(self) -> int:
        """Bytes of the vectors of a rank's tokens."""
        return self.tokens * self.shape.hidden * self.bytes_per_element

    @property
    def shard_bytes(self) -> int:
        """Bytes of the activations that one of the tensor-parallel ranks keeps."""
        return self.activation_bytes // self.tp

    @property
    def token_bytes(self) -> int:
        """Bytes of the vector of one token."""
        return self.shape.hidden * self.bytes_per_element

    @property
    def projection_ops(self) -> int:
        """Number of operations in attention's weight products, except the last."""
        output = self.shape.heads * self.shape.value_length * self.shape.hidden
        return (
            2
            * self.tokens
            * (self.shape.attention_parameters(self.tp) - output // self.tp)
        )

    @property
    def score_ops(self) -> int:
        """Number of operations for attention scores and values, with masked pairs."""
        lengths = self.shape.query_length + self.shape.value_length
        heads = self.shape.heads // self.tp
        return 2 * self.tokens * self.context * heads * lengths

    @property
    def output_ops(self) -> int:
        """Number of operations in attention's last weight product."""
        heads = self.shape.heads // self.tp
        return 2 * self.tokens * heads * self.shape.value_length * self.shape.hidden

    @property
    def context_bytes(self) -> int:
        """Bytes of queries, keys and values sent to the ranks that compute the heads.

        Ranks with different queries of one key-value head all get that head.
        """
        shape = self.shape
        kv_heads = max(shape.kv_heads, self.tp * self.grid.degrees["cp"])
        lengths = shape.heads * shape.query_length + kv_heads * (
            shape.query_length + shape.value_length
        )
        return self.tokens * lengths * self.bytes_per_element // self.tp

    @property
    def context_output_bytes(self) -> int:
        """Bytes sent back by the ranks that compute the heads."""
        lengths = self.shape.heads * self.shape.value_length
        return self.tokens * lengths * self.bytes_per_element // self.tp

    @property
    def cached_bytes(self) -> int:
        """Bytes of keys and values of all sequences' contexts, for one rank's heads."""
        shape = self.shape
        kept = 1 if shape.latent else min(self.tp, shape.kv_heads)
        cached = self.context * shape.cached // kept * self.bytes_per_element
        return self.sequences * cached

    @property
    def gate_ops(self) -> int:
        """Number of operations of the gate: one score per token and expert."""
        return 2 * self.tokens * self.shape.hidden * self.shape.experts // self.tp

    def ffn_ops(self, parameters: int, tokens: int) -> int:
        """Return the number of operations for *tokens* in a network of *parameters*."""
        return 2 * tokens * parameters // self.tp

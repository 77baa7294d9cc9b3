"""One transformer layer on one rank: its computation and communication.

See ``docs/reference/synth.md`` for the formulas of sizes and operations and their
sources. This summary uses ``T`` tokens of a rank, ``h`` elements in a token's vector
and ``b`` bytes per element:

* Tensor parallelism (Megatron-LM, arXiv:1909.08053) reduces ``T h b`` bytes after
  attention and after the feed-forward network, and again in the backward pass. With
  sequence parallelism (arXiv:2205.05198) each reduction is a reduce-scatter, and an
  all-gather precedes the computation. The backward pass gathers the input again for
  the gradient of the weights.
* Context parallelism (DeepSpeed-Ulysses, arXiv:2309.14509) divides heads instead of
  tokens to compute the attention scores. It then divides tokens again.
* Experts (GShard, arXiv:2006.16668) get their tokens, ``T/tp top_k h b`` bytes, and
  send back the same amount.
* With a node limit (DeepSeek-V3, arXiv:2412.19437, section 3.2.2) each token is sent
  once to each of its nodes. It arrives at the rank with the same place in the node as
  the sender. That rank forwards it to the ranks of the token's experts. Results return
  through the same ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.collectives.ops import CollectiveOp
from chakram.synth.expert_routing import LawRouter
from chakram.synth.trace_builder import After, RankSynthesizer, both

if TYPE_CHECKING:
    from chakram.synth.layer_settings import LayerSettings

TENSOR, CONTEXT, EXPERT = "tensor", "context", "expert"
EXPERT_NODE, EXPERT_RAIL = "expert node", "expert rail"
"""Purposes of the process groups of a layer."""

_Sizes = int | tuple[tuple[int, ...], tuple[int, ...]]
"""Bytes of an even all-to-all, or bytes to and from each position of its group."""
_Exchange = tuple[str, str | None, _Sizes]
"""An all-to-all: name suffix, group and sizes."""

BACKWARD_FACTOR = 2
"""Ratio of backward to forward work. The backward pass computes two products, for the
input and for the weights, and the forward pass one."""


def node_groups(ranks_per_node: int) -> dict[str, tuple[int, str, str]]:
    """Return the division of expert-parallel groups into nodes. 0 means no division."""
    if not ranks_per_node:
        return {}
    return {EXPERT: (ranks_per_node, EXPERT_NODE, EXPERT_RAIL)}


class LayerProgram:
    """Builder of the layers of one rank.

    Args:
        settings: Settings that all ranks share.
        rank: The synthesizer to which the nodes are added.
    """

    def __init__(self, settings: LayerSettings, rank: RankSynthesizer) -> None:
        self._settings = settings
        self._rank = rank
        self._tensor_group = settings.groups.of(TENSOR, rank.rank)
        self._context_group = settings.groups.of(CONTEXT, rank.rank)
        self._expert_group = settings.groups.of(EXPERT, rank.rank)
        self._node_group = settings.groups.of(EXPERT_NODE, rank.rank)
        self._rail_group = settings.groups.of(EXPERT_RAIL, rank.rank)
        self._position = settings.grid.position(rank.rank, "ep")

    def forward(self, name: str, layer: int, after: After, turn: int) -> After:
        """Add the forward pass of a layer.

        Args:
            name: Prefix of the names of the nodes.
            layer: Number of the layer in the model.
            after: Nodes for which the layer waits.
            turn: Number of earlier passes in this direction.
        """
        last = self.gather(f"{name}.attention", after)
        last = self._attention(name, last, 1)
        last = self.scatter(f"{name}.attention", last)
        if self._settings.shape.has_experts(layer):
            dispatch = self._settings.dispatch_number(turn, layer)
            return self._experts_forward(name, last, dispatch)
        last = self.gather(f"{name}.ffn", last)
        last = self._network(f"{name}.ffn", last, self._settings.shape.ffn_parameters)
        return self.scatter(f"{name}.ffn", last)

    def backward(self, name: str, layer: int, after: After, turn: int) -> After:
        """Add the backward pass of a layer. The arguments are those of ``forward``."""
        s = self._settings
        if s.shape.has_experts(layer):
            dispatch = s.dispatch_number(turn, layer)
            last = self._experts_backward(name, after, dispatch)
        else:
            last = self._gather_again(f"{name}.ffn", after)
            last = self._network(
                f"{name}.ffn", last, s.shape.ffn_parameters, factor=BACKWARD_FACTOR
            )
            last = self.scatter(f"{name}.ffn", last)
        last = self._gather_again(f"{name}.attention", last)
        last = self._attention(name, last, BACKWARD_FACTOR)
        return self.scatter(f"{name}.attention", last)

    def gather_shards(self, name: str, after: After, size_bytes: int) -> After:
        """Add an all-gather of tensor-parallel shards of *size_bytes*."""
        return self._tensor(CollectiveOp.ALL_GATHER, name, after, size_bytes)

    def sum_up(self, name: str, after: After, size_bytes: int) -> After:
        """Add an all-reduce over the tensor-parallel ranks."""
        return self._tensor(CollectiveOp.ALL_REDUCE, name, after, size_bytes)

    def scatter_sum(self, name: str, after: After, size_bytes: int) -> After:
        """Add a reduce-scatter over the tensor-parallel ranks."""
        return self._tensor(CollectiveOp.REDUCE_SCATTER, name, after, size_bytes)

    def _tensor(
        self, op: CollectiveOp, name: str, after: After, size_bytes: int
    ) -> After:
        return self._rank.collective(
            name, after, op, group=self._tensor_group, input_bytes=size_bytes
        )

    def gather(self, name: str, after: After, what: str = "gather") -> After:
        """Gather all tokens, if tensor-parallel ranks divide them."""
        s = self._settings
        if not s.sequence_parallel:
            return after
        return self.gather_shards(f"{name}.{what}", after, s.shard_bytes)

    def _gather_again(self, name: str, after: After) -> After:
        """Gather the gradient, and the input for the gradient of the weights."""
        gathered = self.gather(name, after)
        return both(gathered, self.gather(name, after, "gather_input"))

    def scatter(self, name: str, after: After) -> After:
        """Reduce activations over tensor-parallel ranks, and scatter divided tokens."""
        s = self._settings
        if s.sequence_parallel:
            return self.scatter_sum(f"{name}.scatter", after, s.activation_bytes)
        return self.sum_up(f"{name}.sum", after, s.activation_bytes)

    def _attention(self, name: str, after: After, factor: int) -> After:
        """Add attention, forward or (with a *factor* above 1) backward."""
        s = self._settings
        if self._context_group is None:
            weights = s.shape.attention_parameters(s.tp) * s.bytes_per_element
            touched = weights + 2 * s.activation_bytes + s.cached_bytes
            return self._rank.compute(
                f"{name}.attention",
                after,
                ops=factor * (s.projection_ops + s.score_ops + s.output_ops),
                touched_bytes=factor * touched,
                duration_ns=_times(factor, s.attention_ns),
            )
        ops = {
            "project": s.projection_ops,
            "scores": s.score_ops,
            "output": s.output_ops,
        }
        sizes = [s.context_bytes, s.context_output_bytes]
        names = list(ops)
        if factor > 1:
            names.reverse()
            sizes.reverse()
        exchanges = [("to_heads", sizes[0]), ("to_tokens", sizes[1]), ("", 0)]
        last = after
        for part, (exchange, size_bytes) in zip(names, exchanges, strict=True):
            # If the duration of attention is given, assign it to the attention scores.
            share = factor if part == "scores" else 0
            last = self._rank.compute(
                f"{name}.attention.{part}",
                last,
                ops=factor * ops[part],
                duration_ns=_times(share, s.attention_ns),
            )
            last = self._rank.collective(
                f"{name}.attention.{exchange}",
                last,
                CollectiveOp.ALL_TO_ALL,
                group=self._context_group,
                input_bytes=size_bytes,
            )
        return last

    def _network(
        self, name: str, after: After, parameters: int, *, factor: int = 1
    ) -> After:
        s = self._settings
        weights = parameters // s.tp * s.bytes_per_element
        return self._rank.compute(
            name,
            after,
            ops=factor * s.ffn_ops(parameters, s.tokens),
            touched_bytes=factor * (weights + 2 * s.activation_bytes),
        )

    def _experts_forward(self, name: str, after: After, dispatch: int) -> After:
        s, rank = self._settings, self._rank
        gate = rank.compute(f"{name}.gate", after, ops=s.gate_ops)
        last = self._dispatch(f"{name}.dispatch", gate, dispatch)
        shared = self._shared(name, gate, factor=1)
        gathered = self.gather_shards(
            f"{name}.expert.gather", last, self._received_bytes(dispatch)
        )
        last = self._expert(name, gathered, dispatch, factor=1)
        last = self.scatter_sum(
            f"{name}.expert.scatter",
            last,
            s.tp * s.combined_bytes(self._received_bytes(dispatch)),
        )
        last = self._dispatch(f"{name}.combine", last, dispatch, back=True)
        last = both(last, shared)
        if not s.sequence_parallel:
            last = self.gather_shards(f"{name}.gather", last, s.shard_bytes)
        return last

    def _experts_backward(self, name: str, after: After, dispatch: int) -> After:
        s, rank = self._settings, self._rank
        last = self._dispatch(f"{name}.combine", after, dispatch)
        shared = self._shared(name, after, factor=BACKWARD_FACTOR)
        received = self._received_bytes(dispatch)
        last = both(
            self.gather_shards(f"{name}.expert.gather", last, received),
            self.gather_shards(f"{name}.expert.gather_input", last, received),
        )
        last = self._expert(name, last, dispatch, factor=BACKWARD_FACTOR)
        last = self.scatter_sum(
            f"{name}.expert.scatter", last, s.tp * s.combined_bytes(received)
        )
        last = self._dispatch(f"{name}.dispatch", last, dispatch, back=True)
        last = both(last, shared)
        return rank.compute(f"{name}.gate", last, ops=BACKWARD_FACTOR * s.gate_ops)

    def _shared(self, name: str, after: After, *, factor: int) -> After:
        """Add the shared experts, which run during the dispatch to other experts."""
        s = self._settings
        if not s.shape.shared_experts:
            return ()
        gather = self.gather if factor == 1 else self._gather_again
        last = gather(f"{name}.shared", after)
        parameters = s.shape.shared_experts * s.shape.expert_parameters
        last = self._network(f"{name}.shared", last, parameters, factor=factor)
        return self.scatter(f"{name}.shared", last)

    def _expert(self, name: str, after: After, dispatch: int, *, factor: int) -> After:
        s = self._settings
        received = s.tp * self._received_bytes(dispatch)
        held = s.shape.experts // s.grid.degrees["ep"]
        tokens = received // s.dispatch_token_bytes
        if s.router is None or s.router.received(dispatch, self._position) is None:
            # This also applies if the size of the all-to-all is given.
            tokens = s.tokens * s.shape.top_k
        parameters = s.shape.expert_parameters
        weights = held * parameters // s.tp * s.bytes_per_element
        return self._rank.compute(
            f"{name}.expert",
            after,
            ops=factor * s.ffn_ops(parameters, tokens),
            touched_bytes=factor * (weights + received + s.combined_bytes(received)),
            duration_ns=_times(factor, s.expert_ns),
        )

    def _received_bytes(self, dispatch: int) -> int:
        s = self._settings
        if s.router is None:
            return s.dispatch_bytes
        received = s.router.received(dispatch, self._position)
        return s.dispatch_bytes if received is None else sum(received)

    def _dispatch(
        self, name: str, after: After, dispatch: int, *, back: bool = False
    ) -> After:
        """Add an all-to-all to the experts, or *back* from them."""
        s = self._settings
        sent = received = None
        if s.router is not None:
            sent = s.router.sent(dispatch, self._position)
            received = s.router.received(dispatch, self._position)
        exchanges: list[_Exchange]
        if s.token_nodes:
            exchanges = self._by_nodes(dispatch, sent)
        elif sent is None or received is None:
            exchanges = [("", self._expert_group, s.dispatch_bytes)]
        else:
            exchanges = [("", self._expert_group, (sent, received))]
        last = after
        for suffix, group, sizes in reversed(exchanges) if back else exchanges:
            last = self._exchange(name + suffix, last, group, sizes, back=back)
        return last

    def _by_nodes(
        self, dispatch: int, copies: tuple[int, ...] | None
    ) -> list[_Exchange]:
        """Return the exchange between nodes and the exchange within each node.

        Args:
            dispatch: Number of the dispatch.
            copies: Bytes that each rank sends to the experts of each rank. None means
                even.
        """
        s = self._settings
        local = s.ranks_per_node
        nodes = s.grid.degrees["ep"] // local
        if copies is None or not isinstance(s.router, LawRouter):
            between: _Sizes = s.to_nodes_bytes
            inside: _Sizes = s.dispatch_bytes
        else:
            node, place = divmod(self._position, local)
            own = copies[node * local : (node + 1) * local]
            to_nodes = s.router.to_nodes(dispatch, local, s.token_nodes)
            between = (to_nodes, (to_nodes[node],) * nodes)
            # Each rank forwards data from the ranks at the same place in all nodes.
            inside = (
                tuple(nodes * each for each in own),
                (nodes * own[place],) * local,
            )
        return [
            (".nodes", self._rail_group, between),
            (".node", self._node_group, inside),
        ]

    def _exchange(
        self, name: str, after: After, group: str | None, sizes: _Sizes, *, back: bool
    ) -> After:
        s = self._settings
        if isinstance(sizes, int):
            return self._rank.collective(
                name,
                after,
                CollectiveOp.ALL_TO_ALL,
                group=group,
                input_bytes=s.combined_bytes(sizes) if back else sizes,
            )
        sent, received = sizes
        if back:
            sent, received = (
                tuple(map(s.combined_bytes, each)) for each in (received, sent)
            )
        return self._rank.uneven_all_to_all(
            name, after, group=group, sent=sent, received=received
        )


def _times(factor: int, time_ns: int | None) -> int | None:
    return None if time_ns is None else factor * time_ns

"""Inference traces: prefill or decode steps, and transfer of the KV cache.

A step processes tokens in all layers: whole prompts in prefill, one token of each
sequence in decode. Tensor-parallel ranks reduce activations after attention and after
the feed-forward network. In decode, each reduction has only a few kilobytes. The
routing distribution or recorded splits assign tokens to experts. Steps run one after
another, because every token needs the previous one.

Prefill and decode may use separate ranks (DistServe, arXiv:2401.09670; Splitwise,
arXiv:2311.18677). The prefill ranks then send the KV cache of a prompt to the decode
ranks. They send each layer's cache while the next layer computes, or the whole cache at
the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from chakram.synth.trace_builder import After, RankSynthesizer, Synthesis, both

if TYPE_CHECKING:
    from chakram.synth.expert_routing import Router
    from chakram.synth.models import ModelShape
    from chakram.synth.settings.inference import InferenceTrace, KvCacheTrace
    from chakram.trace.graph import TraceGraph

PREFILL_TENSOR, DECODE_TENSOR = "prefill tensor", "decode tensor"
"""Purposes of the process groups in a KV cache trace."""


def synthesize_inference(trace: InferenceTrace, router: Router | None) -> Synthesis:
    """Return the trace of some steps of prefill or decode.

    Args:
        trace: Parameters of the trace.
        router: Routing of tokens. None means even routing.
    """
    grid = RankGrid({"tp": trace.tp, "ep": trace.ep, "dp": trace.dp})
    nodes = trace.routing.token_nodes(trace.shape, trace.ep)
    groups = GroupTable(
        grid,
        {TENSOR: ("tp",), CONTEXT: ("cp",), EXPERT: ("ep",)},
        node_groups(trace.routing.ranks_per_node if nodes else 0),
    )
    layer_settings = LayerSettings(
        shape=trace.shape,
        grid=grid,
        groups=groups,
        tokens=trace.tokens,
        sequences=trace.batch,
        context=trace.context,
        bytes_per_element=trace.bytes_per_element,
        sequence_parallel=False,
        dispatch_token_bytes=trace.routing.dispatch_token_bytes(
            trace.shape, trace.bytes_per_element
        ),
        token_nodes=nodes,
        ranks_per_node=trace.routing.ranks_per_node,
        router=router,
    )

    def graph_of(rank: int) -> TraceGraph:
        program = RankSynthesizer(trace.synth, rank, trace.roofline)
        pass_ = _Pass(layer_settings, program)
        last: After = ()
        for step in range(trace.steps):
            last = pass_.add(f"step{step}.", step, last)
            last = pass_.answer(f"step{step}.", last, trace.batch)
        return program.graph()

    return Synthesis(
        kind=trace.synth,
        nranks=grid.nranks,
        groups=tuple(groups.groups),
        purposes=groups.purposes,
        graph_of=graph_of,
    )


class _Pass:
    """Builder of passes of tokens through all layers of one rank."""

    def __init__(self, settings: LayerSettings, program: RankSynthesizer) -> None:
        self._settings = settings
        self.layers = LayerProgram(settings, program)
        self._vocabulary = VocabularyProgram(settings, self.layers, program)
        self.embed = self._vocabulary.embed

    def add(self, prefix: str, step: int, after: After) -> After:
        """Add the embedding and all layers."""
        last = self.embed(prefix, after)
        for layer in range(self._settings.shape.layers):
            last = self.layers.forward(f"{prefix}layer{layer}", layer, last, step)
        return last

    def answer(self, prefix: str, after: After, answers: int) -> After:
        """Add the output layer, and an all-gather of the logits of *answers* tokens."""
        last = self._vocabulary.output(prefix, after)
        return self._vocabulary.gather_scores(prefix, last, answers)


def cache_parts(
    shape: ModelShape, *, prefill_tp: int, decode_tp: int
) -> dict[tuple[int, int], int]:
    """Return the elements per token and layer that prefill ranks send to decode ranks.

    Every decode rank gets the heads that it needs, each from one prefill rank that has
    the head. If several prefill ranks have a head, the decode ranks alternate between
    them. A latent cache is one head that every rank has.

    Returns:
        Elements by (position of the prefill rank, position of the decode rank).
    """
    heads = 1 if shape.latent else shape.kv_heads
    length = shape.cached // heads
    holders: dict[int, list[int]] = {}
    for position in range(prefill_tp):
        for head in heads_of(position, heads=heads, tp=prefill_tp):
            holders.setdefault(head, []).append(position)
    parts: dict[tuple[int, int], int] = {}
    for position in range(decode_tp):
        for head in heads_of(position, heads=heads, tp=decode_tp):
            source = holders[head][position % len(holders[head])]
            key = (source, position)
            parts[key] = parts.get(key, 0) + length
    return parts


def heads_of(position: int, *, heads: int, tp: int) -> range:
    """Return the numbers of the key-value heads on one of *tp* ranks, at least one.

    One of *tp* and *heads* must divide the other.
    """
    first = position * heads // tp
    return range(first, max(first + 1, (position + 1) * heads // tp))


def synthesize_kv_cache(trace: KvCacheTrace) -> Synthesis:
    """Return the trace of KV cache transfers of some requests.

    The prefill instances come first, each with ``prefill_tp`` neighboring ranks, then
    the decode instances. Request k goes to prefill instance k and decode instance k,
    each modulo the number of instances.
    """
    groups = GroupTable(RankGrid({}), {})
    prefill_ranks = trace.prefill * trace.prefill_tp
    for first, end, tp in (
        (0, prefill_ranks, trace.prefill_tp),
        (prefill_ranks, trace.nranks, trace.decode_tp),
    ):
        for start in range(first, end, tp):
            groups.add(TENSOR, tuple(range(start, start + tp)))
    parts = cache_parts(
        trace.shape, prefill_tp=trace.prefill_tp, decode_tp=trace.decode_tp
    )

    def graph_of(rank: int) -> TraceGraph:
        program = RankSynthesizer(trace.synth, rank, trace.roofline)
        add = _add_prefill if rank < prefill_ranks else _add_decode
        add(trace, parts, program, groups)
        return program.graph()

    return Synthesis(
        kind=trace.synth,
        nranks=trace.nranks,
        groups=tuple(groups.groups),
        purposes={
            group.name: PREFILL_TENSOR
            if group.ranks[0] < prefill_ranks
            else DECODE_TENSOR
            for group in groups.groups
        },
        graph_of=graph_of,
    )


def _pass(
    trace: KvCacheTrace,
    program: RankSynthesizer,
    groups: GroupTable,
    *,
    tp: int,
    tokens: int,
) -> _Pass:
    return _Pass(
        LayerSettings(
            shape=trace.shape,
            grid=RankGrid({"tp": tp}),
            groups=groups,
            tokens=tokens,
            context=trace.prompt,
            bytes_per_element=trace.bytes_per_element,
            sequence_parallel=False,
            dispatch_token_bytes=trace.shape.hidden * trace.bytes_per_element,
        ),
        program,
    )


def _transfers(trace: KvCacheTrace) -> list[tuple[str, int, int]]:
    """Return name, last layer and number of layers of each part of a cache transfer."""
    layers = trace.shape.layers
    if trace.transfer == "layer":
        return [(f"layer{layer}", layer, 1) for layer in range(layers)]
    return [("cache", layers - 1, layers)]


def _add_prefill(
    trace: KvCacheTrace,
    parts: dict[tuple[int, int], int],
    program: RankSynthesizer,
    groups: GroupTable,
) -> None:
    instance, position = divmod(program.rank, trace.prefill_tp)
    pass_ = _pass(trace, program, groups, tp=trace.prefill_tp, tokens=trace.prompt)
    decode_start = trace.prefill * trace.prefill_tp
    transfers = {last: (name, count) for name, last, count in _transfers(trace)}
    last: After = ()
    for request in range(instance, trace.requests, trace.prefill):
        prefix = f"request{request}.prefill."
        first = decode_start + request % trace.decode * trace.decode_tp
        last = pass_.embed(prefix, last)
        for layer in range(trace.shape.layers):
            last = pass_.layers.forward(f"{prefix}layer{layer}", layer, last, 0)
            if layer not in transfers:
                continue
            name, count = transfers[layer]
            for (source, target), elements in parts.items():
                if source == position:
                    program.send(
                        f"request{request}.{name}.send",
                        last,
                        to=first + target,
                        size_bytes=_cache_bytes(trace, elements, count),
                        tag=request * trace.shape.layers + layer,
                    )


def _add_decode(
    trace: KvCacheTrace,
    parts: dict[tuple[int, int], int],
    program: RankSynthesizer,
    groups: GroupTable,
) -> None:
    decode_start = trace.prefill * trace.prefill_tp
    instance, position = divmod(program.rank - decode_start, trace.decode_tp)
    pass_ = _pass(trace, program, groups, tp=trace.decode_tp, tokens=1)
    last: After = ()
    for request in range(instance, trace.requests, trace.decode):
        first = request % trace.prefill * trace.prefill_tp
        received: list[int] = []
        for name, layer, count in _transfers(trace):
            for (source, target), elements in parts.items():
                if target == position:
                    received += program.receive(
                        f"request{request}.{name}.receive",
                        (),
                        source=first + source,
                        size_bytes=_cache_bytes(trace, elements, count),
                        tag=request * trace.shape.layers + layer,
                    )
        last = program.compute(
            f"request{request}.admit", both(received, last), duration_ns=0
        )
        for step in range(trace.steps):
            prefix = f"request{request}.step{step}."
            last = pass_.answer(prefix, pass_.add(prefix, step, last), 1)


def _cache_bytes(trace: KvCacheTrace, elements: int, layers: int) -> int:
    return elements * trace.prompt * layers * trace.bytes_per_element

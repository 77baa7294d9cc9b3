"""Parameters that all kinds of synthetic traces share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field

from chakram.settings.field_types import (
    ByteRate,
    ComputeRate,
    FilePath,
    Model,
    Number,
    Whole,
    problem,
)
from chakram.synth.models import MODELS, ModelShape
from chakram.synth.trace_builder import Roofline

MAX_RANKS = 65_536
MAX_MESSAGES = 300_000
"""Maximum number of messages of a pattern; planning this many takes a minute and a
gigabyte."""

Degree = Annotated[int, Field(strict=True, ge=1, le=MAX_RANKS)]
"""Length of one parallel dimension."""

Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
"""A count of at least one."""


_SCALED, _SCALE_BYTES = 128, 4
"""FP8 has a scale of 4 bytes per 128 elements (DeepSeek-V3, section 3.3.2)."""


class SynthProblem(NamedTuple):
    """A contradiction between parameters: the key, the problem and a hint."""

    key: str
    found: str
    hint: str


class SynthTrace(Model):
    """A synthetic trace."""

    synth: str
    """Kind of synthetic trace."""

    @property
    @abstractmethod
    def nranks(self) -> int:
        """Number of ranks."""

    def problems(self) -> list[SynthProblem]:
        """Return the contradictions between parameters."""
        return list(self.doubts())

    @abstractmethod
    def doubts(self) -> Iterator[SynthProblem]:
        """Yield the contradictions between parameters."""


def _known_model(name: str) -> str:
    if name not in MODELS:
        raise problem(
            f"{name!r} is not a known model", f"choose from {', '.join(MODELS)}"
        )
    return name


ModelName = Annotated[
    str,
    AfterValidator(_known_model),
    Field(json_schema_extra={"enum": sorted(MODELS)}),
]
"""Name of a known model."""


class Routing(Model):
    """How tokens are routed to experts."""

    law: Literal[
        "balanced",
        "hot_expert",
        "hot_rank",
        "zero_rank",
        "rotating",
        "burst",
        "log_normal",
        "recorded",
    ] = "balanced"
    """balanced: all experts are equally popular; hot_expert, hot_rank: one gets share
    of all choices; zero_rank: one rank gets nothing; rotating: the hot expert changes;
    burst: an expert is hot for a while; log_normal: popularity is random; recorded:
    from splits."""
    share: Number = Field(default=0.5, gt=0.0, le=1.0)
    """Fraction of choices for the hot expert or rank."""
    target: Whole = Field(default=0, ge=0, le=1 << 16)
    """The expert or rank of the expert-parallel group that is hot or idle."""
    period: Count = 8
    """Dispatches until the hot expert changes, or the next burst."""
    length: Count = 1
    """Length of a burst, in dispatches."""
    sigma: Number = Field(default=1.0, ge=0.0, le=10.0)
    """Spread of log_normal: standard deviation of the logarithm."""
    splits: FilePath | None = None
    """File of recorded splits: .json, .csv, a matrix of bytes, or a trace set."""
    seed: Whole = Field(default=1, ge=0, lt=1 << 63)
    """Seed of the random numbers."""
    dispatch_bytes_per_element: Annotated[int, Field(strict=True, ge=1, le=64)] | (
        None
    ) = None
    """Bytes of an activation sent to experts. Default: 1 for deepseek-v3 (FP8, plus
    scales), else bytes_per_element, which also applies to results."""
    nodes: Annotated[int, Field(strict=True, ge=0, le=1 << 16)] | None = None
    """Maximum nodes for the experts of a token, which each receive it once; 0: no
    limit. Default: 4 for deepseek-v3 if ranks_per_node divides ep and law is not
    recorded, else 0."""
    ranks_per_node: Count = 8
    """Number of neighboring ranks of ep on one node, for the key nodes."""

    def dispatch_token_bytes(self, shape: ModelShape, bytes_per_element: int) -> int:
        """Return the bytes of one token on its way to the experts."""
        size = (
            self.dispatch_bytes_per_element
            or shape.dispatch_bytes_per_element
            or bytes_per_element
        )
        scales = -(-shape.hidden // _SCALED) if size == 1 < bytes_per_element else 0
        return shape.hidden * size + scales * _SCALE_BYTES

    def token_nodes(self, shape: ModelShape, nranks: int) -> int:
        """Return the maximum number of nodes that get a token, or 0 for no limit.

        Args:
            shape: The model.
            nranks: Number of ranks among which the experts are divided.
        """
        limit = self.nodes
        if limit is None:
            fits = nranks % self.ranks_per_node == 0 and self.law != "recorded"
            limit = shape.token_nodes if fits else 0
        nodes = nranks // self.ranks_per_node
        return min(limit, nodes, shape.top_k) if nodes > 1 else 0

    def doubts(
        self, *, experts: int, nranks: int, top_k: int
    ) -> Iterator[SynthProblem]:
        """Yield contradictions with a layer of *experts* on *nranks* ranks."""
        if self.nodes:
            yield from self._node_doubts(experts, nranks, top_k)
        ranks = self.law in ("hot_rank", "zero_rank")
        limit, what = (nranks, "ranks") if ranks else (experts, "experts")
        hot = self.law in ("hot_expert", "hot_rank", "rotating", "burst")
        if (hot or ranks) and self.target >= limit:
            yield SynthProblem(
                "routing.target",
                f"{self.target} is not one of the {limit} {what}",
                f"use a number from 0 to {limit - 1}",
            )
        left = experts - experts // nranks
        if self.law == "zero_rank" and left < top_k:
            yield SynthProblem(
                "routing.law",
                f"zero_rank leaves {left} experts, but top_k is {top_k}",
                "raise ep or experts, or lower top_k",
            )
        hot_experts = experts // nranks if self.law == "hot_rank" else 1
        most = min(1.0, hot_experts / top_k) if top_k else 1.0
        if hot and self.share > most:
            yield SynthProblem(
                "routing.share",
                f"{self.share:g} is more than {most:g}",
                "lower it: a token goes to top_k different experts, so an expert gets "
                "at most 1/top_k of the choices",
            )
        if (self.law == "recorded") != (self.splits is not None):
            yield SynthProblem(
                "routing.splits",
                "is missing"
                if self.law == "recorded"
                else f"is given, but law is {self.law}",
                "use law: recorded together with splits",
            )

    def _node_doubts(
        self, experts: int, nranks: int, top_k: int
    ) -> Iterator[SynthProblem]:
        if self.law == "recorded":
            yield SynthProblem(
                "routing.nodes",
                "recorded splits do not contain the tokens, so nodes has no effect",
                "remove it",
            )
        if nranks % self.ranks_per_node:
            yield SynthProblem(
                "routing.ranks_per_node",
                f"{self.ranks_per_node} does not divide ep ({nranks})",
                "choose a divisor of ep: every node has the same number of ranks",
            )
        held = (self.nodes or 0) * self.ranks_per_node * experts // nranks
        if held < top_k:
            yield SynthProblem(
                "routing.nodes",
                f"{self.nodes} nodes hold {held} experts, but top_k is {top_k}",
                "raise it, or lower top_k",
            )


class ModelTrace(SynthTrace):
    """A synthetic trace of a model."""

    model: ModelName | None = None
    """A known model; other keys override its numbers."""
    layers: Annotated[int, Field(strict=True, ge=1, le=10_000)] | None = None
    """Number of layers. Default: 4 without a model."""
    hidden: Annotated[int, Field(strict=True, ge=1, le=1 << 20)] | None = None
    """Length of a token's vector. Default: 256 without a model."""
    ffn_hidden: Annotated[int, Field(strict=True, ge=1, le=1 << 22)] | None = None
    """Inner width of a feed-forward network or expert. Default: 1024 without a
    model."""
    ffn_matrices: Literal[2, 3] | None = None
    """Number of matrices of a feed-forward network or expert; 3 means gated.
    Default: 2 without a model."""
    heads: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] | None = None
    """Number of attention heads. Default without a model: one per rank that shares
    them."""
    kv_heads: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] | None = None
    """Number of heads of keys and values. Default without a model: equal to heads."""
    vocabulary: Annotated[int, Field(strict=True, ge=0, le=1 << 24)] | None = None
    """Size of the vocabulary; 0 omits embedding, output and loss. Default: 0 without a
    model."""
    bytes_per_element: Whole = Field(default=2, ge=1, le=64)
    """Bytes of one activation or weight."""
    peak_flops: Annotated[ComputeRate, Field(ge=1)] | None = Field(
        default=None, alias="peak"
    )
    """Compute rate of a rank. Default: 50 GFLOPS, or 400 TFLOPS with a model."""
    memory_bytes_per_s: Annotated[ByteRate, Field(ge=1)] | None = Field(
        default=None, alias="memory"
    )
    """Memory bandwidth of a rank. Default: no limit in training; 3.35 TB/s per 400
    TFLOPS of peak in inference."""

    def _shape(
        self,
        *,
        heads: int,
        experts: int | None = None,
        top_k: int | None = None,
        default_experts: int = 0,
    ) -> ModelShape:
        """Return the shape of the model. *heads* is the default number of heads."""
        known = MODELS[self.model] if self.model is not None else None
        base = known or ModelShape(
            layers=4,
            hidden=256,
            heads=heads,
            kv_heads=self.heads or heads,
            head=1,
            ffn_hidden=1024,
            ffn_matrices=2,
            experts=default_experts,
            top_k=2,
        )
        hidden, own_heads = self.hidden or base.hidden, self.heads or base.heads
        resized = known is None or self.hidden is not None or self.heads is not None
        count = (experts or base.experts) if default_experts else 0
        return replace(
            base,
            layers=self.layers or base.layers,
            hidden=hidden,
            heads=own_heads,
            kv_heads=self.kv_heads or base.kv_heads,
            head=max(1, hidden // own_heads) if resized else base.head,
            ffn_hidden=self.ffn_hidden or base.ffn_hidden,
            ffn_matrices=self.ffn_matrices or base.ffn_matrices,
            vocabulary=base.vocabulary if self.vocabulary is None else self.vocabulary,
            experts=count,
            top_k=(top_k or base.top_k) if count else 0,
            expert_hidden=(self.ffn_hidden or base.expert_hidden or base.ffn_hidden)
            if count
            else 0,
            shared_experts=base.shared_experts if count else 0,
            dense_layers=base.dense_layers if count else 0,
            latent=None if resized else base.latent,
            source="",
        )

    @property
    def roofline(self) -> Roofline:
        """The roofline that determines durations of computation."""
        usual_flops = 50 * 10**9 if self.model is None else 400 * 10**12
        peak_flops = usual_flops if self.peak_flops is None else self.peak_flops
        return Roofline(
            peak_flops=peak_flops,
            memory_bytes_per_s=self.memory_bytes_per_s
            or self._usual_memory_bytes_per_s(peak_flops),
        )

    def _usual_memory_bytes_per_s(self, peak_flops: int) -> int | None:
        """Return the default memory bandwidth, or None if memory is never the limit."""
        return None


def rank_problems(nranks: int, *, key: str, what: str) -> Iterator[SynthProblem]:
    """Yield a problem if there are more than ``MAX_RANKS`` ranks."""
    if nranks > MAX_RANKS:
        yield SynthProblem(
            key, f"{what} {nranks} ranks", f"use at most {MAX_RANKS} ranks"
        )


def head_problems(
    trace: ModelTrace, shape: ModelShape, *, tp: int, cp: int = 1, key: str = "tp"
) -> Iterator[SynthProblem]:
    """Yield problems with heads that do not fit the model, or *tp* x *cp* ranks."""
    resized = trace.model is None or trace.heads or trace.hidden
    if resized and shape.hidden % shape.heads:
        yield SynthProblem(
            "heads",
            f"{shape.heads} heads do not divide hidden ({shape.hidden})",
            "choose a divisor of hidden",
        )
    if shape.heads % (tp * cp):
        what = f"{key} x cp is" if cp > 1 else f"{key} is"
        yield SynthProblem(
            key,
            f"{what} {tp * cp}, which does not divide {shape.heads} heads",
            "choose a divisor: every rank works on the same number of heads",
        )
    if not shape.latent and shape.kv_heads % tp and tp % shape.kv_heads:
        yield SynthProblem(
            key,
            f"{key} is {tp}, which does not fit {shape.kv_heads} heads of keys "
            "and values",
            "choose numbers of which one divides the other",
        )

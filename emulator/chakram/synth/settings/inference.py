"""Parameters of inference traces: prefill or decode steps, KV cache transfers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from chakram.settings.field_types import Whole
from chakram.synth.models import ModelShape
from chakram.synth.settings.base import (
    Count,
    Degree,
    ModelTrace,
    Routing,
    SynthProblem,
    head_problems,
    rank_problems,
)
from chakram.synth.settings.training import expert_problems
from chakram.synth.trace_builder import MAX_NODES

_H100_BYTES_PER_S, _H100_FLOPS = 3_350 * 10**9, 400 * 10**12
"""Memory bandwidth of an H100 SXM (data sheet), and the FLOPS that it achieves."""


class ServedTrace(ModelTrace):
    """A model in inference."""

    def _usual_memory_bytes_per_s(self, peak_flops: int) -> int:
        """Return the bandwidth for *peak_flops* at the ratio of an H100."""
        return max(1, peak_flops * _H100_BYTES_PER_S // _H100_FLOPS)


class InferenceTrace(ServedTrace):
    """Prefill or decode steps of a model in inference."""

    synth: Literal["inference"]
    """Kind of synthetic trace."""
    phase: Literal["prefill", "decode"] = "decode"
    """prefill: a step processes whole prompts; decode: one token of each sequence."""
    tp: Degree = 1
    """Ranks that divide every matrix (tensor parallelism)."""
    ep: Degree = 1
    """Ranks that divide the experts of a layer; 1 without experts."""
    dp: Degree = 1
    """Independent copies of the model."""
    batch: Whole = Field(default=16, ge=1, le=1 << 20)
    """Sequences per tensor-parallel group."""
    context: Whole = Field(default=512, ge=1, le=1 << 24)
    """Tokens of a prompt, or tokens before the decoded one."""
    steps: Count = 4
    """Steps, one after another."""
    experts: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] | None = None
    """Number of experts per layer. Default without a model: one per rank of ep, or
    none if ep is 1."""
    top_k: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] | None = None
    """Number of experts that each token is sent to. Default: 2 without a model."""
    routing: Routing = Routing.section_defaults()
    """Routing of tokens to experts."""

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return self.tp * self.ep * self.dp

    @property
    def tokens(self) -> int:
        """Number of tokens of a rank in one step."""
        return self.batch * (self.context if self.phase == "prefill" else 1)

    @cached_property
    def shape(self) -> ModelShape:
        """Shape of the model."""
        return self._shape(
            heads=self.tp,
            experts=self.experts,
            top_k=self.top_k,
            default_experts=self.ep if self.ep > 1 or self.experts or self.model else 0,
        )

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield the contradictions between parameters."""
        shape = self.shape
        yield from head_problems(self, shape, tp=self.tp)
        if shape.experts or self.ep > 1:
            yield from expert_problems(shape, self.ep, self.routing)
            if self.tokens % self.tp:
                yield SynthProblem(
                    "batch",
                    f"{self.tokens} tokens cannot be divided by tp ({self.tp})",
                    "choose a multiple of tp: each rank sends its part to the experts",
                )
        yield from rank_problems(self.nranks, key="dp", what="the degrees make")
        if self.nranks * self.steps * shape.layers * 12 > MAX_NODES:
            yield SynthProblem(
                "steps",
                f"{self.nranks} ranks x {self.steps} steps x {shape.layers} layers "
                f"may be more than {MAX_NODES} nodes",
                "reduce one of them",
            )


class KvCacheTrace(ServedTrace):
    """Prefill and decode on separate ranks, with transfers of KV caches."""

    synth: Literal["kv_cache"]
    """Kind of synthetic trace."""
    prefill: Degree = 1
    """Prefill instances; their ranks come first."""
    prefill_tp: Degree = 1
    """Ranks per prefill instance (tensor parallelism)."""
    decode: Degree = 1
    """Decode instances."""
    decode_tp: Degree = 1
    """Ranks per decode instance (tensor parallelism)."""
    requests: Count = 4
    """Prompts, each for the next prefill and decode instance."""
    prompt: Whole = Field(default=512, ge=1, le=1 << 24)
    """Tokens per prompt."""
    transfer: Literal["layer", "whole"] = "layer"
    """layer: send a layer's cache while the next layer computes; whole: send all layers
    at the end."""
    steps: Whole = Field(default=0, ge=0, le=1_000_000)
    """Decode steps per request, after its cache has arrived."""

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return self.prefill * self.prefill_tp + self.decode * self.decode_tp

    @cached_property
    def shape(self) -> ModelShape:
        """Shape of the model without experts: the trace is about the cache transfer."""
        return self._shape(heads=max(self.prefill_tp, self.decode_tp))

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield the contradictions between parameters."""
        shape = self.shape
        yield from head_problems(self, shape, tp=self.prefill_tp, key="prefill_tp")
        yield from head_problems(self, shape, tp=self.decode_tp, key="decode_tp")
        per_request = (1 + self.steps) * shape.layers * 8
        if self.nranks * self.requests * per_request > MAX_NODES:
            yield SynthProblem(
                "requests",
                f"{self.requests} requests x {self.steps} steps x {shape.layers} "
                f"layers on {self.nranks} ranks may be more than {MAX_NODES} nodes",
                "reduce one of them",
            )
        yield from rank_problems(self.nranks, key="decode", what="the instances have")

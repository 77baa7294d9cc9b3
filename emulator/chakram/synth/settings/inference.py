"""Made-up inference: steps of prefill or decode, hand-over of KV caches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from chakram.settings.quantities import Whole
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
"""Memory rate of an H100 SXM (data sheet), and the operations that it reaches."""


class ServedTrace(ModelTrace):
    """A model that is served."""

    def _usual_memory_bytes_per_s(self, peak_flops: int) -> int:
        """Return the rate in an H100's ratio: decode waits for weights and caches."""
        return max(1, peak_flops * _H100_BYTES_PER_S // _H100_FLOPS)


class InferenceTrace(ServedTrace):
    """Steps of a model that is served, in prefill or decode."""

    synth: Literal["inference"]
    """Kind of the made-up trace."""
    phase: Literal["prefill", "decode"] = "decode"
    """prefill: a step takes whole prompts; decode: one token of each sequence."""
    tp: Degree = 1
    """Ranks that divide every matrix (tensor parallelism)."""
    ep: Degree = 1
    """Ranks over which the experts of a layer are spread; 1 without experts."""
    dp: Degree = 1
    """Copies that have nothing to do with one another."""
    batch: Whole = Field(default=16, ge=1, le=1 << 20)
    """Sequences of the ranks of one tensor-parallel group."""
    context: Whole = Field(default=512, ge=1, le=1 << 24)
    """Tokens of a prompt, or those before the one that is decoded."""
    steps: Count = 4
    """Steps, one after another."""
    experts: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] | None = None
    """Experts of a layer; without a model one per rank of ep, none if ep is 1."""
    top_k: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] | None = None
    """Experts that each token is sent to; without a model 2."""
    routing: Routing = Routing.unsaid()
    """How tokens find experts; balanced unless it says otherwise."""

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return self.tp * self.ep * self.dp

    @property
    def tokens(self) -> int:
        """Tokens of one step of a rank."""
        return self.batch * (self.context if self.phase == "prefill" else 1)

    @cached_property
    def shape(self) -> ModelShape:
        """The model."""
        return self._shape(
            heads=self.tp,
            experts=self.experts,
            top_k=self.top_k,
            default_experts=self.ep if self.ep > 1 or self.experts or self.model else 0,
        )

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield what does not fit together."""
        shape = self.shape
        yield from head_problems(self, shape, tp=self.tp)
        if shape.experts or self.ep > 1:
            yield from expert_problems(shape, self.ep, self.routing)
            if self.tokens % self.tp:
                yield SynthProblem(
                    "batch",
                    f"{self.tokens} tokens do not divide into tp, {self.tp}, parts",
                    "each of them sends its part to the experts",
                )
        yield from rank_problems(self.nranks, key="dp", what="the degrees make")
        if self.nranks * self.steps * shape.layers * 12 > MAX_NODES:
            yield SynthProblem(
                "steps",
                f"{self.nranks} ranks x {self.steps} steps x {shape.layers} layers "
                f"may be more than {MAX_NODES} nodes",
                "take fewer of them",
            )


class KvCacheTrace(ServedTrace):
    """Prefill and decode on ranks of their own: the hand-over of KV caches."""

    synth: Literal["kv_cache"]
    """Kind of the made-up trace."""
    prefill: Degree = 1
    """Prefill instances; their ranks come first."""
    prefill_tp: Degree = 1
    """Ranks of a prefill instance (tensor parallelism)."""
    decode: Degree = 1
    """Decode instances."""
    decode_tp: Degree = 1
    """Ranks of a decode instance (tensor parallelism)."""
    requests: Count = 4
    """Prompts; each goes to the next prefill and the next decode instance."""
    prompt: Whole = Field(default=512, ge=1, le=1 << 24)
    """Tokens of a prompt."""
    transfer: Literal["layer", "whole"] = "layer"
    """layer: a layer's cache leaves while the next layer computes; whole: all at the
    end."""
    steps: Whole = Field(default=0, ge=0, le=1_000_000)
    """Steps of decode of each request, once its cache is there."""

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return self.prefill * self.prefill_tp + self.decode * self.decode_tp

    @cached_property
    def shape(self) -> ModelShape:
        """The model, without what experts send: the hand-over is what is looked at."""
        return self._shape(heads=max(self.prefill_tp, self.decode_tp))

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield what does not fit together."""
        shape = self.shape
        yield from head_problems(self, shape, tp=self.prefill_tp, key="prefill_tp")
        yield from head_problems(self, shape, tp=self.decode_tp, key="decode_tp")
        per_request = (1 + self.steps) * shape.layers * 8
        if self.nranks * self.requests * per_request > MAX_NODES:
            yield SynthProblem(
                "requests",
                f"{self.requests} requests x {self.steps} steps x {shape.layers} "
                f"layers on {self.nranks} ranks may be more than {MAX_NODES} nodes",
                "take fewer of them",
            )
        yield from rank_problems(self.nranks, key="decode", what="the instances have")

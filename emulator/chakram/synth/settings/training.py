"""Parameters of training traces: model, parallel dimensions and micro batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from chakram.foundation.units import LARGEST_SIZE_BYTES, about_size
from chakram.settings.field_types import Size, Time, Whole, ZeroableSize, problem
from chakram.synth.grid import DIMENSIONS, RankGrid
from chakram.synth.models import ModelShape
from chakram.synth.settings.base import (
    MAX_RANKS,
    Degree,
    ModelTrace,
    Routing,
    SynthProblem,
    head_problems,
    rank_problems,
)
from chakram.synth.trace_builder import MAX_NODES


def _rank_order(value: Any) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, list | tuple) else ()
    if sorted(map(str, names)) != sorted(DIMENSIONS):
        raise problem(
            f"{value!r} is not an order of dimensions",
            f"name each once, e.g. [{', '.join(DIMENSIONS)}]",
        )
    return names


RankOrder = Annotated[
    tuple[str, ...],
    PlainValidator(_rank_order),
    PlainSerializer(list, return_type=list[str], when_used="json"),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"enum": list(DIMENSIONS)},
            "minItems": len(DIMENSIONS),
            "maxItems": len(DIMENSIONS),
            "uniqueItems": True,
        }
    ),
]


class TrainingTrace(ModelTrace):
    """One training iteration of a model."""

    ranks: Annotated[int, Field(strict=True, ge=1, le=MAX_RANKS)] | None = None
    """Number of ranks, the product of all degrees."""
    tp: Degree = 1
    """Ranks that divide every matrix (tensor parallelism)."""
    cp: Degree = 1
    """Ranks that divide the tokens of a sample (context parallelism)."""
    fsdp: Degree = 1
    """Ranks that shard the weights of a layer."""
    dp: Degree | None = None
    """Number of copies of the model. Default: ranks divided by the other degrees, or
    2 without ranks."""
    pp: Degree = 1
    """Pipeline stages (pipeline parallelism)."""
    rank_order: RankOrder = DIMENSIONS
    """Order of the dimensions; neighboring ranks differ in the first one."""
    sequence_parallel: Annotated[bool, Field(strict=True)] = True
    """Whether tensor-parallel ranks divide tokens between layers: reduce-scatter and
    all-gather instead of all-reduce."""
    sequence: Annotated[int, Field(strict=True, ge=1, le=1 << 24)] | None = None
    """Tokens per sample. Default: 512, or 4096 with a model."""
    micro_batch: Whole = Field(default=1, ge=1, le=1 << 16)
    """Samples per micro batch and rank."""
    micro_batches: Whole = Field(default=1, ge=1, le=1 << 16)
    """Micro batches per iteration."""
    pipeline: Literal["1f1b", "gpipe"] = "1f1b"
    """Order of micro batches in a stage."""
    gradient_bytes_per_element: (
        Annotated[int, Field(strict=True, ge=1, le=64)] | None
    ) = None
    """Bytes of one gradient. Default: bytes_per_element."""
    bucket_bytes: Size | None = Field(default=None, alias="bucket")
    """Bytes of gradients to reduce at a time. Default: the gradients of a layer."""
    overlap: Annotated[bool, Field(strict=True)] = True
    """Whether gradients are reduced during the backward pass."""
    distributed_optimizer: Annotated[bool, Field(strict=True)] = False
    """Whether each copy updates a part of the weights: reduce-scatter and all-gather
    instead of all-reduce."""

    @property
    def expert_parallel(self) -> int:
        """Number of ranks among which the experts of a layer are divided."""
        return 1

    @property
    def degrees(self) -> dict[str, int]:
        """Length of each dimension."""
        others = {
            "tp": self.tp,
            "cp": self.cp,
            "ep": self.expert_parallel,
            "fsdp": self.fsdp,
            "pp": self.pp,
        }
        copies = self.dp
        if copies is None:
            copies = 2
            if self.ranks is not None:
                copies = max(1, self.ranks // math.prod(others.values()))
        return {**others, "dp": copies}

    @property
    def nranks(self) -> int:
        """Number of ranks."""
        return math.prod(self.degrees.values())

    @property
    def sample_tokens(self) -> int:
        """Number of tokens in one sample."""
        return self.sequence or (512 if self.model is None else 4096)

    @cached_property
    def shape(self) -> ModelShape:
        """Shape of the model."""
        return self._shape(heads=self.tp * self.cp)

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one gradient."""
        return self.gradient_bytes_per_element or self.bytes_per_element

    @property
    def grid(self) -> RankGrid:
        """The ranks."""
        return RankGrid(self.degrees, self.rank_order)

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield the contradictions between parameters."""
        yield from self._rank_problems()
        yield from self._division_problems()
        yield from self._size_problems()

    def _rank_problems(self) -> Iterator[SynthProblem]:
        degrees, ranks = self.degrees, self.ranks
        others = self.nranks // degrees["dp"]
        named = [
            name
            for name in DIMENSIONS
            if degrees[name] > 1
            or name == "dp"
            or (name == "ep" and name in type(self).model_fields)
        ]
        if ranks is not None and self.dp is None and ranks % others:
            named.remove("dp")
            yield SynthProblem(
                "ranks",
                f"{ranks} ranks cannot be divided by {' x '.join(named)} = {others}",
                f"use e.g. {-(-ranks // others) * others}",
            )
        elif ranks is not None and ranks != self.nranks:
            product = " x ".join(str(degrees[name]) for name in named)
            result = f" = {self.nranks}" if len(named) > 1 else ""
            yield SynthProblem(
                "ranks",
                f"ranks is {ranks}, but {' x '.join(named)} is {product}{result}",
                f"set ranks to {' x '.join(named)}",
            )
        yield from rank_problems(self.nranks, key="dp", what="the degrees make")

    def _division_problems(self) -> Iterator[SynthProblem]:
        shape = self.shape
        yield from head_problems(self, shape, tp=self.tp, cp=self.cp)
        if self.sample_tokens % self.cp:
            yield SynthProblem(
                "sequence",
                f"{self.sample_tokens} tokens cannot be divided by cp ({self.cp})",
                "choose a multiple",
            )
        tokens = self.micro_batch * self.sample_tokens // self.cp
        if tokens % self.tp and (self.sequence_parallel or shape.experts):
            yield SynthProblem(
                "sequence",
                f"the {tokens} tokens of a rank cannot be divided by tp ({self.tp})",
                "choose a multiple",
            )
        if self.pp > shape.layers:
            yield SynthProblem(
                "pp",
                f"{self.pp} stages exceed {shape.layers} layers",
                "use at most one stage per layer",
            )

    @property
    def has_alike_ranks(self) -> bool:
        """Whether all ranks of a pipeline stage do the same work."""
        return True

    def _size_problems(self) -> Iterator[SynthProblem]:
        shape = self.shape
        tokens = self.micro_batch * self.sample_tokens
        token_bytes = shape.hidden * self.bytes_per_element
        weights = max(
            shape.expert_parameters * max(1, shape.experts),
            shape.ffn_parameters + shape.attention_parameters(),
            shape.embedding_parameters,
        )
        element = max(self.bytes_per_element, self.gradient_bytes_per_element or 0)
        largest = max(tokens * token_bytes * max(1, shape.top_k), weights * element)
        if largest > LARGEST_SIZE_BYTES:
            yield SynthProblem(
                "hidden",
                f"a buffer has {about_size(largest)}",
                "reduce the sizes: a buffer in a trace has at most "
                f"{about_size(LARGEST_SIZE_BYTES)}",
            )
        traces = self.pp if self.has_alike_ranks else self.nranks
        nodes = traces * self.micro_batches * 30 * max(1, shape.layers // self.pp)
        divided = self.nranks // (self.degrees["dp"] * self.cp)
        bucket_bytes = self.bucket_bytes or LARGEST_SIZE_BYTES
        gradient_bytes = shape.parameters * self.gradient_bytes
        buckets = traces * gradient_bytes // (divided * bucket_bytes)
        if buckets > MAX_NODES:
            yield SynthProblem(
                "bucket",
                f"the gradients of {traces} ranks fill {buckets} buckets",
                f"raise it: a set has at most {MAX_NODES} nodes",
            )
        if nodes > MAX_NODES:
            yield SynthProblem(
                "layers",
                f"{self.nranks} ranks x {shape.layers} layers x "
                f"{self.micro_batches} micro batches may be more than {MAX_NODES} "
                "nodes",
                "reduce one of them",
            )


class DenseTrace(TrainingTrace):
    """One training iteration of a dense model."""

    synth: Literal["dense"]
    """Kind of synthetic trace."""


class MoeTrace(TrainingTrace):
    """One training iteration of a mixture-of-experts model."""

    synth: Literal["moe"]
    """Kind of synthetic trace."""
    ep: Degree = 4
    """Ranks that divide the experts of a layer (expert parallelism)."""
    experts: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] | None = None
    """Number of experts per layer. Default without a model: one per rank of ep."""
    top_k: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] | None = None
    """Number of experts that each token is sent to. Default: 2 without a model."""
    routing: Routing = Routing.section_defaults()
    """Routing of tokens to experts."""
    all_to_all_bytes: Size | None = Field(default=None, alias="all_to_all")
    """Send buffer of one rank per all-to-all, instead of the model's size."""
    all_reduce_bytes: Size | None = Field(default=None, alias="all_reduce")
    """Expert gradients per layer and rank, instead of the model's size."""
    dense_bytes: ZeroableSize | None = Field(default=None, alias="dense")
    """Dense gradients per layer and rank, instead of the model's size; 0B: none."""
    attention_ns: Time | None = Field(default=None, alias="attention")
    """Forward time of a layer's attention, rounded to 1us, instead of the model's."""
    expert_ns: Time | None = Field(default=None, alias="expert")
    """Forward time of a layer's experts, rounded to 1us, instead of the model's."""

    @property
    def expert_parallel(self) -> int:
        """Number of ranks among which the experts of a layer are divided."""
        return self.ep

    @property
    def has_alike_ranks(self) -> bool:
        """Whether all ranks of a pipeline stage do the same work."""
        is_even = self.routing.law == "balanced"
        return is_even and not self.routing.token_nodes(self.shape, self.ep)

    @cached_property
    def shape(self) -> ModelShape:
        """Shape of the model."""
        return self._shape(
            heads=self.tp * self.cp,
            experts=self.experts,
            top_k=self.top_k,
            default_experts=self.ep,
        )

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield the contradictions between parameters."""
        yield from super().doubts()
        yield from expert_problems(self.shape, self.ep, self.routing)
        if self.tp > 1 and not self.sequence_parallel:
            yield SynthProblem(
                "sequence_parallel",
                "all tensor-parallel ranks would send the same tokens to experts",
                "leave it true if tp is above 1",
            )
        if self.all_to_all_bytes is not None and self.routing.law != "balanced":
            yield SynthProblem(
                "all_to_all",
                f"routing by {self.routing.law} determines the sizes",
                "remove routing or all_to_all",
            )


def expert_problems(
    shape: ModelShape, ep: int, routing: Routing
) -> Iterator[SynthProblem]:
    """Yield problems with experts, or with their routing, on *ep* ranks."""
    if not shape.experts:
        yield SynthProblem(
            "model", "has no experts", "use synth: dense, or another model"
        )
        return
    if shape.experts % ep:
        yield SynthProblem(
            "ep",
            f"{ep} ranks do not divide {shape.experts} experts",
            "choose a divisor: every rank holds the same number of experts",
        )
    if shape.top_k > shape.experts:
        yield SynthProblem(
            "top_k",
            f"{shape.top_k} is more than the {shape.experts} experts of a layer",
            "lower it: a token goes to different experts",
        )
    if not shape.experts % ep and shape.top_k <= shape.experts:
        yield from routing.doubts(experts=shape.experts, nranks=ep, top_k=shape.top_k)

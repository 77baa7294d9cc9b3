"""Made-up training: a model, its parallel dimensions, its micro batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from chakram.foundation.units import LARGEST_SIZE_BYTES, about_size
from chakram.settings.quantities import Size, Time, Whole, ZeroableSize, problem
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
    """Ranks that divide the weights of a layer and gather them when they need them."""
    dp: Degree | None = None
    """Copies of the model; without it what ranks leaves, else 2."""
    pp: Degree = 1
    """Stages of layers (pipeline parallelism)."""
    rank_order: RankOrder = DIMENSIONS
    """Dimensions, from the one whose ranks are neighbours."""
    sequence_parallel: Annotated[bool, Field(strict=True)] = True
    """Whether tensor-parallel ranks divide tokens between attention and feed-forward
    network: reduce-scatter and all-gather instead of all-reduce."""
    sequence: Annotated[int, Field(strict=True, ge=1, le=1 << 24)] | None = None
    """Tokens of one sample; 512, with a model 4096."""
    micro_batch: Whole = Field(default=1, ge=1, le=1 << 16)
    """Samples of one micro batch of one rank."""
    micro_batches: Whole = Field(default=1, ge=1, le=1 << 16)
    """Micro batches of one iteration."""
    pipeline: Literal["1f1b", "gpipe"] = "1f1b"
    """Order of micro batches in a stage."""
    gradient_bytes_per_element: (
        Annotated[int, Field(strict=True, ge=1, le=64)] | None
    ) = None
    """Bytes of one gradient; without it bytes_per_element."""
    bucket_bytes: Size | None = Field(default=None, alias="bucket")
    """Gradients that are summed up at a time; without it those of a layer."""
    overlap: Annotated[bool, Field(strict=True)] = True
    """Whether gradients are summed up while backward goes on."""
    distributed_optimizer: Annotated[bool, Field(strict=True)] = False
    """Whether each copy updates a part: reduce-scatter of gradients, then all-gather of
    weights, instead of all-reduce."""

    @property
    def expert_parallel(self) -> int:
        """Ranks over which experts are spread."""
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
        """Tokens of one sample."""
        return self.sequence or (512 if self.model is None else 4096)

    @cached_property
    def shape(self) -> ModelShape:
        """The model."""
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
        """Yield what does not fit together."""
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
                f"{ranks} ranks do not divide into {' x '.join(named)} = {others}",
                f"e.g. {-(-ranks // others) * others}",
            )
        elif ranks is not None and ranks != self.nranks:
            product = " x ".join(str(degrees[name]) for name in named)
            result = f" = {self.nranks}" if len(named) > 1 else ""
            yield SynthProblem(
                "ranks",
                f"ranks is {ranks}, but {' x '.join(named)} is {product}{result}",
                f"ranks must be {' x '.join(named)}",
            )
        yield from rank_problems(self.nranks, key="dp", what="the degrees make")

    def _division_problems(self) -> Iterator[SynthProblem]:
        shape = self.shape
        yield from head_problems(self, shape, tp=self.tp, cp=self.cp)
        if self.sample_tokens % self.cp:
            yield SynthProblem(
                "sequence",
                f"{self.sample_tokens} tokens do not divide into cp, {self.cp}, parts",
                "choose a multiple",
            )
        tokens = self.micro_batch * self.sample_tokens // self.cp
        if tokens % self.tp and (self.sequence_parallel or shape.experts):
            yield SynthProblem(
                "sequence",
                f"the {tokens} tokens of a rank do not divide into tp, {self.tp}, "
                "parts",
                "choose a multiple",
            )
        if self.pp > shape.layers:
            yield SynthProblem(
                "pp",
                f"{self.pp} stages are more than {shape.layers} layers",
                "a stage has at least one layer",
            )

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
                f"a buffer comes out as {about_size(largest)}",
                f"at most {about_size(LARGEST_SIZE_BYTES)} fits a trace",
            )
        nodes = self.nranks * self.micro_batches * 30 * max(1, shape.layers // self.pp)
        if nodes > MAX_NODES:
            yield SynthProblem(
                "layers",
                f"{self.nranks} ranks x {shape.layers} layers x "
                f"{self.micro_batches} micro batches may be more than {MAX_NODES} "
                "nodes",
                "take fewer of them",
            )


class DenseTrace(TrainingTrace):
    """One training iteration of a dense model."""

    synth: Literal["dense"]
    """Kind of the made-up trace."""


class MoeTrace(TrainingTrace):
    """One training iteration of a mixture-of-experts model."""

    synth: Literal["moe"]
    """Kind of the made-up trace."""
    ep: Degree = 4
    """Ranks over which the experts of a layer are spread (expert parallelism)."""
    experts: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] | None = None
    """Experts of a layer; without a model one per rank of ep."""
    top_k: Annotated[int, Field(strict=True, ge=1, le=1 << 16)] | None = None
    """Experts that each token is sent to; without a model 2."""
    routing: Routing = Routing.unsaid()
    """How tokens find experts; balanced unless it says otherwise."""
    all_to_all_bytes: Size | None = Field(default=None, alias="all_to_all")
    """Send buffer of one rank in one all-to-all, instead of what the model gives."""
    all_reduce_bytes: Size | None = Field(default=None, alias="all_reduce")
    """Expert gradients of one layer and rank, instead of what the model gives."""
    dense_bytes: ZeroableSize | None = Field(default=None, alias="dense")
    """Dense gradients of one layer, instead of what the model gives; 0B: none."""
    attention_ns: Time | None = Field(default=None, alias="attention")
    """Forward time of one layer's attention, instead of what the model gives."""
    expert_ns: Time | None = Field(default=None, alias="expert")
    """Forward time of one layer's experts, instead of what the model gives."""

    @property
    def expert_parallel(self) -> int:
        """Ranks over which experts are spread."""
        return self.ep

    @cached_property
    def shape(self) -> ModelShape:
        """The model."""
        return self._shape(
            heads=self.tp * self.cp,
            experts=self.experts,
            top_k=self.top_k,
            default_experts=self.ep,
        )

    def doubts(self) -> Iterator[SynthProblem]:
        """Yield what does not fit together."""
        yield from super().doubts()
        yield from expert_problems(self.shape, self.ep, self.routing)
        if self.tp > 1 and not self.sequence_parallel:
            yield SynthProblem(
                "sequence_parallel",
                "tensor-parallel ranks would all send the same tokens to experts",
                "leave it true where tp is above 1",
            )
        if self.all_to_all_bytes is not None and self.routing.law != "balanced":
            yield SynthProblem(
                "all_to_all",
                f"routing by {self.routing.law} gives the sizes",
                "take one of the two out",
            )


def expert_problems(
    shape: ModelShape, ep: int, routing: Routing
) -> Iterator[SynthProblem]:
    """Yield what experts, or else their routing, do not fit *ep* ranks."""
    if not shape.experts:
        yield SynthProblem(
            "model", "has no experts", "take synth: dense, or another model"
        )
        return
    if shape.experts % ep:
        yield SynthProblem(
            "ep",
            f"{ep} ranks do not divide {shape.experts} experts",
            "every rank holds as many",
        )
    if shape.top_k > shape.experts:
        yield SynthProblem(
            "top_k",
            f"{shape.top_k} is more than the {shape.experts} experts of a layer",
            "a token goes to different experts",
        )
    if not shape.experts % ep and shape.top_k <= shape.experts:
        yield from routing.doubts(experts=shape.experts, nranks=ep, top_k=shape.top_k)

"""Model shapes, which determine sizes and operations, and known models.

Numbers of parameters exclude normalization, biases and the gates of experts. These are
less than 0.1 % of the parameters of any model in this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    Attributes:
        query_rank: Length of the compressed query.
        kv_rank: Length of the compressed keys and values, which are cached.
        plain: Length of the part of a head's key without position information.
        rotary: Length of the part of a key with position information. All heads share
            this part, which is also cached.
        value: Length of a head's value.
    """

    query_rank: int
    kv_rank: int
    plain: int
    rotary: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A transformer, dense or with experts.

    Attributes:
        layers: Number of layers.
        hidden: Length of a token's vector.
        heads: Number of attention heads.
        kv_heads: Number of key and value heads. If there are fewer than *heads*,
            several heads share one.
        head: Length of one head.
        ffn_hidden: Inner width of a dense layer's feed-forward network.
        ffn_matrices: Number of matrices in a feed-forward network or expert: 2, or 3 if
            gated.
        vocabulary: Size of the vocabulary. 0 leaves out embedding and output.
        tied: Whether embedding and output share one matrix.
        experts: Number of routed experts per layer, 0 in a dense model.
        top_k: Number of routed experts per token.
        expert_hidden: Inner width of an expert.
        shared_experts: Number of experts that process every token, on the token's own
            rank.
        dense_layers: Number of layers at the start that have no experts.
        latent: Latent attention, if the model has it.
        dispatch_bytes_per_element: Bytes of one activation on its way to the experts. 0
            means the same size as other activations.
        token_nodes: Maximum number of nodes to which one token is sent. 0 means no
            limit.
        ranks_per_node: Number of ranks per node, for a model with *token_nodes*.
        source: Publication or file that states the numbers.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    ffn_hidden: int
    ffn_matrices: int = 3
    vocabulary: int = 0
    tied: bool = False
    experts: int = 0
    top_k: int = 0
    expert_hidden: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    latent: LatentAttention | None = None
    dispatch_bytes_per_element: int = 0
    token_nodes: int = 0
    ranks_per_node: int = 8
    source: str = ""

    def has_experts(self, layer: int) -> bool:
        """Return whether *layer*, counted from 0, has routed experts."""
        return self.experts > 0 and layer >= self.dense_layers

    @property
    def query_length(self) -> int:
        """Length of one head's query and key."""
        return self.latent.plain + self.latent.rotary if self.latent else self.head

    @property
    def value_length(self) -> int:
        """Length of one head's value."""
        return self.latent.value if self.latent else self.head

    @property
    def cached(self) -> int:
        """Elements that one layer caches per token: keys and values of all heads."""
        if self.latent:
            return self.latent.kv_rank + self.latent.rotary
        return 2 * self.kv_heads * self.head

    def attention_parameters(self, tp: int = 1) -> int:
        """Return the number of attention parameters of one layer on one of *tp* ranks.

        If there are fewer key-value heads than ranks, several ranks have the same head.
        """
        if self.latent is None:
            queries = self.heads * self.head // tp
            keys = max(1, self.kv_heads // tp) * self.head
            return 2 * self.hidden * (queries + keys)
        latent, heads = self.latent, self.heads // tp
        # Every rank has both compression matrices, which are small.
        return (
            self.hidden * (latent.query_rank + latent.kv_rank + latent.rotary)
            + latent.query_rank * heads * (latent.plain + latent.rotary)
            + latent.kv_rank * heads * (latent.plain + latent.value)
            + heads * latent.value * self.hidden
        )

    @property
    def ffn_parameters(self) -> int:
        """Number of parameters of a dense layer's feed-forward network."""
        return self.ffn_matrices * self.hidden * self.ffn_hidden

    @property
    def expert_parameters(self) -> int:
        """Number of parameters of one expert, routed or shared."""
        return self.ffn_matrices * self.hidden * self.expert_hidden

    def dense_parameters(self, layer: int, tp: int = 1) -> int:
        """Return the parameter count of *layer* on one rank, without routed experts."""
        beside = (
            self.shared_experts * self.expert_parameters
            if self.has_experts(layer)
            else self.ffn_parameters
        )
        return self.attention_parameters(tp) + beside // tp

    @property
    def embedding_parameters(self) -> int:
        """Number of parameters of the embedding. The output has the same number."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """Number of all parameters of the model."""
        total = self.embedding_parameters * (1 if self.tied else 2)
        for layer in range(self.layers):
            total += self.dense_parameters(layer)
            if self.has_experts(layer):
                total += self.experts * self.expert_parameters
        return total


_LLAMA_3 = ModelShape(
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    head=128,
    ffn_hidden=14336,
    vocabulary=128_256,
    source="Llama 3, arXiv:2407.21783, table 3; config.json of the release",
)
_MIXTRAL = ModelShape(
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    head=128,
    ffn_hidden=14336,
    vocabulary=32_000,
    experts=8,
    top_k=2,
    expert_hidden=14336,
    source="Mixtral, arXiv:2401.04088, table 1",
)
_GPT_OSS = ModelShape(
    layers=24,
    hidden=2880,
    heads=64,
    kv_heads=8,
    head=64,
    ffn_hidden=2880,
    vocabulary=201_088,
    experts=32,
    top_k=4,
    expert_hidden=2880,
    source="gpt-oss model card, arXiv:2508.10925, section 2",
)
MODELS: Final[Mapping[str, ModelShape]] = MappingProxyType(
    {
        "llama-3-8b": _LLAMA_3,
        "llama-3-70b": replace(
            _LLAMA_3,
            layers=80,
            hidden=8192,
            heads=64,
            ffn_hidden=28672,
        ),
        "llama-3-405b": replace(
            _LLAMA_3,
            layers=126,
            hidden=16384,
            heads=128,
            ffn_hidden=53248,
        ),
        "gpt-3-175b": ModelShape(
            layers=96,
            hidden=12288,
            heads=96,
            kv_heads=96,
            head=128,
            ffn_hidden=49152,
            ffn_matrices=2,
            vocabulary=50_257,
            tied=True,
            source="GPT-3, arXiv:2005.14165, table 2.1",
        ),
        "mixtral-8x7b": _MIXTRAL,
        "mixtral-8x22b": replace(
            _MIXTRAL,
            layers=56,
            hidden=6144,
            heads=48,
            ffn_hidden=16384,
            vocabulary=32_768,
            expert_hidden=16384,
            source="config.json and model card of Mixtral-8x22B-v0.3",
        ),
        "deepseek-v3": ModelShape(
            layers=61,
            hidden=7168,
            heads=128,
            kv_heads=128,
            head=128,
            ffn_hidden=18432,
            vocabulary=129_280,
            experts=256,
            top_k=8,
            expert_hidden=2048,
            shared_experts=1,
            dense_layers=3,
            latent=LatentAttention(
                query_rank=1536, kv_rank=512, plain=128, rotary=64, value=128
            ),
            # Section 3.2.2: FP8 to the experts, BF16 back; at most 4 nodes of 8 GPUs
            # per token.
            dispatch_bytes_per_element=1,
            token_nodes=4,
            source="DeepSeek-V3, arXiv:2412.19437, section 4.2, without the module "
            "that predicts a second token",
        ),
        "gpt-oss-20b": _GPT_OSS,
        "gpt-oss-120b": replace(_GPT_OSS, layers=36, experts=128),
    }
)
"""Known models by name."""

"""Shapes of known models."""

from __future__ import annotations

import pytest

from chakram.synth.models import MODELS, ModelShape

STATED = {
    "llama-3-8b": 8.03e9,
    "llama-3-70b": 70.6e9,
    "llama-3-405b": 405.9e9,
    "gpt-3-175b": 175e9,
    "mixtral-8x7b": 46.7e9,
    "mixtral-8x22b": 141e9,
    "deepseek-v3": 671e9,
    "gpt-oss-20b": 20.9e9,
    "gpt-oss-120b": 116.8e9,
}
"""Parameters of each model, as its source states them."""


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_parameters_that_its_source_states(name: str) -> None:
    shape = MODELS[name]
    assert shape.parameters == pytest.approx(STATED[name], rel=0.005)
    assert shape.source


def test_tensor_parallel_ranks_share_attention() -> None:
    shape = MODELS["llama-3-8b"]
    whole = shape.attention_parameters()
    assert whole == 2 * 4096 * (32 + 8) * 128
    assert shape.attention_parameters(8) * 8 == whole
    # Eight heads of keys and values: sixteen ranks hold each of them twice.
    assert shape.attention_parameters(16) * 16 == whole + 2 * 4096 * 8 * 128


def test_layer_without_experts_is_dense() -> None:
    shape = MODELS["deepseek-v3"]
    assert not shape.has_experts(2)
    assert shape.has_experts(3)
    dense, with_experts = shape.dense_parameters(0), shape.dense_parameters(3)
    assert dense - with_experts == shape.ffn_parameters - shape.expert_parameters


@pytest.mark.parametrize(
    ("name", "cached"),
    [("llama-3-8b", 2 * 8 * 128), ("mixtral-8x7b", 2048), ("deepseek-v3", 512 + 64)],
)
def test_keys_and_values_are_cached_or_their_compression(
    name: str, cached: int
) -> None:
    assert MODELS[name].cached == cached


def test_embedding_and_output_can_share_weights() -> None:
    def parameters(*, tied: bool) -> int:
        return ModelShape(
            layers=1,
            hidden=8,
            heads=1,
            kv_heads=1,
            head=8,
            ffn_hidden=16,
            vocabulary=10,
            tied=tied,
        ).parameters

    assert parameters(tied=False) - parameters(tied=True) == 80

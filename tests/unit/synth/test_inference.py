"""Synthetic inference: steps, and the hand-over of KV caches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chakram.collectives.split_sizes import Splits
from chakram.synth.inference import cache_parts, heads_of
from chakram.synth.models import MODELS
from chakram.trace.node import NodeKind
from tests.unit.synth.making import graph, make, names_before, traffic


def test_tensor_parallel_decode_sums_up_a_few_kilobytes() -> None:
    found = traffic(
        "inference", model="llama-3-8b", tp=8, batch=4, steps=3, vocabulary=0
    )
    assert found == {("all_reduce", 4 * 4096 * 2, "tensor"): 3 * 32 * 2}


def test_scores_are_gathered_once_a_step() -> None:
    found = traffic("inference", model="llama-3-8b", tp=8, batch=4, steps=3, layers=1)
    assert found["all_gather", 4 * 128_256 // 8 * 2, "tensor"] == 3


def test_prefill_processes_whole_prompts() -> None:
    found = traffic(
        "inference", phase="prefill", tp=2, batch=3, context=100, steps=1, layers=1
    )
    assert found == {("all_reduce", 3 * 100 * 256 * 2, "tensor"): 2}


def test_steps_follow_one_another() -> None:
    made = graph("inference", steps=2, layers=2, tp=2)
    assert "step0.layer1.ffn.sum" in names_before(made, "step1.layer0.attention")


def test_expert_decode_dispatches_and_combines_tokens() -> None:
    found = traffic("inference", ep=4, batch=16, steps=2, layers=3)
    assert found == {("all_to_all", 16 * 2 * 256 * 2, "expert"): 2 * 3 * 2}
    found = traffic("inference", ep=4, tp=2, batch=16, steps=1, layers=1)
    assert found["all_to_all", 8 * 2 * 256 * 2, "expert"] == 2
    # The part of each tensor-parallel rank goes to the others at the end.
    assert found["all_gather", 8 * 256 * 2, "tensor"] == 1


def test_bin_counts_become_splits(tmp_path: Path) -> None:
    bins = [[1, 2, 5, 0, 0, 0, 0, 4], [0, 0, 6, 6, 0, 0, 0, 0]]
    path = tmp_path / "bins.json"
    path.write_text(json.dumps({"unit": "tokens", "dispatches": [bins]}))
    made = make(
        "inference",
        ep=2,
        experts=8,
        batch=6,
        steps=1,
        layers=1,
        routing={"law": "recorded", "splits": str(path)},
    )
    token = 256 * 2
    splits = [
        [node.splits for node in made.graphs[rank].nodes() if node.splits]
        for rank in (0, 1)
    ]
    there = Splits((8 * token, 4 * token), (8 * token, 12 * token))
    assert splits[0] == [there, Splits(*reversed(there))]
    there = Splits((12 * token, 0), (4 * token, 0))
    assert splits[1] == [there, Splits(*reversed(there))]


@pytest.mark.parametrize(
    ("prefill_tp", "decode_tp", "parts"),
    [
        (1, 1, {(0, 0): 2048}),
        (2, 2, {(0, 0): 1024, (1, 1): 1024}),
        (2, 4, {(0, 0): 512, (0, 1): 512, (1, 2): 512, (1, 3): 512}),
        (4, 2, {(0, 0): 512, (1, 0): 512, (2, 1): 512, (3, 1): 512}),
    ],
)
def test_heads_are_sent_to_the_ranks_that_compute_them(
    prefill_tp: int, decode_tp: int, parts: dict[tuple[int, int], int]
) -> None:
    shape = MODELS["llama-3-8b"]
    assert cache_parts(shape, prefill_tp=prefill_tp, decode_tp=decode_tp) == parts


def test_ranks_with_the_same_head_alternate() -> None:
    shape = MODELS["llama-3-8b"]
    parts = cache_parts(shape, prefill_tp=16, decode_tp=16)
    assert {source for source, _ in parts} == set(range(16))
    assert set(parts.values()) == {256}
    assert heads_of(5, heads=8, tp=16) == range(2, 3)


def test_a_latent_cache_goes_whole_to_every_decode_rank() -> None:
    shape = MODELS["deepseek-v3"]
    parts = cache_parts(shape, prefill_tp=2, decode_tp=4)
    assert parts == {(0, 0): 576, (1, 1): 576, (0, 2): 576, (1, 3): 576}


def test_a_cache_leaves_layer_by_layer_or_whole() -> None:
    settings = {"model": "llama-3-8b", "requests": 2, "prompt": 100}
    layer_bytes = 100 * 2048 * 2
    assert traffic("kv_cache", **settings) == {("send", layer_bytes, "1"): 2 * 32}
    found = traffic("kv_cache", transfer="whole", **settings)
    assert found == {("send", 32 * layer_bytes, "1"): 2}
    made = graph("kv_cache", **settings)
    before = names_before(made, "request0.layer0.send")
    assert "request0.prefill.layer0.ffn" in before
    assert not any("layer1" in name for name in before)
    # What is sent keeps no layer waiting.
    assert not any(
        "send" in n for n in names_before(made, "request1.prefill.layer0.ffn")
    )


def test_requests_are_distributed_round_robin() -> None:
    made = make("kv_cache", prefill=2, decode=3, requests=6, layers=1)
    pairs = {
        (graph.rank, node.peer)
        for graph in made.graphs.values()
        for node in graph.nodes()
        if node.kind is NodeKind.SEND
    }
    assert pairs == {(0, 2), (1, 3), (0, 4), (1, 2), (0, 3), (1, 4)}


def test_decode_starts_after_the_cache_has_arrived() -> None:
    made = graph("kv_cache", 1, layers=2, requests=1, steps=2)
    before = names_before(made, "request0.step0.layer0.attention")
    assert {"request0.layer0.receive", "request0.layer1.receive"} <= before

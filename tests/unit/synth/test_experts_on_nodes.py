"""Experts like those of DeepSeek-V3: FP8 dispatch, BF16 combine, few nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from chakram.chakra.lint.replay_blockers import require_replayable
from chakram.program.job_check import check_job
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.synth.settings import KINDS
from tests.unit.synth.making import make, traffic

TOKEN = 7168 * 2
FP8_TOKEN = 7168 + 7168 // 128 * 4
DEEPSEEK: dict[str, Any] = {"model": "deepseek-v3", "layers": 4, "vocabulary": 0}


def exchanges(kind: str, **parameters: Any) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    for (op, size_bytes, purpose), count in traffic(kind, **parameters).items():
        if op == "all_to_all":
            found[size_bytes, purpose] += count
    return found


def test_tokens_are_dispatched_in_fp8_and_combined_in_bf16() -> None:
    # One node: no limit matters. Only the last of the 4 layers has experts.
    found = exchanges("inference", **DEEPSEEK, ep=8, batch=16, steps=1)
    assert found == {(16 * 8 * size, "expert"): 1 for size in (FP8_TOKEN, TOKEN)}
    plain = {"dispatch_bytes_per_element": 2}
    found = exchanges("inference", **DEEPSEEK, ep=8, batch=16, steps=1, routing=plain)
    assert found == {(16 * 8 * TOKEN, "expert"): 2}


def test_backward_gradients_go_to_experts_in_fp8_too() -> None:
    found = exchanges("moe", **DEEPSEEK, ep=8, dp=1, sequence=64)
    assert found == {(64 * 8 * size, "expert"): 2 for size in (FP8_TOKEN, TOKEN)}


def test_fp8_has_no_scales_if_all_tensors_use_it() -> None:
    found = exchanges("moe", **DEEPSEEK, ep=8, dp=1, sequence=64, bytes_per_element=1)
    assert found == {(64 * 8 * 7168, "expert"): 4}


@pytest.mark.parametrize(("ep", "nodes"), [(16, 2), (32, 4), (64, 4)])
def test_a_token_goes_to_each_of_its_nodes_once(ep: int, nodes: int) -> None:
    found = exchanges("inference", **DEEPSEEK, ep=ep, batch=16, steps=1)
    assert found == {
        (16 * copies * size, purpose): 1
        for copies, purpose in ((nodes, "expert rail"), (8, "expert node"))
        for size in (FP8_TOKEN, TOKEN)
    }


def test_other_models_have_no_limit_unless_one_is_given() -> None:
    sizes: dict[str, Any] = {"ep": 16, "experts": 32, "top_k": 4, "layers": 1}
    found = exchanges("inference", **sizes, steps=1)
    assert found == {(16 * 4 * 512, "expert"): 2}
    limited = {"nodes": 2, "ranks_per_node": 4}
    found = exchanges("inference", **sizes, steps=1, routing=limited)
    assert found == {
        (16 * copies * 512, purpose): 2
        for copies, purpose in ((2, "expert rail"), (4, "expert node"))
    }
    found = exchanges("inference", **DEEPSEEK, ep=16, steps=1, routing={"nodes": 0})
    assert {purpose for _, purpose in found} == {"expert"}


@pytest.mark.parametrize(
    "law",
    [
        {"law": "balanced"},
        {"law": "hot_expert", "share": 0.2},
        {"law": "zero_rank"},
        {"law": "log_normal", "sigma": 2.0},
    ],
)
def test_uneven_exchanges_over_nodes_fit_on_all_ranks(law: dict[str, Any]) -> None:
    made = make(
        "moe",
        ep=8,
        dp=1,
        experts=16,
        top_k=4,
        layers=2,
        sequence=48,
        routing={**law, "nodes": 2, "ranks_per_node": 2},
    )
    require_replayable(made.graphs, made.groups)
    lowered = lower_job("j", made.graphs, made.groups, LoweringOptions())
    assert check_job(lowered.programs) == []
    if law["law"] == "balanced":
        return
    for graph in made.graphs.values():
        nodes = [each for each in graph.nodes() if each.splits is not None]
        between = [each for each in nodes if each.name.endswith(".nodes")]
        inside = [each for each in nodes if each.name.endswith(".node")]
        assert len(between) == len(inside) == len(nodes) // 2 > 0
        for each in between:
            assert each.splits is not None
            # No node gets a token twice, and no token goes to more than two nodes.
            assert max(each.splits.sent_bytes) <= 48 * 512
            forward = each.name.partition(".")[2].startswith("forward.dispatch")
            assert not forward or sum(each.splits.sent_bytes) <= 48 * 2 * 512
        received = sum(
            sum(each.splits.received_bytes)
            for each in inside
            if each.splits is not None and ".forward.dispatch" in each.name
        )
        experts = [
            each for each in graph.nodes() if each.name.endswith(".forward.expert")
        ]
        # An expert computes what has arrived: 2 operations a parameter and token.
        expected = received // 512 * 2 * 2 * 256 * 1024
        assert sum(each.num_ops for each in experts) == expected


@pytest.mark.parametrize(
    ("routing", "key"),
    [
        ({"nodes": 2, "ranks_per_node": 3}, "routing.ranks_per_node"),
        ({"nodes": 1, "ranks_per_node": 1}, "routing.nodes"),
        ({"nodes": 2, "law": "recorded", "splits": "x"}, "routing.nodes"),
    ],
)
def test_unsuitable_node_sizes_are_refused(routing: dict[str, Any], key: str) -> None:
    trace = KINDS["moe"].model_validate(
        {"synth": "moe", "ep": 8, "experts": 8, "top_k": 2, "routing": routing}
    )
    assert key in {each.key for each in trace.problems()}


def durations(kind: str, **parameters: Any) -> dict[str, int]:
    graph = make(kind, **parameters).graphs[0]
    return {each.name: each.duration_ns for each in graph.nodes()}


def test_decode_takes_the_time_of_reading_weights_and_caches() -> None:
    sizes: dict[str, Any] = {"model": "llama-3-8b", "steps": 1, "layers": 1, "batch": 8}
    decode = durations("inference", **sizes)
    weights = 3 * 4096 * 14336 * 2
    touched = weights + 2 * 8 * 4096 * 2
    assert decode["step0.layer0.ffn"] == round(touched / 3.35e6) * 1_000
    # Each of the 8 sequences has its own cache.
    longer = durations("inference", **sizes, context=512 + 32_768)
    cache_us = 8 * 32_768 * 2 * 8 * 128 * 2 / 3.35e6
    name = "step0.layer0.attention"
    assert longer[name] - decode[name] == pytest.approx(cache_us * 1e3, abs=2_000)
    fast = durations("inference", **sizes, memory="1000TB/s")
    assert fast["step0.layer0.ffn"] < decode["step0.layer0.ffn"]
    # Training and long prompts have more to compute than to read.
    prefill = durations("inference", **sizes, phase="prefill")
    unbound = durations("inference", **sizes, phase="prefill", memory="1000TB/s")
    assert prefill["step0.layer0.ffn"] == unbound["step0.layer0.ffn"]

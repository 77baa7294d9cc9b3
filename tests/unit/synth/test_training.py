"""Synthetic training: operations of a rank, their order and sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ConfigError
from chakram.synth import inference, layers, patterns, pipeline, training
from chakram.synth.pipeline import (
    all_forward_all_backward,
    layers_of,
    one_forward_one_backward,
)
from chakram.synth.settings import KINDS
from chakram.synth.synthesize import synthesize
from chakram.synth.trace_builder import both
from chakram.trace.node import NodeKind
from tests.unit.synth.making import graph, make, names_before, ops, traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

A2A, AR = CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_REDUCE


def test_a_layer_with_experts_has_four_all_to_alls_and_two_all_reduces() -> None:
    assert ops(graph("moe", layers=3)) == {A2A: 12, AR: 6}


def test_forward_is_in_order_and_backward_mirrors_it() -> None:
    made = graph("moe", layers=1)
    chain = [n.name for n in made.nodes() if "gradients" not in n.name]
    assert chain == [
        "layer0.forward.attention",
        "layer0.forward.gate",
        "layer0.forward.dispatch",
        "layer0.forward.expert",
        "layer0.forward.combine",
        "layer0.backward.combine",
        "layer0.backward.expert",
        "layer0.backward.dispatch",
        "layer0.backward.gate",
        "layer0.backward.attention",
        "optimizer",
    ]


def test_gradients_are_summed_up_while_lower_layers_exchange() -> None:
    made = graph("moe", layers=2)
    for part in ("expert", "dense"):
        before = names_before(made, f"layer1.gradients.{part}")
        assert "layer1.backward.attention" in before
        assert not any("layer0.backward" in name for name in before)
    for name in ("layer0.backward.combine", "layer0.backward.dispatch"):
        assert not any("gradients" in before for before in names_before(made, name))


def test_without_overlap_gradients_wait_for_the_end_of_backward() -> None:
    made = graph("moe", layers=2, overlap=False)
    before = names_before(made, "layer1.gradients.expert")
    assert "layer0.backward.attention" in before


def test_the_optimizer_ends_the_iteration() -> None:
    made = graph("moe", layers=3)
    assert len(names_before(made, "optimizer")) == len(made) - 1


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"ranks": 4, "ep": 4, "dp": 1}, {A2A: 4, AR: 1}),  # dense over all ranks
        ({"ranks": 4, "ep": 1, "dp": 4, "top_k": 1}, {AR: 2}),
        ({"ranks": 8, "ep": 4, "dp": 2, "dense": "0B"}, {A2A: 4, AR: 1}),
        ({"ranks": 1, "ep": 1, "dp": 1, "top_k": 1}, {}),
    ],
)
def test_a_group_of_one_has_nothing_to_send(
    parameters: dict[str, Any], expected: dict[CollectiveOp, int]
) -> None:
    assert ops(graph("moe", layers=1, **parameters)) == expected


def test_sizes_follow_from_the_model() -> None:
    made = graph(
        "moe",
        layers=1,
        hidden=10,
        ffn_hidden=30,
        sequence=7,
        micro_batch=2,
        top_k=3,
        experts=8,
        bytes_per_element=4,
    )
    sizes = {n.name: n.comm_bytes for n in made.nodes() if n.op}
    assert sizes["layer0.forward.dispatch"] == 2 * 7 * 3 * 10 * 4
    assert sizes["layer0.gradients.expert"] == 2 * 2 * 10 * 30 * 4
    assert sizes["layer0.gradients.dense"] == 4 * 10 * 10 * 4


def test_sizes_and_times_may_be_given() -> None:
    made = graph(
        "moe",
        layers=1,
        all_to_all="1B",
        all_reduce="2B",
        dense="3B",
        attention="5us",
        expert="0ns",
    )
    assert {n.comm_bytes for n in made.nodes() if n.op is A2A} == {1}
    assert [n.comm_bytes for n in made.nodes() if n.op is AR] == [2, 3]
    times = {n.name: n.duration_ns for n in made.nodes()}
    assert times["layer0.forward.attention"] == 5_000
    assert times["layer0.backward.attention"] == 10_000
    assert times["layer0.backward.expert"] == 0


def test_times_are_operations_at_the_peak() -> None:
    by_name = {n.name: n for n in graph("moe", layers=1, peak="1GFLOPS").nodes()}
    expert = by_name["layer0.forward.expert"]
    # Two matrices, each two operations per weight, for each of top_k copies.
    assert expert.num_ops == 512 * 2 * 2 * 2 * 256 * 1024
    assert expert.duration_ns == pytest.approx(expert.num_ops, abs=1_000)
    assert by_name["layer0.backward.expert"].num_ops == 2 * expert.num_ops
    attention = by_name["layer0.forward.attention"]
    assert attention.num_ops == 8 * 512 * 256**2 + 4 * 512 * 512 * 256


def test_a_computation_that_is_too_long_or_too_large_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        graph("dense", dp=1, layers=1, peak="1kFLOPS", hidden=1 << 16)
    assert "dense: peak: layer0.forward.attention would take" in str(caught.value)
    with pytest.raises(ConfigError, match=r"2\^63 operations or bytes"):
        graph(
            "inference",
            phase="prefill",
            batch=1 << 20,
            context=1 << 24,
            layers=1,
            peak="1000000PFLOPS",
            memory="100000TB/s",
        )


def test_buckets_that_make_too_many_nodes_are_refused() -> None:
    sizes = {"model": "gpt-3-175b", "pp": 8, "tp": 8, "dp": 2}
    with pytest.raises(ConfigError) as caught:
        graph("dense", bucket="1KiB", **sizes)
    assert str(caught.value).startswith("dense: bucket: the gradients of 8 ranks fill ")
    assert "raise it: a set has at most 20000000 nodes" in str(caught.value)


def test_memory_may_be_slower_than_computing() -> None:
    settings = {"layers": 1, "peak": "1TFLOPS"}
    fast = {n.name: n for n in graph("dense", **settings).nodes()}
    slow = {n.name: n for n in graph("dense", memory="1MB/s", **settings).nodes()}
    name = "layer0.forward.ffn"
    assert slow[name].duration_ns > 100 * fast[name].duration_ns
    weights = 2 * 256 * 1024 * 2
    assert slow[name].tensor_bytes == weights + 2 * 512 * 256 * 2


def test_the_defaults_suit_a_slow_fabric() -> None:
    # What one rank sends with the best algorithms, at 250 Mbit/s.
    sent = 0.0
    for node in graph("moe").nodes():
        ranks = {A2A: 4, AR: 8 if "dense" in node.name else 2}.get(node.op or A2A, 0)
        if node.op is not None:
            factor = 1 if node.op is A2A else 2
            sent += factor * node.comm_bytes * (ranks - 1) / ranks
    assert 0.3 < sent * 8 / 250e6 < 1.0
    computed = sum(n.duration_ns for n in graph("moe").nodes())
    assert 0.2e9 < computed < 1.0e9


MODEL = {"hidden": 64, "heads": 8, "ffn_hidden": 128, "sequence": 32, "layers": 2}
ACTIVATIONS = 32 * 64 * 2


def test_tensor_parallel_ranks_gather_and_scatter() -> None:
    found = traffic("dense", tp=4, dp=1, micro_batches=3, **MODEL)
    # Attention and network gather once forward and twice backward, scatter once each.
    assert found == {
        ("all_gather", ACTIVATIONS // 4, "tensor"): 3 * 2 * 6,
        ("reduce_scatter", ACTIVATIONS, "tensor"): 3 * 2 * 4,
    }


def test_without_sequence_parallelism_they_sum_up() -> None:
    found = traffic("dense", tp=4, dp=1, sequence_parallel=False, **MODEL)
    assert found == {("all_reduce", ACTIVATIONS, "tensor"): 2 * 4}


def test_context_parallel_ranks_with_one_key_value_head_all_receive_it() -> None:
    found = traffic("dense", cp=4, dp=1, kv_heads=2, **MODEL)
    tokens, head = 8, 8
    to_heads = tokens * (8 + 2 * 4) * head * 2
    assert found["all_to_all", to_heads, "context"] == 2 * 2


def test_context_parallel_ranks_exchange_tokens_for_heads() -> None:
    found = traffic("dense", cp=2, dp=1, kv_heads=2, **MODEL)
    tokens, head = 16, 8
    weights = 2 * 64 * (8 + 2) * head + 2 * 64 * 128
    assert found == {
        ("all_to_all", tokens * (8 + 2 * 2) * head * 2, "context"): 2 * 2,
        ("all_to_all", tokens * 8 * head * 2, "context"): 2 * 2,
        ("all_reduce", weights * 2, "data"): 2,
    }
    # Both ranks of a context-parallel group receive its one head of keys and values.
    found = traffic("dense", tp=4, cp=2, dp=1, kv_heads=2, **MODEL)
    assert found["all_to_all", tokens * (2 + 2 * 2) * head * 2, "context"] == 2 * 2


def test_stages_send_activations_forward_and_gradients_back() -> None:
    found = traffic("dense", rank=1, pp=2, tp=2, dp=1, micro_batches=5, **MODEL)
    assert found["send", ACTIVATIONS // 2, "3"] == 5
    assert found["receive", ACTIVATIONS // 2, "3"] == 5


def test_weights_are_gathered_ahead_and_gradients_scattered() -> None:
    made = graph("dense", fsdp=4, dp=2, micro_batches=2, **MODEL)
    weights = 4 * 64 * 64 + 2 * 64 * 128
    found = traffic("dense", fsdp=4, dp=2, micro_batches=2, **MODEL)
    assert found == {
        ("all_gather", weights * 2 // 4, "sharded data"): 2 * 2 * 2,
        ("reduce_scatter", weights * 2, "sharded data"): 2 * 2,
        ("all_reduce", weights * 2 // 4, "data"): 2,
    }
    # Layer 1's weights travel while layer 0 computes.
    before = names_before(made, "micro0.forward.layer1.weights")
    assert "micro0.layer0.forward.attention" not in before
    assert "micro0.forward.layer1.weights" in names_before(
        made, "micro0.layer1.forward.attention"
    )
    before = names_before(made, "micro1.backward.layer0.weights")
    assert "micro1.layer1.backward.ffn" not in before


def test_shards_have_whole_weights() -> None:
    weights = 4 * 64 * 64 + 2 * 64 * 128
    part = -(-weights // 6)
    assert traffic("dense", fsdp=6, dp=2, **MODEL) == {
        ("all_gather", part * 2, "sharded data"): 2 * 2,
        ("reduce_scatter", part * 6 * 2, "sharded data"): 2,
        ("all_reduce", part * 2, "data"): 2,
    }


def test_given_gradients_are_those_of_a_sharded_rank() -> None:
    found = traffic("moe", fsdp=4, dp=2, all_reduce="1001B", dense="1B", layers=3)
    sums = {key: count for key, count in found.items() if key[0] == "all_reduce"}
    assert sums == {
        ("all_reduce", 1001, "expert data"): 3,
        ("all_reduce", 1, "data"): 3,
    }


def test_gradient_of_a_shared_matrix_is_reduced_once_per_copy() -> None:
    parameters = {"model": "gpt-3-175b", "layers": 4, "vocabulary": 10, "dp": 2}

    def sums(rank: int, **more: int) -> list[str]:
        made = graph("dense", rank, **parameters, **more)
        names = [each.name for each in made.nodes() if each.op is AR]
        return [each for each in names if "embedding" in each or "output" in each]

    assert sums(0) == ["embedding.gradients"]
    ends = "embedding.gradients.ends"
    assert sums(0, pp=3) == ["embedding.gradients", ends]
    assert sums(2, pp=3) == []
    assert sums(5, pp=3) == ["output.gradients", ends]
    found = traffic("dense", rank=5, pp=3, **parameters)
    assert found["all_reduce", 10 * 12288 * 2, "embedding"] == 1
    assert "embedding.gradients" in names_before(
        graph("dense", 1, pp=3, **parameters), ends
    )


@pytest.mark.parametrize("bucket", [1000, 24_576, 10**9])
def test_buckets_divide_the_gradients_and_lose_none(bucket: int) -> None:
    made = graph("dense", dp=2, bucket=f"{bucket}B", **MODEL)
    sizes = [n.comm_bytes for n in made.nodes() if n.op is AR]
    gradients = 2 * (4 * 64 * 64 + 2 * 64 * 128) * 2
    assert sum(sizes) == gradients
    assert len(sizes) == -(-gradients // bucket)
    assert set(sizes[:-1]) <= {bucket}


def test_a_distributed_optimizer_scatters_gradients_and_gathers_weights() -> None:
    found = traffic(
        "dense", dp=4, distributed_optimizer=True, gradient_bytes_per_element=4, **MODEL
    )
    weights = 4 * 64 * 64 + 2 * 64 * 128
    assert found == {
        ("reduce_scatter", weights * 4, "data"): 2,
        ("all_gather", weights * 2 // 4, "data"): 2,
    }


def test_a_vocabulary_brings_embedding_output_and_loss() -> None:
    found = traffic("dense", tp=2, dp=2, vocabulary=100, **MODEL)
    assert found["all_reduce", 32 * 4, "tensor"] == 3
    assert found["all_reduce", 100 * 64 // 2 * 2, "data"] == 2
    first = {n.name for n in graph("dense", pp=2, vocabulary=100, **MODEL).nodes()}
    last = {
        n.name for n in graph("dense", rank=2, pp=2, vocabulary=100, **MODEL).nodes()
    }
    assert {name for name in first if "embedding" in name}
    assert not {name for name in first if "output" in name or "loss" in name}
    assert not {name for name in last if "embedding" in name}
    assert {name for name in last if "output" in name}


def test_tied_embedding_and_output_have_one_sum_of_gradients() -> None:
    sizes = {**MODEL, "model": "gpt-3-175b", "vocabulary": 100}
    both = ("all_reduce", 100 * 64 * 2, "data")
    stages = ("all_reduce", 100 * 64 * 2, "embedding")
    found = traffic("dense", dp=2, **sizes)
    assert (found[both], found[stages]) == (1, 0)
    for rank, expected in ((0, 1), (2, 0), (4, 1)):
        found = traffic("dense", rank=rank, dp=2, pp=3, **sizes | {"layers": 3})
        assert (found[both], found[stages]) == (expected, expected)
    assert len(make("dense", dp=2, pp=3, **sizes | {"layers": 3}).graphs) == 6


def test_tensor_parallel_experts_gather_and_scatter_their_tokens() -> None:
    found = traffic("moe", tp=2, ep=2, dp=1, layers=1, hidden=64, sequence=32, heads=2)
    sent = 32 // 2 * 2 * 64 * 2
    assert found["all_to_all", sent, "expert"] == 4
    assert found["all_gather", sent, "tensor"] == 3
    assert found["reduce_scatter", 2 * sent, "tensor"] == 2


def test_shared_experts_run_while_tokens_travel() -> None:
    made = graph(
        "moe", model="deepseek-v3", layers=4, ep=8, dp=1, sequence=64, micro_batch=1
    )
    before = names_before(made, "layer3.forward.shared")
    assert "layer3.forward.gate" in before
    assert "layer3.forward.dispatch" not in before
    assert "layer3.forward.shared" in names_before(made, "layer3.backward.combine")
    # Of four layers the first three have no experts.
    assert ops(made)[A2A] == 4


def test_shared_experts_gather_their_input_again_for_backward() -> None:
    made = graph(
        "moe", model="deepseek-v3", layers=4, ep=4, tp=2, dp=1, sequence=64,
        micro_batch=1,
    )  # fmt: skip
    shared = {n.name for n in made.nodes() if ".shared.gather" in n.name}
    assert shared == {
        "layer3.forward.shared.gather",
        "layer3.backward.shared.gather",
        "layer3.backward.shared.gather_input",
    }


def test_experts_compute_as_many_tokens_as_they_get() -> None:
    settings = {"layers": 1, "ep": 4, "experts": 8, "dp": 1}
    hot = {"law": "hot_rank", "target": 1, "share": 0.7}
    operations = []
    for rank in range(4):
        by_name = {
            n.name: n for n in graph("moe", rank, routing=hot, **settings).nodes()
        }
        operations.append(by_name["layer0.forward.expert"].num_ops)
    assert operations[1] == pytest.approx(0.7 * sum(operations), rel=0.01)
    assert sum(operations) == 4 * 4 * 512 * 2 * 256 * 1024


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_1f1b_runs_every_micro_batch_once_in_each_direction(
    stages: int, count: int
) -> None:
    for stage in range(stages):
        order = one_forward_one_backward(
            stage=stage, stages=stages, micro_batches=count
        )
        assert [b.micro_batch for b in order if b.forward] == list(range(count))
        assert [b.micro_batch for b in order if not b.forward] == list(range(count))
        held = most = 0
        for block in order:
            held += 1 if block.forward else -1
            assert held >= 0
            most = max(most, held)
        assert most <= stages - stage


def test_gpipe_goes_forward_first() -> None:
    order = all_forward_all_backward(micro_batches=2)
    assert [(b.forward, b.micro_batch) for b in order] == [
        (True, 0),
        (True, 1),
        (False, 0),
        (False, 1),
    ]


def test_stages_share_layers_as_evenly_as_can_be() -> None:
    shares = [layers_of(stage=stage, stages=4, layers=61) for stage in range(4)]
    assert [len(share) for share in shares] == [15, 15, 15, 16]
    assert [layer for share in shares for layer in share] == list(range(61))


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("dense", {"model": "llama-3-8b", "tp": 8, "pp": 4}),
        ("dense", {"model": "gpt-3-175b", "tp": 2, "pp": 8, "bucket": "100MiB"}),
        ("moe", {"model": "mixtral-8x7b", "tp": 4, "ep": 2, "pp": 2}),
        ("moe", {"model": "deepseek-v3", "ep": 4, "pp": 4, "sequence": 64}),
        ("moe", {"model": "gpt-oss-20b", "ep": 2, "cp": 2, "fsdp": 2}),
    ],
)
def test_gradients_of_all_ranks_cover_all_parameters(
    kind: str, parameters: dict[str, Any]
) -> None:
    trace = KINDS[kind].model_validate(
        {"synth": kind, "dp": 2, "gradient_bytes_per_element": 4, **parameters}
    )
    degrees, shape = trace.degrees, trace.shape
    synthesis = synthesize(trace)
    sums = {"data": 0, "expert data": 0, "sharded data": 0}
    for rank in range(synthesis.nranks):
        for node in synthesis.graph_of(rank).nodes():
            if node.op is AR and node.group and node.comm_bytes > 100_000:
                purpose = synthesis.purposes[node.group]
                if purpose in sums:
                    sums[purpose] += node.comm_bytes
    copies = degrees["dp"] * degrees["cp"]
    # Embedding and output are whole on each of the sharded ranks.
    whole = 2 * shape.embedding_parameters * 4
    dense = sums["data"] // (copies * degrees["ep"]) - whole * (degrees["fsdp"] - 1)
    expert = sums["expert data"] // copies
    tied = shape.embedding_parameters if shape.tied else 0
    assert dense + expert == (shape.parameters + tied) * 4


def test_set_equals_the_one_read_from_its_files() -> None:
    made = make("moe")
    assert (made.nranks, made.producer, made.schema) == (
        8,
        "chakram synth moe",
        "1.0.0",
    )
    assert set(made.groups) == {"1", "2", "3", "4", "5", "6", "7", "world"}
    assert made.warnings == ()
    assert made.graphs[3].node(1).file_offset > 0
    assert made.graphs[0].node(0).kind is NodeKind.COMPUTE
    assert make("moe").digest == made.digest
    assert make("moe", layers=2).digest != made.digest


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("moe", {"layers": 60}),
        ("moe", {"layers": 60, "overlap": False}),
        ("dense", {"layers": 60, "ranks": 8, "dp": 2, "fsdp": 4}),
        ("kv_cache", {"requests": 60}),
        ("random_pairs", {"ranks": 2, "messages": 240}),
    ],
)
def test_dependency_lists_are_not_rebuilt_for_every_node(
    monkeypatch: pytest.MonkeyPatch, kind: str, parameters: dict[str, Any]
) -> None:
    """So that ten thousand layers take a thousand times as long as ten."""
    handled = 0

    def counting(*waits: Sequence[int]) -> tuple[int, ...]:
        nonlocal handled
        handled += sum(map(len, waits))
        return both(*waits)

    for module in (pipeline, inference, layers, patterns, training):
        monkeypatch.setattr(module, "both", counting, raising=False)
    made = graph(kind, **parameters)
    assert handled < 3 * len(made)

"""Synthetic training compared with the output of STAGE for equal parameters.

STAGE differs in these points:

* It counts elements.
* Its micro batch covers all data-parallel ranks, and for the exchange with experts the
  expert-parallel ones.
* Experts have two matrices, and their gate is a collective.
* Every rank has whole embeddings.
* Gradients are summed after every micro batch.

Otherwise, both agree in type, size and number of the operations of every rank.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.sets.trace_set import load_trace_set
from chakram.synth.settings import KINDS
from chakram.synth.synthesize import synthesize
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind

DENSE = {
    "synth": "dense",
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "ffn_hidden": 11008,
    "ffn_matrices": 3,
    "sequence": 1024,
    "bytes_per_element": 2,
}
MOE = {
    **DENSE,
    "synth": "moe",
    "ffn_hidden": 14336,
    "ffn_matrices": 2,
    "experts": 8,
    "top_k": 2,
}
EMBEDDING_BYTES = 32000 * 4096 * 2


def traffic(graph: TraceGraph) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for node in graph.nodes():
        if node.op is not None:
            found[node.op.value, node.comm_bytes] += 1
        elif node.kind in (NodeKind.SEND, NodeKind.RECEIVE):
            found[node.kind.name.lower(), node.comm_bytes] += 1
    return found


def of_stage(chakram_data: Path, name: str) -> Counter[tuple[str, int]]:
    traces = load_trace_set(
        chakram_data / "traces/stage" / name, options=ReadOptions(bytes_per_element=2)
    )
    found = traffic(traces.graphs[0])
    del found["all_reduce", EMBEDDING_BYTES]
    return found


def made(**parameters: Any) -> Counter[tuple[str, int]]:
    trace = KINDS[parameters["synth"]].model_validate(parameters)
    assert trace.problems() == []
    return traffic(synthesize(trace).graph_of(0))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        (
            "dense_llama_tp4_pp2_dp2_16r.tar.gz",
            # 8 samples in micro batches of 4, over 2 data-parallel ranks.
            {"tp": 4, "pp": 2, "dp": 2, "layers": 4, "micro_batch": 2},
        ),
        (
            "dense_llama_fsdp8_8r",
            {"fsdp": 8, "dp": 1, "layers": 4, "micro_batch": 1},
        ),
        (
            "dense_llama_legacyattr_tp2_dp2_4r",
            {"tp": 2, "dp": 2, "layers": 2, "micro_batch": 2, "micro_batches": 1},
        ),
    ],
)
def test_dense_training_equals_that_of_stage(
    chakram_data: Path, name: str, parameters: dict[str, Any]
) -> None:
    expected = of_stage(chakram_data, name)
    parameters = {**DENSE, "micro_batches": 2, **parameters}
    for key in expected:
        if key[0] == "all_reduce":
            expected[key] //= parameters["micro_batches"]
    assert made(**parameters) == expected


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # Micro batches of 2 samples over 4 expert-parallel ranks: 512 tokens each.
        ("moe_mixtral_ep4_tp2_8r", {"tp": 2, "ep": 4}),
        ("moe_mixtral_ep8_tp2_16r", {"tp": 2, "ep": 8, "sequence": 256}),
        ("moe_mixtral_ep4_tp2_pp2_16r", {"tp": 2, "ep": 4, "pp": 2}),
        ("moe_mixtral_ep4_fsdp2_tp1_8r", {"ep": 4, "fsdp": 2}),
        (
            "moe_mixtral_ep8_tp2_pp2_dp2_64r",
            {"tp": 2, "ep": 8, "pp": 2, "dp": 2, "sequence": 256},
        ),
    ],
)
def test_expert_exchange_equals_that_of_stage(
    chakram_data: Path, name: str, parameters: dict[str, Any]
) -> None:
    folder = chakram_data / "traces/stage" / name
    expected = of_stage(chakram_data, name if folder.exists() else f"{name}.tar.gz")
    found = made(
        **{
            **MOE,
            "dp": 1,
            "layers": 2,
            "micro_batch": 1,
            "micro_batches": 2,
            "sequence": 512,
            **parameters,
        }
    )

    def only(op: str, counts: Counter[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {key: count for key, count in counts.items() if key[0] == op}

    assert only("all_to_all", found) == only("all_to_all", expected)


def test_gradients_of_an_expert_layer_equal_those_of_stage(
    chakram_data: Path,
) -> None:
    # STAGE sums up a layer's attention, gate and expert at once, over 2 ranks.
    expected = of_stage(chakram_data, "moe_mixtral_ep8_tp2_pp2_dp2_64r.tar.gz")
    (stage_bytes,) = [size for op, size in expected if op == "all_reduce"]
    found = made(
        **{**MOE, "tp": 2, "ep": 8, "pp": 2, "dp": 2, "layers": 2, "sequence": 256}
    )
    gradients = sum(size for op, size in found.elements() if op == "all_reduce")
    assert gradients == pytest.approx(stage_bytes, rel=1e-4)


def test_sharded_weights_equal_those_of_stage(chakram_data: Path) -> None:
    expected = of_stage(chakram_data, "moe_mixtral_ep4_fsdp2_tp1_8r")
    found = made(
        **{**MOE, "ep": 4, "fsdp": 2, "dp": 1, "layers": 2, "micro_batches": 2}
    )
    for op in ("all_gather", "reduce_scatter"):
        of_stage_ = max(size for name, size in expected if name == op)
        of_ours = max(size for name, size in found if name == op)
        assert of_ours == pytest.approx(of_stage_, rel=1e-4)
        assert found[op, of_ours] == expected[op, of_stage_]

"""Critical paths of recorded traces sum exactly to their iteration."""

from __future__ import annotations

from pathlib import Path

import pytest

from chakram import simulate
from tests.explained_simulations import assert_exact

EXPERIMENT = """\
version: 1
name: exact
jobs:
  - name: trace
    trace: {{path: {path}{units}}}
    size_scale: {scale}
iterations: {{warmup: 0, measured: 1}}
fabric:
  kind: namespaces
  topology: {{clos: {{leaves: {leaves}, spines: 2, hosts_per_leaf: 4}}}}
  links: {{host: {{rate: 10Gbit, delay: 1us}}, uplink: {{rate: 10Gbit, delay: 1us}}}}
"""
SMALL = {
    "astra_sim_microbenchmarks/all_reduce/8npus_1MB": (8, "1"),
    "astra_sim_microbenchmarks/all_to_all/4npus_1MB": (4, "1"),
    "text_converter_8r/DLRM_HybridParallel": (8, "1"),
    "stage/dense_llama_legacyattr_tp2_dp2_4r": (4, "1/256"),
    "json_variants/stage_json_backend_pp2_dp2_4r": (4, "1/256"),
}
LARGE = {
    "astra_sim_microbenchmarks/all_gather/16npus_1MB": (16, "1"),
    "astra_sim_microbenchmarks/reduce_scatter/16npus_1MB": (16, "1"),
    "astra_sim_custom_collective_ring8": (8, "1"),
    "text_converter_8r/MLP_HybridParallel_Data_Model": (8, "1"),
    "text_converter_8r/Resnet50_DataParallel.tar.gz": (8, "1/64"),
    "astra_sim_2023_resnet50_dp64/resnet50_dp64.tar.gz": (64, "1/64"),
    "deepflow_llm_graph_16r/llm_graph_16r.tar.gz": (16, "1/65536"),
    "stage/dense_llama_fsdp8_8r": (8, "1/1024"),
    "stage/moe_mixtral_ep4_fsdp2_tp1_8r": (8, "1/256"),
    "stage/moe_mixtral_ep4_tp2_8r": (8, "1/256"),
    "stage/dense_llama_tp4_pp2_dp2_16r.tar.gz": (16, "1/256"),
    "stage/moe_mixtral_ep4_tp2_pp2_16r.tar.gz": (16, "1/256"),
    "stage/moe_mixtral_32layers_ep8_pp4_32r.tar.gz": (32, "1/1024"),
    "pytorch_moe_gloo_8r/host_et_json.tar.gz": (8, "1"),
}


@pytest.mark.parametrize(
    "name",
    [*SMALL, *(pytest.param(each, marks=pytest.mark.soak) for each in LARGE)],
)
def test_critical_path_of_a_recorded_trace_is_exact(
    chakram_data: Path, tmp_path: Path, name: str
) -> None:
    ranks, scale = (SMALL | LARGE)[name]
    experiment = tmp_path / "exact.yaml"
    experiment.write_text(
        EXPERIMENT.format(
            path=chakram_data / "traces" / name,
            units=", bytes_per_element: 2" if "stage" in name else "",
            scale=scale,
            leaves=-(-ranks // 4),
        )
    )
    results = simulate(experiment, runs=tmp_path / "runs")
    assert assert_exact(results) > 0

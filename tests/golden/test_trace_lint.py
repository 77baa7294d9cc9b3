"""What ``chakram trace lint`` says of every set of real traces, word for word.

The texts stand in ``trace_lint/``, one per set, in the folders of the data.
``CHAKRAM_UPDATE_GOLDEN=1`` writes them anew; read the difference before you commit it:
what a set must be blamed for stands in the README of the data.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chakram.cli import main

EXPECTED = Path(__file__).parent / "trace_lint"

_OPS = ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
_GENERATED = (
    *(op.upper() for op in (*_OPS, "barrier", "broadcast")),
    *(f"one_{kind}_node" for kind in ("comm_recv", "comm_send", "comp")),
    "one_metadata_node_all_types",
    "one_remote_mem_load_node",
    "one_remote_mem_store_node",
    "two_comp_nodes_dependent",
    "two_comp_nodes_independent",
)
_STAGE = (
    "dense_llama_fsdp8_8r",
    "dense_llama_legacyattr_tp2_dp2_4r",
    "moe_mixtral_ep4_fsdp2_tp1_8r",
    "moe_mixtral_ep4_tp2_8r",
    "dense_llama_tp4_pp2_dp2_16r.tar.gz",
    "moe_mixtral_32layers_ep8_pp4_32r.tar.gz",
    "moe_mixtral_ep4_tp2_pp2_16r.tar.gz",
    "moe_mixtral_ep8_tp2_16r.tar.gz",
    "moe_mixtral_ep8_tp2_pp2_32r.tar.gz",
    "moe_mixtral_ep8_tp2_pp2_dp2_64r.tar.gz",
)
_EDGES = (
    "coll_without_type_or_size",
    "dangling_ctrl_dep",
    "dangling_data_dep",
    "empty_metadata_frame",
    "forward_reference",
    "gzip_named_et",
    "gzip_named_et_gz",
    "no_is_cpu_op",
    "p2p_no_src_on_send",
    "storage_and_data_op_nodes",
    "truncated_mid_node",
    "two_node_cycle",
    "uint64_comm_size",
)
AS_JSON = ("dangling_data_dep", "truncated_mid_node")
"""Those of the edges whose findings are also agreed on as JSON."""
IN_ELEMENTS = ("--bytes-per-element", "2")
SETS: dict[str, tuple[str, ...]] = {
    **{
        f"astra_sim_microbenchmarks/{op}/{ranks}npus_1MB": ()
        for op in _OPS
        for ranks in (4, 8, 16)
    },
    "astra_sim_custom_collective_ring8": (),
    "astra_sim_2023_resnet50_dp64/resnet50_dp64.tar.gz": (),
    "msccl_custom_symbolic/ring_allgather_8r": (),
    "msccl_custom_symbolic/ring_allreduce_4r": (),
    "msccl_custom_symbolic/ring_allreduce_8r": (),
    "chakra_tests/feeder_tests_trace.tar.gz": (),
    "chakra_tests/json_trace.tar.gz/chakra": (),
    "chakra_tests/json_trace.tar.gz/small_chakra": (),
    "chakra_tests/schema_0.0.1_twoCompNodesDependent.0.eg": (),
    **{f"chakra_generator_1.0.0_4r/generator_4r.tar.gz/{s}": () for s in _GENERATED},
    "text_converter_8r/DLRM_HybridParallel": (),
    "text_converter_8r/MLP_HybridParallel_Data_Model": (),
    "text_converter_8r/Resnet50_DataParallel.tar.gz": (),
    "deepflow_llm_graph_16r/llm_graph_16r.tar.gz": (),
    **{f"stage/{name}": IN_ELEMENTS for name in _STAGE},
    "json_variants/stage_json_backend_pp2_dp2_4r": IN_ELEMENTS,
    "json_variants/chakra_jsonizer/all_to_all_4npus": (),
    "json_variants/chakra_jsonizer/moe_mixtral_ep4_tp2_8r": IN_ELEMENTS,
    "pytorch_dlrm_nccl_8r/dlrm_pytorch_et.tar.gz": (),
    "pytorch_moe_gloo_8r/host_et_json.tar.gz": (),
    "pytorch_moe_gloo_8r/converted_et.tar.gz": (),
    "pytorch_moe_gloo_8r/kineto_device_json.tar.gz": (),
    "chakra_tests/1.0.2-chakra.0.0.4.tgz": (),
    "pytorch_moe_gloo_8r/linked_json_ranks01.tar.gz": (),
    **{f"edge_synthetic/{name}": () for name in _EDGES},
}


def expected_file(name: str) -> Path:
    return EXPECTED / f"{name}.txt"


def check_golden(file: Path, text: str, traces: Path) -> None:
    text = text.replace(str(traces), "$TRACES")
    if os.environ.get("CHAKRAM_UPDATE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", SETS)
def test_lint_says_of_a_set_what_its_origin_makes_one_expect(
    chakram_data: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = chakram_data / "traces"
    code = main(["trace", "lint", str(traces / name), *SETS[name]])
    told = capsys.readouterr()
    text = f"exit code {code}\n{told.out}{told.err}"
    check_golden(expected_file(name), text, traces)


@pytest.mark.parametrize("name", AS_JSON)
def test_lint_gives_the_findings_of_a_set_as_json(
    chakram_data: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = chakram_data / "traces"
    path = f"edge_synthetic/{name}"
    assert main(["trace", "lint", str(traces / path), "--json"]) == 2
    check_golden(EXPECTED / f"{path}.json", capsys.readouterr().out, traces)


def test_every_agreed_text_has_its_set() -> None:
    assert set(EXPECTED.rglob("*.txt")) == {expected_file(name) for name in SETS}
    assert {path.stem for path in EXPECTED.rglob("*.json")} == set(AS_JSON)

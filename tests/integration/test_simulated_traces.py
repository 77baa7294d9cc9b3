"""Every replayable real set completes in virtual time, with exact bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.runs import completed, star, write_experiment
from tests.e2e.traffic_totals import check_complete
from tests.raw_traces import ALGORITHMS, expected_bytes


@dataclass(frozen=True, kw_only=True)
class Case:
    """A set: its ranks, the unit of its sizes, and its replayed share."""

    path: str
    ranks: int
    scale: str = "1"
    unit: int = 1
    takes_long: bool = False


def _stage(name: str, ranks: int, **more: bool) -> Case:
    return Case(path=f"stage/{name}", ranks=ranks, scale="1/65536", unit=2, **more)


CASES = [
    *(
        Case(path=f"astra_sim_microbenchmarks/{op}/{ranks}npus_1MB", ranks=ranks)
        for op in ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
        for ranks in (4, 8, 16)
    ),
    *(
        Case(path=f"chakra_generator_1.0.0_4r/generator_4r.tar.gz/{op}", ranks=4)
        for op in (
            "ALL_GATHER",
            "ALL_REDUCE",
            "ALL_TO_ALL",
            "BARRIER",
            "BROADCAST",
            "REDUCE_SCATTER",
        )
    ),
    Case(path="astra_sim_custom_collective_ring8", ranks=8),
    Case(path="text_converter_8r/DLRM_HybridParallel", ranks=8),
    Case(path="text_converter_8r/MLP_HybridParallel_Data_Model", ranks=8),
    Case(path="text_converter_8r/Resnet50_DataParallel.tar.gz", ranks=8, scale="1/64"),
    Case(
        path="astra_sim_2023_resnet50_dp64/resnet50_dp64.tar.gz",
        ranks=64,
        scale="1/4096",
    ),
    Case(
        path="deepflow_llm_graph_16r/llm_graph_16r.tar.gz",
        ranks=16,
        scale="1/16777216",
    ),
    _stage("dense_llama_fsdp8_8r", 8),
    _stage("dense_llama_legacyattr_tp2_dp2_4r", 4),
    _stage("dense_llama_tp4_pp2_dp2_16r.tar.gz", 16),
    _stage("moe_mixtral_ep4_fsdp2_tp1_8r", 8),
    _stage("moe_mixtral_ep4_tp2_8r", 8),
    _stage("moe_mixtral_ep4_tp2_pp2_16r.tar.gz", 16),
    _stage("moe_mixtral_ep8_tp2_16r.tar.gz", 16, takes_long=True),
    # Replayed by real processes in e2e.
    _stage("moe_mixtral_ep8_tp2_pp2_32r.tar.gz", 32, takes_long=True),
    # Twice the job above.
    _stage("moe_mixtral_ep8_tp2_pp2_dp2_64r.tar.gz", 64, takes_long=True),
    # A hundred thousand nodes, which a test of lowering reads as well.
    _stage("moe_mixtral_32layers_ep8_pp4_32r.tar.gz", 32, takes_long=True),
    Case(
        path="json_variants/stage_json_backend_pp2_dp2_4r",
        ranks=4,
        scale="1/1024",
        unit=2,
    ),
    Case(path="json_variants/chakra_jsonizer/all_to_all_4npus", ranks=4),
    Case(path="edge_synthetic/p2p_no_src_on_send", ranks=2),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, id=case.path, marks=pytest.mark.soak if case.takes_long else ()
        )
        for case in CASES
    ],
)
def test_a_job_completes_and_every_byte_is_sent(
    tmp_path: Path, chakram_data: Path, case: Case
) -> None:
    path = chakram_data / "traces" / case.path
    job = {
        "name": "job",
        "trace": {"path": str(path), "bytes_per_element": case.unit},
        "compute": {"from": "none"},
        "size_scale": case.scale,
    }
    experiment = write_experiment(
        tmp_path,
        [job],
        star(case.ranks, rate="100Gbit"),
        collectives=ALGORITHMS,
    )

    results = completed(experiment, verb="simulate").results

    check_complete(results, ranks=case.ranks)
    flows = results.table("flows", "collective", "bytes").to_pylist()
    carried = sum(row["bytes"] for row in flows if row["collective"] != "barrier")
    assert carried == expected_bytes(
        path, ranks=case.ranks, unit=case.unit, scale=case.scale
    )

"""Real trace sets lower to consistent programs that terminate."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from chakram.chakra.sets.trace_set import load_trace_set
from chakram.collectives.ops import CollectiveOp
from chakram.program.job_check import check_job
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.program.operations import CollectiveOperation, SendOperation

STAGE_SETS = {
    "dense_llama_fsdp8_8r": 8,
    "dense_llama_legacyattr_tp2_dp2_4r": 4,
    "dense_llama_tp4_pp2_dp2_16r.tar.gz": 16,
    "moe_mixtral_ep4_fsdp2_tp1_8r": 8,
    "moe_mixtral_ep4_tp2_8r": 8,
    "moe_mixtral_ep4_tp2_pp2_16r.tar.gz": 16,
    "moe_mixtral_ep8_tp2_16r.tar.gz": 16,
    "moe_mixtral_ep8_tp2_pp2_32r.tar.gz": 32,
    "moe_mixtral_ep8_tp2_pp2_dp2_64r.tar.gz": 64,
}
ROOFLINE = LoweringOptions(
    compute_from="roofline",
    peak_flops=989 * 10**12,
    memory_bytes_per_s=3_350 * 10**9,
    size_scale=Fraction(1, 64),
)


@pytest.mark.parametrize(("name", "nranks"), STAGE_SETS.items())
def test_every_stage_set_lowers_without_a_warning(
    chakram_data: Path, name: str, nranks: int
) -> None:
    traces = load_trace_set(chakram_data / "traces/stage" / name, bytes_per_element=2)
    for options in (ROOFLINE, LoweringOptions(compute_from="none")):
        job = lower_job(name, traces.graphs, traces.groups, options)
        assert job.warnings == ()
        assert len(job.programs) == nranks
        assert check_job(job.programs) == []


@pytest.mark.slow
def test_a_hundred_thousand_nodes_lower_in_seconds(chakram_data: Path) -> None:
    traces = load_trace_set(
        chakram_data / "traces/stage/moe_mixtral_32layers_ep8_pp4_32r.tar.gz",
        bytes_per_element=2,
    )
    assert sum(len(graph) for graph in traces.graphs.values()) == 118_560
    job = lower_job("mixtral", traces.graphs, traces.groups, ROOFLINE)
    assert job.warnings == ()
    assert check_job(job.programs) == []
    rows = [row for program in job.programs for row in program.operations]
    assert sum(isinstance(row, SendOperation) for row in rows) == 384
    collectives = [row for row in rows if isinstance(row, CollectiveOperation)]
    assert sum(row.op == CollectiveOp.ALL_TO_ALL for row in collectives) == 8192
    assert sum(row.op == CollectiveOp.ALL_GATHER for row in collectives) == 6144
    assert sum(row.op == CollectiveOp.BARRIER for row in collectives) == 32


@pytest.mark.parametrize(
    "op", ["all_gather", "all_reduce", "all_to_all", "reduce_scatter"]
)
@pytest.mark.parametrize("nranks", [4, 8, 16])
def test_every_microbenchmark_is_one_collective(
    chakram_data: Path, op: str, nranks: int
) -> None:
    folder = chakram_data / "traces/astra_sim_microbenchmarks" / op
    traces = load_trace_set(folder / f"{nranks}npus_1MB", bytes_per_element=1)
    job = lower_job(
        op, traces.graphs, traces.groups, LoweringOptions(sync_barrier=False)
    )
    assert job.warnings == ()
    assert check_job(job.programs) == []
    assert len(job.programs) == nranks
    for program in job.programs:
        (row,) = program.operations
        assert isinstance(row, CollectiveOperation)
        assert (row.op, row.input_bytes, row.group) == (op, 2**20, "world")

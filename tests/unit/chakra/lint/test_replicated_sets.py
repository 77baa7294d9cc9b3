"""One rank of real traces, replicated and compared with the other ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from chakram.chakra.lint.replay_blockers import require_replayable
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.sets.trace_set import TraceSet, load_replicated, load_trace_set
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import TraceError
from chakram.program.lowering import LoweringOptions, lower_job
from chakram.program.operations import CollectiveOperation, SendOperation
from chakram.trace.replication import Replication

BYTES = ReadOptions(bytes_per_element=2)


def work_of(traces: TraceSet) -> list[list[tuple[object, ...]]]:
    """Return the messages of each rank, in the order of its program."""
    require_replayable(traces.graphs, traces.groups)
    lowered = lower_job("j", traces.graphs, traces.groups, LoweringOptions())
    work = []
    for program in lowered.programs:
        members = {group.name: sorted(group.ranks) for group in program.groups}
        rows: list[tuple[object, ...]] = []
        for operation in program.operations:
            if isinstance(operation, CollectiveOperation):
                group = members[operation.group]
                rows.append((operation.op, operation.input_bytes, group))
            elif isinstance(operation, SendOperation):
                rows.append((operation.size_bytes, operation.peer))
        work.append(rows)
    return work


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("stage/moe_mixtral_ep4_tp2_8r", 0),
        ("stage/moe_mixtral_ep4_tp2_8r", 5),
        ("stage/dense_llama_fsdp8_8r", 0),
        ("text_converter_8r/DLRM_HybridParallel", 3),
    ],
)
def test_one_rank_can_be_replicated_to_its_set(
    chakram_data: Path, path: str, rank: int
) -> None:
    found = chakram_data / "traces" / path
    whole = load_trace_set(found, options=BYTES)
    made = load_replicated(found, Replication(nranks=8), rank=rank, options=BYTES)
    assert work_of(made) == work_of(whole)


def test_a_rank_grows_into_a_larger_job(chakram_data: Path) -> None:
    found = chakram_data / "traces/stage/moe_mixtral_ep4_tp2_8r"
    made = load_replicated(found, Replication(nranks=32), options=BYTES)
    work = work_of(made)
    assert len(work) == 32
    sizes = {tuple(row[2]) for row in work[29] if row[0] == CollectiveOp.ALL_TO_ALL}
    # The recorded rank's expert group is ranks 0, 2, 4, 6.
    assert sizes == {(25, 27, 29, 31)}


def test_replicated_pipeline_stage_sends_in_a_circle(chakram_data: Path) -> None:
    found = chakram_data / "traces/stage/moe_mixtral_ep4_tp2_pp2_16r.tar.gz"
    made = load_replicated(found, Replication(nranks=16), options=BYTES)
    work = work_of(made)
    peers = {row[1] for row in work[3] if len(row) == 2}
    assert peers == {11}


def test_the_one_rank_of_a_real_recording_becomes_a_job(chakram_data: Path) -> None:
    found = chakram_data / "traces/chakra_tests/feeder_tests_trace.tar.gz"
    made = load_replicated(found, Replication(nranks=2))
    work = work_of(made)
    operations = [row[0] for row in work[1]]
    assert operations.count(CollectiveOp.ALL_REDUCE) == 5
    assert operations.count(CollectiveOp.BROADCAST) == 2
    assert all(row[2] == list(range(2)) for row in work[1])
    assert made.notes[0].startswith(
        "REPLICATED: all 2 ranks do the same as the trace of"
    )


def test_generated_set_can_be_replicated(chakram_data: Path) -> None:
    found = chakram_data / "traces/chakra_generator_1.0.0_4r/generator_4r.tar.gz"
    made, fewer = (
        load_replicated(found / "ALL_REDUCE", Replication(nranks=nranks), rank=2)
        for nranks in (6, 5)
    )
    assert work_of(made)[5][0] == (CollectiveOp.ALL_REDUCE, 65_536, list(range(6)))
    assert made.digest != fewer.digest


def test_unknown_rank_is_refused(chakram_data: Path) -> None:
    found = chakram_data / "traces/chakra_tests/feeder_tests_trace.tar.gz"
    with pytest.raises(TraceError, match="has no file for rank 3"):
        load_replicated(found, Replication(nranks=4), rank=3)

"""Corrections of producer-specific traces are applied, reported and optional."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.chakra.et_codec import NodeType
from chakram.chakra.lint.replay_blockers import ProblemKind, check_trace_set
from chakram.chakra.read.rank_decoder import RankTrace
from chakram.chakra.read.reader_options import CORRECTIONS, ReadOptions, merge_warnings
from chakram.chakra.trace_warning import WarningKind
from chakram.collectives.groups import WORLD, world_group
from chakram.collectives.ops import CollectiveOp
from chakram.config.jobs import Correction
from chakram.foundation.errors import TraceError
from chakram.trace.node import NO_SIZE
from tests.trace_bytes import collective, metadata, node, read

PYTORCH = metadata("", schema="1.1.1-chakra.0.0.4")
TEXT = metadata("", schema="1.0.2-chakra.1.0.0", input_file="MICRO\n1\n")


def kinds(trace: RankTrace) -> dict[WarningKind, int]:
    return {warning.kind: warning.count for warning in trace.warnings}


def left(kind: WarningKind, *records: bytes, **options: Any) -> RankTrace:
    return read(*records, uncorrected=frozenset({kind}), **options)


def dependencies(trace: RankTrace) -> dict[int, list[int]]:
    graph = trace.graph
    return {
        each.node_id: [graph.node_id(position) for position in each.dependencies]
        for each in graph.nodes()
    }


def test_experiments_name_the_same_corrections() -> None:
    assert set(Correction.__args__) == CORRECTIONS
    with pytest.raises(ValueError, match="not corrections"):
        ReadOptions(uncorrected=frozenset({WarningKind.NO_METADATA}))


def test_sizes_of_stage_are_elements() -> None:
    records = metadata(schema="symbolic_tensor_network"), collective(1)
    corrected = read(*records, bytes_per_element=2)
    assert corrected.graph.node(0).comm_bytes == 2048
    assert kinds(corrected) == {WarningKind.ELEMENT_SIZES: 1}
    kept = left(WarningKind.ELEMENT_SIZES, *records)
    assert kept.graph.node(0).comm_bytes == 1024
    assert kinds(kept) == {WarningKind.ELEMENTS_AS_BYTES: 1}


def test_durations_of_the_text_converter_are_used_unchanged() -> None:
    records = TEXT, node(1, duration_micros=300)
    stored = read(*records)
    assert stored.graph.node(0).duration_ns == 300_000
    assert kinds(stored) == {}
    assert read(*records, duration_unit_ns=1).graph.node(0).duration_ns == 300


def test_text_converter_of_2023_is_recognized_by_its_names() -> None:
    first = node(1, name="COMP_NODE_conv1_FWD", duration_micros=300)
    trace = read(first, node(2, name="COMP_NODE_conv1_IG", ctrl_deps=[1]))
    assert trace.producer == "text converter"
    assert trace.graph.node(0).duration_ns == 300_000


def test_control_dependencies_order_a_trace_by_default() -> None:
    records = metadata(), node(1), node(2, ctrl_deps=[1])
    assert dependencies(read(*records))[2] == [1]
    kept = left(WarningKind.CONTROL_ONLY, *records)
    assert dependencies(kept)[2] == []
    assert kinds(kept) == {}


@pytest.mark.parametrize(
    ("kind", "control"),
    [
        (WarningKind.MISSING_CONTROL_DEPENDENCY, [9]),
        (WarningKind.SELF_CONTROL_DEPENDENCY, [2]),
    ],
)
def test_dangling_control_dependencies_are_dropped_or_refused(
    kind: WarningKind, control: list[int]
) -> None:
    records = metadata(), node(1), node(2, data_deps=[1], ctrl_deps=control)
    assert kinds(read(*records)) == {kind: 1}
    with pytest.raises(TraceError, match=f"remove {kind} from the uncorrected kinds"):
        left(kind, *records)


def test_cpu_label_is_no_collective_by_default() -> None:
    label = node(1, NodeType.COMM_COLL, name="c10d::send", is_cpu_op=True)
    assert kinds(read(metadata(), label)) == {WarningKind.COLLECTIVE_LABEL: 1}
    with pytest.raises(TraceError, match="has no comm_type"):
        left(WarningKind.COLLECTIVE_LABEL, metadata(), label)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "ALL_REDUCE"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "REDUCE_SCATTER"),
        ("nccl:all_gather", "ALL_GATHER"),
        ("nccl:all_to_all", "ALL_TO_ALL"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", "BROADCAST"),
    ],
)
def test_kernel_name_determines_its_collective(name: str, op: str) -> None:
    kernel = node(1, NodeType.COMM_COLL, name=name, is_cpu_op=False, comm_size=8)
    trace = read(metadata(), kernel)
    assert trace.graph.node(0).op is CollectiveOp[op]
    assert kinds(trace) == {WarningKind.UNTYPED_COLLECTIVE: 1}
    with pytest.raises(TraceError, match="has no comm_type"):
        left(WarningKind.UNTYPED_COLLECTIVE, metadata(), kernel)


def test_all_corrections_of_a_collective_are_reported() -> None:
    trace = read(metadata(), node(1, NodeType.COMM_COLL, name="nccl:all_gather"))
    assert kinds(trace) == {
        WarningKind.UNTYPED_COLLECTIVE: 1,
        WarningKind.NO_SIZE: 1,
    }


def test_a_collective_without_a_size_is_read_and_a_problem() -> None:
    trace = read(metadata(), node(1, NodeType.COMM_COLL, comm_type=2))
    assert trace.graph.node(0).comm_bytes == NO_SIZE
    assert kinds(trace) == {WarningKind.NO_SIZE: 1}
    (problem,) = check_trace_set({0: trace.graph}, {WORLD: world_group(1)})
    assert problem.kind is ProblemKind.NO_SIZE
    barrier = read(metadata(), node(1, NodeType.COMM_COLL, comm_type=9))
    assert barrier.graph.node(0).comm_bytes == 0
    assert kinds(barrier) == {}


@pytest.mark.parametrize(
    ("number", "factor"), [(0, 4), (2, 1), (5, 4), (6, 4), (7, 16), (9, 4)]
)
def test_flint_divides_every_size_by_the_ranks(number: int, factor: int) -> None:
    record = collective(
        1,
        comm_type=number,
        comm_size=100,
        pg_name="tp",
        group_size=4,
        group_count=2,
        ranks=(0, 1, 2, 3),
    )
    trace = read(metadata(), record)
    assert trace.producer == "Flint"
    assert trace.graph.node(0).comm_bytes == 100 * factor
    expected = {} if factor == 1 else {WarningKind.DIVIDED_SIZES: 1}
    assert kinds(trace) == expected
    kept = left(WarningKind.DIVIDED_SIZES, metadata(), record)
    assert kept.graph.node(0).comm_bytes == 100
    assert kinds(kept) == {}


def kernels(*streams: int | None) -> list[bytes]:
    """Return a CPU node, and after it kernels whose ids go down."""
    return [
        PYTORCH,
        node(1, is_cpu_op=True),
        *(
            node(
                90 - number,
                data_deps=[1],
                is_cpu_op=False,
                **({} if stream is None else {"stream": stream}),
            )
            for number, stream in enumerate(streams)
        ),
    ]


def test_kernels_of_a_stream_follow_each_other_by_id() -> None:
    trace = read(*kernels(7, 20, 7, 20, 7))
    assert dependencies(trace) == {
        1: [],
        90: [1, 88],
        89: [1, 87],
        88: [1, 86],
        87: [1],
        86: [1],
    }
    assert kinds(trace)[WarningKind.UNORDERED_KERNELS] == 3
    kept = left(WarningKind.UNORDERED_KERNELS, *kernels(7, 7))
    assert dependencies(kept) == {1: [], 90: [1], 89: [1]}


@pytest.mark.parametrize("stream", [None, 0])
def test_each_group_has_its_own_stream_without_recorded_streams(
    stream: int | None,
) -> None:
    fields = {} if stream is None else {"stream": stream}
    trace = read(
        *kernels(stream, stream),
        collective(91, is_cpu_op=False, pg_name="3", **fields),
        collective(92, is_cpu_op=False, **fields),
        collective(93, is_cpu_op=False, pg_name="3", **fields),
        node(94, is_cpu_op=False, **fields),
    )
    assert dependencies(trace) == {
        1: [],
        89: [1],
        90: [1, 89],
        91: [],
        92: [],
        93: [91],
        94: [90],
    }


def test_kernels_with_successors_are_unchanged() -> None:
    records = [*kernels(7, 7), node(95, data_deps=[90], is_cpu_op=False, stream=7)]
    trace = read(*records)
    assert dependencies(trace)[90] == [1]
    assert WarningKind.UNORDERED_KERNELS not in kinds(trace)


def test_other_producers_order_their_own_kernels() -> None:
    trace = read(metadata(), node(1, is_cpu_op=False), node(2, is_cpu_op=False))
    assert dependencies(trace) == {1: [], 2: []}


def test_summary_line_counts_corrections() -> None:
    records = metadata(), *(node(i, ctrl_deps=[i], data_deps=[]) for i in range(3))
    warnings = [*read(*records).warnings, *read(*records, rank=1).warnings]
    assert merge_warnings(warnings)[WarningKind.SELF_CONTROL_DEPENDENCY] == (
        "w.et: offset 8: rank 0 node 0: lists itself as a control dependency; "
        "dropped [self-control-dependency: 6 times in 2 ranks]"
    )

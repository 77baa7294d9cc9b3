"""Files with one unusual property each, and refused files of real producers."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from chakram.chakra.lint.replay_blockers import ProblemKind, check_trace_set
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.sets.trace_set import load_trace_set
from chakram.chakra.trace_warning import WarningKind
from chakram.foundation.errors import TraceError, TruncatedTrace, UnsupportedTrace
from chakram.trace.node import NodeKind
from tests.full_decoder import read_trace

# One oddity per file, named after it.
ODD: dict[str, tuple[int, set[WarningKind], set[ProblemKind]]] = {
    "coll_without_type_or_size": (
        2,
        {WarningKind.COLLECTIVE_LABEL},
        {ProblemKind.LOST_COMMUNICATION},
    ),
    "dangling_ctrl_dep": (2, {WarningKind.MISSING_CONTROL_DEPENDENCY}, set()),
    "empty_metadata_frame": (2, set(), set()),
    "forward_reference": (3, set(), set()),
    "gzip_named_et": (2, set(), set()),
    "gzip_named_et_gz": (2, set(), set()),
    "no_is_cpu_op": (1, set(), set()),
    "p2p_no_src_on_send": (2, set(), set()),
    "storage_and_data_op_nodes": (3, set(), set()),
    "two_node_cycle": (3, set(), {ProblemKind.CYCLE}),
    "uint64_comm_size": (1, set(), set()),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_has_its_outcome(chakram_data: Path, name: str) -> None:
    nodes, warnings, problems = ODD[name]
    traces = load_trace_set(chakram_data / "traces/edge_synthetic" / name)
    assert sum(map(len, traces.graphs.values())) == nodes
    assert {warning.kind for warning in traces.warnings} == warnings
    found = check_trace_set(traces.graphs, traces.groups)
    assert {problem.kind for problem in found} == problems


def test_truncated_file_is_distinguished_from_a_short_one(chakram_data: Path) -> None:
    path = chakram_data / "traces/edge_synthetic/truncated_mid_node"
    with pytest.raises(TruncatedTrace, match=r"offset 71: .*45 of the 62 bytes"):
        load_trace_set(path)


def test_a_dangling_data_dependency_is_refused_or_dropped(chakram_data: Path) -> None:
    path = chakram_data / "traces/edge_synthetic/dangling_data_dep"
    with pytest.raises(TraceError, match="depends on node 99"):
        load_trace_set(path)
    options = ReadOptions(drop_missing_dependencies=True)
    traces = load_trace_set(path, options=options)
    (warning,) = traces.warnings
    assert warning.kind is WarningKind.MISSING_DATA_DEPENDENCY


def test_schema_0_0_1_is_refused(chakram_data: Path) -> None:
    path = chakram_data / "traces/chakra_tests/schema_0.0.1_twoCompNodesDependent.0.eg"
    with pytest.raises(UnsupportedTrace, match="Chakra schema 0"):
        read_trace(path, 0)


def test_host_trace_resolves_its_group_pointers(
    chakram_data: Path, tmp_path: Path
) -> None:
    # One rank of two, in a file whose name has no rank.
    with tarfile.open(
        chakram_data / "traces/chakra_tests/1.0.2-chakra.0.0.4.tgz"
    ) as tar:
        tar.extract("1.0.2-chakra.0.0.4.json", tmp_path, filter="data")
    trace = read_trace(tmp_path / "1.0.2-chakra.0.0.4.json", 0).trace
    nodes = list(trace.graph.nodes())
    gathers = [node for node in nodes if node.kind is NodeKind.COLLECTIVE]
    assert [node.op for node in gathers] == ["all_gather"] * 10
    assert {node.comm_bytes for node in gathers} == {4}
    assert {node.group for node in gathers} == {None}
    # Each is waited for, and the next one follows the wait.
    waits = [node for node in nodes if node.kind is NodeKind.PASS]
    assert len(waits) == 10
    assert all(
        nodes[node.dependencies[0]].kind is NodeKind.PASS for node in gathers[1:]
    )


def test_profiles_are_refused_by_name(chakram_data: Path) -> None:
    path = chakram_data / "traces/pytorch_moe_gloo_8r/kineto_device_json.tar.gz"
    with pytest.raises(UnsupportedTrace, match=r"a Kineto profile.*the host trace"):
        load_trace_set(path)

"""Traces of real producers: each set is read whole and has what its author counted."""

from __future__ import annotations

import gzip
import tarfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram.chakra.lint import ProblemKind, check_trace_set
from chakram.chakra.options import ReadOptions, WarningKind
from chakram.chakra.producers import Producer
from chakram.chakra.reader import read_trace
from chakram.chakra.trace_set import TraceSet, load_trace_set
from chakram.core.trace_node import NodeKind
from chakram.errors import TraceError, TruncatedTrace, UnsupportedTrace
from chakram.testing.trace_bytes import outcome, read_plainly, read_the_long_way

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a set holds: collectives and messages as number, smallest and largest."""

    path: str
    ranks: int
    nodes: int
    comm: dict[str, tuple[int, int, int]]
    producer: str = "STAGE"
    warnings: frozenset[WarningKind] = frozenset()
    problems: frozenset[ProblemKind] = frozenset()
    groups: int = field(default=0)


def _micro(op: str, ranks: int) -> Expected:
    return Expected(
        path=f"astra_sim_microbenchmarks/{op}/{ranks}npus_1MB",
        ranks=ranks,
        nodes=ranks,
        comm={op: (ranks, 2**20, 2**20)},
        producer="ASTRA-sim example",
    )


def _generator(name: str, comm: dict[str, tuple[int, int, int]]) -> Expected:
    return Expected(
        path=f"chakra_generator_1.0.0_4r/generator_4r.tar.gz/{name}",
        ranks=4,
        nodes=4,
        comm=comm,
        producer="Chakra generator",
    )


SETS = [
    *(
        _micro(op, ranks)
        for op in ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
        for ranks in (4, 8, 16)
    ),
    *(
        _generator(op.upper(), {op: (4, size, size)})
        for op, size in (
            ("all_gather", 65_536),
            ("all_reduce", 65_536),
            ("all_to_all", 65_536),
            ("barrier", 0),
            ("broadcast", 65_536),
            ("reduce_scatter", 65_536),
        )
    ),
    Expected(
        path="astra_sim_custom_collective_ring8",
        ranks=8,
        nodes=280,
        comm={"send": (112, 131_072, 131_072), "receive": (112, 131_072, 131_072)},
        producer="MSCCL converter",
        warnings=frozenset({WarningKind.COLLECTIVE_BODY}),
    ),
    Expected(
        path="msccl_custom_symbolic/ring_allgather_8r",
        ranks=8,
        nodes=112,
        comm={"send": (56, 0, 0), "receive": (56, 0, 0)},
        producer="MSCCL converter",
        warnings=frozenset({WarningKind.NO_SIZE, WarningKind.COLLECTIVE_BODY}),
        problems=frozenset({ProblemKind.NO_SIZE}),
    ),
    Expected(
        path="msccl_custom_symbolic/ring_allreduce_4r",
        ranks=4,
        nodes=60,
        comm={"send": (24, 0, 0), "receive": (24, 0, 0)},
        producer="MSCCL converter",
        warnings=frozenset({WarningKind.NO_SIZE, WarningKind.COLLECTIVE_BODY}),
        problems=frozenset({ProblemKind.NO_SIZE}),
    ),
    Expected(
        path="msccl_custom_symbolic/ring_allreduce_8r",
        ranks=8,
        nodes=280,
        comm={"send": (112, 0, 0), "receive": (112, 0, 0)},
        producer="MSCCL converter",
        warnings=frozenset({WarningKind.NO_SIZE, WarningKind.COLLECTIVE_BODY}),
        problems=frozenset({ProblemKind.NO_SIZE}),
    ),
    Expected(
        path="chakra_tests/feeder_tests_trace.tar.gz",
        ranks=1,
        nodes=3_664,
        comm={
            "broadcast": (2, 424, 212_480),
            "all_reduce": (5, 8_196_000, 31_502_336),
        },
        producer="PyTorch converter",
        warnings=frozenset(
            {
                WarningKind.COLLECTIVE_LABEL,
                WarningKind.SELF_CONTROL_DEPENDENCY,
                WarningKind.MISSING_CONTROL_DEPENDENCY,
                WarningKind.UNORDERED_KERNELS,
            }
        ),
    ),
    Expected(
        path="text_converter_8r/DLRM_HybridParallel",
        ranks=8,
        nodes=256,
        comm={
            "all_to_all": (16, 98_304, 98_304),
            "all_reduce": (56, 13_312, 1_064_960),
        },
        producer="text converter",
        warnings=frozenset({WarningKind.CYCLE_DURATIONS}),
    ),
    Expected(
        path="text_converter_8r/MLP_HybridParallel_Data_Model",
        ranks=8,
        nodes=280,
        comm={
            "all_gather": (48, 37_632, 147_456),
            "all_reduce": (88, 37_632, 147_456),
        },
        producer="text converter",
        warnings=frozenset({WarningKind.CYCLE_DURATIONS}),
    ),
    Expected(
        path="text_converter_8r/Resnet50_DataParallel.tar.gz",
        ranks=8,
        nodes=1_720,
        comm={"all_reduce": (432, 16_384, 9_437_184)},
        producer="text converter",
        warnings=frozenset({WarningKind.CYCLE_DURATIONS}),
    ),
    Expected(
        path="astra_sim_2023_resnet50_dp64/resnet50_dp64.tar.gz",
        ranks=64,
        nodes=13_760,
        comm={"all_reduce": (3_456, 16_384, 9_437_184)},
        producer="text converter",
        warnings=frozenset(
            {
                WarningKind.NO_METADATA,
                WarningKind.CONTROL_ONLY,
                WarningKind.CYCLE_DURATIONS,
            }
        ),
    ),
    Expected(
        path="deepflow_llm_graph_16r/llm_graph_16r.tar.gz",
        ranks=16,
        nodes=6_432,
        comm={
            "all_reduce": (2_080, 4_202_692_608, 141_641_646_080),
            "send": (96, 137_438_953_472, 137_438_953_472),
            "receive": (96, 137_438_953_472, 137_438_953_472),
        },
        producer="DeepFlow",
        warnings=frozenset({WarningKind.CONTROL_ONLY}),
        groups=4,
    ),
    Expected(
        path="pytorch_moe_gloo_8r/converted_et.tar.gz",
        ranks=8,
        nodes=5_388,
        comm={},
        producer="PyTorch converter",
        warnings=frozenset({WarningKind.MISSING_CONTROL_DEPENDENCY}),
        problems=frozenset({ProblemKind.LOST_COMMUNICATION}),
        groups=6,
    ),
    Expected(
        path="pytorch_moe_gloo_8r/host_et_json.tar.gz",
        ranks=8,
        # Of 5,396: what took time in the profile beside it, and the communication.
        nodes=5_212,
        comm={
            "all_to_all": (8, 64, 64),
            "all_to_all_v": (32, 72_192, 174_336),
            "all_reduce": (96, 32, 32_768),
            "barrier": (8, 0, 0),
        },
        producer="PyTorch",
        warnings=frozenset({WarningKind.GROUP_INFERRED}),
        groups=6,
    ),
    Expected(
        path="pytorch_dlrm_nccl_8r/dlrm_pytorch_et.tar.gz",
        ranks=8,
        nodes=88,
        comm={
            "all_to_all": (8, 192, 192),
            "all_to_all_v": (32, 1_536, 24_576),
            "all_reduce": (24, 448, 1_576_964),
        },
        producer="PyTorch",
        warnings=frozenset({WarningKind.GROUP_OF_POINTER, WarningKind.NO_TIMES}),
    ),
    Expected(
        path="stage/dense_llama_fsdp8_8r",
        ranks=8,
        nodes=2_864,
        comm={
            "all_gather": (128, 22_151_168, 22_151_168),
            "reduce_scatter": (64, 177_209_344, 177_209_344),
            "all_reduce": (16, 131_072_000, 131_072_000),
        },
        groups=17,
    ),
    Expected(
        path="stage/dense_llama_legacyattr_tp2_dp2_4r",
        ranks=4,
        nodes=472,
        comm={
            "all_gather": (48, 4_194_304, 4_194_304),
            "reduce_scatter": (32, 8_388_608, 8_388_608),
            "all_reduce": (24, 88_604_672, 131_072_000),
        },
        groups=8,
    ),
    Expected(
        path="stage/moe_mixtral_ep4_fsdp2_tp1_8r",
        ranks=8,
        nodes=2_512,
        comm={
            "all_gather": (160, 2_048, 138_413_056),
            "all_to_all": (128, 4_194_304, 4_194_304),
            "reduce_scatter": (32, 276_826_112, 276_826_112),
            "all_reduce": (16, 131_072_000, 131_072_000),
        },
        groups=22,
    ),
    Expected(
        path="stage/moe_mixtral_ep4_tp2_8r",
        ranks=8,
        nodes=2_896,
        comm={
            "all_gather": (384, 2_048, 4_194_304),
            "reduce_scatter": (192, 524_288, 8_388_608),
            "all_to_all": (128, 2_097_152, 2_097_152),
            "all_reduce": (16, 131_072_000, 131_072_000),
        },
        groups=22,
    ),
    Expected(
        path="stage/dense_llama_tp4_pp2_dp2_16r.tar.gz",
        ranks=16,
        nodes=3_456,
        comm={
            "all_gather": (384, 2_097_152, 2_097_152),
            "reduce_scatter": (256, 8_388_608, 8_388_608),
            "all_reduce": (96, 44_302_336, 131_072_000),
            "send": (32, 2_097_152, 2_097_152),
            "receive": (32, 2_097_152, 2_097_152),
        },
        groups=28,
    ),
    Expected(
        path="stage/moe_mixtral_32layers_ep8_pp4_32r.tar.gz",
        ranks=32,
        nodes=118_560,
        comm={
            "all_gather": (6_144, 1_024, 2_097_152),
            "all_to_all": (8_192, 4_194_304, 4_194_304),
            "send": (384, 16_777_216, 16_777_216),
            "receive": (384, 16_777_216, 16_777_216),
        },
        groups=100,
    ),
    Expected(
        path="stage/moe_mixtral_ep4_tp2_pp2_16r.tar.gz",
        ranks=16,
        nodes=2_960,
        comm={
            "all_gather": (384, 2_048, 4_194_304),
            "reduce_scatter": (192, 524_288, 8_388_608),
            "all_to_all": (128, 2_097_152, 2_097_152),
            "send": (32, 4_194_304, 4_194_304),
            "all_reduce": (16, 131_072_000, 131_072_000),
            "receive": (32, 4_194_304, 4_194_304),
        },
        groups=44,
    ),
    Expected(
        path="stage/moe_mixtral_ep8_tp2_16r.tar.gz",
        ranks=16,
        nodes=4_704,
        comm={
            "all_gather": (576, 1_024, 4_194_304),
            "reduce_scatter": (256, 262_144, 8_388_608),
            "all_to_all": (256, 1_048_576, 1_048_576),
            "all_reduce": (32, 131_072_000, 131_072_000),
        },
        groups=42,
    ),
    Expected(
        path="stage/moe_mixtral_ep8_tp2_pp2_32r.tar.gz",
        ranks=32,
        nodes=4_832,
        comm={
            "all_gather": (576, 1_024, 4_194_304),
            "reduce_scatter": (256, 262_144, 8_388_608),
            "all_to_all": (256, 1_048_576, 1_048_576),
            "send": (64, 4_194_304, 4_194_304),
            "all_reduce": (32, 131_072_000, 131_072_000),
            "receive": (64, 4_194_304, 4_194_304),
        },
        groups=84,
    ),
    Expected(
        path="stage/moe_mixtral_ep8_tp2_pp2_dp2_64r.tar.gz",
        ranks=64,
        nodes=9_856,
        comm={
            "all_gather": (1_152, 1_024, 4_194_304),
            "reduce_scatter": (512, 262_144, 8_388_608),
            "all_to_all": (512, 1_048_576, 1_048_576),
            "send": (128, 4_194_304, 4_194_304),
            "all_reduce": (256, 79_692_800, 131_072_000),
            "receive": (128, 4_194_304, 4_194_304),
        },
        groups=136,
    ),
]


def communication(traces: TraceSet) -> dict[str, tuple[int, int, int]]:
    """Return number, smallest and largest size of every kind of communication."""
    sizes: dict[str, list[int]] = {}
    for graph in traces.graphs.values():
        for position in range(len(graph)):
            kind = graph.kind(position)
            if kind in (NodeKind.COLLECTIVE, NodeKind.SEND, NodeKind.RECEIVE):
                node = graph.node(position)
                sizes.setdefault(str(node.op or kind.name.lower()), []).append(
                    node.comm_bytes
                )
    return {name: (len(all_), min(all_), max(all_)) for name, all_ in sizes.items()}


@pytest.mark.parametrize("expected", SETS, ids=lambda expected: expected.path)
def test_a_set_holds_what_its_author_counted(
    chakram_data: Path, expected: Expected
) -> None:
    # One byte per element: sizes as they are stored, as the table has them.
    traces = load_trace_set(
        chakram_data / "traces" / expected.path, bytes_per_element=1
    )
    assert traces.nranks == expected.ranks
    assert sum(map(len, traces.graphs.values())) == expected.nodes
    assert communication(traces) == expected.comm
    assert traces.producer == expected.producer
    warnings = expected.warnings
    if traces.producer == Producer.STAGE:
        warnings |= {WarningKind.ELEMENTS_AS_BYTES}
    assert {warning.kind for warning in traces.warnings} == warnings
    assert len(traces.groups) == expected.groups + 1
    problems = check_trace_set(traces.graphs, traces.groups)
    assert {problem.kind for problem in problems} == expected.problems


def test_control_dependencies_of_pytorch_that_lead_nowhere_are_counted(
    chakram_data: Path,
) -> None:
    traces = load_trace_set(
        chakram_data / "traces/chakra_tests/feeder_tests_trace.tar.gz"
    )
    assert {warning.kind: warning.count for warning in traces.warnings} == {
        WarningKind.COLLECTIVE_LABEL: 14,
        WarningKind.SELF_CONTROL_DEPENDENCY: 383,
        WarningKind.MISSING_CONTROL_DEPENDENCY: 1_277,
        # Of 1,216 kernels two are the first ones: one computes, one communicates.
        WarningKind.UNORDERED_KERNELS: 1_214,
    }


def test_messages_of_the_generator_have_no_peer(chakram_data: Path) -> None:
    archive = chakram_data / "traces/chakra_generator_1.0.0_4r/generator_4r.tar.gz"
    for name in ("COMM_SEND_NODE", "COMM_RECV_NODE"):
        found = [s for s in _sets_of(archive) if name.split("_")[1] in s.upper()]
        assert found
        for prefix in found:
            traces = load_trace_set(archive, prefix=prefix)
            assert {w.kind for w in traces.warnings} == {WarningKind.NO_PEER}
            problems = check_trace_set(traces.graphs, traces.groups)
            assert Counter(p.kind for p in problems) == {ProblemKind.NO_PEER: 4}
            assert {n.comm_bytes for n in traces.graphs[0].nodes()} == {1_024}


def _sets_of(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return sorted(
            {name.rsplit(".", 2)[0] for name in tar.getnames() if name.endswith(".et")}
        )


def test_stage_is_refused_until_somebody_says_what_an_element_is(
    chakram_data: Path,
) -> None:
    path = chakram_data / "traces/stage/moe_mixtral_ep4_tp2_8r"
    with pytest.raises(TraceError, match="bytes_per_element: 2"):
        load_trace_set(path)
    traces = load_trace_set(path, bytes_per_element=2)
    assert communication(traces)["all_to_all"] == (128, 4_194_304, 4_194_304)


def test_an_archive_and_its_folder_are_the_same_set(
    chakram_data: Path, tmp_path: Path
) -> None:
    archive = chakram_data / "traces/stage/moe_mixtral_ep4_tp2_pp2_16r.tar.gz"
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = tmp_path / "moe_mixtral_ep4_tp2_pp2_16r"
    assert (
        load_trace_set(folder, bytes_per_element=2).digest
        == load_trace_set(archive, bytes_per_element=2).digest
    )


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


def test_a_truncated_file_is_told_from_a_short_one(chakram_data: Path) -> None:
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


def test_pointers_of_a_host_trace_are_explained_by_it(
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


def _binary_traces(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every binary trace under *folder*, those in archives too."""
    for path in sorted(folder.rglob("*")):
        if path.name.endswith((".tar.gz", ".tgz")):
            with tarfile.open(path) as archive:
                for member in archive:
                    if member.isreg() and member.name.endswith(".et"):
                        file = archive.extractfile(member)
                        assert file is not None
                        yield f"{path}/{member.name}", file.read()
        elif path.suffix == ".et":
            yield str(path), path.read_bytes()


@pytest.mark.slow
def test_every_trace_read_shortly_is_what_protobuf_makes_of_it(
    chakram_data: Path,
) -> None:
    seen = 0
    for name, data in _binary_traces(chakram_data / "traces"):
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        rank = int(name.split(".")[-2])
        options = ReadOptions(bytes_per_element=2, drop_missing_dependencies=True)
        # Both are called at once, before the loop goes on.
        short = outcome(lambda: read_plainly(data, rank=rank, options=options)[0])  # noqa: B023
        long = outcome(lambda: read_the_long_way(data, rank=rank, options=options))  # noqa: B023
        assert short == long, name
        seen += 1
    assert seen > 250


def test_a_linked_trace_is_what_the_converter_makes_of_it(chakram_data: Path) -> None:
    folder = chakram_data / "traces/pytorch_moe_gloo_8r"
    linked = load_trace_set(folder / "linked_json_ranks01.tar.gz")
    converted = load_trace_set(folder / "converted_et.tar.gz")
    assert linked.producer == converted.producer == "PyTorch converter"
    assert linked.schema == converted.schema == "1.1.1-chakra.0.0.4"
    assert linked.groups["3"] == converted.groups["3"]
    for rank in (0, 1):
        ours, theirs = (
            {
                node.node_id: (
                    node.name,
                    node.kind,
                    node.duration_ns,
                    {graph.node_id(position) for position in node.dependencies},
                )
                for node in graph.nodes()
            }
            for graph in (linked.graphs[rank], converted.graphs[rank])
        )
        # The converter takes the time of an optimizer's step from it, nobody knows why.
        step = ours.pop(657)
        assert step == (step[0], step[1], step[2], theirs.pop(657)[3])
        assert ours == theirs

"""Traces of real producers have the contents that their authors counted."""

from __future__ import annotations

import gzip
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from chakram.chakra.lint.replay_blockers import ProblemKind, check_trace_set
from chakram.chakra.read.producers import Producer
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.sets.trace_set import TraceSet, load_trace_set
from chakram.chakra.summary.summary import summarize
from chakram.chakra.trace_warning import WarningKind
from chakram.foundation.errors import TraceError
from chakram.trace.node import NodeKind
from tests.full_decoder import outcome, read_fast, read_fully
from tests.integration.real_sets import SETS, Expected


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
def test_trace_set_has_the_counts_of_its_author(
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


def test_dangling_control_dependencies_of_pytorch_are_counted(
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


def test_stage_traces_need_a_stated_element_size(
    chakram_data: Path,
) -> None:
    path = chakram_data / "traces/stage/moe_mixtral_ep4_tp2_8r"
    with pytest.raises(TraceError, match="bytes_per_element: 2"):
        load_trace_set(path)
    traces = load_trace_set(path, bytes_per_element=2)
    assert communication(traces)["all_to_all"] == (128, 4_194_304, 4_194_304)
    # By its op_type: 96 M; 56 A, E and E2; what has attn_kernel in its name.
    found = summarize(traces.graphs, traces.groups).per_rank[0].computation
    assert found == {"gemm": 96, "attention": 24, "elementwise": 64, "other": 88}


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
@pytest.mark.parametrize(
    ("every", "least"), [(8, 50), pytest.param(1, 250, marks=pytest.mark.soak)]
)
def test_fast_decoder_equals_protobuf_on_every_trace(
    chakram_data: Path, every: int, least: int
) -> None:
    """Those of every eighth rank, and in soak all."""
    seen = 0
    for name, data in _binary_traces(chakram_data / "traces"):
        rank = int(name.split(".")[-2])
        if rank % every:
            continue
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        options = ReadOptions(bytes_per_element=2, drop_missing_dependencies=True)
        # Both are called at once, before the loop goes on.
        short = outcome(lambda: read_fast(data, rank=rank, options=options)[0])  # noqa: B023 - called at once
        long = outcome(lambda: read_fully(data, rank=rank, options=options))  # noqa: B023 - called at once
        assert short == long, name
        seen += 1
    assert seen > least


def test_linked_trace_equals_the_output_of_the_converter(chakram_data: Path) -> None:
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
                    node.duration_ns // 1_000,  # the converter truncates
                    {graph.node_id(position) for position in node.dependencies},
                )
                for node in graph.nodes()
            }
            for graph in (linked.graphs[rank], converted.graphs[rank])
        )
        # The converter takes the time of an optimizer's step from it. The reason is
        # unknown.
        step = ours.pop(657)
        assert step == (step[0], step[1], step[2], theirs.pop(657)[3])
        assert ours == theirs

"""Writing traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chakram.chakra.et_codec import NodeType
from chakram.chakra.sets.trace_set import load_trace_set
from chakram.chakra.write.writer import encode_trace, write_trace_set
from chakram.collectives.groups import GroupDescription, ProcessGroup, world_group
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import OutputExists
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind
from tests.made_graphs import collective, trace
from tests.trace_bytes import read


def graph_of(**columns: Any) -> TraceGraph:
    builder = TraceGraphBuilder(rank=0, source="made")
    builder.add(node_id=1, name="n", **{"kind": NodeKind.PASS, **columns})
    return builder.build()


def test_written_trace_is_read_back() -> None:
    builder = TraceGraphBuilder(rank=0, source="made")
    builder.add(
        node_id=5,
        kind=NodeKind.COMPUTE,
        name="c",
        duration_ns=7_000,
        start_ns=2_000,
        num_ops=3,
        tensor_bytes=4,
        op_type="M",
        stream=1,
    )
    builder.add(
        node_id=2,
        kind=NodeKind.COLLECTIVE,
        name="b",
        op=CollectiveOp.BROADCAST,
        comm_bytes=9,
        group="3",
        root=1,
        dependencies=[5],
    )
    builder.add(
        node_id=9,
        kind=NodeKind.SEND,
        name="s",
        comm_bytes=9,
        peer=4,
        tag=6,
        dependencies=[2, 5],
    )
    builder.add(node_id=10, kind=NodeKind.RECEIVE, name="r", comm_bytes=1, peer=2)
    builder.add(node_id=11, kind=NodeKind.MEMORY, name="m", tensor_bytes=8)
    builder.add(node_id=12, kind=NodeKind.PASS, name="p", duration_ns=5_000)
    graph = builder.build()
    trace = read(*encode_trace(graph, producer="a test"))
    assert trace.metadata.version == "1.0.0"
    assert trace.metadata.attributes == {"producer": "a test"}
    for written, got in zip(graph.nodes(), trace.graph.nodes(), strict=True):
        for name in written.__slots__:
            if name != "file_offset":
                assert getattr(got, name) == getattr(written, name), name


def test_times_are_rounded_to_microseconds() -> None:
    graph = graph_of(kind=NodeKind.COMPUTE, duration_ns=1_499)
    got = read(*encode_trace(graph, producer="t")).graph.node(0)
    assert got.duration_ns == 1_000


def test_node_type_without_a_number_is_not_written() -> None:
    graph = graph_of(kind=NodeKind.COLLECTIVE, op=CollectiveOp.SEND_RECV)
    with pytest.raises(ValueError, match="the schema has no send_recv"):
        list(encode_trace(graph, producer="t"))


def write(folder: Path, ranks: int = 2, *, replace: bool = False) -> list[Path]:
    return write_trace_set(
        folder,
        prefix="w",
        graphs=[graph_of() for _ in range(ranks)],
        groups=[ProcessGroup(name="1", ranks=(0,)), world_group(ranks)],
        producer="t",
        replace=replace,
    )


def test_a_set_is_its_files_and_its_groups(tmp_path: Path) -> None:
    paths = write(tmp_path / "new" / "set")
    assert [path.name for path in paths] == ["w.0.et", "w.1.et", "comm_group.json"]
    assert json.loads(paths[2].read_text()) == {"1": [0]}
    assert load_trace_set(tmp_path / "new" / "set").nranks == 2


def test_without_groups_there_is_no_group_file(tmp_path: Path) -> None:
    paths = write_trace_set(
        tmp_path, prefix="w", graphs=[graph_of()], groups=[], producer="t"
    )
    assert [path.name for path in paths] == ["w.0.et"]


def test_set_is_replaced_only_on_request_and_completely(tmp_path: Path) -> None:
    write(tmp_path, ranks=4)
    with pytest.raises(OutputExists, match=r"contains comm_group\.json and 4 more"):
        write(tmp_path, ranks=2)
    assert load_trace_set(tmp_path).nranks == 4
    write(tmp_path, ranks=2, replace=True)
    assert load_trace_set(tmp_path).nranks == 2


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputExists, match="is not a folder"):
        write(tmp_path / "file")


def test_numbers_of_node_types_equal_those_of_the_schema() -> None:
    from chakram.chakra import et_pb2

    for node_type in NodeType:
        assert et_pb2.NodeType.Value(f"{node_type.name}_NODE") == node_type


def test_an_uneven_all_to_all_keeps_its_splits() -> None:
    splits = Splits((1, 2, 3), (0, 2, 9))
    rows = [
        collective(1, CollectiveOp.ALL_TO_ALL_V, size=6, splits=splits),
        collective(2, CollectiveOp.ALL_TO_ALL, size=6, splits=splits),
    ]
    written = b"".join(encode_trace(trace(0, rows), producer="test"))
    nodes = list(read(written).graph.nodes())
    assert [node.splits for node in nodes] == [splits, splits]
    assert {node.op for node in nodes} == {CollectiveOp.ALL_TO_ALL}


def test_ranks_are_written_one_at_a_time(tmp_path: Path) -> None:
    happened: list[str] = []

    def graphs() -> Iterator[TraceGraph]:
        for rank in range(3):
            happened.append(f"make {rank}")
            yield trace(rank, [collective(1, CollectiveOp.ALL_REDUCE, size=1)])

    write_trace_set(
        tmp_path,
        prefix="w",
        graphs=graphs(),
        groups=[],
        producer="test",
        on_rank=lambda done: happened.append(f"wrote {done}"),
    )
    assert happened == ["make 0", "wrote 1", "make 1", "wrote 2", "make 2", "wrote 3"]


def test_file_can_contain_the_groups_of_its_rank(tmp_path: Path) -> None:
    group = ProcessGroup(name="4", ranks=(0, 2))
    graph = trace(0, [collective(1, CollectiveOp.ALL_REDUCE, group="4", size=1)])
    described = [GroupDescription(group, "data")]
    written = b"".join(encode_trace(graph, producer="chakram test", groups=described))
    made = read(written)
    assert made.groups == {"4": (0, 2)}
    assert b'"pg_desc": "data"' in written
    # A foreign attribute with that name is ignored.
    other = b"".join(encode_trace(graph, producer="test", groups=described))
    assert read(other).groups == {}
    assert made.purposes == {"4": "data"}
    # No node has them: others abort at one of metadata.
    assert len(made.graph) == 1

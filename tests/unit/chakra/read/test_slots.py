"""Compute slots of a CPU, a GPU and its streams."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.chakra.et_codec import NodeType
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.summary.summary import summarize
from chakram.collectives.groups import world_group
from chakram.trace.node import CPU_STREAM
from tests.full_decoder import read_fast, read_fully
from tests.trace_bytes import metadata, node, read


@pytest.mark.parametrize(
    ("attributes", "stream"),
    [
        ({}, None),
        ({"is_cpu_op": False}, None),
        ({"is_cpu_op": 0, "stream": 7}, 7),
        ({"stream": -1}, None),
        ({"is_cpu_op": True}, CPU_STREAM),
        ({"is_cpu_op": 1, "stream": 7}, CPU_STREAM),
    ],
)
@pytest.mark.parametrize("node_type", [NodeType.COMP, NodeType.MEM_LOAD])
def test_cpu_computes_in_its_own_slot(
    attributes: dict[str, Any], stream: int | None, node_type: NodeType
) -> None:
    data = metadata() + node(3, node_type, duration_micros=2, **attributes)
    options = ReadOptions()
    plain, full_decodes = read_fast(data, rank=0, options=options)
    assert full_decodes == 1  # the metadata
    assert plain.graph.node(0).stream == stream
    slow = read_fully(data, rank=0, options=options)
    assert slow.graph.node(0).stream == stream


def test_operators_come_from_node_attributes() -> None:
    many = [node(id_, name=f"n{id_}", op_type=f"T{id_}") for id_ in range(10, 300)]
    data = b"".join(
        (
            metadata(),
            node(1, name="a", op_type="M"),
            node(2, name="b"),
            node(3, name="c", op_type=5),
            *many,
        )
    )
    plain, full_decodes = read_fast(data, rank=0, options=ReadOptions())
    assert full_decodes == 1  # the metadata
    for trace in (plain, read_fully(data, rank=0, options=ReadOptions())):
        found = [each.op_type for each in trace.graph.nodes()]
        assert found[:4] == ["M", "", "", "T10"]
        assert found.count("") == 2 + len(many) - 254  # a byte holds no more


def test_the_slots_of_a_rank_are_shown() -> None:
    trace = read(
        metadata(),
        node(1, duration_micros=5, is_cpu_op=True),
        node(2, duration_micros=7, is_cpu_op=False, stream=3),
        node(3, duration_micros=11),
    )
    found = summarize({0: trace.graph}, {"world": world_group(1)})
    assert found.per_rank[0].slots_ns == {
        "CPU": 5_000,
        "GPU": 11_000,
        "GPU stream 3": 7_000,
    }

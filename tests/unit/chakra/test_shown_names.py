"""Names of nodes with and without the prefix for other tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chakram.chakra.et_codec import (
    PREFIXES,
    NodeType,
    add_type_prefix,
    strip_type_prefix,
)
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.write.writer import encode_trace
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.node import NodeKind
from tests.full_decoder import read_fast, read_fully
from tests.trace_bytes import metadata, node

READERS = pytest.mark.parametrize(
    "reads",
    [
        lambda *each, **options: read_fast(*each, **options)[0],
        read_fully,
    ],
    ids=["fast decoder", "full decoder"],
)


def test_shown_name_includes_the_node_type() -> None:
    builder = TraceGraphBuilder(rank=0, source="s")
    for number, kind in enumerate([NodeKind.COMPUTE, NodeKind.PASS]):
        builder.add(node_id=number, kind=kind, name="mlp")
    data = b"".join(encode_trace(builder.build(), producer="t"))
    assert data.count(b"\x12\x0eCOMP_NODE: mlp") == 2


@READERS
@pytest.mark.parametrize("node_type", PREFIXES)
@pytest.mark.parametrize("name", ["mlp", "", ":", "COMP_NODE: a", "caf\u00e9"])
def test_prefix_of_a_shown_name_is_removed_on_reading(
    reads: Callable[..., Any], node_type: NodeType, name: str
) -> None:
    shown = add_type_prefix(name, node_type)
    assert strip_type_prefix(shown, node_type) == name
    fields = {"comm_type": 0, "comm_size": 1, "comm_tag": 0}
    fields["comm_src" if node_type == NodeType.COMM_RECV else "comm_dst"] = 1
    data = metadata() + node(9) + node(1, node_type, name=shown, **fields)
    assert reads(data, rank=0, options=ReadOptions()).graph.name(1) == name


@READERS
@pytest.mark.parametrize(
    "name", ["COMP_NODE_layer", "COMP_NODE:", "COMM_COLL_NODE: a", "xOMP_NODE: a"]
)
def test_foreign_names_are_unchanged(reads: Callable[..., Any], name: str) -> None:
    data = metadata() + node(9) + node(1, name=name)
    assert reads(data, rank=0, options=ReadOptions()).graph.name(1) == name

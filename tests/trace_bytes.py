"""Bytes of small traces for tests of readers."""

from __future__ import annotations

import io
from enum import StrEnum
from typing import Any

from chakram.chakra.et_codec import Metadata, NodeType, encode_metadata, encode_node
from chakram.chakra.read.framing import frame
from chakram.chakra.read.rank_decoder import RankTrace
from chakram.chakra.read.reader import ByteSource, ReadTrace, open_stream, settle
from chakram.chakra.read.reader_options import ReadOptions


def read_stream(stream: ByteSource, *, rank: int, source: str, **how: Any) -> ReadTrace:
    """Return the trace of one rank. *how* are other arguments of ``open_stream``."""
    return settle({rank: open_stream(stream, rank=rank, source=source, **how)})[rank]


def metadata(version: str = "0.0.4", **attributes: Any) -> bytes:
    """Return a metadata record, framed."""
    return frame(encode_metadata(Metadata(version=version, attributes=attributes)))


def node(
    node_id: int, node_type: NodeType | int = NodeType.COMP, **fields: Any
) -> bytes:
    """Return a node record, framed.

    *fields* are those of ``encode_node``; all others are attributes.
    """
    known = ("name", "data_deps", "ctrl_deps", "start_time_micros", "duration_micros")
    message = {name: fields.pop(name) for name in known if name in fields}
    return frame(
        encode_node(
            node_id=node_id,
            node_type=node_type,
            attributes=fields,
            **{"name": f"n{node_id}", **message},
        )
    )


def collective(node_id: int, **fields: Any) -> bytes:
    """Return the record of an all-reduce of 1 KiB, framed."""
    values = {"comm_type": 0, "comm_size": 1024, **fields}
    return node(node_id, NodeType.COMM_COLL, **values)


def read(
    *records: bytes, rank: int = 0, zero_is_a_group: bool = False, **options: Any
) -> RankTrace:
    """Return the meaning of the records of a file."""
    return read_stream(
        io.BytesIO(b"".join(records)),
        rank=rank,
        source="w.et",
        options=ReadOptions(**options),
        zero_is_a_group=zero_is_a_group,
    ).trace


def kinds(*records: bytes, **options: Any) -> list[StrEnum]:
    """Return the warnings about the records of a file."""
    return [w.kind for w in read(*records, **options).warnings]


def first(*records: bytes, **options: Any) -> Any:
    """Return the first node of a file of these records."""
    return read(metadata(), *records, **options).graph.node(0)

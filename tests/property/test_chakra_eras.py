"""Files of schemas before 0.0.4 are always refused."""

from __future__ import annotations

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chakram.chakra.read.framing import frame
from chakram.chakra.read.reader_options import ReadOptions
from chakram.foundation.errors import UnsupportedTrace
from tests.trace_bytes import read_stream


def varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


ids = st.integers(0, 2**40)
names = st.text("abcdefgh:_()0123456789", max_size=20).map(str.encode)
lists = st.text("[]0123456789, abc'", max_size=20).map(lambda s: f"[{s}]".encode())


@st.composite
def head(draw: st.DrawFn, types: int) -> bytes:
    """Fields behind the id in old nodes, with zeros written."""
    body = text(2, draw(names)) + number(3, draw(st.integers(0, types)))
    return body + b"".join(number(4, each) for each in draw(st.lists(ids, max_size=3)))


@st.composite
def first_nodes(draw: st.DrawFn) -> bytes:
    """A node of 0.0.1: numbers everywhere, no attributes."""
    fields = draw(st.lists(st.integers(5, 20), max_size=6, unique=True))
    return draw(head(6)) + b"".join(number(each, draw(ids)) for each in sorted(fields))


@st.composite
def attributes(draw: st.DrawFn) -> bytes:
    """An attribute of 0.0.2 or 0.0.3: name, type or value behind."""
    body = text(1, draw(st.sampled_from([b"comm_size", b"comm_type", b"num_ops"])))
    return body + number(draw(st.integers(4, 8)), draw(ids))


@st.composite
def later_nodes(draw: st.DrawFn, types: int) -> bytes:
    """A node of 0.0.2 or 0.0.3: texts in the fields 5 to 10, attributes in 11."""
    body = draw(head(types))
    for field in draw(st.lists(st.integers(5, 10), max_size=6, unique=True)):
        body += text(field, draw(lists))
    for attribute in draw(st.lists(attributes(), max_size=3)):
        body += text(11, attribute)
    return body


def refused(nodes: list[bytes], first_id: int, *metadata: bytes) -> None:
    numbered = (number(1, first_id + i) + body for i, body in enumerate(nodes))
    data = b"".join(map(frame, (*metadata, *numbered)))
    with pytest.raises(UnsupportedTrace) as caught:
        read_stream(io.BytesIO(data), rank=0, source="w.0.eg", options=ReadOptions())
    assert "schema" in caught.value.found


@given(st.lists(first_nodes(), min_size=1, max_size=5), ids)
def test_schema_0_0_1_is_refused(nodes: list[bytes], first_id: int) -> None:
    refused(nodes, first_id)


@given(st.lists(later_nodes(types=6), min_size=1, max_size=5), ids)
def test_schema_0_0_2_is_refused(nodes: list[bytes], first_id: int) -> None:
    refused(nodes, first_id)


@given(st.lists(later_nodes(types=7), min_size=1, max_size=5), ids)
# A collective of today would lack its type: that is not the reason to give.
@example([bytes.fromhex("12001807")], 1)
def test_schema_0_0_3_is_refused(nodes: list[bytes], first_id: int) -> None:
    refused(nodes, first_id)


@given(
    st.lists(attributes(), min_size=1, max_size=3),
    st.lists(later_nodes(types=7), max_size=5),
)
def test_schema_0_0_3_with_metadata_is_refused(
    stated: list[bytes], nodes: list[bytes]
) -> None:
    refused(nodes, 0, b"".join(text(1, each) for each in stated))

"""From files and streams to traces."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
from pathlib import Path

import pytest

from chakram.chakra.read.reader_options import ReadOptions
from chakram.foundation.errors import (
    GarbageTrace,
    OversizedRecord,
    TraceError,
    TruncatedTrace,
    UnsupportedTrace,
)
from tests.full_decoder import read_trace
from tests.trace_bytes import collective, metadata, node, read_stream

FILE = metadata() + node(1) + collective(2, data_deps=[1])


class Trickle(io.RawIOBase):
    """Returns one byte per call for any requested size."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(1)


def count(data: bytes, *, trickle: bool = False) -> int:
    stream = Trickle(data) if trickle else io.BytesIO(data)
    return len(read_stream(stream, rank=0, source="w").trace.graph)


def test_a_file_is_read_and_its_bytes_are_summed_up(tmp_path: Path) -> None:
    path = tmp_path / "w.0.et"
    path.write_bytes(FILE)
    got = read_trace(path, 0)
    assert len(got.trace.graph) == 2
    assert got.trace.graph.source == str(path)
    assert got.sha256 == hashlib.sha256(FILE).hexdigest()


@pytest.mark.parametrize("trickle", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(FILE),
        gzip.compress(FILE[:9]) + gzip.compress(FILE[9:]),
        gzip.compress(FILE) + b"\0" * 20,
    ],
    ids=["one member", "two members", "padded"],
)
def test_gzip_is_recognized_by_its_first_bytes(data: bytes, trickle: bool) -> None:
    assert count(data, trickle=trickle) == 2
    got = read_stream(io.BytesIO(data), rank=0, source="w")
    assert got.sha256 == hashlib.sha256(FILE).hexdigest()


@pytest.mark.parametrize("length", [2, 10, 30, -1])
def test_gzip_that_ends_early_is_a_truncation(length: int) -> None:
    with pytest.raises(TruncatedTrace):
        count(gzip.compress(FILE)[:length])


def test_damaged_gzip_is_garbage() -> None:
    data = bytearray(gzip.compress(FILE))
    data[-6] ^= 1  # its checksum
    with pytest.raises(GarbageTrace, match="gzip stream is damaged"):
        count(bytes(data))
    with pytest.raises(GarbageTrace, match="gzip stream is damaged"):
        count(gzip.compress(FILE) + b"more")


def test_gzip_bomb_is_refused_early() -> None:
    # A record that claims 1 GiB, and a compressed GiB of zeros behind it.
    data = gzip.compress(metadata() + b"\x80\x80\x80\x80\x04" + b"\0" * 10**7)
    with pytest.raises(OversizedRecord):
        count(data)
    with pytest.raises(TraceError, match="node id 0 occurs twice"):
        count(gzip.compress(b"\0" * 10**7))


@pytest.mark.parametrize("trickle", [False, True])
def test_plain_file_may_arrive_in_small_pieces(trickle: bool) -> None:
    assert count(FILE, trickle=trickle) == 2
    with pytest.raises(TraceError, match="is empty"):
        count(b"", trickle=trickle)
    with pytest.raises(TruncatedTrace):
        count(b"\x1f", trickle=trickle)


@pytest.mark.parametrize("trickle", [True, False])
def test_pointers_of_git_lfs_are_refused_with_their_remedy(trickle: bool) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n"
    with pytest.raises(UnsupportedTrace, match="git lfs pull"):
        count(pointer, trickle=trickle)


def test_other_compressions_are_refused_by_name() -> None:
    for data, name in (
        (bytes.fromhex("28b52ffd2005290000") + b"hello", "zstd"),
        (bytes.fromhex("04224d186040820500008068656c6c6f00000000"), "LZ4"),
        (bz2.compress(b"hello"), "bzip2"),
        (lzma.compress(b"hello"), "xz"),
    ):
        with pytest.raises(UnsupportedTrace, match=f"compressed with {name} .use gzip"):
            count(data)


def test_forms_that_are_not_read_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedTrace, match="this is a Kineto profile"):
        count(b'{"traceEvents": []}')
    with pytest.raises(UnsupportedTrace, match="this is JSON in an unknown form"):
        count(b'[\n{"x": 1}]')


@pytest.mark.parametrize("pad", ["", "x" * 200_000])
def test_json_may_be_gzipped_and_arrive_in_pieces(pad: str) -> None:
    text = f'\n{{"workload_graph": [{{"Id": 1, "NodeType": 4, "Name": "{pad}"}}]}}'
    data = gzip.compress(text.encode())
    assert count(data) == count(data, trickle=True) == 1
    got = read_stream(io.BytesIO(data), rank=0, source="w")
    assert got.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_a_record_limit_can_be_set() -> None:
    with pytest.raises(OversizedRecord):
        read_stream(
            io.BytesIO(FILE),
            rank=0,
            source="w",
            options=ReadOptions(record_limit_bytes=10),
        )

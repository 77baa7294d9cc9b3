"""Read one rank's trace: from a file, or from any stream of bytes.

gzip is recognised by its first two bytes, not by a name.  Other forms in which Chakra
traces travel are recognised, and refused by name.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from chakram.chakra.decode import RankDecoder, RankTrace
from chakram.chakra.framing import read_records
from chakram.chakra.options import ReadOptions
from chakram.errors import GarbageTrace, TraceError, TruncatedTrace, UnsupportedTrace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_CHUNK_BYTES = 256 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_SNIFF_BYTES = 64

_BINARY_ONLY = "only Chakra's binary form (.et) is read"
_CONVERT = "convert it with chakra_converter, or take the .et that its producer wrote"

_JSON_FORMS = (
    (b'"workload_graph"', "feeder JSON (workload_graph)"),
    (b'"trace_type"', "a PyTorch host execution trace"),
    (b'"schema"', "a PyTorch host execution trace, or one linked with a profile"),
    (b'"traceEvents"', "a Kineto profile"),
    (b'"nodes"', "STAGE's JSON"),
    (b'"version"', "the output of chakra_jsonizer"),
    (b'"attr"', "the output of chakra_jsonizer"),
)


class ByteSource(Protocol):
    """What has bytes to read: a file, a member of an archive."""

    def read(self, size: int, /) -> bytes:
        """Return at most *size* bytes, none at the end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTrace:
    """One rank's trace and the SHA-256 of its (decompressed) bytes."""

    trace: RankTrace
    sha256: str


def read_trace(path: Path, rank: int, options: ReadOptions | None = None) -> ReadTrace:
    """Return the trace of one rank from one file.

    Raises:
        TraceError: If the file cannot be opened, or is no trace that is read.
    """
    try:
        with path.open("rb") as file:
            return read_stream(file, rank=rank, source=str(path), options=options)
    except OSError as error:
        raise TraceError(str(path), f"cannot be read: {error.strerror}") from error


def read_stream(
    stream: ByteSource,
    *,
    rank: int,
    source: str,
    options: ReadOptions | None = None,
    zero_is_a_group: bool = False,
) -> ReadTrace:
    """Return the trace of one rank from a stream of bytes.

    Args:
        stream: The bytes, gzipped or not.
        rank: The rank whose trace it is; the file itself does not say.
        source: Name of the stream, for messages.
        options: How to read.
        zero_is_a_group: Whether a group file defines a group ``0``.

    Raises:
        TraceError: If it is no trace that is read.
    """
    options = options or ReadOptions()
    digest = hashlib.sha256()
    decoder = RankDecoder(
        rank=rank, source=source, options=options, zero_is_a_group=zero_is_a_group
    )
    chunks = _hashed(_refuse_json(_plain(_chunks(stream), source), source), digest)
    for offset, body in read_records(
        chunks, source=source, limit_bytes=options.record_limit_bytes
    ):
        decoder.take(offset, body)
    return ReadTrace(trace=decoder.finish(), sha256=digest.hexdigest())


def json_form(start: bytes) -> str | None:
    """Return what kind of JSON a file is by its first bytes; None if it is none."""
    head = start[:_SNIFF_BYTES]
    if head.lstrip()[:1] not in (b"{", b"[") or not all(
        byte >= 0x20 or byte in b"\t\r\n" for byte in head
    ):
        return None
    found = ((start.find(key), name) for key, name in _JSON_FORMS if key in start)
    return min(found, default=(0, "JSON"))[1]


def refuse_json(stream: ByteSource, source: str) -> None:
    """Refuse a JSON file by the name of its form; pass over anything else.

    Raises:
        UnsupportedTrace: If it is JSON.
    """
    form = json_form(stream.read(_CHUNK_BYTES))
    if form is not None:
        raise UnsupportedTrace(source, f"this is {form}; {_BINARY_ONLY}", _CONVERT)


def _chunks(stream: ByteSource) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def _hashed(chunks: Iterable[bytes], digest: hashlib._Hash) -> Iterator[bytes]:
    for chunk in chunks:
        digest.update(chunk)
        yield chunk


def _plain(chunks: Iterator[bytes], source: str) -> Iterator[bytes]:
    """Yield the chunks, decompressed if they are gzip; never more than one chunk."""
    first = b""
    for chunk in chunks:
        first += chunk
        if len(first) >= len(_GZIP_MAGIC):
            break
    if not first.startswith(_GZIP_MAGIC):
        if first:
            yield first
        yield from chunks
        return
    yield from _gunzip(first, chunks, source)


def _gunzip(first: bytes, chunks: Iterator[bytes], source: str) -> Iterator[bytes]:
    # A gzip file may have several members, and zeros as padding behind the last.
    member = zlib.decompressobj(wbits=31)
    pending = first
    try:
        while True:
            if member.eof:
                pending = pending.lstrip(b"\0")
                if pending:
                    member = zlib.decompressobj(wbits=31)
            elif pending:
                yield member.decompress(pending, _CHUNK_BYTES)
                pending = member.unconsumed_tail or member.unused_data
                continue
            if not pending:
                pending = next(chunks, b"")
                if not pending:
                    break
    except zlib.error as error:
        raise GarbageTrace(
            source, f"its gzip stream is damaged: {error}", "fetch the file again"
        ) from error
    if not member.eof:
        raise TruncatedTrace(
            source,
            "its gzip stream ends early",
            "a copy was interrupted; fetch the file again",
        )


def _refuse_json(chunks: Iterator[bytes], source: str) -> Iterator[bytes]:
    """Yield the chunks, unless they are text: no record starts with so much of it."""
    first = b""
    for chunk in chunks:
        first += chunk
        if len(first) >= _SNIFF_BYTES:
            break
    form = json_form(first)
    if form is not None:
        raise UnsupportedTrace(source, f"this is {form}; {_BINARY_ONLY}", _CONVERT)
    if first:
        yield first
    yield from chunks

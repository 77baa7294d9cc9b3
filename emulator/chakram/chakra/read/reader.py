"""Reader for one rank's trace, from a file or any stream of bytes.

Gzip compression is recognized by the first two bytes, and the format by the first
decompressed bytes. The file name does not matter. The error for an unreadable format
states the format's name.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeAlias

from chakram.chakra.read.eras import SNIFF_BYTES, TEXT_LOOK, Form, recognize
from chakram.chakra.read.framing import read_records
from chakram.chakra.read.json_records import (
    feeder_records,
    jsonizer_records,
    stage_records,
)
from chakram.chakra.read.linked_traces import linked_records
from chakram.chakra.read.rank_decoder import RankDecoder, RankTrace
from chakram.chakra.read.reader_options import ReadOptions
from chakram.foundation.errors import GarbageTrace, TruncatedTrace, UnsupportedTrace

if TYPE_CHECKING:
    from collections import Counter

    from chakram.chakra.read.pytorch.kineto import Profile
    from chakram.chakra.read.pytorch.unnamed_groups import RankOperations
    from chakram.trace.graph import TraceGraph

_CHUNK_BYTES = 256 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_EXACT_NS = 1
"""Time unit, in ns, of records from formats with fractions of microseconds."""
_EXACT_FORMS: Final = frozenset({Form.FEEDER, Form.STAGE, Form.PYTORCH_LINKED})
_MICROSECOND_NS: Final = 1_000
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_COMPRESSIONS: Final = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"\x04\x22\x4d\x18": "LZ4",
}
"""First bytes of files with an unsupported compression. No trace begins like this."""
_CONVERT = (
    "convert it with chakra_converter, or use the .et file that its producer wrote"
)

_INSTEAD: Final[Mapping[Form, str]] = {
    Form.KINETO: (
        "use the host trace of the run; its profile is found next to it or named with "
        "kineto"
    ),
}
"""Hints for formats that cannot be read."""

RecordsOf: TypeAlias = (
    "Callable[[Iterable[bytes], str, Counter[str] | None], Iterator[tuple[int, bytes]]]"
)

JSON_RECORDS: Final[Mapping[Form, RecordsOf]] = {
    Form.JSONIZER: jsonizer_records,
    Form.FEEDER: feeder_records,
    Form.STAGE: stage_records,
    Form.PYTORCH_LINKED: linked_records,
}
"""Converters of the JSON formats to records.

They are called with chunks, a file name, and a counter of lost data.
"""


class ByteSource(Protocol):
    """A source of bytes, such as a file or a member of an archive."""

    def read(self, size: int, /) -> bytes:
        """Return at most *size* bytes, or no bytes at the end of the source."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTrace:
    """One rank's trace, and the SHA-256 of its (decompressed) bytes.

    The digest of a host trace with a profile also covers the profile.
    """

    trace: RankTrace
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProfile:
    """One rank's profile, and the SHA-256 of its (decompressed) bytes."""

    profile: Profile
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTrace:
    """One rank's trace, as far as it can be read without the traces of other ranks.

    Attributes:
        unnamed: The operations whose process groups must be inferred from all ranks
            together, or None if there are none.
        finish: Function that returns the trace, given the names of the groups of
            *unnamed*.
        graph: The graph of the trace, or None until it is finished.
    """

    unnamed: RankOperations | None
    finish: Callable[[Sequence[str]], ReadTrace]
    graph: TraceGraph | None = None


def open_stream(
    stream: ByteSource,
    *,
    rank: int,
    source: str,
    options: ReadOptions | None = None,
    zero_is_a_group: bool = False,
    profile_of: Callable[[int], ReadProfile | None] | None = None,
) -> OpenTrace:
    """Open the trace of one rank, as input for ``settle``.

    Args:
        stream: The bytes, gzipped or not.
        rank: The rank of the trace, which the file itself does not state.
        source: Name of the stream, for error messages and warnings.
        options: Reader options.
        zero_is_a_group: Whether a group file defines a group ``0``.
        profile_of: Function that returns the profile of a rank. It is called only for a
            PyTorch host trace.

    Raises:
        TraceError: If the trace cannot be read.
    """
    options = options or ReadOptions()
    digest = hashlib.sha256()
    form, chunks = _recognized(_plain(_chunks(stream), source), source)
    if form is Form.PYTORCH_HOST:
        from chakram.chakra.read.pytorch.reader import HostTrace

        profile = None if profile_of is None else profile_of(rank)
        host = HostTrace(
            _hashed(chunks, digest),
            rank=rank,
            source=source,
            options=options,
            zero_is_a_group=zero_is_a_group,
            profile=None if profile is None else profile.profile,
        )
        if profile is not None:
            digest.update(profile.sha256.encode())
        return OpenTrace(
            unnamed=host.unnamed,
            finish=lambda names: ReadTrace(
                trace=host.finish(names), sha256=digest.hexdigest()
            ),
        )
    decoder = RankDecoder(
        rank=rank,
        source=source,
        options=replace(options, duration_unit_ns=_EXACT_NS)
        if form in _EXACT_FORMS
        else options,
        zero_is_a_group=zero_is_a_group,
    )
    records = _records(form, _hashed(chunks, digest), source, options, decoder)
    for offset, body in records:
        decoder.take(offset, body)
    return complete(ReadTrace(trace=decoder.finish(), sha256=digest.hexdigest()))


def complete(read: ReadTrace) -> OpenTrace:
    """Wrap a trace that needs no other ranks, as input for ``settle``."""
    return OpenTrace(unnamed=None, finish=lambda _: read, graph=read.trace.graph)


def settle(opened: Mapping[int, OpenTrace]) -> dict[int, ReadTrace]:
    """Return the traces of all ranks, after inferring unnamed groups across ranks.

    Raises:
        TraceError: If the ranks do not determine the group of an operation.
    """
    unnamed = {
        rank: each.unnamed for rank, each in opened.items() if each.unnamed is not None
    }
    inferred: Mapping[int, Sequence[str]] = {}
    if unnamed:
        from chakram.chakra.read.pytorch.unnamed_groups import infer_groups

        inferred = infer_groups(unnamed)
    return {rank: each.finish(inferred.get(rank, ())) for rank, each in opened.items()}


def records_of(
    stream: ByteSource,
    *,
    source: str,
    options: ReadOptions | None = None,
    lost: Counter[str] | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Yield ``(offset, record)`` of a file, to copy messages without decoding them.

    Files in JSON formats are converted to binary records. *lost* counts the data that
    these records lack, by description.

    Raises:
        TraceError: At the first invalid byte.
    """
    options = options or ReadOptions()
    form, chunks = _recognized(_plain(_chunks(stream), source), source)
    if form is Form.PYTORCH_HOST:
        raise UnsupportedTrace(
            source,
            f"this is {form.value}, which has no records that can be copied",
            "use it without conversion: all other commands read it",
        )
    return _records(form, chunks, source, options, lost=lost)


def read_profile_stream(stream: ByteSource, source: str) -> ReadProfile:
    """Return the profile of one rank from a stream of bytes, gzipped or not.

    Raises:
        TraceError: If the bytes are not a profile.
    """
    digest = hashlib.sha256()
    form, chunks = _recognized(_plain(_chunks(stream), source), source)
    if form is not Form.KINETO:
        raise UnsupportedTrace(
            source, f"this is {form.value}, not a Kineto profile", "see trace.kineto"
        )
    from chakram.chakra.read.pytorch.kineto import read_profile

    profile = read_profile(_hashed(chunks, digest), source)
    return ReadProfile(profile=profile, sha256=digest.hexdigest())


def start_of(stream: ByteSource, source: str) -> tuple[Form, bytes]:
    """Return the format of a file, and its first decompressed bytes.

    Raises:
        TraceError: If the file cannot be decompressed.
    """
    form, chunks = _recognized(_plain(_chunks(stream), source), source)
    return form, next(chunks, b"")[:SNIFF_BYTES]


def refuse_form(form: Form, source: str) -> NoReturn:
    """Refuse a file in a format that cannot be read.

    Raises:
        UnsupportedTrace: Always.
    """
    hint = _INSTEAD.get(form, _CONVERT)
    raise UnsupportedTrace(
        source, f"this is {form.value}, which is not supported", hint
    )


def _records(
    form: Form,
    chunks: Iterable[bytes],
    source: str,
    options: ReadOptions,
    decoder: RankDecoder | None = None,
    *,
    lost: Counter[str] | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Return the records of a file, converted from any readable format.

    Records that *decoder* takes directly are not included.
    """
    if form is Form.BINARY:
        return read_records(
            chunks,
            source=source,
            limit_bytes=options.record_limit_bytes,
            take_first=None if decoder is None else decoder.take_plain,
        )
    if form not in JSON_RECORDS:
        refuse_form(form, source)
    if decoder is not None:
        scale = options.duration_unit_ns or _MICROSECOND_NS
        if form is Form.PYTORCH_LINKED:
            return linked_records(chunks, source, lost, unit_ns=_EXACT_NS)
        if form is Form.FEEDER:
            return feeder_records(chunks, source, lost, scale=scale)
        if form is Form.STAGE:
            return stage_records(chunks, source, lost, scale=scale)
    return JSON_RECORDS[form](chunks, source, lost)


def _chunks(stream: ByteSource) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def _hashed(chunks: Iterable[bytes], digest: hashlib._Hash) -> Iterator[bytes]:
    for chunk in chunks:
        digest.update(chunk)
        yield chunk


def _plain(chunks: Iterator[bytes], source: str) -> Iterator[bytes]:
    """Yield the chunks of a file, decompressed piece by piece if it is gzipped."""
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
    # A gzip file may have several members, and zeros as padding after the last one.
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
            "its gzip stream is truncated",
            "fetch the file again: a copy was interrupted",
        )


def _recognized(chunks: Iterator[bytes], source: str) -> tuple[Form, Iterator[bytes]]:
    """Return the format of a file, detected from its start, and all its chunks.

    Raises:
        UnsupportedTrace: If the file is a Git LFS pointer, or has an unsupported
            compression.
    """
    taken: list[bytes] = []
    length, enough = 0, TEXT_LOOK
    for chunk in chunks:
        taken.append(chunk)
        length += len(chunk)
        if length >= enough:
            # A few bytes identify the binary format, so do not buffer more bytes.
            if enough == SNIFF_BYTES or recognize(b"".join(taken)) is Form.BINARY:
                break
            enough = SNIFF_BYTES
    start = b"".join(taken)
    if start.startswith(_LFS_POINTER):
        raise UnsupportedTrace(
            source,
            "is a Git LFS pointer instead of the file",
            "fetch the files of the repository: git lfs pull",
        )
    for magic, name in _COMPRESSIONS.items():
        if start.startswith(magic):
            raise UnsupportedTrace(
                source, f"is compressed with {name}", "use gzip, or no compression"
            )
    return recognize(start), chain((start,) if start else (), chunks)

"""Records of a trace file: a length as base-128 varint, then that many bytes.

A file is nothing but such records: no magic number, no count, no end marker.  So a
reader has to tell four outcomes apart by itself, and this module names them:

* **clean end**: the bytes end where a record ends; the iterator is exhausted.
* **truncation**: the bytes end inside a length or a body; ``TruncatedTrace``.
* **oversized record**: a length beyond the limit; ``OversizedRecord``, before any of
  the body is kept.
* **garbage**: a length that no 32-bit varint can be; ``GarbageTrace``.

A record of length zero is legal: a message in which every field has its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from chakram.foundation.errors import GarbageTrace, OversizedRecord, TruncatedTrace

DEFAULT_RECORD_LIMIT_BYTES = 64 * 2**20
"""Far above any record met: the largest, an embedded input file, has 28 KiB."""

_MAX_VARINT_BYTES = 5
"""Bytes of a 32-bit varint; Chakra's own readers and writers have 32-bit lengths."""


def read_records(
    chunks: Iterable[bytes],
    *,
    source: str,
    limit_bytes: int = DEFAULT_RECORD_LIMIT_BYTES,
    take_first: Callable[[bytearray, int, int], int] | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Yield ``(offset, body)`` of every record; offsets count decompressed bytes.

    How the bytes are cut into *chunks* makes no difference.  At most one record and
    one chunk are held.

    Args:
        chunks: The bytes.
        source: Name of the file, for messages.
        limit_bytes: Longest body.
        take_first: Called with bytes, the place in them where a record begins, and the
            offset of the first of them; may take records itself, and returns where the
            first begins that it did not take.  Those that it took are not yielded.

    Raises:
        TruncatedTrace, OversizedRecord, GarbageTrace: After the last whole record.
    """
    buffer = bytearray()
    buffer_offset = 0
    for chunk in chunks:
        buffer += chunk
        position = 0
        if take_first is not None:
            position = take_first(buffer, position, buffer_offset)
        while (
            header := _length_at(buffer, position, source, buffer_offset)
        ) is not None:
            length, header_bytes = header
            start = position + header_bytes
            if length > limit_bytes:
                raise OversizedRecord(
                    f"{source}: offset {buffer_offset + position}",
                    f"a record claims {length} bytes; the limit is {limit_bytes}",
                    "most likely these bytes are not a Chakra trace",
                )
            if start + length > len(buffer):
                break
            yield buffer_offset + position, bytes(buffer[start : start + length])
            position = start + length
            if take_first is not None:
                position = take_first(buffer, position, buffer_offset)
        # Cut once per chunk: cutting once per record would move the rest each time.
        del buffer[:position]
        buffer_offset += position
    if buffer:
        header = _length_at(buffer, 0, source, buffer_offset)
        found = (
            "the file ends inside the length of a record"
            if header is None
            else f"the file ends after {len(buffer) - header[1]} of the "
            f"{header[0]} bytes of a record"
        )
        raise TruncatedTrace(
            f"{source}: offset {buffer_offset}",
            found,
            "the producer or a copy was interrupted; fetch the file again",
        )


def _length_at(
    buffer: bytearray, position: int, source: str, buffer_offset: int
) -> tuple[int, int] | None:
    """Return a record's length and the bytes of that varint; None if more is needed."""
    value = 0
    for index, byte in enumerate(buffer[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >= 2**32:
                break
            return value, index + 1
    else:
        if len(buffer) - position < _MAX_VARINT_BYTES:
            return None
    raise GarbageTrace(
        f"{source}: offset {buffer_offset + position}",
        "the length of a record is not a 32-bit number",
        "these bytes are not a Chakra trace, or an earlier length is wrong",
    )


def frame(body: bytes) -> bytes:
    """Return *body* as a record: its length, then itself.

    Raises:
        ValueError: If it is longer than a 32-bit length can say.
    """
    length = len(body)
    if length >= 2**32:
        raise ValueError(f"a record of {length} bytes does not fit a 32-bit length")
    header = bytearray()
    while length > 0x7F:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    header.append(length)
    return bytes(header) + body

"""Framing of records: a length as a base-128 varint, followed by that many bytes.

A file consists only of such records. It has no magic number, record count or end
marker. Therefore a reader must distinguish four outcomes:

* **clean end**: the bytes end at the end of a record. The iterator is exhausted.
* **truncation**: the bytes end inside a length or a body. The error is
  ``TruncatedTrace``.
* **oversized record**: a length exceeds the limit. The error is ``OversizedRecord``,
  raised before any of the body is stored.
* **garbage**: a length is not a 32-bit varint. The error is ``GarbageTrace``.

A record of length zero is valid: a message in which every field has its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from chakram.foundation.errors import GarbageTrace, OversizedRecord, TruncatedTrace

DEFAULT_RECORD_LIMIT_BYTES = 64 * 2**20
"""Default length limit of a record. The largest known record has 28 KiB.

That record is an embedded input.
"""

_MAX_VARINT_BYTES = 5
"""Maximum bytes of a 32-bit varint. Chakra's readers and writers use 32-bit lengths."""


def read_records(
    chunks: Iterable[bytes],
    *,
    source: str,
    limit_bytes: int = DEFAULT_RECORD_LIMIT_BYTES,
    take_first: Callable[[bytearray, int, int], int] | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Yield ``(offset, body)`` of every record. Offsets count decompressed bytes.

    The division of the bytes into *chunks* does not matter. At most one record and one
    chunk are in memory.

    Args:
        chunks: The bytes of the file.
        source: Name of the file, for error messages.
        limit_bytes: Maximum length of a body.
        take_first: Called with a buffer, the index at which a record begins, and the
            file offset of the buffer. This function may consume records. It returns the
            index of the first record that it did not consume. Consumed records are not
            yielded.

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
                    f"a record has a stated length of {length} bytes, but the limit is "
                    f"{limit_bytes}",
                    "check that this is a Chakra trace",
                )
            if start + length > len(buffer):
                break
            yield buffer_offset + position, bytes(buffer[start : start + length])
            position = start + length
            if take_first is not None:
                position = take_first(buffer, position, buffer_offset)
        # Delete consumed bytes once per chunk. Deleting them after every record would
        # move the remaining bytes each time.
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
            "fetch the file again: the producer or a copy was interrupted",
        )


def _length_at(
    buffer: bytearray, position: int, source: str, buffer_offset: int
) -> tuple[int, int] | None:
    """Return a record's length and its varint's size, or None if bytes are missing."""
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
        "check that this is a Chakra trace; an earlier length may also be wrong",
    )


def frame(body: bytes) -> bytes:
    """Return *body* as a record: its length followed by the body.

    Raises:
        ValueError: If the body is too long for a 32-bit length.
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

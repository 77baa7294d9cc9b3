"""Framed records, and the four ends of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chakram.chakra.read.framing import frame, read_records
from chakram.foundation.errors import GarbageTrace, OversizedRecord, TruncatedTrace


def records(data: bytes, **options: int) -> list[tuple[int, bytes]]:
    return list(read_records([data], source="w.0.et", **options))


def test_records_have_their_offsets() -> None:
    data = frame(b"abc") + frame(b"x" * 200) + frame(b"de")
    assert records(data) == [(0, b"abc"), (4, b"x" * 200), (4 + 202, b"de")]


def test_empty_input_is_a_clean_end() -> None:
    assert records(b"") == []


def test_a_record_of_length_zero_is_no_end() -> None:
    assert records(b"\0\0" + frame(b"a")) == [(0, b""), (1, b""), (2, b"a")]


def test_a_length_may_be_longer_than_it_must() -> None:
    assert records(b"\x81\x80\x00a") == [(0, b"a")]


@pytest.mark.parametrize("length", [1, 2, 100, 101, 102])
def test_an_end_inside_a_record_is_a_truncation(length: int) -> None:
    # 131 bytes: a length of two bytes, then 129.
    data = frame(b"first") + frame(b"x" * 129)[:length]
    with pytest.raises(TruncatedTrace) as caught:
        records(data)
    assert caught.value.where == "w.0.et: offset 6"


def test_truncation_error_states_the_available_bytes() -> None:
    with pytest.raises(TruncatedTrace, match="after 2 of the 5 bytes of a record"):
        records(frame(b"abcde")[:3])
    with pytest.raises(TruncatedTrace, match="inside the length of a record"):
        records(b"\x80")


def test_a_record_at_the_limit_is_read_and_one_above_is_oversized() -> None:
    assert records(frame(b"x" * 300), limit_bytes=300) == [(0, b"x" * 300)]
    with pytest.raises(
        OversizedRecord, match="length of 301 bytes, but the limit is 300"
    ):
        records(frame(b"x" * 301), limit_bytes=300)


def test_oversized_record_is_refused_before_its_body() -> None:
    with pytest.raises(OversizedRecord):
        records(frame(b"x" * 301)[:2], limit_bytes=300)


@pytest.mark.parametrize("length", [b"\xff" * 5, b"\x80" * 6, b"\xff\xff\xff\xff\x1f"])
def test_length_beyond_32_bits_is_refused(length: bytes) -> None:
    with pytest.raises(GarbageTrace) as caught:
        records(frame(b"ok") + length + b"more")
    assert caught.value.where == "w.0.et: offset 3"


def test_the_largest_length_is_a_length() -> None:
    with pytest.raises(OversizedRecord, match="length of 4294967295 bytes"):
        records(b"\xff\xff\xff\xff\x0f")


def test_records_before_an_error_are_returned() -> None:
    reader = read_records([frame(b"good") + b"\xff" * 5], source="w.0.et")
    assert next(reader) == (0, b"good")
    with pytest.raises(GarbageTrace):
        next(reader)


def test_no_more_than_a_record_and_a_chunk_is_held() -> None:
    asked: list[int] = []

    def chunks() -> Iterator[bytes]:
        for number in range(100):
            asked.append(number)
            yield frame(b"x" * 1000)

    reader = read_records(chunks(), source="w.0.et")
    next(reader)
    assert asked == [0]


def test_a_body_too_long_for_32_bits_cannot_be_framed() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return 2**32

    with pytest.raises(ValueError, match="4294967296 bytes does not fit"):
        frame(Long())

"""Laws of the framing of trace files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chakram.chakra.read.framing import frame, read_records
from chakram.foundation.errors import TraceError

BODIES = st.lists(st.binary(max_size=300), max_size=20)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Return *data* in pieces; empty ones too."""
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(bodies=BODIES, places=st.lists(st.integers(min_value=0), max_size=30))
def test_reading_undoes_framing_however_the_bytes_are_cut(
    bodies: list[bytes], places: list[int]
) -> None:
    data = b"".join(frame(body) for body in bodies)
    got = list(read_records(cut(data, places), source="s"))
    assert [body for _, body in got] == bodies
    assert all(data[offset:].startswith(frame(body)) for offset, body in got)


def outcome(chunks: list[bytes]) -> tuple[list[tuple[int, bytes]], str]:
    """Return the records, and the error in words."""
    got = []
    try:
        for record in read_records(chunks, source="s", limit_bytes=50):
            got.append(record)  # noqa: PERF402 - what came before an error counts
    except TraceError as error:
        return got, f"{type(error).__name__} {error}"
    return got, "clean end"


@given(data=st.binary(max_size=200), places=st.lists(st.integers(min_value=0)))
def test_any_bytes_have_one_outcome_however_they_are_cut(
    data: bytes, places: list[int]
) -> None:
    assert outcome(cut(data, places)) == outcome([data])

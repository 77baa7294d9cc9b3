"""Trace files decoded by protobuf alone, as the oracle of the fast decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.chakra.read.framing import read_records
from chakram.chakra.read.rank_decoder import RankDecoder
from chakram.chakra.read.reader import ReadTrace
from chakram.foundation.errors import TraceError
from tests.trace_bytes import read_stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chakram.chakra.read.rank_decoder import RankTrace
    from chakram.chakra.read.reader_options import ReadOptions


def read_fully(data: bytes, *, rank: int, options: ReadOptions) -> RankTrace:
    """Return the trace in *data*, every record decoded as a protobuf message."""
    decoder = RankDecoder(rank=rank, source="s", options=options)
    for offset, body in read_records(
        [data], source="s", limit_bytes=options.record_limit_bytes
    ):
        decoder.take(offset, body)
    return decoder.finish()


def read_fast(
    data: bytes, *, rank: int, options: ReadOptions, chunk_bytes: int = 2**18
) -> tuple[RankTrace, int]:
    """Return the trace in *data*, and how many of its records the full decoder read."""
    decoder = RankDecoder(rank=rank, source="s", options=options)
    chunks = (data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes))
    full_decodes = 0
    for offset, body in read_records(
        chunks,
        source="s",
        limit_bytes=options.record_limit_bytes,
        take_first=decoder.take_plain,
    ):
        decoder.take(offset, body)
        full_decodes += 1
    return decoder.finish(), full_decodes


def outcome(read: Callable[[], RankTrace]) -> object:
    """Return the result of reading a trace: its content, or the error."""
    try:
        trace = read()
    except TraceError as error:
        return type(error), str(error)
    return (
        list(trace.graph.nodes()),
        trace.metadata,
        dict(trace.groups),
        dict(trace.parts),
        trace.least_ranks,
        sorted(map(str, trace.warnings)),
    )


def read_trace(path: Path, rank: int, options: ReadOptions | None = None) -> ReadTrace:
    """Return the trace of one rank from one file.

    Raises:
        TraceError: If it is no trace that is read.
    """
    with path.open("rb") as file:
        return read_stream(file, rank=rank, source=str(path), options=options)

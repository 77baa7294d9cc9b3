"""Read the files of a set in other processes, several files at a time.

A process reads one part of the files. Ranks with equal traces share columns in the
result, so they cost little to transfer. The process stops at the first file that it
cannot read alone: a damaged file, or a host trace, which needs profiles and other
ranks. The caller reads this file and the remaining files of the part, and reports the
same errors as without other processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from chakram.chakra.read.reader import ReadProfile, ReadTrace, open_stream
from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.sets.file_stores import FolderStore
from chakram.chakra.sets.find_files import FoundSet
from chakram.foundation.errors import TraceError
from chakram.trace.shared_columns import SharedColumns

if TYPE_CHECKING:
    from concurrent.futures import Executor

_PARTS = 64
"""Number of parts of a large set. Small parts let all processes end together."""


def read_elsewhere(
    workers: Executor | None,
    found: FoundSet,
    options: ReadOptions,
    *,
    zero_is_a_group: bool,
) -> Iterator[tuple[int, ReadTrace | None]]:
    """Yield each rank of a set, with its trace if *workers* have read it, or else None.

    Workers do not read archives, because the files of an archive are read in order.
    """
    store = found.store
    if workers is None or not isinstance(store, FolderStore):
        yield from ((rank, None) for rank in found.files)
        return
    ranks = iter(found.files)
    size = len(found.files) // _PARTS + 1
    parts = list(iter(lambda: tuple(islice(ranks, size)), ()))
    reading = [
        workers.submit(
            read_part,
            store,
            {rank: found.files[rank] for rank in part},
            options,
            zero_is_a_group,
        )
        for part in parts
    ]
    reading.reverse()  # pop() releases each result as soon as it is used
    for part in parts:
        traces = reading.pop().result()
        yield from ((rank, traces.get(rank)) for rank in part)


def read_part(
    store: FolderStore,
    files: Mapping[int, str],
    options: ReadOptions,
    zero_is_a_group: bool,
) -> dict[int, ReadTrace]:
    """Return the traces of *files*, up to the first one that cannot be read alone."""
    traces: dict[int, ReadTrace] = {}
    shared = SharedColumns()
    for rank, name in files.items():
        source = f"{store.place}/{name}"
        try:
            with store.open(name) as stream:
                opened = open_stream(
                    stream,
                    rank=rank,
                    source=source,
                    options=options,
                    zero_is_a_group=zero_is_a_group,
                    profile_of=_refuse_host_trace,
                )
        except TraceError:
            break
        traces[rank] = opened.finish(())
        shared.share(traces[rank].trace.graph)
    return traces


def _refuse_host_trace(rank: int) -> ReadProfile | None:
    raise TraceError(f"rank {rank}", "has a host trace")

"""Columns added to flows at the end of a run: fair times and paths of messages."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chakram.collectives.groups import POINT_TO_POINT
from chakram.collectives.ops import CollectiveOp
from chakram.run_directory.growing_table import read_table
from chakram.run_directory.schemas import kinds_of

FairTimesOf = Callable[[str, Sequence[tuple[int, int, int, int]]], Sequence[int]]
"""Function that returns the fair times in ns of a job's messages. Its arguments are the
job and, for each message, sender, receiver, bytes and ``posted_ns``."""

PathsOf = Callable[[str, int, int], Sequence[Sequence[str]] | None]
"""Function that returns the paths of the messages on a queue pair, or None if unknown.
Its arguments are job, rank and QPN. A path is the list of switch ports toward other
switches."""

_PORT_SEPARATOR = " "
_WAY_SEPARATOR = " | "

MESSAGES = {"collective": str(CollectiveOp.SEND_RECV)}
"""Column values of point-to-point messages. Collectives may have the same values, so
also check ``point_to_point``."""

_PATHS = pa.dictionary(pa.int32(), pa.string())


class MessageColumns:
    """Converter that appends ``fair_ns`` and ``path`` to the parts of a run's flows.

    Args:
        fair_times: Function that computes fair times. None if they are unknown.
        ways: Function that computes paths. None if they are unknown.
    """

    def __init__(
        self, fair_times: FairTimesOf | None = None, ways: PathsOf | None = None
    ) -> None:
        self._fair_times = fair_times
        self._ways = ways
        self._times_ns = pa.array([], pa.int64())
        self._taken = 0
        self._known: dict[tuple[Any, ...], str | None] = {}

    def prepare(self, folder: Path) -> None:
        """Compute the fair times of all point-to-point messages of a run.

        Raises:
            OSError: If the parts cannot be read.
        """
        if self._fair_times is None:
            return
        names = ["group", "job", "src", "dst", "bytes", "posted_ns"]
        flows = read_table(folder, "flows", column_names=names, where=MESSAGES)
        if flows is None:
            return
        flows = flows.filter(point_to_point(flows))
        jobs, *rest = (flows[name].to_pylist() for name in names[1:])
        messages = list(zip(*rest, strict=True))
        times_ns = [0] * len(messages)
        for job in dict.fromkeys(jobs):
            own = [number for number, each in enumerate(jobs) if each == job]
            found_ns = self._fair_times(job, [messages[number] for number in own])
            for number, time_ns in zip(own, found_ns, strict=True):
                times_ns[number] = time_ns
        self._times_ns = pa.array(times_ns, pa.int64())

    def append_to(self, part: pa.Table) -> pa.Table:
        """Return *part* with both columns. Call this for all parts in their order."""
        times_ns = self._next_times(point_to_point(part))
        part = part.append_column("fair_ns", times_ns)
        return part.append_column("path", self._paths(part))

    def _next_times(self, mask: pa.ChunkedArray) -> pa.Array:
        count = pc.sum(mask).as_py() or 0
        times_ns = self._times_ns.slice(self._taken, count)
        if len(times_ns) < count:
            return pa.nulls(len(mask), pa.int64())
        self._taken += count
        empty = pa.nulls(len(mask), pa.int64())
        return pc.replace_with_mask(empty, mask.combine_chunks(), times_ns)

    def _paths(self, part: pa.Table) -> pa.Array:
        if self._ways is None or not part.num_rows:
            return pa.nulls(part.num_rows, _PATHS)
        kinds, number = kinds_of(part, ("job", "src", "qpn"))
        for key in kinds:
            if key not in self._known:
                self._known[key] = _path_text(self._ways(*key))
        texts = pa.array([self._known[key] for key in kinds], pa.string())
        return pc.take(texts.cast(_PATHS), number)


def paths_of_sockets(paths: PathsOf | None, ends: Container[object]) -> PathsOf | None:
    """Return *paths* without the paths of the ranks *ends*.

    Paths depend on the UDP source ports, which NICs choose themselves.
    """
    if paths is None:
        return None
    known = paths
    return lambda job, rank, qpn: None if (job, rank) in ends else known(job, rank, qpn)


def _path_text(ways: Sequence[Sequence[str]] | None) -> str | None:
    if ways is None:
        return None
    texts = dict.fromkeys(_PORT_SEPARATOR.join(way) for way in ways)
    return _WAY_SEPARATOR.join(texts)


def paths_of_text(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the paths that a value of column ``path`` encodes."""
    return tuple(
        tuple(way.split(_PORT_SEPARATOR)) if way else ()
        for way in text.split(_WAY_SEPARATOR)
    )


def point_to_point(flows: pa.Table) -> pa.ChunkedArray:
    """Return a mask that selects the point-to-point messages among flows."""
    return pc.starts_with(flows["group"].cast(pa.string()), f"{POINT_TO_POINT}:")

"""Flows of a run as arrays, and the times in which ranks took part in collectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chakram.report.column_arithmetic import mixed_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chakram.run_directory.reader import RunResults


_NUMBERS = (
    *("iteration", "k", "step", "src", "dst", "bytes", "posted_ns", "first_sent_ns"),
    *("last_acked_ns", "fct_ns", "rate_at_start_bps", "packets", "retransmitted"),
    "cnp",
)
_NAMES = ("job", "group", "collective")
_LATE = ("bound_ns",)
_TIMES = ("posted_ns", "first_sent_ns", "last_acked_ns")


@dataclass(slots=True, eq=False)
class Flows:
    """The flows of a run, as columns of equal length.

    The columns of a selection are created on first use, because most columns are never
    used.

    Attributes:
        columns: Columns by name.
        names: Names that the numbers in key columns refer to.
        chosen: Indices of selected rows. None selects all rows.
    """

    columns: Mapping[str, NDArray[np.int64]]
    names: Mapping[str, tuple[str | None, ...]]
    chosen: NDArray[np.int64] | None = None
    _made: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> NDArray[np.int64]:
        if self.chosen is None:
            return self.columns[name]
        if name not in self._made:
            self._made[name] = self.columns[name][self.chosen]
        return self._made[name]

    def __len__(self) -> int:
        if self.chosen is None:
            return len(self.columns["bytes"])
        return len(self.chosen)

    def where(self, chosen: NDArray[Any]) -> Flows:
        """Return the flows selected by a mask or by indices."""
        if chosen.dtype == np.bool_:
            if chosen.all():
                return self
            chosen = np.flatnonzero(chosen)
        own = chosen if self.chosen is None else self.chosen[chosen]
        return Flows(self.columns, self.names, own)

    def row(self, at: int) -> dict[str, int]:
        """Return all columns of one flow."""
        at = at if self.chosen is None else int(self.chosen[at])
        return {name: int(column[at]) for name, column in self.columns.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Times in which ranks took part in collectives and messages, derived from flows.

    Each row is one rank's share of one collective. ``places`` contains the row of the
    sender of each flow, then the row of the receiver of each flow.
    """

    columns: Mapping[str, NDArray[np.int64]]
    places: NDArray[np.int64]

    def __getitem__(self, name: str) -> NDArray[np.int64]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["rank"])


def flows_of(results: RunResults, *, origin_ns: int, dilation: int) -> Flows:
    """Return all flows, warm-up included. Unknown values are -1.

    Args:
        results: Results of the run.
        origin_ns: Time of the records at which the time axis starts.
        dilation: Dilation of the run, by which the times are divided.
    """
    known = results.columns("flows")
    late = [name for name in _LATE if name in known]
    names = [*_NAMES, *(["path"] if "path" in known else [])]
    wanted = [*_NUMBERS, *late, *names, "measured"]
    table = results.table("flows", *wanted).unify_dictionaries()
    empty = np.full(table.num_rows, -1, np.int64)
    columns = {
        name: whole_numbers(table[name]) if name in wanted else empty
        for name in (*_NUMBERS, *_LATE)
    }
    columns["measured"] = whole_numbers(table["measured"].cast(pa.int64()))
    found: dict[str, tuple[str | None, ...]] = {"path": ()}
    columns["path"] = empty
    for name in names:
        column = table[name].combine_chunks()
        found[name] = tuple(column.dictionary.to_pylist())
        columns[name] = whole_numbers(pa.chunked_array([column.indices]))
    for name in _TIMES:
        columns[name] = (columns[name] - origin_ns) // dilation
    for name in ("fct_ns", *late):
        unknown = columns[name] < 0
        columns[name] = np.where(unknown, -1, columns[name] // dilation)
    return Flows(columns, found)


def shares_of(flows: Flows) -> Shares:
    """Return when each rank took part in each collective, as sender or receiver.

    A share starts when the rank posts its first message or when the first message to
    the rank is sent. It ends with the last acknowledgment of these messages.
    """
    names = ("iteration", "job", "collective", "group", "k")
    keys = {name: np.tile(flows[name], 2) for name in names}
    keys["rank"] = np.concatenate([flows["src"], flows["dst"]])
    _, first, places = np.unique(
        mixed_keys(list(keys.values())), return_index=True, return_inverse=True
    )
    start = np.concatenate([flows["posted_ns"], flows["first_sent_ns"]])
    starts = np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(starts, places, start)
    ends = np.zeros(len(first), np.int64)
    np.maximum.at(ends, places, np.tile(flows["last_acked_ns"], 2))
    sent = np.concatenate([flows["bytes"], np.zeros_like(flows["bytes"])])
    return Shares(
        columns={
            **{name: column[first] for name, column in keys.items()},
            "start_ns": starts,
            "end_ns": ends,
            "sent_bytes": np.bincount(
                places, weights=sent, minlength=len(first)
            ).astype(np.int64),
        },
        places=places,
    )


def whole_numbers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return a column as an array of integers. Unknown values are -1."""
    if column.null_count:
        column = pc.fill_null(column, -1)
    found: NDArray[np.int64] = column.to_numpy().astype(np.int64)
    return found

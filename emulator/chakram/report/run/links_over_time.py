"""Activity of a run's links over time, as arrays that are derived from samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from chakram.report.column_arithmetic import mixed_keys, spread
from chakram.report.run.data import TIME_BINS, RunData

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksOverTime:
    """Time series of ports and traffic classes, each a row of ``TIME_BINS`` columns.

    Attributes:
        ports: Port of each series, named as in the table ``links``.
        classes: Traffic class of each series.
        queue_max_bytes: Longest queue in the time bin.
        marked: Packets marked in the time bin.
        paused: Fraction of the time bin in which the class was paused.
        bin_ns: Length of a time bin.
        counted: Names of the sample columns that have values.
    """

    ports: tuple[str, ...]
    classes: tuple[int, ...]
    queue_max_bytes: NDArray[np.int64]
    marked: NDArray[np.float64]
    paused: NDArray[np.float64]
    bin_ns: float
    counted: frozenset[str]

    def name(self, at: int) -> str:
        """Return the name of a series: its port, and its class if there are several."""
        port, traffic_class = self.ports[at], self.classes[at]
        if len(set(self.classes)) == 1 or traffic_class < 0:
            return port
        return f"{port} class {traffic_class}"


def links_over_time(data: RunData) -> LinksOverTime | str:
    """Return the activity of links over time, or the reason why it is unknown."""
    keys = ("port", "traffic_class")
    counters = ("marked", "paused_ns")
    found = data.deltas("link_samples", keys, counters, ("queue_max_bytes",))
    if found is None or not data.end_ns:
        if data.is_simulated or any(
            link.marked is not None for link in data.summary.links
        ):
            return "its links were not sampled (records.sample_bin)"
        return (
            "its switches were not observed (simulate, or set fabric.switch: model or "
            "fabric.telemetry)"
        )
    samples = data.results.table("link_samples")
    names = samples.unify_dictionaries()["port"]
    port_names = names.chunk(0).dictionary.to_pylist()
    _, first, rows = np.unique(
        mixed_keys([found[key] for key in keys]), return_index=True, return_inverse=True
    )
    ports = tuple(port_names[at] for at in found["port"][first].tolist())
    shape = (len(first), TIME_BINS)
    starts, ends = (found[name] / data.bin_ns for name in ("start_ns", "end_ns"))
    grown = {
        name: spread(rows, starts, ends, found[name], shape=shape) for name in counters
    }
    return LinksOverTime(
        ports=ports,
        classes=tuple(found["traffic_class"][first].tolist()),
        queue_max_bytes=_highest(rows, starts, ends, found["queue_max_bytes"], shape),
        marked=grown["marked"],
        paused=grown["paused_ns"] / (data.bin_ns * data.dilation),
        bin_ns=data.bin_ns,
        counted=frozenset(
            name
            for name in samples.column_names
            if samples[name].null_count < samples.num_rows
        ),
    )


def _highest(
    rows: NDArray[np.int64],
    starts: NDArray[np.float64],
    ends: NDArray[np.float64],
    values: NDArray[np.int64],
    shape: tuple[int, int],
) -> NDArray[np.int64]:
    """Return, for each series and time bin, the largest value of its intervals."""
    first = np.clip(np.floor(starts), 0, shape[1] - 1).astype(np.int64)
    last = np.clip(np.ceil(ends) - 1, first, shape[1] - 1).astype(np.int64)
    counts = last - first + 1
    # Expand each interval to the consecutive time bins that it covers.
    steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    highest = np.zeros(shape, np.int64)
    np.maximum.at(
        highest,
        (np.repeat(rows, counts), np.repeat(first, counts) + steps),
        np.repeat(values, counts),
    )
    return highest

"""Rows of a run's results, for the tables on its page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from chakram.collectives.ops import CollectiveOp
from chakram.console.number_format import MISSING, percent_text
from chakram.foundation.units import about_size, format_rate, format_time
from chakram.report.column_arithmetic import percentiles
from chakram.summary.bandwidth import bus_factor

if TYPE_CHECKING:
    from chakram.records.run_records import CollectiveRecord
    from chakram.report.run.data import RunData
    from chakram.summary.run_summary import SummaryRow


BUSBW_PERCENTS = (1, 50, 95, 99)
"""Percentiles of the bus bandwidths of single collectives. P1 is the slow end."""


RANK_PARTS = {
    "compute": "compute_ns",
    "exposed communication": "exposed_ns",
    "idle": "idle_ns",
}
"""Parts of a rank's time, each with the field that contains it."""


@dataclass(frozen=True, kw_only=True)
class ReportRow:
    """A row of the summary with the additional values that the BMWG drafts require.

    Attributes:
        row: The row of the summary.
        records: Collectives that the row summarizes.
        line_rate_bps: B_acc, the lowest rate of the job's ranks. None if unknown.
        dilation: Dilation of the run.
    """

    row: SummaryRow
    records: tuple[CollectiveRecord, ...]
    line_rate_bps: float | None
    dilation: int

    @property
    def name(self) -> str:
        """Short name of the row: its collective and algorithm."""
        if self.row.op is CollectiveOp.SEND_RECV:
            return "send_recv"
        return f"{self.row.op}, {self.row.algorithm}"

    @property
    def factor(self) -> float:
        """algo_factor of the drafts: the ratio of busbw to algbw."""
        return float(bus_factor(self.row.op, nranks=self.row.nranks))

    @property
    def fabric_bytes(self) -> float:
        """S_fabric of the drafts: mean bytes that each participant sends."""
        participants = 1 if self.row.op is CollectiveOp.SEND_RECV else self.row.nranks
        sent = sum(record.sent_bytes for record in self.records)
        return sent / len(self.records) / participants

    @property
    def busbw_bps(self) -> float | None:
        """Bus bandwidth for the mean time, in bit/s."""
        return None if self.row.busbw is None else 8 * self.row.busbw

    @property
    def share(self) -> float | None:
        """Bus bandwidth as a fraction of the line rate."""
        if self.busbw_bps is None or not self.line_rate_bps:
            return None
        return self.busbw_bps / self.line_rate_bps

    @cached_property
    def percentiles_bps(self) -> tuple[float, ...] | None:
        """``BUSBW_PERCENTS`` of the bus bandwidths of single collectives, in bit/s."""
        if self.row.busbw is None:
            return None
        times_ns = np.array([max(1, record.duration_ns) for record in self.records])
        bits = 8e9 * self.row.size_bytes * self.factor * self.dilation
        return percentiles(bits / times_ns, BUSBW_PERCENTS)

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the row in the table of collectives, from S to busbw."""
        row = self.row
        return (
            about_size(row.size_bytes),
            about_size(round(self.fabric_bytes)),
            str(row.nranks),
            f"{self.factor:.4g}",
            str(row.samples),
            format_time(row.time_ns),
            percent_text(row.cv),
            MISSING if row.busbw is None else f"{row.busbw / 1e9:.4g}",
            MISSING if self.busbw_bps is None else format_rate(self.busbw_bps),
            percent_text(self.share),
        )


_KIND = attrgetter("op", "algorithm", "nranks", "size_bytes", "trace_size_bytes")
"""Properties in which the collectives of a row agree, in addition to the job."""


def report_rows(data: RunData) -> tuple[ReportRow, ...]:
    """Return the rows of a run's summary, without barriers."""
    records: dict[tuple[object, ...], list[CollectiveRecord]] = {}
    for record in data.collectives:
        if record.measured and record.complete:
            kind = record.identity.key.job, *_KIND(record.identity)
            records.setdefault(kind, []).append(record)
    return tuple(
        ReportRow(
            row=row,
            records=tuple(records[row.job, *_KIND(row)]),
            line_rate_bps=data.line_rate(row.job),
            dilation=data.dilation,
        )
        for row in data.summary.rows
        if row.op is not CollectiveOp.BARRIER
    )


def line_rates(rows: Iterable[ReportRow]) -> str:
    """Return the line rates of rows as text, empty if no row has a line rate."""
    rates = sorted({rate for each in rows if (rate := each.line_rate_bps)})
    return ", ".join(map(format_rate, rates))


def time_or_missing(time_ns: float | None) -> str:
    """Return a time as text, or a placeholder if it is unknown."""
    return MISSING if time_ns is None else format_time(time_ns)

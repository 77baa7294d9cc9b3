"""What the tables of a run's page hold, row by row of its summary."""

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
from chakram.report.columns import percentiles
from chakram.summary.bandwidth import bus_factor

if TYPE_CHECKING:
    from chakram.records.run_records import CollectiveRecord
    from chakram.report.run.data import RunData
    from chakram.summary.run_summary import SummaryRow


BUSBW_PERCENTS = (1, 50, 95, 99)
"""Of the bus bandwidths of single collectives; P01 is the slow end."""


RANK_PARTS = {
    "compute": "compute_ns",
    "exposed communication": "exposed_ns",
    "idle": "idle_ns",
}
"""What the time of a rank is made of: the names of its times."""


@dataclass(frozen=True, kw_only=True)
class ReportRow:
    """A row of the summary with what the drafts of BMWG want of it.

    Attributes:
        row: Of the summary.
        records: The collectives that it is made of.
        line_rate_bps: B_acc: what a rank can send at most, None if unknown.
        dilation: Of the run.
    """

    row: SummaryRow
    records: tuple[CollectiveRecord, ...]
    line_rate_bps: float | None
    dilation: int

    @property
    def name(self) -> str:
        """Return what it is, in a few words."""
        if self.row.op is CollectiveOp.SEND_RECV:
            return "send_recv"
        return f"{self.row.op}, {self.row.algorithm}"

    @property
    def factor(self) -> float:
        """algo_factor: busbw over algbw."""
        return float(bus_factor(self.row.op, nranks=self.row.nranks))

    @property
    def fabric_bytes(self) -> float:
        """S_fabric: bytes per participant that its flows carry, mean."""
        participants = 1 if self.row.op is CollectiveOp.SEND_RECV else self.row.nranks
        sent = sum(record.sent_bytes for record in self.records)
        return sent / len(self.records) / participants

    @property
    def busbw_bps(self) -> float | None:
        """Of the mean time, in bit/s."""
        return None if self.row.busbw is None else 8 * self.row.busbw

    @property
    def share(self) -> float | None:
        """Bus bandwidth as a share of the line rate."""
        if self.busbw_bps is None or not self.line_rate_bps:
            return None
        return self.busbw_bps / self.line_rate_bps

    @cached_property
    def percentiles_bps(self) -> tuple[float, ...] | None:
        """Bus bandwidth of single collectives by ``BUSBW_PERCENTS``, in bit/s."""
        if self.row.busbw is None:
            return None
        times_ns = np.array([max(1, record.duration_ns) for record in self.records])
        bits = 8e9 * self.row.size_bytes * self.factor * self.dilation
        return percentiles(bits / times_ns, BUSBW_PERCENTS)

    def cells(self) -> tuple[str, ...]:
        """Return S, S_fabric, N, algo_factor, n, time, CV, busbw and its share."""
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
"""What collectives of a job have in common that share a row."""


def report_rows(data: RunData) -> tuple[ReportRow, ...]:
    """Return the rows of a run's summary that move data."""
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
    """Return the line rates of rows in words; nothing where none has one."""
    rates = sorted({rate for each in rows if (rate := each.line_rate_bps)})
    return ", ".join(map(format_rate, rates))


def time_or_missing(time_ns: float | None) -> str:
    """Return a time, or that it is not known."""
    return MISSING if time_ns is None else format_time(time_ns)

"""Declarations of counters, and their snapshots."""

from __future__ import annotations

from operator import attrgetter
from types import SimpleNamespace

from chakram.records.counter_definitions import (
    QueuePairStatistics,
    columns_of,
    counters_of,
    gather,
    row_of,
    row_reader,
)


def test_row_equals_its_snapshot() -> None:
    parts = SimpleNamespace(
        requester=SimpleNamespace(retries=SimpleNamespace()),
        responder=SimpleNamespace(),
    )
    for number, each in enumerate(counters_of(QueuePairStatistics)):
        *inner, name = f"{each.part}.{each.reads}".split(".")
        setattr(attrgetter(".".join(inner))(parts), name, number)
    snapshot = gather(
        QueuePairStatistics,
        vars(parts),
        rate_bps=None,
        target_bps=None,
        alpha=None,
        failure=None,
    )
    row = row_reader(QueuePairStatistics)(vars(parts))
    assert row == row_of(snapshot)
    assert len(set(row)) == len(columns_of(QueuePairStatistics))

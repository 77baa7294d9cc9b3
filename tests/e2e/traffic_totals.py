"""Bytes and messages that a run carried, and the expected numbers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from chakram.run_directory.manifest import COMPLETE

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults

MIB = 2**20

ALGORITHMS = {
    "all_reduce": "ring",
    "all_gather": "ring",
    "reduce_scatter": "ring",
    "all_to_all": "direct",
}
"""Those that the closed forms are for."""

CLOSED_FORMS = {
    "all_reduce": lambda n: (2 * (n - 1), 2 * (n - 1) * MIB // n),
    "all_gather": lambda n: (n - 1, (n - 1) * MIB),
    "reduce_scatter": lambda n: (n - 1, (n - 1) * MIB // n),
    "all_to_all": lambda n: (n - 1, (n - 1) * MIB // n),
}
"""By collective of 1 MiB: messages of each of n ranks, and the bytes of them all."""


def sent(results: RunResults) -> dict[int, tuple[int, int]]:
    """Return messages and bytes that each rank of the only job sent.

    Those of barriers are left out, here and below.
    """
    (found,) = sent_by_job(results).values()
    return found


def sent_by_job(results: RunResults) -> dict[str, dict[int, tuple[int, int]]]:
    """Return messages and bytes that each rank of each job sent."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    flows = results.table("flows", "job", "collective", "src", "bytes")
    for row in flows.to_pylist():
        if row["collective"] != "barrier":
            ranks = found.setdefault(row["job"], {})
            messages, nbytes = ranks.get(row["src"], (0, 0))
            ranks[row["src"]] = messages + 1, nbytes + row["bytes"]
    return found


def check_complete(results: RunResults, *, ranks: int, iterations: int = 1) -> None:
    """Assert that nothing of a run is missing, whatever it replayed."""
    manifest = results.manifest
    assert (manifest.status, manifest.reason) == (COMPLETE, None)
    assert manifest.samples_dropped == 0
    records = results.collectives()
    assert records
    assert [record for record in records if not record.complete] == []
    assert {record.iteration for record in records} == set(range(iterations))
    assert len(results.ranks()) == ranks * iterations
    flows = results.table("flows").to_pylist()
    names = ("iteration", "job", "group", "k", "step", "channel", "src", "dst")
    messages = Counter(tuple(row[name] for name in names) for row in flows)
    assert max(messages.values()) == 1
    for row in flows:
        times = [row[f"{name}_ns"] for name in ("ready", "posted", "first_sent")]
        assert sorted(times) == times
        assert row["last_acked_ns"] >= row["first_sent_ns"]
    assert sum(record.sent_bytes for record in records) == sum(
        row["bytes"] for row in flows
    )

"""Packets are lost; what was to be delivered is delivered, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.runs import completed, fabric, moe, write_experiment

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.observe.run_results import RunResults


def messages(results: RunResults) -> dict[tuple[object, ...], int]:
    """Return the bytes of all messages of a run; each is there once."""
    flows = results.table("flows").to_pylist()
    names = ("iteration", "group", "k", "step", "channel", "src", "dst")
    found = {tuple(row[name] for name in names): row["bytes"] for row in flows}
    assert len(found) == len(flows)
    return found


def test_every_byte_arrives_once_though_one_packet_in_a_hundred_is_lost(
    tmp_path: Path, kind: str
) -> None:
    lossy, whole = tmp_path / "lossy", tmp_path / "whole"
    for folder in (lossy, whole):
        folder.mkdir()
    experiment = write_experiment(
        lossy,
        [moe(4)],
        fabric(kind, 4),
        faults={"drop": 0.01},
        transport={
            "path_mtu": 1024,
            "retransmit_timeout": "10ms",
            "retry_limit": 100,
        },
    )

    results = completed(experiment).results

    records = results.collectives()
    assert all(record.complete for record in records)
    assert sum(record.retransmitted for record in records) > 0
    assert sum(results.table("flows", "retransmitted")[0].to_pylist()) > 0
    # The same job, in a simulation that loses nothing.
    reference = write_experiment(whole, [moe(4)], fabric("namespaces", 4))
    assert messages(results) == messages(completed(reference, verb="simulate").results)

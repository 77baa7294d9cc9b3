"""Runs over lossy links deliver every byte exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.runs import completed, fabric, moe, write_experiment

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.run_directory.reader import RunResults


def messages(results: RunResults) -> dict[tuple[object, ...], int]:
    """Return the bytes of all messages of a run; each is there once."""
    flows = results.table("flows").to_pylist()
    names = ("iteration", "group", "k", "step", "channel", "src", "dst")
    found = {tuple(row[name] for name in names): row["bytes"] for row in flows}
    assert len(found) == len(flows)
    return found


@pytest.mark.parametrize(
    "kind",
    ["namespaces", pytest.param("loopback", marks=pytest.mark.soak)],
    indirect=True,
)
def test_every_byte_arrives_once_with_1_percent_loss(tmp_path: Path, kind: str) -> None:
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


def test_retransmissions_to_a_finished_rank_are_counted(tmp_path: Path) -> None:
    # The receiver is done when it has everything; its acknowledgment is lost.
    trace = {"synth": "incast", "ranks": 2, "size": "4KiB", "barrier": False}
    experiment = write_experiment(
        tmp_path,
        [{"name": "one", "trace": trace}],
        {"kind": "loopback"},
        faults={"packets": [{"action": "drop", "packets": "ack", "nth": 1}]},
        # Far longer than a busy machine may pause: it sends nothing again by itself.
        transport={"retransmit_timeout": "1s"},
        iterations={"warmup": 0, "measured": 1, "sync": "free"},
        agents={"shards": 2},
    )

    results = completed(experiment).results

    # Drawn for this run, and told now that it is over.
    assert (results.manifest.psn_seed or 1) > 1
    sent, received = sorted(
        results.queue_pair_metrics().to_pylist(), key=lambda row: -row["message_tx"]
    )
    assert (sent["message_tx"], received["message_complete_rx"]) == (1, 1)
    assert sent["data_frames_tx"] == received["data_frames_rx"] == 2
    assert sent["frame_delta"] == 0
    assert received["ack_tx"] == 2
    ports = results.port_metrics().to_pylist()
    assert sum(row["tx_packets"] for row in ports) == 4

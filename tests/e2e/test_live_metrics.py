"""Pages of queue pairs and ports during a run."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.e2e.processes import RunProcess
from tests.e2e.runs import moe, write_experiment
from tests.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from pathlib import Path

METRICS = re.compile(r"metrics: http://(127\.0\.0\.1:\d+)/")


def test_queue_pairs_and_ports_are_pages_of_the_run(tmp_path: Path) -> None:
    """The run starts the agent, so no client can query it."""
    experiment = write_experiment(
        tmp_path,
        [moe(4)],
        {"kind": "loopback", "rate": "50Mbit"},
        iterations={"warmup": 0, "measured": 1_000_000},
    )
    with RunProcess(experiment, "--metrics", "127.0.0.1:0") as going:
        going.wait_for_records()
        address = METRICS.search(going.errors)
        assert address is not None, going.errors

        def page(name: str) -> dict[str, Any]:
            url = f"http://{address[1]}/{name}"
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                found: dict[str, Any] = json.load(answer)
            return found

        def moving() -> bool:
            rows = page("queue-pairs")["queue_pairs"]
            return any(
                row["data_tx_rate"] and row["data_rx_rate"] for row in rows
            ) and all(
                port["payload_tx_bytes"] and port["data_frames_rx"]
                for port in page("ports")["ports"]
            )

        wait_until(moving, "rates of queue pairs")
        queue_pairs, ports = page("queue-pairs"), page("ports")
        again = page("ports")
    rows = queue_pairs["queue_pairs"]
    assert queue_pairs["total"] == len(rows) >= 4
    names = {row["port_tx"] for row in rows}
    assert names == {row["port_rx"] for row in rows}
    assert len(names) == ports["total"] == len(ports["ports"]) == 4
    ends = {(row["src_ipv4"], row["src_qp"]): row for row in rows}
    assert len(ends) == len(rows)
    for row in rows:
        peer = ends.get((row["dest_ipv4"], row["dest_qp"]))
        assert peer is None or peer["dest_qp"] == row["src_qp"]
        assert row["flow_name"].startswith("moe/")
    for port, later in zip(ports["ports"], again["ports"], strict=True):
        assert 0 < port["payload_tx_bytes"] <= later["payload_tx_bytes"]
        assert 0 < port["data_frames_rx"] <= later["data_frames_rx"]

"""An agent's own endpoint for Prometheus."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from array import array
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from chakram.control.client import AgentClient
from chakram.control.events import CountersSnapshot, Finished, ShardLoad
from chakram.foundation.errors import PortInUse
from chakram.records.counter_slots import TOTAL_SLOTS, slot
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS, RecordRows
from chakram.run_directory.queue_pair_names import PORT_SUMS
from chakram_agent.metrics_endpoint import AgentMetrics
from tests.agents import TIMEOUT_S, start, until_the_end
from tests.plans import ring_plan
from tests.waiting import PATIENCE_S


def scrape(url: str) -> dict[str, float]:
    """Return the sum of the samples of every name."""
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def snapshot(**values: int) -> CountersSnapshot:
    counters = array("q", bytes(8 * TOTAL_SLOTS))
    for name, value in values.items():
        counters[slot(name)] = value
    load = ShardLoad(
        shard=0, wall_ns=1, cpu_ns=1, max_lag_ns=2_000_000, late_rounds=3, rounds=4
    )
    return CountersSnapshot(time_ns=0, values=counters, loads=(load,))


def test_agent_serves_its_counters_but_no_metrics_of_runs() -> None:
    metrics = AgentMetrics("127.0.0.1:0")
    metrics.server.start()
    try:
        metrics.update(snapshot(tx_bytes=7, generator_wait_ns=500_000_000))
        found = scrape(metrics.server.url)
    finally:
        metrics.server.close()
    assert found["chakram_tx_bytes_total"] == 7
    assert found["chakram_generator_wait_seconds_total"] == 0.5
    assert found["chakram_generator_lag_max_seconds"] == 0.002
    assert found["chakram_agent_up"] == 1
    assert found["chakram_build_info"] == 1
    assert not [name for name in found if name.startswith("chakram_run_")]


def test_nothing_is_in_flight_or_sent_after_a_run_that_ended_early() -> None:
    metrics = AgentMetrics("127.0.0.1:0")
    metrics.server.start()
    plan = ring_plan()
    rank, pair = plan.ranks[0], plan.ranks[0].queue_pairs[0]

    def sampled(time_ns: int, nbytes: int) -> RecordRows:
        row = dict.fromkeys(QUEUE_PAIR_FIELDS, 0)
        row |= {"time_ns": time_ns, "rank": rank.number, "qpn": pair.qpn}
        return RecordRows(queue_pairs=array("q", (row | {"tx_bytes": nbytes}).values()))

    rate = "chakram_queue_pair_sent_bytes_per_second"
    try:
        metrics.begin(plan)
        ended = snapshot(flows_started=5, flows_completed=3)
        metrics.update(ended, sampled(1, 0), totals=ended.values)
        metrics.update(ended, sampled(10**9 + 1, 1000), totals=ended.values)
        found = scrape(metrics.server.url)
        assert found["chakram_flows_active"] == 2
        assert found[rate] == 4 * 1000  # of four shares
        metrics.update(replace(ended, loads=()), RecordRows(), totals=ended.values)
        found = scrape(metrics.server.url)
        assert found["chakram_flows_active"] == found[rate] == 0
        assert found["chakram_flows_started_total"] == 5
        # The next run.
        begun = snapshot(flows_started=1)
        totals = snapshot(flows_started=6, flows_completed=3)
        metrics.update(begun, RecordRows(), totals=totals.values)
        assert scrape(metrics.server.url)["chakram_flows_active"] == 1
    finally:
        metrics.server.close()


def page(metrics: AgentMetrics, path: str) -> dict[str, Any]:
    url = metrics.server.url.replace("/metrics", path)
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        found: dict[str, Any] = json.load(answer)
    return found


def test_queue_pairs_have_a_page_instead_of_series() -> None:
    count, width = 2_500, len(QUEUE_PAIR_FIELDS)
    rows = RecordRows()
    rows.queue_pairs.extend(range(count * width))
    rows.ports.extend(range(len(PORT_FIELDS)))
    load = ShardLoad(
        shard=0,
        wall_ns=1,
        cpu_ns=1,
        max_lag_ns=0,
        late_rounds=0,
        rounds=4,
        busy_ns=1_500_000_000,
        queue_pairs=count,
        queue_pairs_limited=7,
        queue_pairs_failed=1,
    )
    counters = CountersSnapshot(time_ns=0, values=snapshot().values, loads=(load,))
    metrics = AgentMetrics("127.0.0.1:0")
    metrics.server.start()
    try:
        metrics.update(counters, rows)
        found = scrape(metrics.server.url)
        # However many there are, they are three series.
        assert found["chakram_queue_pairs"] == count
        assert found["chakram_generator_busy_seconds_total"] == 1.5
        first = page(metrics, "/queue-pairs")
        assert (first["total"], first["first"]) == (count, 0)
        assert len(first["queue_pairs"]) == 1000
        last = page(metrics, "/queue-pairs?first=2499")
        (row,) = last["queue_pairs"]
        assert row["time_ns"] == 2499 * width
        assert row[QUEUE_PAIR_FIELDS[-1]] == count * width - 1
        assert page(metrics, "/queue-pairs?first=-1")["first"] == 0
        assert page(metrics, "/queue-pairs?first=99999")["queue_pairs"] == []
        (port,) = page(metrics, "/ports")["ports"]
        assert list(port) == [*PORT_FIELDS, *PORT_SUMS.values()]
    finally:
        metrics.server.close()


def test_metrics_address_in_use_is_reported() -> None:
    metrics = AgentMetrics("127.0.0.1:0")
    try:
        address = metrics.server.url.removeprefix("http://").removesuffix("/metrics")
        with pytest.raises(PortInUse, match="another program uses this address"):
            AgentMetrics(address)
    finally:
        metrics.server.close()


@pytest.mark.asyncio
async def test_the_command_serves_metrics(tmp_path: object) -> None:
    listen = f"unix:{tmp_path}/a"
    probe = AgentMetrics("127.0.0.1:0")
    url = probe.server.url
    probe.server.close()  # its port is free now, and known
    address = url.removeprefix("http://").removesuffix("/metrics")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "chakram_agent", "serve", "--listen", listen,
        "--metrics", address, "--die-with-parent",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert await process.stdout.readline()
        async with await AgentClient.connect(listen, name="a") as client:
            await start(client, ring_plan())
            assert isinstance((await until_the_end(client))[-1], Finished)
            async with asyncio.timeout(TIMEOUT_S):
                found: dict[str, float] = {}
                while not found.get("chakram_flows_completed_total"):
                    await asyncio.sleep(0.05)
                    found = scrape(url)
        assert found["chakram_tx_bytes_total"] > 0
        assert found["chakram_queue_pairs"] == 2
    finally:
        process.terminate()
        assert await process.wait() == 0

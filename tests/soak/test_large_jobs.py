"""Jobs of 65,536 ranks at message level, and what reads their runs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from chakram.config.experiment import parse_experiment
from chakram.preparation.resolved_run import load_run
from chakram.run_directory.reader import runs_in
from tests.agents import agent_in
from tests.big_traces import usage_of

TRAINING = """\
version: 1
name: frontier
jobs:
  - name: moe
    trace: {{synth: moe, ranks: 65536, tp: 8, ep: 8, dp: 128, pp: 8, layers: 32,
            micro_batches: 16}}
    compute: {{from: none}}
    placement: {{same_host: skip, local_rate: 3600Gbit}}
fabric:
  kind: namespaces
  addressing: ipv6
  topology: {{fat_tree: {{pods: 32, leaves: 32, spines: {spines}, cores: 32,
             hosts_per_leaf: 64, server_ports: 64}}}}
  links: {{host: {{rate: 400Gbit}}, uplink: {{rate: 400Gbit}}}}
faults: {{links: [{fault}]}}
iterations: {{warmup: 0, measured: 1}}
simulation: {{level: message}}
"""
ONE_COLLECTIVE = """\
version: 1
name: alike
jobs:
  - name: job
    trace: {{synth: collectives, ranks: {ranks},
            streams: [{{op: {op}, size: 1GiB, count: 1}}]}}
    compute: {{from: none}}
fabric:
  kind: namespaces
  addressing: ipv6
  topology: {{single_switch: {{hosts: {ranks}}}}}
  links: {{host: {{rate: 400Gbit}}}}
iterations: {{warmup: 0, measured: 1}}
simulation: {{level: message}}
"""


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("spines", "fault"),
    [
        (64, ""),
        (16, ""),
        (64, "{kind: down, link: pod0-leaf1-pod0-spine5}"),
        (64, "{kind: degrade, link: h100-pod0-leaf1, rate: 40Gbit}"),
    ],
    ids=["1:1", "4:1", "uplink down", "slow host"],
)
def test_training_on_65536_ranks_takes_minutes_and_its_run_opens_in_seconds(
    spines: int, fault: str, tmp_path: Path
) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(TRAINING.format(spines=spines, fault=fault))
    runs = tmp_path / "runs"
    used = usage_of(["simulate", path, "--runs", runs])
    print(f"\npeak {used.peak_mib:.0f} MiB, {used.processor_s:.0f} s")  # noqa: T201 - a figure
    assert used.exit_code == 0
    assert used.peak_mib < 8 * 1024
    assert used.processor_s < (900 if fault else 600)
    (run,) = runs_in(runs)
    for words in (["show", run], ["why", run, "--no-verify"], ["report", run]):
        used = usage_of([*words, *(["--force"] if words[0] == "report" else [])])
        print(f"{words[0]}: {used.peak_mib:.0f} MiB, {used.processor_s:.1f} s")  # noqa: T201 - a figure
        assert used.peak_mib < 2 * 1024
        assert used.processor_s < 20


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("ranks", "op"), [(16_384, "all_to_all"), (65_536, "all_reduce")]
)
def test_one_collective_of_all_ranks_takes_seconds(
    ranks: int, op: str, tmp_path: Path
) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(ONE_COLLECTIVE.format(ranks=ranks, op=op))
    used = usage_of(["simulate", path, "--runs", tmp_path / "runs"])
    print(f"\npeak {used.peak_mib:.0f} MiB, {used.processor_s:.1f} s")  # noqa: T201 - a figure
    assert used.exit_code == 0
    assert used.peak_mib < 1024
    assert used.processor_s < 30


@pytest.mark.asyncio
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "trace",
    [
        {"synth": "moe", "tp": 8, "ep": 8, "dp": 8, "pp": 8, "layers": 32},
        {
            "synth": "collectives",
            "streams": [{"op": "all_to_all", "size": "64MiB", "count": 1}],
        },
    ],
    ids=["moe", "all_to_all"],
)
async def test_an_agent_of_4096_ranks_prepares_its_own_in_seconds(
    trace: dict[str, Any], tmp_path: Path
) -> None:
    hosts = [
        {
            "name": f"h{host}",
            "agent": f"127.0.0.1:{20_000 + host}",
            "ports": [
                {
                    "open": "udp:lo",
                    "address": f"127.{1 + host // 256}.{host % 256}.{port}/8",
                }
                for port in range(1, 9)
            ],
        }
        for host in range(512)
    ]
    document = {
        "version": 1,
        "name": "agents",
        "jobs": [{"name": "job", "trace": trace | {"ranks": 4096}}],
        "fabric": {"kind": "external", "hosts": hosts, "allow": ["127.0.0.0/8"]},
    }
    experiment = parse_experiment(json.dumps(document))
    plan = load_run(experiment).expected_plan("run").agents[0]
    assert len(plan.ranks) == 8
    async with agent_in(tmp_path) as client:
        begin_s = time.perf_counter()
        await client.prepare(plan)
        took_s = time.perf_counter() - begin_s
    pairs = sum(len(rank.queue_pairs) for rank in plan.ranks)
    print(f"\n{pairs} queue pairs: {took_s:.1f} s")  # noqa: T201 - a figure
    assert took_s < 5

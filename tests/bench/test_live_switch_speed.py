"""How many packets of 4 KiB modeled switches pass on in a second of their process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from chakram._compiled import status
from tests.bench.extent import at_least, at_most, sized
from tests.bench.live_switch import LEAST, packets_per_cpu_second
from tests.leaks import own_lab

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLAIN_LEAST = 2_000
EXPERIMENT = """\
version: 1
name: eight-hosts
jobs:
  - name: job
    trace:
      {synth: collectives, ranks: 8, streams: [{op: all_reduce, size: SIZE, count: 2}]}
    compute: {from: none}
iterations: {warmup: 1, measured: 2}
fabric:
  kind: namespaces
  switch: model
  topology: {single_switch: {hosts: 8}}
  links: {host: {rate: 500Mbit, ecn: {kmin: 100KB, kmax: 400KB, pmax: 0.2}}}
  switches: {profile: sonic}
  mtu: 4200
transport: {path_mtu: 4096}
predict: [simulate]
"""


@pytest.mark.asyncio
async def test_switch_forwards_enough_packets_per_second(
    record_property: Callable[[str, object], None],
) -> None:
    best = max(await packets_per_cpu_second(sized(3, 1)))
    record_property("packets per CPU second", round(best))
    assert best >= at_least(LEAST if status().is_compiled() else PLAIN_LEAST)


@pytest.mark.timeout(120)
def test_eight_hosts_run_at_500_mbit(tmp_path: Path) -> None:
    if not status().is_compiled():
        pytest.skip("uncompiled switches are too slow")
    path = tmp_path / "eight.yaml"
    path.write_text(EXPERIMENT.replace("SIZE", sized("16MiB", "64KiB")))
    words = ["run", path, "--runs", tmp_path, "--lab", own_lab("eight"), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "chakram", *words],
        check=True,
        capture_output=True,
        text=True,
    )
    result = json.loads(done.stdout)["results"][0]
    assert result["generator_bound"] <= at_most(0)
    assert result["predictions"]["simulate"]["deviation"] <= at_most(0.05)

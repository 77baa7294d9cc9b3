"""A job of 1,024 ranks, from its files to its plan."""

from __future__ import annotations

import time
from pathlib import Path

from chakram.synth.settings.training import MoeTrace
from chakram.synth.synthesize import synthesize, write_synthesis
from tests.bench.extent import at_most, sized
from tests.big_traces import usage_of

EXPERIMENT = """\
version: 1
name: large
jobs:
  - name: moe
    trace: {{path: {folder}}}
    compute: {{from: trace}}
collectives: {{all_reduce: ring, all_to_all: direct}}
fabric:
  kind: namespaces
  switch: kernel
  topology: {{clos: {{leaves: 32, spines: 16, hosts_per_leaf: 32}}}}
  links: {{host: {{rate: 400Gbit}}, uplink: {{rate: 800Gbit}}}}
  mtu: 4200
transport: {{congestion_control: fixed_rate, path_mtu: 4096}}
"""


def test_a_job_of_a_thousand_ranks_is_planned_in_a_minute_and_a_half(
    tmp_path: Path,
) -> None:
    # Mixtral's 32 layers with 8 ranks per expert group: 394,240 nodes.
    synthesis = synthesize(
        MoeTrace(
            synth="moe",
            ranks=sized(1024, 16),
            ep=8,
            dp=sized(128, 2),
            layers=sized(32, 2),
            hidden=4096,
        )
    )
    write_synthesis(tmp_path / "traces", synthesis)
    path = tmp_path / "large.yaml"
    path.write_text(EXPERIMENT.format(folder=tmp_path / "traces"))
    saved = tmp_path / "large.plan"
    begin = time.perf_counter()
    used = usage_of(["plan", path, "--save", saved])
    took_s = time.perf_counter() - begin
    print(  # noqa: T201 - the outcome of a benchmark
        f"\n1,024 ranks: {took_s:.1f} s, {used.processor_s:.1f} s of processor, peak "
        f"{used.peak_mib:.0f} MiB, saved plan {saved.stat().st_size / 1e6:.1f} MB"
    )
    assert used.exit_code == 0
    assert took_s < at_most(90)
    assert used.peak_mib * 2**20 < 6 * 10**9

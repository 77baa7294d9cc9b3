"""Announcement of long runs."""

from __future__ import annotations

import pytest

from chakram.config.experiment import parse_experiment
from chakram.preparation.expected_duration import computing_ns, duration_note
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.predictions import path_draws, simulate_draws
from chakram.preparation.resolved_run import resolve
from chakram.simulation.common import simulated_topology

SECOND = 10**9
DILATED = """\
version: 1
name: dilated
jobs:
  - name: moe
    trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1, all_to_all: 64KiB,
      all_reduce: 64KiB, dense: 64KiB, peak: 100GFLOPS}
    compute: {from: trace}
iterations: {warmup: 1, measured: 3}
fabric:
  kind: namespaces
  dilation: 1000
  topology: {single_switch: {hosts: 4}}
  links: {host: {rate: 400Gbit}}
transport: {congestion_control: fixed_rate, retransmit_timeout: 100us}
"""


def test_dilated_computation_is_part_of_the_expected_time() -> None:
    experiment = parse_experiment(DILATED)
    resolved = resolve(experiment, load_jobs(experiment))
    topology = simulated_topology(resolved)
    plan = resolved.plan(experiment.fabric.simulated_ports(topology), "r")
    draws = path_draws(experiment.fabric, topology, 1, known=None)
    run_ns = simulate_draws(plan, topology, 1, draws, experiment.faults).run_ns
    assert run_ns is not None
    compute_ns = computing_ns(plan)
    # One iteration is simulated, and four are expected.
    assert SECOND < compute_ns <= run_ns < 2 * compute_ns
    note = duration_note(40 * run_ns, 40 * compute_ns, dilation=experiment.dilation)
    assert note is not None
    assert ", because time is stretched 1000 times; computations take " in note


@pytest.mark.parametrize(
    ("run_s", "compute_s", "dilation", "expected"),
    [
        (19, 19, 800, None),
        (100, 0, 1, "the run will take about 1m40s"),
        (
            100,
            0,
            80,
            "the run will take about 1m40s, because time is stretched 80 times",
        ),
        (
            100,
            130,  # in parallel streams
            1,
            "the run will take about 1m40s; computations take 1m40s of it: a smaller "
            "compute.scale or compute.from: none shortens them",
        ),
        (
            100,
            50,
            1,
            "the run will take about 1m40s; computations take 50s of it: a smaller "
            "compute.scale or compute.from: none shortens them",
        ),
    ],
)
def test_long_runs_are_announced(
    run_s: int, compute_s: int, dilation: int, expected: str | None
) -> None:
    found = duration_note(run_s * SECOND, compute_s * SECOND, dilation=dilation)
    assert found == expected

"""Predictions with unknown paths: several draws and their combination."""

from __future__ import annotations

import pytest

from chakram.collectives.groups import world_group
from chakram.config.experiment import parse_experiment
from chakram.config.transport import Faults
from chakram.fabric.fabric_types.loopback import LoopbackFabric
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.predictions import (
    DRAWS,
    durations,
    medians,
    path_draws,
    simulate_draws,
    simulate_run,
)
from chakram.preparation.resolved_run import resolve
from chakram.records.run_records import CollectiveKey
from chakram.switch.ecmp import DrawnPaths, KernelPaths
from chakram.switch.profiles import Switching
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.made_plans import collective, make_plan, program

FABRIC = LoopbackFabric.model_validate({"kind": "loopback"})
CLOS = clos(2, 2, 4, 10**9, 10**9)


def test_known_or_single_paths_need_one_simulation() -> None:
    known = KernelPaths(seed=9)
    (told,) = path_draws(FABRIC, CLOS, 3, known=known)
    assert told.ecmp == known
    star = single_switch(4, 10**9)
    (drawn,) = path_draws(FABRIC, star, 3, known=None)
    assert drawn.ecmp == DrawnPaths(seed=3)


def test_unknown_paths_are_drawn_at_random() -> None:
    draws = path_draws(FABRIC, CLOS, 3, known=None)
    assert [each.ecmp for each in draws] == [
        DrawnPaths(seed=3 + number) for number in range(DRAWS)
    ]


def test_every_draw_is_a_separate_prediction() -> None:
    rows = [collective("all_to_all", 100_000)]
    group = world_group(8)
    plan = make_plan([program(rank, group, rows) for rank in range(8)], CLOS)
    healthy = Faults()
    drawn = [Switching(ecmp=DrawnPaths(seed=1))]
    one, notes, _ = simulate_draws(plan, CLOS, 1, drawn, healthy)
    assert notes == ()
    assert list(one) == ["simulate"]
    draws = [Switching(ecmp=DrawnPaths(seed=seed)) for seed in (1, 2, 3, 4)]
    several, *_ = simulate_draws(plan, CLOS, 1, draws, healthy)
    assert list(several) == [f"simulate.{number}" for number in range(4)]
    assert several["simulate.0"] == one["simulate"]
    assert len({tuple(times.values()) for times in several.values()}) > 1


TWO_JOBS = """
version: 1
name: two
jobs:
  - name: one
    trace: {synth: moe, ranks: 4, ep: 4, dp: 1, layers: 2, all_to_all: 64KiB}
    compute: {from: none}
    placement: {pattern: striped}
  - name: other
    trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1, all_to_all: 128KiB}
    compute: {from: none}
    placement: {pattern: striped}
    repeat: until_others_end
iterations: {warmup: 1, measured: 4}
fabric:
  kind: namespaces
  topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 4}}
  links: {host: {rate: 1Gbit}, uplink: {rate: 1Gbit}}
transport: {congestion_control: fixed_rate}
"""


UNEQUAL_JOBS = TWO_JOBS.replace("until_others_end", "9")


INCAST = """
version: 1
name: incast
jobs:
  - name: main
    trace:
      {synth: collectives, streams: [{op: gather, size: 512KiB, count: 2}], ranks: 6}
    compute: {from: none}
collectives: {gather: direct}
iterations: {warmup: 1, measured: 3}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 6}}
  links: {host: {rate: 1Gbit, queue: 64KiB}}
transport: {congestion_control: none, window: 64KiB, retransmit_timeout: 4ms}
"""

SLOWED = """
version: 1
name: slowed
jobs:
  - name: main
    trace:
      {synth: collectives, streams: [{op: all_to_all, size: 8MiB, count: 1}], ranks: 8}
    compute: {from: none}
collectives: {all_to_all: direct}
iterations: {warmup: 1, measured: 3}
fabric:
  kind: namespaces
  switch: model
  switches: {profile: sonic}
  topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 4}}
  links:
    host: {rate: 40Gbit}
    uplink: {rate: 40Gbit, ecn: {kmin: 40KB, kmax: 160KB, pmax: 0.1}}
transport:
  {congestion_control: {dcqcn: {profile: dcqcn-paper}}, retransmit_timeout: 50ms}
"""


@pytest.mark.slow
@pytest.mark.parametrize("text", [TWO_JOBS, UNEQUAL_JOBS, INCAST, SLOWED])
def test_all_iterations_are_predicted_if_they_differ(text: str) -> None:
    experiment = parse_experiment(text)
    topology = experiment.fabric.to_topology(experiment.fabric.nports or 8)
    assert topology is not None
    ports = experiment.fabric.simulated_ports(topology)
    plan = resolve(experiment, load_jobs(experiment)).plan(ports, "r")
    switching = experiment.fabric.switching(1)
    result = simulate_plan(plan, topology, seed=1, switching=switching)
    means = durations(plan, result, warmup=1)
    assert simulate_run(plan, topology, 1, switching, Faults())[0] == means
    # One iteration of either is something else.
    short = simulate_plan(
        plan, topology, seed=1, warmup=0, measured=1, switching=switching
    )
    first = durations(plan, short)
    apart = [abs(first[key] - mean) / mean for key, mean in means.items()]
    assert max(apart) > 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("timeout", "queue", "is_told"),
    [
        ("3400us", "100MiB", True),
        ("20ms", "100MiB", False),
        ("3400us", "256KiB", False),
    ],
)
def test_timeouts_too_short_under_load_are_reported_before_a_run(
    timeout: str, queue: str, is_told: bool
) -> None:
    # A window takes 524 us, and six others may be in front of it: where nothing is
    # dropped, nothing is wrong but the timeout.
    experiment = parse_experiment(
        f"""
version: 1
name: in
jobs:
  - name: j
    trace: {{synth: incast, ranks: 8, fan_in: 7, receiver: 0, size: 1MiB}}
fabric:
  kind: namespaces
  topology: {{single_switch: {{hosts: 8}}}}
  links: {{host: {{rate: 1Gbit, queue: {queue}}}}}
  switches: {{profile: fifo}}
transport: {{window: 64KiB, retransmit_timeout: {timeout}, retry_limit: 7}}
"""
    )
    topology = experiment.fabric.to_topology(8)
    assert topology is not None
    ports = experiment.fabric.simulated_ports(topology)
    plan = resolve(experiment, load_jobs(experiment)).plan(ports, "r")
    draws = [experiment.fabric.switching(1)]
    found, notes, _ = simulate_draws(plan, topology, 1, draws, Faults())
    assert list(found) == ["simulate"]
    assert [note[:30] for note in notes] == (
        ["simulated: timeouts are shorte"] if is_told else []
    )


def test_draws_of_one_source_are_combined() -> None:
    key, other = CollectiveKey("j", "g", 0), CollectiveKey("j", "g", 1)
    found = medians(
        {
            "simulate.0": {key: 10, other: 5},
            "simulate.1": {key: 40},
            "simulate.2": {key: 20},
            "elsewhere": {key: 7},
        }
    )
    assert found == {"simulate": {key: 20, other: 5}, "elsewhere": {key: 7}}

"""Collectives within hosts: their bounds, and the cost of simulating them alone."""

from __future__ import annotations

import yaml

from chakram.config.experiment import parse_experiment
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.predictions import alone_times
from chakram.preparation.resolved_run import resolve
from chakram.preparation.schedule_bounds import bounds
from chakram.simulation.common import simulated_topology

SERVERS = {
    "version": 1,
    "name": "servers",
    "jobs": [
        {
            "name": "j",
            "trace": {
                "synth": "dense", "ranks": 8, "tp": 4, "dp": 2, "layers": 1,
                "hidden": 1024, "heads": 16, "sequence": 512,
            },
            "compute": {"from": "none"},
            "placement": {"same_host": "skip", "local_rate": "400Mbit"},
        }
    ],
    "fabric": {
        "kind": "namespaces",
        "topology": {"single_switch": {"hosts": 8, "server_ports": 4}},
        "links": {"host": {"rate": "100Mbit"}},
    },
}  # fmt: skip


def test_messages_within_hosts_cost_a_simulation_no_packets() -> None:
    experiment = parse_experiment(yaml.safe_dump(SERVERS))
    resolved = resolve(experiment, load_jobs(experiment))
    topology = simulated_topology(resolved)
    plan = resolved.plan(experiment.fabric.simulated_ports(topology), "r")
    switching = experiment.fabric.switching(1)
    # Each of the four kinds within hosts takes 20 events, and the others thousands.
    found = alone_times(plan, topology, 1, switching, events=1500)
    within = {key for key in found.times_ns if key.group in "12"}
    assert len(within) == 20
    assert found.left_out == 4
    least = bounds(plan, topology).times_ns
    assert all(found.times_ns[key] == least[key] for key in within)

"""The reference states correctly which keys affect simulations."""

from __future__ import annotations

import os

import pytest
import yaml

from chakram.config.experiment import parse_experiment
from chakram.config.schema import SIMULATE, worlds_of
from chakram.plan.plan import Plan
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.resolved_run import resolve
from chakram.topology.topology import Topology

EXPERIMENT = {
    "version": 1,
    "name": "worlds",
    "jobs": [
        {
            "name": "moe",
            "trace": {"synth": "moe", "ranks": 4, "ep": 2, "dp": 2, "layers": 1},
            "size_scale": "1/8",
        }
    ],
    "iterations": {"warmup": 0, "measured": 1},
    "fabric": {
        "kind": "namespaces",
        "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 2}},
        "links": {"host": {"rate": "1Gbit"}, "uplink": {"rate": "1Gbit"}},
    },
    "transport": {"congestion_control": "dcqcn", "window": "1MiB"},
}

Told = tuple[int, dict[str, int], int]


def planned(**overrides: str) -> tuple[Plan, Topology, int]:
    """Return the plan of a simulation, its topology and seed."""
    experiment = parse_experiment(yaml.safe_dump(EXPERIMENT), overrides=overrides)
    topology = experiment.fabric.to_topology(4)
    assert topology is not None
    jobs = load_jobs(experiment)
    ports = experiment.fabric.simulated_ports(topology)
    plan = resolve(experiment, jobs).plan(ports, "r")
    return plan, topology, experiment.seed


def simulated(**overrides: str) -> Told:
    """Return the time of the simulation, and the bytes on links."""
    plan, topology, seed = planned(**overrides)
    experiment = parse_experiment(yaml.safe_dump(EXPERIMENT), overrides=overrides)
    switching = experiment.fabric.switching(seed)
    result = simulate_plan(plan, topology, seed=seed, switching=switching)
    return result.end_ns, result.link_bytes, sum(result.marked_packets.values())


@pytest.fixture(scope="module")
def usual() -> Told:
    return simulated()


UNUSED = {
    ("Experiment", "lab"): {"lab": "other"},
    ("Experiment", "preflight"): {"preflight": "require"},
    ("Metrics", "listen"): {"metrics.listen": "127.0.0.1:9"},
    ("Experiment", "hang_timeout"): {"hang_timeout": "100ms"},
    ("StopIf", "duration"): {"stop_if.duration": "1us"},
    ("NamespaceFabric", "capture"): {"fabric.capture": "[h0]"},
    ("Transport", "icrc"): {"transport.icrc": "off"},
}

USED = {
    ("LinkSettings", "rate"): {"fabric.links.host.rate": "2Gbit"},
    ("LinkSettings", "delay"): {"fabric.links.host.delay": "10us"},
    ("NamespaceFabric", "switch"): {"fabric.switch": "model"},
    ("NamespaceFabric", "switches"): {
        "fabric.switches.profile": "sonic",
        "fabric.links.host.ecn": "1KB/2KB/1",
    },
    ("LinkSettings", "ecn"): {"fabric.links.host.ecn": "1KB/2KB/1"},
    ("NamespaceFabric", "addressing"): {"fabric.addressing": "ipv6"},
    ("NamespaceFabric", "mtu"): {"fabric.mtu": "1500"},
    ("Transport", "verb"): {"transport.verb": "send"},
    ("Transport", "window"): {"transport.window": "16KiB"},
    ("Transport", "path_mtu"): {"transport.path_mtu": "1024"},
    ("Faults", "drop"): {"faults.drop": "0.01"},
}


@pytest.mark.parametrize("place", UNUSED, ids=".".join)
def test_keys_that_simulations_ignore_do_not_change_their_results(
    place: tuple[str, str], usual: Told
) -> None:
    assert SIMULATE not in worlds_of(*place)
    assert simulated(**UNUSED[place]) == usual


@pytest.mark.parametrize("place", USED, ids=".".join)
def test_keys_that_simulations_use_change_their_results(
    place: tuple[str, str], usual: Told
) -> None:
    assert SIMULATE in worlds_of(*place)
    assert simulated(**USED[place]) != usual


@pytest.mark.parametrize("key", ["data", "ack"])
def test_switches_with_classes_take_them_from_the_dscp(key: str) -> None:
    assert SIMULATE in worlds_of("Dscp", key)
    switches = {"fabric.switches.profile": "sonic"}
    changed = simulated(**switches, **{f"transport.dscp.{key}": "0"})
    assert changed != simulated(**switches)


def test_process_count_changes_queue_pair_numbers_but_no_path(
    usual: Told,
) -> None:
    assert SIMULATE in worlds_of("AgentSettings", "shards")
    assert simulated(**{"agents.shards": "2"}) == usual
    one, two = (
        [
            [(pair.qpn, pair.source_port) for pair in rank.queue_pairs]
            for rank in planned(**{"agents.shards": shards})[0].ranks()
        ]
        for shards in ("1", "2")
    )
    assert one != two
    assert [[port for _, port in rank] for rank in one] == [
        [port for _, port in rank] for rank in two
    ]


def test_a_simulation_is_the_same_on_a_machine_with_many_cores(
    monkeypatch: pytest.MonkeyPatch, usual: Told
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert simulated() == usual

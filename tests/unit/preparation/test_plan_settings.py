"""From an experiment to a plan, and the plan in numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chakram.config.experiment import Experiment, parse_experiment
from chakram.foundation.errors import ConfigError, PlanError
from chakram.plan.plan_check import check_plan
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.plan_settings import (
    ports_needed,
    shards_of,
    transport_plan,
)
from chakram.preparation.plan_summary import PlanSummary, summarize_plan
from chakram.preparation.resolved_run import resolve
from chakram.synth.synthesize import write_synthesis
from chakram.topology.topology_helpers import single_switch
from tests.experiments import EXPERIMENT, moe, of_files, planned_run

EXTERNAL = """\
version: 1
name: external
jobs:
  - name: moe
    trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}
fabric:
  kind: external
  defaults: {rate: 10Gbit, mtu: 9000}
  hosts:
    - {name: a, agent: "unix:/a", ports: [{open: "udp:eth1", address: 198.18.0.1/24}]}
    - name: b
      agent: "unix:/b"
      ports:
        - {open: "udp:eth1", address: 198.18.0.2/24, rate: 1Gbit, mtu: 1500, netns: p0}
        - {open: "udp:eth2", address: 198.18.0.3/24, netns: p1}
"""


def summary_of(experiment: Experiment) -> PlanSummary:
    jobs = load_jobs(experiment)
    plan = planned_run(experiment, jobs, "r")
    assert check_plan(plan) == []
    return summarize_plan(plan, jobs, warnings=resolve(experiment).warnings())


def test_a_plan_of_ipv6_has_its_addresses_and_longer_packets() -> None:
    text = EXPERIMENT.replace(
        "kind: namespaces", "kind: namespaces\n  addressing: ipv6"
    )
    experiment, usual = parse_experiment(text), parse_experiment(EXPERIMENT)
    run = resolve(experiment, load_jobs(experiment))
    ports = experiment.fabric.planned_ports(run.ports_needed)
    assert [port.address for port in ports] == [f"2001:2::{n}" for n in range(1, 5)]
    summary, of_ipv4 = summary_of(experiment), summary_of(usual)
    assert (summary.family, of_ipv4.family) == ("ipv6", "ipv4")
    assert summary.payload_bytes == of_ipv4.payload_bytes
    more = summary.busiest_port_bytes - of_ipv4.busiest_port_bytes
    assert more > 0
    assert more % 20 == 0


def test_summary_of_a_plan_is_exact() -> None:
    summary = summary_of(
        parse_experiment(
            EXPERIMENT.replace(
                "layers: 1", "layers: 1, all_to_all: 64KiB, all_reduce: 8KiB, dense: 0B"
            )
        )
    )
    by_op = {line.op: line for line in summary.collectives}
    # Forward and backward dispatch and combine, in two groups of two ranks.
    assert by_op["all_to_all"].count == 8
    assert by_op["all_to_all"].messages == 16
    assert by_op["all_to_all"].bytes_per_rank == 32 * 1024
    assert by_op["all_reduce"].count == 2
    assert by_op["all_reduce"].bytes_per_rank == 8 * 1024
    payload = 4 * (4 * 32 * 1024 + 8 * 1024)
    assert summary.payload_bytes == payload
    assert summary.busiest_port_bytes > payload // 4
    assert summary.least_iteration_ns == summary.busiest_port_bytes * 8
    # Four groups of two, and a barrier in which every rank meets every other one.
    assert summary.queue_pairs == 4 + 6
    assert summary.iterations == 22


@pytest.mark.parametrize("switch", ["kernel", "model"])
def test_hosts_of_modeled_switches_may_send_ahead_of_their_rate(switch: str) -> None:
    text = EXPERIMENT.replace("namespaces", f"namespaces\n  switch: {switch}")
    plan = transport_plan(parse_experiment(text))
    assert plan.saves_up == (switch == "model")
    # 5 ms at 1 Gbit/s; else four bursts.
    assert (plan.window_bytes == 625_000) == (switch == "model")


def test_traffic_within_a_host_does_not_count_for_its_ports() -> None:
    text = EXPERIMENT.replace("layers: 1", "layers: 1, dense: 0B")

    def shared(same_host: str) -> PlanSummary:
        return summary_of(
            parse_experiment(
                text,
                overrides={
                    "jobs.0.placement": f"{{ranks_per_port: 2, same_host: {same_host}}}"
                },
            )
        )

    fabric, skipped = shared("fabric"), shared("skip")
    assert skipped.payload_bytes == fabric.payload_bytes
    assert 0 < skipped.busiest_port_bytes < fabric.busiest_port_bytes
    # Of the three others that a rank talks to, one shares its port.
    assert skipped.busiest_port_bytes < 0.6 * fabric.busiest_port_bytes


def test_ports_of_an_external_host_are_one_host() -> None:
    hosts = [
        {
            "name": f"h{host}",
            "agent": f"192.0.2.{host + 1}:7411",
            "ports": [
                {
                    "open": f"udp:eth{port}",
                    "address": f"198.18.{host}.{port + 1}/24",
                    "netns": f"/run/netns/port{port}",
                }
                for port in range(2)
            ],
        }
        for host in range(2)
    ]
    experiment = parse_experiment(
        EXPERIMENT,
        overrides={
            "jobs.0.placement": "{same_host: skip, local_rate: 400Gbit}",
            "fabric": json.dumps(
                {
                    "kind": "external",
                    "defaults": {"rate": "10Gbit"},
                    "hosts": hosts,
                    "tls": {"ca": "a", "cert": "b", "key": "c"},
                }
            ),
        },
    )
    jobs = load_jobs(experiment)
    plan = planned_run(experiment, jobs, "r")
    rates = {
        (rank.program.rank, pair.peer_rank): pair.local_rate_bps
        for rank in plan.ranks()
        for pair in rank.queue_pairs
    }
    assert rates[0, 1] == rates[3, 2] == 400 * 10**9
    assert rates[0, 2] is None
    assert [rank.shard for rank in plan.ranks()] == [0, 0, 0, 0]


def test_ranks_that_do_not_fit_are_refused_when_a_trace_is_read(tmp_path: Path) -> None:
    write_synthesis(tmp_path, moe(ranks=8, ep=4, dp=2))
    experiment = parse_experiment(of_files(tmp_path))
    jobs = load_jobs(experiment)
    assert ports_needed(jobs) == 8
    with pytest.raises(PlanError, match="need ports 0 to 7, but the fabric has 4"):
        planned_run(experiment, jobs, "r")


def test_ports_needed_counts_shared_ports_and_gaps() -> None:
    (job,) = load_jobs(parse_experiment(EXPERIMENT))
    shared = replace(job, placement=replace(job.placement, ranks_per_port=3))
    assert ports_needed([shared]) == 2
    behind = replace(job, placement=replace(job.placement, first_port=3))
    assert ports_needed([shared, behind]) == 7
    assert ports_needed([shared, job]) == 6
    names = replace(job, placement=replace(job.placement, ports=("h0", "h1", "h2")))
    assert ports_needed([names]) == 3


def test_loopback_has_as_many_ports_as_needed() -> None:
    text = EXPERIMENT[: EXPERIMENT.index("fabric:")] + "fabric: {kind: loopback}\n"
    summary = summary_of(parse_experiment(text))
    assert summary.ports == 4
    assert summary.least_iteration_ns is None


def test_loopback_has_the_ports_that_a_placement_names() -> None:
    head = EXPERIMENT[: EXPERIMENT.index("fabric:")] + "fabric: {kind: loopback}\n"
    experiment = parse_experiment(
        head, overrides={"jobs[0].placement": "{ports: [h3, h1, h2, h0]}"}
    )
    plan = planned_run(experiment, load_jobs(experiment), "r")
    assert [rank.port for rank in plan.ranks()] == [3, 1, 2, 0]


def test_a_host_names_its_ports_in_runs_and_simulations() -> None:
    experiment = parse_experiment(
        EXTERNAL,
        overrides={
            "jobs[0].placement.ports": "[b]",
            "fabric.topology": "{single_switch: {hosts: 3}}",
        },
    )
    run = resolve(experiment, load_jobs(experiment))
    topology = run.topology()
    assert topology is not None
    for ports in (
        experiment.fabric.planned_ports(3),
        experiment.fabric.simulated_ports(topology),
    ):
        assert [rank.port for rank in run.plan(ports, "r").ranks()] == [1, 2]


def test_external_ports_come_from_the_experiment_file() -> None:
    experiment = parse_experiment(EXTERNAL)
    assert experiment.fabric.kind == "external"
    ports = experiment.fabric.planned_ports(0)
    assert [(port.agent, port.address) for port in ports] == [
        ("a", "198.18.0.1"),
        ("b", "198.18.0.2"),
        ("b", "198.18.0.3"),
    ]
    assert [port.host for port in ports] == ["a", "b:udp:eth1", "b:udp:eth2"]
    assert [port.rate_bps for port in ports] == [10**10, 10**9, 10**10]
    assert [port.mtu for port in ports] == [9000, 1500, 9000]
    assert transport_plan(experiment).path_mtu == 1024
    assert summary_of(experiment).agents == (("a", 1), ("b", 1))


SHAPES = [
    "single_switch: {hosts: 3}",
    "clos: {leaves: 3, spines: 2, hosts_per_leaf: 1}",
]


@pytest.mark.parametrize("shape", SHAPES)
def test_hosts_keep_the_users_names_with_any_topology(shape: str) -> None:
    experiment = parse_experiment(
        EXTERNAL.replace("kind: external", f"kind: external\n  topology: {{{shape}}}")
        .replace("name: a", "name: h1")
        # As a switch of either shape would be called.
        .replace("name: b", "name: s0" if "single" in shape else "name: leaf0")
    )
    fabric = experiment.fabric
    assert fabric.kind == "external"
    second = fabric.hosts[1].name
    names = ["h1", f"{second}:udp:eth1", f"{second}:udp:eth2"]

    topology = fabric.to_topology()

    assert topology is not None
    assert list(topology.hosts) == names
    assert len({*topology.hosts, *topology.switches}) == 3 + len(topology.switches)
    switch = topology.switch_of(names[0])
    assert topology.host_link(names[0]).name == f"h1-{switch}"
    ports = fabric.planned_ports(0)
    assert [port.host for port in ports] == names
    # What is simulated is the same network: its names, and its addresses.
    simulated = experiment.fabric.simulated_ports(topology)
    assert [port.host for port in simulated] == names
    assert [port.address for port in simulated] == [port.address for port in ports]


def test_ports_with_equal_specifications_are_distinguished_by_address() -> None:
    experiment = parse_experiment(EXTERNAL.replace("udp:eth2", "udp:eth1"))
    assert experiment.fabric.kind == "external"
    ports = experiment.fabric.planned_ports(0)
    assert [port.host for port in ports] == [
        "a",
        "b:udp:eth1@198.18.0.2",
        "b:udp:eth1@198.18.0.3",
    ]


def test_local_shards_leave_a_core_free_and_remote_shards_follow_ports() -> None:
    external = parse_experiment(EXTERNAL)
    assert external.fabric.kind == "external"
    ports = external.fabric.planned_ports(0)
    assert shards_of(external, ports) == {"a": 1, "b": 2}
    fixed = parse_experiment(EXTERNAL + "agents: {shards: 3}\n")
    assert shards_of(fixed, ports) == {"a": 3, "b": 3}
    here = parse_experiment(EXPERIMENT)
    topology = single_switch(4, 10**9)
    (count,) = shards_of(here, here.fabric.simulated_ports(topology)).values()
    assert count >= 1


def test_delays_of_kernel_links_are_warned_about() -> None:
    text = EXPERIMENT.replace("rate: 1Gbit", "rate: 1Gbit, delay: 10us")
    assert "simulated only" in resolve(parse_experiment(text)).warnings()[0]
    assert resolve(parse_experiment(EXPERIMENT)).warnings() == []


FAULTS = """faults:
  packets:
    - {action: drop, nth: 1, job: other, source: 99}
    - {action: drop, nth: 1}
    - {action: delay, nth: 2, source: 99, destination: 4}
    - {action: mark, nth: 2, job: moe, source: 3, destination: 5}
"""
FAULTS_OF_NOBODY = [
    "faults.packets[0].job: there is no job 'other' (known: moe)",
    "faults.packets[2].source: there is no rank 99 (use ranks 0 to 3)",
    "faults.packets[2].destination: there is no rank 4 (use ranks 0 to 3)",
    "faults.packets[3].destination: there is no rank 5 (use ranks 0 to 3)",
]


def test_all_faults_of_unknown_flows_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_experiment(EXPERIMENT + FAULTS)

    first, *told = str(caught.value).splitlines()
    assert first == "experiment: 4 mistakes"
    assert [line.split(": ", 1)[1] for line in told] == FAULTS_OF_NOBODY


def test_faults_of_unknown_groups_are_refused() -> None:
    faults = """faults:
  packets:
    - {action: drop, nth: 1, group: p2p}
    - {action: drop, nth: 1, group: world, channel: 0, queue_pair: 0}
    - {action: drop, nth: 1, group: wrold}
"""
    experiment = parse_experiment(EXPERIMENT + faults)
    jobs = load_jobs(experiment)
    with pytest.raises(ConfigError) as caught:
        planned_run(experiment, jobs, "r")
    assert "faults.packets[2].group: there is no process group 'wrold' (e.g. " in str(
        caught.value
    )


def test_ranks_from_traces_are_checked_before_the_run(
    tmp_path: Path,
) -> None:
    write_synthesis(tmp_path / "t", moe(ranks=4, ep=2, dp=2))
    text = EXPERIMENT.replace(
        "{synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}", f"{{path: {tmp_path / 't'}}}"
    )
    named = FAULTS.replace("job: other, source: 99", "source: 1")
    experiment = parse_experiment(text + named)
    jobs = load_jobs(experiment)
    with pytest.raises(ConfigError) as caught:
        planned_run(experiment, jobs, "r")

    first, *told = str(caught.value).splitlines()
    assert first == f"{experiment.name}: 3 mistakes"
    assert [line.removeprefix("  - ") for line in told] == FAULTS_OF_NOBODY[1:]

"""From an experiment to a plan, and the plan in numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chakram.chakra.synth.program import Synthesis
from chakram.chakra.synthesize import synthesize
from chakram.chakra.writer import write_trace_set
from chakram.config.experiment import Experiment, parse_experiment
from chakram.config.synth import MoeTrace
from chakram.controller.experiment_warnings import experiment_warnings
from chakram.controller.job_loading import load_jobs
from chakram.controller.job_settings import arrivals_ns
from chakram.controller.plan_summary import PlanSummary, summarise_plan
from chakram.controller.planning import (
    build_plan,
    queue_pair_layout,
    run_settings,
    shards_of,
    transport_plan,
)
from chakram.controller.port_plans import (
    external_ports,
    planned_ports,
    ports_needed,
    simulated_ports,
)
from chakram.core.plan import JobSettings
from chakram.core.plan_check import check_plan
from chakram.errors import ConfigError, PlanError, TraceError
from chakram.fabric.topology import single_switch

EXPERIMENT = """\
version: 1
name: small
jobs:
  - name: moe
    trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 4}}
  links: {host: {rate: 1Gbit}}
"""

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
    plan = build_plan(experiment, jobs, planned_ports(experiment, jobs), "r")
    assert check_plan(plan) == []
    return summarise_plan(plan, jobs, warnings=experiment_warnings(experiment))


def test_a_plan_of_ipv6_has_its_addresses_and_longer_packets() -> None:
    text = EXPERIMENT.replace(
        "kind: namespaces", "kind: namespaces\n  addressing: ipv6"
    )
    experiment, usual = parse_experiment(text), parse_experiment(EXPERIMENT)
    ports = planned_ports(experiment, load_jobs(experiment))
    assert [port.address for port in ports] == [f"2001:2::{n}" for n in range(1, 5)]
    summary, of_ipv4 = summary_of(experiment), summary_of(usual)
    assert (summary.family, of_ipv4.family) == ("ipv6", "ipv4")
    assert summary.payload_bytes == of_ipv4.payload_bytes
    more = summary.busiest_port_bytes - of_ipv4.busiest_port_bytes
    assert more > 0
    assert more % 20 == 0


def moe(**parameters: int) -> Synthesis:
    return synthesize(MoeTrace(synth="moe", layers=1, **parameters))


def write(folder: Path, synthesis: Synthesis) -> None:
    write_trace_set(
        folder,
        prefix="moe",
        graphs=synthesis.graphs(),
        groups=synthesis.groups,
        producer=synthesis.producer,
        descriptions_of=synthesis.descriptions_of,
    )


def with_transport(text: str) -> Experiment:
    return parse_experiment(EXPERIMENT + f"transport: {{{text}}}\n")


def test_defaults_are_those_of_a_queue_pair() -> None:
    transport = transport_plan(parse_experiment(EXPERIMENT))
    assert transport.congestion_control == "none"
    assert transport.congestion_parameters == ()
    assert transport.window_bytes == 65_536
    assert transport.path_mtu == 4096
    assert transport.ecn == 2
    assert (transport.dscp_data, transport.dscp_ack) == (26, 26)
    assert transport.max_burst_packets == 4  # 4 hosts of 1 Gbit/s


def test_a_fixed_rate_is_that_of_the_ports_unless_it_is_named() -> None:
    experiment = with_transport("congestion_control: fixed_rate")
    assert transport_plan(experiment).congestion_parameters == (("rate_bps", 10**9),)
    experiment = with_transport("congestion_control: {fixed_rate: {rate: 100Mbit}}")
    assert transport_plan(experiment).congestion_parameters == (("rate_bps", 10**8),)


def test_all_of_the_transport_section_arrives() -> None:
    transport = transport_plan(
        with_transport(
            "window: 1MiB, path_mtu: 1024, verb: send, dscp: {data: 3, ack: 48}, "
            "ecn: ect1, ack_interval: 8, retransmit_timeout: 10ms, retry_limit: 3, "
            "burst: 7, rnr_retry_limit: 2, rnr_timer: 5, icrc: full, icrc_check: 64, "
            "adaptive_retransmission: {low: 50us, tries: 3}, source_ports: [5000]"
        )
    )
    assert transport.window_bytes == 2**20
    assert transport.path_mtu == 1024
    assert transport.verb == "send"
    assert (transport.dscp_data, transport.dscp_ack, transport.ecn) == (3, 48, 1)
    assert transport.ack_interval_packets == 8
    assert transport.retransmit_timeout_ns == 10**7
    assert transport.retry_limit == 3
    assert transport.max_burst_packets == 7
    assert (transport.rnr_retry_limit, transport.rnr_timer) == (2, 5)
    assert (transport.icrc, transport.icrc_check) == ("full", 64)
    assert (transport.adaptive_low_ns, transport.adaptive_tries) == (50_000, 3)


def test_an_exponent_stands_for_a_timeout() -> None:
    experiment = with_transport("local_ack_timeout: 4")
    assert transport_plan(experiment).retransmit_timeout_ns == 65_536


def test_the_layout_of_queue_pairs_arrives() -> None:
    experiment = with_transport(
        "queue_pairs: {count: 3, split: even, message_size: 1MiB}, "
        "source_ports: [5000, 5001]"
    )
    transport = transport_plan(experiment)
    assert (transport.split, transport.message_bytes) == ("even", 2**20)
    layout = queue_pair_layout(experiment)
    assert (layout.count, layout.source_ports) == (3, (5000, 5001))


def test_run_settings_are_those_of_the_experiment() -> None:
    settings = run_settings(
        parse_experiment(
            EXPERIMENT
            + "iterations: {warmup: 1, measured: 3, sync: gap, gap: 5ms}\n"
            + "faults: {drop: 0.01}\nseed: 9\nhang_timeout: 7s\n"
        )
    )
    assert (settings.warmup, settings.measured) == (1, 3)
    assert (settings.sync, settings.gap_ns) == ("gap", 5_000_000)
    assert settings.drop_ratio == 0.01
    assert settings.seed == 9
    assert settings.hang_timeout_ns == 7 * 10**9


def test_a_synthetic_job_is_the_same_as_its_files(tmp_path: Path) -> None:
    write(tmp_path, moe(ranks=4, ep=2, dp=2))
    (made,) = load_jobs(parse_experiment(EXPERIMENT))
    (read,) = load_jobs(
        parse_experiment(
            EXPERIMENT.replace(
                "{synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}",
                f"{{path: {tmp_path}}}",
            )
        )
    )
    assert read.digest == made.digest
    assert read.programs == made.programs
    assert read.nranks == 4


def test_reading_tells_how_far_it_is(tmp_path: Path) -> None:
    write(tmp_path, moe(ranks=2, ep=2, dp=1))
    told: list[tuple[str, int, int]] = []
    load_jobs(
        parse_experiment(
            EXPERIMENT.replace(
                "{synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}",
                f"{{path: {tmp_path}}}",
            )
        ),
        on_rank=lambda *args: told.append(args),
    )
    assert told == [("moe", 1, 2), ("moe", 2, 2)]


def test_a_trace_that_is_not_there_is_refused() -> None:
    experiment = parse_experiment(
        EXPERIMENT.replace(
            "{synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}", "{path: /nowhere/x}"
        )
    )
    with pytest.raises(TraceError, match="/nowhere"):
        load_jobs(experiment)


def test_a_model_that_is_too_large_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"jobs\[0\].trace.layers: .* nodes"):
        parse_experiment(
            EXPERIMENT.replace("layers: 1", "layers: 10000")
            .replace("ranks: 4, ep: 2", "ranks: 2000, ep: 1000")
            .replace("{hosts: 4}", "{hosts: 2000}")
        )


def test_a_plan_is_summed_up_exactly() -> None:
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


def test_what_stays_within_a_host_is_not_the_ports_work() -> None:
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
    plan = build_plan(experiment, jobs, planned_ports(experiment, jobs), "r")
    rates = {
        (rank.program.rank, pair.peer_rank): pair.local_rate_bps
        for rank in plan.ranks()
        for pair in rank.queue_pairs
    }
    assert rates[0, 1] == rates[3, 2] == 400 * 10**9
    assert rates[0, 2] is None
    assert [rank.shard for rank in plan.ranks()] == [0, 0, 0, 0]


def test_ranks_that_do_not_fit_are_refused_when_a_trace_is_read(tmp_path: Path) -> None:
    write(tmp_path, moe(ranks=8, ep=4, dp=2))
    experiment = parse_experiment(
        EXPERIMENT.replace(
            "{synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}", f"{{path: {tmp_path}}}"
        )
    )
    jobs = load_jobs(experiment)
    assert ports_needed(jobs) == 8
    with pytest.raises(PlanError, match="need ports 0 to 7, and the fabric has 4"):
        build_plan(experiment, jobs, planned_ports(experiment, jobs), "r")


def test_ports_needed_counts_shared_ports_and_gaps() -> None:
    (job,) = load_jobs(parse_experiment(EXPERIMENT))
    shared = replace(job, placement=replace(job.placement, ranks_per_port=3))
    assert ports_needed([shared]) == 2
    behind = replace(job, placement=replace(job.placement, first_port=3))
    assert ports_needed([shared, behind]) == 7
    assert ports_needed([shared, job]) == 6


def test_loopback_has_as_many_ports_as_needed() -> None:
    text = EXPERIMENT[: EXPERIMENT.index("fabric:")] + "fabric: {kind: loopback}\n"
    summary = summary_of(parse_experiment(text))
    assert summary.ports == 4
    assert summary.least_iteration_ns is None


def test_external_ports_are_those_of_the_file() -> None:
    experiment = parse_experiment(EXTERNAL)
    assert experiment.fabric.kind == "external"
    ports = external_ports(experiment.fabric, None)
    assert [(port.agent, port.address) for port in ports] == [
        ("a", "198.18.0.1"),
        ("b", "198.18.0.2"),
        ("b", "198.18.0.3"),
    ]
    assert [port.rate_bps for port in ports] == [10**10, 10**9, 10**10]
    assert [port.mtu for port in ports] == [9000, 1500, 9000]
    assert transport_plan(experiment).path_mtu == 1024
    named = external_ports(experiment.fabric, single_switch(3, 10**9))
    assert [port.host for port in named] == ["h0", "h1", "h2"]
    assert summary_of(experiment).agents == (("a", 1), ("b", 1))


def test_shards_leave_a_core_here_and_follow_ports_elsewhere() -> None:
    external = parse_experiment(EXTERNAL)
    assert external.fabric.kind == "external"
    ports = external_ports(external.fabric, None)
    assert shards_of(external, ports) == {"a": 1, "b": 2}
    fixed = parse_experiment(EXTERNAL + "agents: {shards: 3}\n")
    assert shards_of(fixed, ports) == {"a": 3, "b": 3}
    here = parse_experiment(EXPERIMENT)
    topology = single_switch(4, 10**9)
    (count,) = shards_of(here, simulated_ports(here, topology)).values()
    assert count >= 1


def test_delays_of_kernel_links_are_warned_about() -> None:
    text = EXPERIMENT.replace("rate: 1Gbit", "rate: 1Gbit, delay: 10us")
    assert "simulated only" in experiment_warnings(parse_experiment(text))[0]
    assert experiment_warnings(parse_experiment(EXPERIMENT)) == []


# Several jobs.

TWO_JOBS = """\
version: 1
name: two
jobs:
  - name: a
    trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}
    placement: {pattern: striped}
  - name: b
    trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}
    placement: {ports: [0, 3]}
    start: 5ms
    repeat: 7
    policy: communication_first
  - name: c
    trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}
    placement: {pattern: random}
    repeat: until_others_end
iterations: {warmup: 1, measured: 4}
fabric:
  kind: namespaces
  topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 3}}
  links: {host: {rate: 1Gbit}, uplink: {rate: 1Gbit}}
"""


def two_jobs(*more: str) -> Experiment:
    return parse_experiment("\n".join([TWO_JOBS, *more]))


def test_jobs_have_settings_of_their_own() -> None:
    settings = run_settings(two_jobs())
    assert settings.jobs == (
        JobSettings(
            job="b", offset_ns=5_000_000, iterations=8, policy="communication_first"
        ),
        JobSettings(job="c", is_background=True),
    )
    assert settings.iterations_of("a") == 5


def test_jobs_are_placed_by_pattern_and_may_share_ports() -> None:
    experiment = two_jobs()
    jobs = load_jobs(experiment)
    plan = build_plan(experiment, jobs, planned_ports(experiment, jobs), "r")
    ports: dict[str, list[int]] = {}
    for rank in plan.ranks():
        ports.setdefault(rank.program.job, []).append(rank.port)
    assert ports["a"] == [0, 3]  # one of each leaf
    assert ports["b"] == [0, 3]
    assert not {0, 3} & set(ports["c"])
    assert check_plan(plan) == []


def test_arrivals_follow_each_other() -> None:
    assert arrivals_ns(two_jobs()) == {"a": 0, "b": 5_000_000, "c": 0}
    even = two_jobs("arrivals: {gap: 10ms, order: [c, b, a]}")
    assert arrivals_ns(even) == {"a": 20_000_000, "b": 15_000_000, "c": 0}
    text = "arrivals: {gap: 10ms, order: random, spacing: exponential}"
    found = arrivals_ns(two_jobs(text))
    assert arrivals_ns(two_jobs(text)) == found
    assert arrivals_ns(two_jobs(text, "seed: 5")) != found
    assert len(set(found.values())) == 3


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("repeat: 7", "repeat: 0", "jobs[1].repeat: 0 is not in 1..1000000"),
        ("repeat: 7", "repeat: often", "'often' is not a number of iterations"),
        (
            "repeat: until_others_end",
            "repeat: 3\narrivals: {gap: 1ms, order: [a, b]}",
            "arrivals.order: is not the jobs a, b, c in some order",
        ),
        ("ports: [0, 3]", "ports: [0, 0]", "placement.ports: names a port twice"),
        ("ports: [0, 3]", "ports: [-1]", "-1 is not a port"),
        ("ports: [0, 3]", "ports: [0]", "needs 2 ports, and 1 may be taken"),
        (
            "ports: [0, 3]",
            "ports: [0, 3], first_port: 2",
            "first_port: means nothing beside ports",
        ),
    ],
)
def test_mistakes_of_several_jobs_are_told(old: str, new: str, expected: str) -> None:
    text = TWO_JOBS.replace(old, new)
    if "ports: [0]" in new:
        # What follows a pattern is not known before the plan.
        text = text.replace("    placement: {pattern: striped}\n", "")
    with pytest.raises(ConfigError) as error:
        parse_experiment(text)
    assert expected in str(error.value)


def test_one_job_has_to_end() -> None:
    text = EXPERIMENT.replace("layers: 1}", "layers: 1}\n    repeat: until_others_end")
    with pytest.raises(ConfigError, match="so none ends"):
        parse_experiment(text)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("job: other", "faults.packets[0].job: there is no job 'other'"),
        ("source: 99", "faults.packets[0].source: there is no rank 99"),
        ("destination: 99", "faults.packets[0].destination: there is no rank 99"),
    ],
)
def test_faults_of_flows_that_are_not_there_are_refused(fault: str, found: str) -> None:
    experiment = parse_experiment(
        EXPERIMENT + f"faults: {{packets: [{{action: drop, nth: 1, {fault}}}]}}\n"
    )
    jobs = load_jobs(experiment)
    with pytest.raises(ConfigError) as caught:
        build_plan(experiment, jobs, planned_ports(experiment, jobs), "r")

    assert found in str(caught.value)


def test_a_replicated_trace_says_so(tmp_path: Path) -> None:
    write(tmp_path / "t", moe(ranks=2, ep=2, dp=1))
    text = EXPERIMENT.replace(
        "{synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}",
        f"{{path: {tmp_path / 't'}, replicate: 4, rank: 1}}",
    )
    (job,) = load_jobs(parse_experiment(text))
    assert job.nranks == 4
    assert job.warnings[0].startswith("REPLICATED: all 4 ranks do what the trace of ")


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ("rank: 1", "trace.rank: means nothing without replicate"),
        (
            "replicate: 8, dimensions: {tp: 2, dp: 3}",
            "dimensions: make 2 x 3 = 6 ranks, and replicate is 8",
        ),
        (
            "replicate: 4, dimensions: {tp: 4}, groups: {'1': pp}",
            "there is no dimension 'pp' (choose from tp, all)",
        ),
        ("replicate: 4, groups: [tp]", "['tp'] is not a mapping of groups"),
        ("replicate: 4, groups: {1: 3}", "3 is no name of a dimension"),
        ("replicate: 8", "needs ports 0 to 7, and the fabric has 4"),
    ],
)
def test_mistakes_of_replication_are_told(trace: str, expected: str) -> None:
    text = EXPERIMENT.replace(
        "{synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}", f"{{path: x, {trace}}}"
    )
    with pytest.raises(ConfigError) as error:
        parse_experiment(text)
    assert expected in str(error.value)

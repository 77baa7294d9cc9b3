"""Link faults in simulations: targets and times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from chakram.collectives.groups import world_group
from chakram.config.experiment import parse_experiment
from chakram.config.link_faults import LinkFaultSettings
from chakram.config.transport import Faults
from chakram.foundation.errors import ConfigError, RunFailed
from chakram.plan.plan import Plan, RunSettings
from chakram.plan.transport import TransportPlan
from chakram.predict.simulator.run_plan import SimulationResult, simulate_plan
from chakram.predict.simulator.switch_fabric import port_names
from chakram.preparation.link_fault_times import (
    LinkFaults,
    refuse_faults_of_runs,
    simulated_with,
)
from chakram.preparation.predictions import simulate_draws, simulate_run
from chakram.records.collective_assembly import CollectiveJoiner
from chakram.records.named_rows import OperationTable
from chakram.records.row_layout import LINK_SAMPLE_FIELDS
from chakram.switch.ecmp import DrawnPaths
from chakram.switch.profiles import Profile, Switching
from tests.leaf_spines import clos
from tests.made_plans import (
    collective,
    flow_rows,
    iteration_rows,
    make_plan,
    program,
    receive,
    send,
)
from tests.unit.config.texts import QUICKSTART

LINE = 10**10
TOPOLOGY = clos(2, 2, 2, host_rate_bps=LINE, uplink_rate_bps=LINE)
NAMES = port_names(TOPOLOGY)
SIZE = 1 << 20
UPLINK = "leaf0-spine1"
UPLINK_PORTS = {"leaf0:up1", "spine1:down0"}
TO_H2 = str(TOPOLOGY.host_link("h2").b)
BIN_NS = 20_000
PATHS = DrawnPaths(seed=1)


def job(**transport: Any) -> Plan:
    world = world_group(len(TOPOLOGY.hosts))
    work = [
        collective("all_to_all", SIZE),
        collective("all_reduce", SIZE, number=1, algorithm="ring"),
    ]
    return make_plan(
        [program(rank, world, work) for rank in world.ranks],
        TOPOLOGY,
        settings=RunSettings(warmup=0, measured=2),
        transport=replace(
            TransportPlan(
                window_bytes=1 << 18, retransmit_timeout_ns=10**7, retry_limit=1000
            ),
            **transport,
        ),
    )


def simulated(
    *faults: dict[str, Any], profile: Profile | None = None
) -> tuple[SimulationResult, LinkFaults]:
    settings = [LinkFaultSettings(**each) for each in faults]
    plan = job()

    def simulate(happening: Sequence[Any]) -> SimulationResult:
        return simulate_plan(
            plan,
            TOPOLOGY,
            seed=1,
            switching=Switching(ecmp=PATHS, profile=profile or Profile()),
            faults=happening,
            sample_bin_ns=BIN_NS,
        )

    known = LinkFaults(settings, TOPOLOGY)
    return simulated_with(known, settings, plan, simulate), known


def predicted(plan: Plan, *links: dict[str, Any]) -> list[int]:
    """Return the prediction of a run of the two collectives of a job."""
    faults = Faults(links=tuple(LinkFaultSettings(**each) for each in links))
    found, _ = simulate_run(plan, TOPOLOGY, 1, Switching(ecmp=PATHS), faults)
    return [times_ns for _, times_ns in sorted(found.items())]


def taken(result: SimulationResult, *iterations: int) -> list[int]:
    """Return how long the two took in a simulation, means of some iterations."""
    joiner = CollectiveJoiner(OperationTable(job()), warmup=0)
    times: dict[int, list[int]] = {}
    for record in joiner.add(result.records):
        if record.iteration in iterations:
            times.setdefault(record.identity.key.k, []).append(record.duration_ns)
    return [round(fmean(own)) for _, own in sorted(times.items())]


def sent_in(result: SimulationResult, port: str, first_ns: int, last_ns: int) -> int:
    """Return what a port has sent between two times, to the bin inside of them."""
    width = len(LINK_SAMPLE_FIELDS)
    bytes_at: dict[int, dict[int, int]] = defaultdict(dict)
    for at in range(0, len(result.link_samples), width):
        time_ns, number, klass, count = result.link_samples[at : at + 4]
        if NAMES[number] == port:
            bytes_at[klass][time_ns] = count
    total = 0
    for counts in bytes_at.values():
        inside = [
            count
            for time_ns, count in sorted(counts.items())
            if first_ns + BIN_NS <= time_ns <= last_ns
        ]
        total += inside[-1] - inside[0] if inside else 0
    return total


@pytest.fixture(scope="module")
def usual() -> SimulationResult:
    return simulated()[0]


def test_without_faults_nothing_is_lost(usual: SimulationResult) -> None:
    assert usual.drops == {}
    for port in UPLINK_PORTS:
        assert sent_in(usual, port, 0, usual.end_ns) > SIZE // 4


@pytest.mark.parametrize(
    ("direction", "ports"),
    [("both", UPLINK_PORTS), ("up", {"leaf0:up1"}), ("down", {"spine1:down0"})],
)
def test_packets_are_lost_at_the_named_ports(direction: str, ports: set[str]) -> None:
    result, _ = simulated(
        {"kind": "loss", "link": UPLINK, "direction": direction, "probability": 0.05}
    )
    assert set(result.drops) == ports
    assert result.dropped["lost on the link"] == sum(result.drops.values()) > 0


def test_corrupted_packets_are_dropped_on_arrival() -> None:
    result, _ = simulated(
        {"kind": "corruption", "link": UPLINK, "direction": "up", "probability": 0.05}
    )
    assert set(result.drops) == {"spine1:down0"}
    assert result.dropped["corrupted on the link"] > 0


def test_nothing_crosses_a_link_that_is_down(usual: SimulationResult) -> None:
    at_ns, for_ns = 200_000, 400_000
    result, known = simulated(
        {"kind": "down", "link": UPLINK, "at": f"{at_ns}ns", "for": f"{for_ns}ns"}
    )
    assert result.down_ns == dict.fromkeys(UPLINK_PORTS, for_ns)
    until_ns = at_ns + for_ns
    for port in UPLINK_PORTS:
        assert sent_in(usual, port, at_ns, until_ns) > 0
        assert sent_in(result, port, at_ns, until_ns) == 0
        assert sent_in(result, port, until_ns, result.end_ns) > 0
    assert set(result.drops) <= UPLINK_PORTS
    (said,) = known.described([LinkFaultSettings(kind="down", link=UPLINK)])
    assert (said["at_ns"], said["until_ns"]) == (at_ns, until_ns)
    assert said["ports"] == ["leaf0:up1"]


def test_messages_between_two_ranks_start_a_fault_by_their_group() -> None:
    plan = make_plan(
        [
            program(0, (), [send(1, SIZE)]),
            program(1, (), [receive(0, SIZE)]),
        ],
        TOPOLOGY,
        settings=RunSettings(warmup=0, measured=1),
    )
    settings = [
        LinkFaultSettings.model_validate(
            {"kind": "loss", "link": UPLINK, "probability": 1, "when": when}
        )
        for when in ({"group": "p2p", "k": 0}, {"group": "p2p:0>1"})
    ]
    known = LinkFaults(settings, TOPOLOGY)
    simulated_with(
        known,
        settings,
        plan,
        lambda happening: simulate_plan(
            plan, TOPOLOGY, seed=1, switching=Switching(ecmp=PATHS), faults=happening
        ),
    )
    assert known.times_ns == [1, 1]


def test_a_link_that_flaps_is_down_half_of_the_time() -> None:
    result, _ = simulated(
        {"kind": "flap", "link": UPLINK, "period": "200us", "for": "800us"}
    )
    assert result.down_ns == dict.fromkeys(UPLINK_PORTS, 400_000)
    for turn in range(4):
        assert (
            sent_in(result, "leaf0:up1", turn * 200_000, turn * 200_000 + 100_000) == 0
        )


def test_degraded_link_slows_one_direction() -> None:
    result, _ = simulated(
        {"kind": "degrade", "link": "h2-leaf1", "direction": "down", "rate": "5Gbit"}
    )
    slow = {flow.slow_port for flow in flow_rows(result.records) if flow.slow_ns > 0}
    assert {NAMES[number] for number in slow} == {TO_H2}
    assert not result.drops


def test_a_storm_pauses_the_named_class_of_the_named_port() -> None:
    storm = {"kind": "pause_storm", "link": "h2-leaf1", "classes": (3,)}
    result, _ = simulated(
        storm | {"direction": "down", "at": "100us", "for": "300us"},
        profile=Profile(name="sonic", mtu=4300),
    )
    assert 300_000 <= result.paused_ns[TO_H2] < 320_000
    width = len(LINK_SAMPLE_FIELDS)
    paused = {
        (NAMES[result.link_samples[at + 1]], result.link_samples[at + 2])
        for at in range(0, len(result.link_samples), width)
        if result.link_samples[at + width - 1] > 0
    }
    assert (TO_H2, 3) in paused
    assert {klass for _, klass in paused} == {3}


def test_a_fault_begins_with_the_message_that_it_names(usual: SimulationResult) -> None:
    when = {"collective": "all_reduce", "k": 1, "step": 1, "iteration": 1}
    result, known = simulated(
        {"kind": "down", "link": UPLINK, "when": when, "for": "300us"}
    )
    posted_ns = min(
        flow.posted_ns
        for flow in flow_rows(usual.records)
        if (flow.iteration, flow.operation, flow.step) == (1, 1, 1)
    )
    assert known.times_ns == [posted_ns + 1]
    before = [
        flow for flow in flow_rows(usual.records) if flow.last_acked_ns <= posted_ns
    ]
    assert before
    assert before == [
        flow for flow in flow_rows(result.records) if flow.last_acked_ns <= posted_ns
    ]
    assert result.end_ns > usual.end_ns


def test_later_moment_is_found_after_the_earlier_fault(
    usual: SimulationResult,
) -> None:
    _, known = simulated(
        {"kind": "loss", "link": UPLINK, "probability": 0.01, "when": {"iteration": 1}},
        {
            "kind": "degrade",
            "link": UPLINK,
            "rate": "100Mbit",
            "when": {"step": 1},
            "for": "2ms",
        },
    )
    later_ns, first_ns = known.times_ns
    assert first_ns is not None
    assert later_ns is not None
    assert first_ns == 1 + min(
        flow.posted_ns for flow in flow_rows(usual.records) if flow.step == 1
    )
    start_ns = min(
        row.start_ns for row in iteration_rows(usual.records) if row.iteration == 1
    )
    # The first fault has delayed the iteration at which the other one begins.
    assert later_ns > start_ns + 1


def test_fault_that_never_begins_is_refused() -> None:
    fault = {"kind": "down", "link": UPLINK, "for": "1us"}
    with pytest.raises(ConfigError, match=r"links\[0\].when: never occurs"):
        simulated(fault | {"when": {"step": 99}})
    with pytest.raises(ConfigError, match="no such iteration"):
        simulated(fault | {"when": {"iteration": 7}})


SLOW = {"kind": "degrade", "link": UPLINK, "rate": "1Gbit"}


@pytest.mark.parametrize(
    ("fault", "iterations"),
    [
        (SLOW | {"when": {"iteration": 1}}, (0, 1)),
        (SLOW | {"at": "700us", "for": "200us"}, (0, 1)),
        (SLOW | {"when": {"iteration": 1}}, (1,)),
        (SLOW | {"for": "300us"}, (1,)),
    ],
)
def test_prediction_includes_faults_at_their_times(
    usual: SimulationResult, fault: dict[str, Any], iterations: tuple[int, ...]
) -> None:
    plan = job()
    warmup = 2 - len(iterations)
    (agent,) = plan.agents
    settings = replace(agent.settings, warmup=warmup, measured=len(iterations))
    plan = replace(plan, agents=(replace(agent, settings=settings),))
    simulation, _ = simulated(fault)
    found = predicted(plan, fault)
    assert found == taken(simulation, *iterations)
    assert found != taken(usual, *iterations)


def test_fault_that_never_begins_is_not_predicted(usual: SimulationResult) -> None:
    for never in ({"when": {"iteration": 7}}, {"at": "10s"}):
        assert predicted(job(), SLOW | never) == taken(usual, 0, 1)


def test_run_that_faults_would_end_has_no_prediction() -> None:
    plan = job(retry_limit=2)
    cut = {"kind": "down", "link": "h2-leaf1"}
    faults = Faults(links=(LinkFaultSettings(**cut),))
    draws = [Switching(ecmp=PATHS)]
    found, (note,), _ = simulate_draws(plan, TOPOLOGY, 1, draws, faults)
    assert found == {}
    assert note.startswith("no predictions with these faults: simulation: ")
    with pytest.raises(RunFailed):
        simulate_run(plan, TOPOLOGY, 1, draws[0], faults)


def test_fault_after_the_end_is_recorded_as_never_begun() -> None:
    _, known = simulated(SLOW | {"at": "10s"}, SLOW | {"at": "100us"})
    assert known.times_ns == [None, 100_000]
    (banner,) = known.banners()
    assert banner.startswith(f"fault: faults.links[0] never started: link {UPLINK}")
    late, _ = known.described([LinkFaultSettings(**SLOW, at="10s")] * 2)
    assert (late["at_ns"], late["until_ns"]) == (None, None)


def test_runs_refuse_settings_of_simulations() -> None:
    def refuse(fault: str, switch: str) -> None:
        faults = f"faults: {{links: [{{link: leaf0-spine0, for: 1ms, {fault}}}]}}\n"
        text = QUICKSTART.replace("switch: kernel", f"switch: {switch}")
        refuse_faults_of_runs(parse_experiment(text + faults))

    for switch in ("kernel", "model"):
        refuse("kind: down", switch)
        refuse("kind: loss, probability: 0.1, when: {iteration: 1}", switch)
        with pytest.raises(ConfigError, match=r"links\[0\].when: only simulations"):
            refuse("kind: down, when: {collective: all_to_all}", switch)
    refuse("kind: pause_storm, classes: [3]", "model")
    with pytest.raises(
        ConfigError, match="kernel's switches do not support pause_storm"
    ):
        refuse("kind: pause_storm, classes: [3]", "kernel")
    refuse_faults_of_runs(parse_experiment(QUICKSTART))


def test_run_starts_faults_at_the_iteration_of_a_rank() -> None:
    lossy = {"kind": "loss", "link": UPLINK, "direction": "up", "probability": 0.5}
    settings = [
        LinkFaultSettings(**lossy, when={"iteration": 2, "job": "b"}, **{"for": "1ms"}),
        LinkFaultSettings(**lossy, at="5ms"),
        LinkFaultSettings(**lossy, when={"iteration": 9}),
    ]
    faults = LinkFaults(settings, TOPOLOGY, start_ns=100)
    (known,) = faults.happening()
    assert known.at_ns == 5_000_100
    assert faults.beginning([("a", 3), ("b", 1)], 10**9) == []
    (begun,) = faults.beginning([("a", 4), ("b", 3)], 2 * 10**9)
    assert (begun.at_ns, begun.until_ns) == (2 * 10**9, 2 * 10**9 + 10**6)
    assert NAMES[begun.port] in UPLINK_PORTS
    assert faults.beginning([("b", 4)], 3 * 10**9) == []
    assert None in faults.times_ns
    assert faults.times_ns == [2 * 10**9, 5_000_100, None]
    (banner,) = faults.banners()
    assert banner.startswith("fault: faults.links[2] never started: link leaf0-spine1")

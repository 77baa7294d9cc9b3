"""Simulations through modeled switches: loss, pauses, marks, path choices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.collectives.groups import ProcessGroup, world_group
from chakram.collectives.ops import CollectiveOp
from chakram.plan.isolated_collective import job_alone
from chakram.plan.plan import Plan
from chakram.plan.queue_pairs import ClassRule, QueuePairLayout
from chakram.plan.transport import TransportPlan
from chakram.predict.simulator.run_plan import SimulationResult, simulate_plan
from chakram.preparation.run_description import simulated_banners
from chakram.switch.ecmp import DrawnPaths
from chakram.switch.profiles import Profile, ProfileName, Switching
from chakram.switch.settings import Balancing
from chakram.topology.topology import Link, PortRef, Topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.made_plans import (
    collective,
    flow_rows,
    make_plan,
    program,
    receive,
    send,
    world_plan,
)
from tests.support import fewer

LINE = 10**10
SIZE = 1 << 20


def test_a_job_alone_takes_the_paths_that_it_takes_beside_others() -> None:
    # The first job stays on its leaf, so only the other one uses uplinks.
    topology = clos(2, 4, 8, LINE, LINE)
    rows = [collective("all_to_all", SIZE // 16)]
    programs = [
        program(rank, world_group(nranks), rows, job=job)
        for job, nranks in (("local", 4), ("wide", 8))
        for rank in range(nranks)
    ]
    plan = make_plan(programs, topology, first_ports={"wide": 4})

    def uplinks(plan: Plan) -> dict[str, int]:
        sent = simulate_plan(plan, topology).link_bytes
        return {end: sent[end] for end in sent if end.startswith("spine")}

    assert len(set(uplinks(plan).values())) > 1
    assert uplinks(job_alone(plan, "wide")) == uplinks(plan)


def incast(
    senders: int,
    *,
    queue_bytes: int | None,
    window_bytes: int = 1 << 18,
    timeout_ns: int = 10**9,
    size: int = SIZE,
) -> tuple[Plan, Topology]:
    """Ranks that all send a message to the first one."""
    world = world_group(senders + 1)
    topology = single_switch(
        senders + 1, LINE, host_delay_ns=500, host_queue_bytes=queue_bytes
    )
    programs = [
        program(0, world, [receive(peer, size) for peer in range(1, senders + 1)]),
        *(program(rank, world, [send(0, size)]) for rank in range(1, senders + 1)),
    ]
    transport = TransportPlan(
        window_bytes=window_bytes,
        max_burst_packets=3,
        retransmit_timeout_ns=timeout_ns,
        retry_limit=1000,
    )
    return make_plan(programs, topology, transport=transport), topology


def simulated(
    plan: Plan, topology: Topology, profile: Profile | None = None
) -> SimulationResult:
    return simulate_plan(
        plan,
        topology,
        seed=1,
        warmup=0,
        measured=1,
        switching=Switching(ecmp=DrawnPaths(seed=1), profile=profile or Profile()),
    )


def fair_ns(senders: int, size: int = SIZE) -> int:
    packets = -(-size // TransportPlan().path_mtu)
    return senders * (size + packets * 58) * 8 * 10**9 // LINE


@pytest.mark.parametrize("senders", [2, 7, 16, 32])
def test_an_incast_through_a_deep_queue_takes_its_fair_time(senders: int) -> None:
    result = simulated(*incast(senders, queue_bytes=None))
    assert sum(result.dropped.values()) == 0
    assert fair_ns(senders) <= result.end_ns < 1.05 * fair_ns(senders)


@pytest.mark.parametrize("senders", [2, 7, 16, 32])
def test_an_incast_with_pauses_loses_nothing_and_takes_its_fair_time(
    senders: int,
) -> None:
    plan, topology = incast(senders, queue_bytes=None)
    result = simulated(
        plan, topology, Profile(name="sonic", mtu=4300, buffer_bytes=8 << 20)
    )
    assert sum(result.dropped.values()) == 0
    assert sum(flow.retransmitted for flow in flow_rows(result.records)) == 0
    assert fair_ns(senders) <= result.end_ns < 1.05 * fair_ns(senders)


@pytest.mark.slow
@pytest.mark.parametrize(
    "senders", [2, 7, pytest.param(16, marks=pytest.mark.soak), 32]
)
def test_an_incast_that_loses_packets_wastes_about_a_queue_for_each_message(
    senders: int,
) -> None:
    queue, window, size = 64 << 10, 256 << 10, 4 << 20
    # Twice what a window takes at line rate.
    timeout_ns = 2 * window * 8 * 10**9 // LINE
    plan, topology = incast(
        senders,
        queue_bytes=queue,
        window_bytes=window,
        timeout_ns=timeout_ns,
        size=size,
    )
    result = simulated(plan, topology)
    fair = fair_ns(senders, size)
    crossed_ns = result.link_bytes["s0:h0"] * 8 * 10**9 // LINE
    assert result.dropped["egress limit"] > 100 * senders
    assert fair < result.end_ns < 1.05 * fair
    # Only packets queued behind a gap cross without effect; little time is idle.
    assert crossed_ns < fair * (1 + 3 * queue / size)
    assert result.end_ns - crossed_ns < 0.02 * fair


def test_hosts_are_paused_where_memory_is_small() -> None:
    plan, topology = incast(7, queue_bytes=None)
    small = Profile(name="sonic", mtu=4300, buffer_bytes=1_400_000)
    result = simulated(plan, topology, small)
    assert {name for name in result.pauses if name.startswith("h")} != set()
    assert sum(result.dropped.values()) == 0
    assert fair_ns(7) <= result.end_ns < 1.05 * fair_ns(7)


def beside_bulk(*rules: ClassRule, buffer_bytes: int) -> tuple[int, SimulationResult]:
    """Return the time of a small gather during an incast of large messages."""
    senders = 7
    ranks = tuple(range(senders + 1))
    group = ProcessGroup(name="small", ranks=ranks)
    small = collective("all_to_all", 8 * 4096, group="small")
    topology = single_switch(senders + 1, LINE, host_delay_ns=500)
    programs = [
        program(0, group, [*(receive(peer, SIZE) for peer in ranks[1:]), small]),
        *(program(rank, group, [send(0, SIZE), small]) for rank in ranks[1:]),
    ]
    plan = make_plan(
        programs,
        topology,
        transport=TransportPlan(window_bytes=SIZE, max_burst_packets=3),
        layout=QueuePairLayout(classes=rules),
    )
    profile = Profile(name="sonic", mtu=4300, buffer_bytes=buffer_bytes)
    result = simulated(plan, topology, profile)
    times_ns = [
        flow.last_acked_ns - flow.posted_ns
        for flow in flow_rows(result.records)
        if flow.size_bytes == 4096 and flow.peer == 0
    ]
    assert len(times_ns) == senders
    return max(times_ns), result


@pytest.mark.parametrize("buffer_bytes", [16 << 20, 1_400_000])
def test_separate_class_does_not_wait_behind_others(
    buffer_bytes: int,
) -> None:
    together_ns, _ = beside_bulk(buffer_bytes=buffer_bytes)
    rule = ClassRule(dscp=32, op=CollectiveOp.ALL_TO_ALL)
    apart_ns, result = beside_bulk(rule, buffer_bytes=buffer_bytes)
    assert apart_ns < together_ns / 2
    # Not even at hosts whose bulk is paused.
    hosts = {name for name in result.pauses if name.startswith("h")}
    assert bool(hosts) == (buffer_bytes < 1 << 21)


def circle(switches: int) -> Topology:
    """Return switches in a circle, with a host each."""
    ends = [(f"h{each}", f"s{each}") for each in range(switches)]
    ends += [(f"s{each}", f"s{(each + 1) % switches}") for each in range(switches)]
    return Topology(
        hosts=tuple(f"h{each}" for each in range(switches)),
        switches=tuple(f"s{each}" for each in range(switches)),
        links=tuple(
            Link(
                a=PortRef(node=a, port="eth0" if a[0] == "h" else f"up{number}"),
                b=PortRef(node=b, port=f"down{number}"),
                rate_bps=LINE,
                name=f"l{number}",
            )
            for number, (a, b) in enumerate(ends)
        ),
    )


def test_cyclic_pauses_cause_a_warning() -> None:
    sonic = Profile(name="sonic", mtu=4300)
    switching = Switching(ecmp=DrawnPaths(seed=1), profile=sonic)
    world = world_group(5)
    programs = [program(rank, world, [collective("barrier")]) for rank in range(5)]

    def cycle_of(topology: Topology, profile: Profile) -> tuple[str, ...]:
        return simulated(make_plan(programs, topology), topology, profile).cycle

    ring = circle(5)
    found = cycle_of(ring, sonic)
    # One way round: each port sends to the switch of the next one.
    assert len({end.split(":")[0] for end in found}) == len(found) == 5
    assert cycle_of(ring, Profile()) == ()
    assert cycle_of(clos(3, 2, 2, LINE, LINE), sonic) == ()
    result = simulated(make_plan(programs, ring), ring, sonic)
    banners = "\n".join(simulated_banners(result, switching))
    assert "deadlock" in banners
    assert all(end in banners for end in found)


def test_queue_drops_are_retransmitted_by_their_queue_pairs() -> None:
    plan, topology = incast(7, queue_bytes=64 << 10, timeout_ns=10**6)
    result = simulated(plan, topology)
    flows = flow_rows(result.records)
    assert result.dropped["egress limit"] > 0
    assert sum(flow.retransmitted for flow in flows) >= result.dropped["egress limit"]
    assert len(flows) == 7
    assert result.end_ns > 1.05 * fair_ns(7)


def test_bursts_that_cross_as_a_whole_are_dropped_as_a_whole() -> None:
    plan, topology = incast(7, queue_bytes=64 << 10, timeout_ns=10**6)
    whole = simulate_plan(
        plan,
        topology,
        seed=1,
        warmup=0,
        measured=1,
        burst_packets=3,
    )
    assert whole.burst_packets == 3
    assert whole.dropped["egress limit"] > 0
    apart = simulated(plan, topology)
    assert apart.burst_packets == 1
    assert whole.hops < apart.hops


def test_lab_queues_or_drops_a_burst_as_a_whole() -> None:
    plan, topology = incast(7, queue_bytes=64 << 10, timeout_ns=10**6)
    lab = simulated(plan, replace(topology, is_shaped=True))
    assert lab.burst_packets == 3
    assert lab.dropped["egress limit"] > 0
    # Each iteration of the same seed is the same, late hosts included.
    again = simulated(plan, replace(topology, is_shaped=True))
    assert lab.records.flows == again.records.flows


@pytest.mark.parametrize("name", ["fifo", "ns3", "sonic"])
def test_the_same_seed_gives_the_same_records(name: ProfileName) -> None:
    plan, topology = incast(5, queue_bytes=128 << 10, timeout_ns=10**6)
    profile = Profile(name=name, mtu=4300)
    first, second = (simulated(plan, topology, profile) for _ in range(2))
    assert first.records.flows == second.records.flows
    assert first.link_bytes == second.link_bytes


@pytest.mark.parametrize("balancing", fewer(["random", "round_robin", "adaptive"]))
def test_sprayed_packets_collapse_under_go_back_n_and_beat_the_hash_if_kept(
    balancing: Balancing,
) -> None:
    topology = clos(2, 2, 4, LINE, LINE, host_delay_ns=500, uplink_delay_ns=500)
    plan, _ = world_plan([collective("all_to_all", 2 << 20)], nranks=8)
    programs = [rank.program for rank in plan.ranks()]

    def run(
        balancing: Balancing, *, window: int = 0, burst: int = 4
    ) -> SimulationResult:
        transport = TransportPlan(reordering_packets=window, max_burst_packets=burst)
        return simulated(
            make_plan(programs, topology, transport=transport),
            topology,
            Profile(balancing=balancing),
        )

    def resent(result: SimulationResult) -> int:
        return sum(flow.retransmitted for flow in flow_rows(result.records))

    hashed, rejected, kept = run("hash"), run(balancing), run(balancing, window=64)
    assert (resent(hashed), resent(kept)) == (0, 0)
    assert resent(rejected) > 100
    # The hash leaves uplinks idle that have 16/14 of the load of a host's link at best.
    assert kept.end_ns < 0.9 * hashed.end_ns
    assert kept.end_ns < rejected.end_ns
    if balancing != "adaptive":  # which leaves little out of order: queues are even
        assert rejected.end_ns > 3 * hashed.end_ns


def received_ns(
    size: int, *, uplink_bps: int, cut_through: bool, verb: str = "send"
) -> int:
    """Return when a message has crossed leaf, spine and leaf."""
    topology = replace(
        clos(2, 1, 1, LINE, uplink_bps, host_delay_ns=500, uplink_delay_ns=700),
        cuts_through=cut_through,
    )
    world = world_group(2)
    programs = [
        program(0, world, [send(1, size)]),
        program(1, world, [receive(0, size)]),
    ]
    transport = TransportPlan(
        window_bytes=1 << 20, max_burst_packets=1, verb=verb, path_mtu=1024
    )
    result = simulated(
        make_plan(programs, topology, transport=transport),
        topology,
        Profile(cut_through=cut_through),
    )
    (flow,) = flow_rows(result.records)
    # Its time is accounted for: none of it counts twice.
    assert flow.received_ns == flow.serialise_ns + flow.queue_ns + 2400 + (
        flow.departed_ns
    )
    assert flow.queue_ns == 0
    return flow.received_ns


@pytest.mark.parametrize("packets", [1, 2, 50])
@pytest.mark.parametrize(
    ("uplink_bps", "stored", "cut"),
    [
        # Times of a packet on LINE beside those of the whole message on one link: at
        # three switches, at none; and with faster uplinks at the first leaf, for its
        # egress is faster, and twice on these.
        (LINE, 3.0, 0.0),
        (4 * LINE, 1.5, 1.0),
    ],
)
def test_a_message_through_idle_switches_is_stored_only_where_the_egress_is_faster(
    packets: int, uplink_bps: int, stored: float, cut: float
) -> None:
    size = packets * 1024
    packet_ns = (1024 + 58) * 8e9 / LINE
    last_ns = packet_ns + 4 * 8e9 / LINE  # with the immediate
    alone_ns = (packets - 1) * packet_ns + last_ns + 2 * (500 + 700)
    for cut_through, stores in ((False, stored), (True, cut)):
        took_ns = received_ns(size, uplink_bps=uplink_bps, cut_through=cut_through)
        # The last packet is the longest; times on wires are whole nanoseconds.
        assert abs(took_ns - (alone_ns + stores * last_ns)) < 4


def test_a_packet_that_finds_a_busy_egress_is_stored() -> None:
    plan, topology = incast(7, queue_bytes=None)
    ends = [
        simulated(
            plan,
            replace(topology, cuts_through=cut_through),
            Profile(cut_through=cut_through),
        ).end_ns
        for cut_through in (False, True)
    ]
    # The port is busy all the time but for the first packet and the last answer.
    first_ns = (4096 + 58 + 16) * 8 * 10**9 // LINE
    assert fair_ns(7) < ends[1] < ends[0] <= ends[1] + 2 * first_ns


def test_a_sprayed_message_is_faster_than_any_one_of_its_paths() -> None:
    # Bounds are held against every simulation of a test, so against this one.
    topology = clos(2, 4, 1, LINE, LINE // 4, host_delay_ns=500, uplink_delay_ns=500)
    world = world_group(2)
    programs = [
        program(0, world, [send(1, SIZE)]),
        program(1, world, [receive(0, SIZE)]),
    ]
    transport = TransportPlan(
        reordering_packets=64, window_bytes=1 << 20, max_burst_packets=1
    )
    result = simulated(
        make_plan(programs, topology, transport=transport),
        topology,
        Profile(balancing="round_robin"),
    )
    assert result.end_ns < 1.1 * fair_ns(1)


@pytest.mark.parametrize(
    ("nranks", "total"),
    [
        *((nranks, 1 << 10) for nranks in (2, 8, 16, 64)),
        *((nranks, 1 << 20) for nranks in fewer([8, 2, 16, 64])),
        (2, 64 << 20),
        pytest.param(8, 64 << 20, marks=pytest.mark.soak),
        pytest.param(64, 64 << 20, marks=pytest.mark.soak),
    ],
)
def test_a_ring_on_a_star_takes_the_closed_form(nranks: int, total: int) -> None:
    size = total // nranks
    topology = single_switch(nranks, LINE, host_delay_ns=500)
    plan = make_plan(
        [
            program(
                rank,
                world_group(nranks),
                [collective("all_gather", size, algorithm="ring")],
            )
            for rank in range(nranks)
        ],
        topology,
        transport=replace(TransportPlan(), window_bytes=8 << 20),
    )
    result = simulated(plan, topology)
    mtu = TransportPlan().path_mtu
    packets = -(-size // mtu)
    wire = size + packets * 58 + 20  # the first has an RETH, the last an immediate
    last = size - (packets - 1) * mtu + 58 + 4 + (16 if packets == 1 else 0)
    # Stored once at the switch; a step begins when the one before has been received,
    # and the last answer returns to the last sender.
    step_ns = (wire + last) * 8 * 10**9 / LINE + 1_000
    answer_ns = 2 * 62 * 8 * 10**9 / LINE + 1_000
    due_ns = (nranks - 1) * step_ns + answer_ns
    # Where messages are short, an answer goes in front of what comes next, at the host
    # and at the switch.
    answers_ns = (nranks - 1) * 2 * 62 * 8 * 10**9 / LINE
    assert 0.995 * due_ns <= result.end_ns <= 1.005 * due_ns + answers_ns

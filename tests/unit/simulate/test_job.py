from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from chakram.controller.predictions import bounds, flow_ideal
from chakram.core.algorithms import algorithm
from chakram.core.faults import FaultAction, PacketFault
from chakram.core.groups import ProcessGroup, world_group
from chakram.core.ideal import ideal_ns
from chakram.core.plan import JobSettings, Plan, RunSettings, TransportPlan
from chakram.core.schedule import part_bytes
from chakram.core.wire_cost import AETH_BYTES, PACKET_OVERHEAD_BYTES, wire_bytes
from chakram.errors import FabricError, PlanError, RunFailed
from chakram.fabric.model import fabric_model
from chakram.fabric.topology import Topology, clos, single_switch
from chakram.simulate import bursts
from chakram.simulate.job import SimulationResult, simulate_plan
from chakram.testing.plans import (
    collective,
    compute,
    flow_rows,
    iteration_rows,
    make_plan,
    program,
    receive,
    send,
    share_rows,
    world_plan,
)
from tests.plans import moved

MTU = TransportPlan().path_mtu
ACK_BYTES = PACKET_OVERHEAD_BYTES + AETH_BYTES


def simulate(
    plan: Plan, topology: Topology, *, seed: int = 1, burst_packets: int | None = None
) -> SimulationResult:
    rng = random.Random(seed)
    return simulate_plan(plan, topology, rng=rng, burst_packets=burst_packets)


# Bytes: with S the buffer and p(c) the size of part c, modulo n.


def ring_all_reduce(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return 2 * size - part(rank + 1) - part(rank + 2) if n > 1 else 0


def ring_all_gather(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return n * size - part(rank + 1)


def ring_reduce_scatter(
    size: int, n: int, rank: int, part: Callable[[int], int]
) -> int:
    return size - part(rank)


def to_all_others(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return size - part(rank)


def own_to_all_others(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return (n - 1) * part(rank)


def to_the_root(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return 0 if rank == 0 else part(rank)


def from_the_root(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return size - part(0) if rank == 0 else 0


def nothing(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return 0


@pytest.mark.parametrize("size", [0, 1, 4096, 9_999, 70_001])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
@pytest.mark.parametrize(
    ("op", "algorithm", "closed_form"),
    [
        ("all_reduce", "ring", ring_all_reduce),
        ("all_gather", "ring", ring_all_gather),
        ("all_gather", "direct", own_to_all_others),
        ("reduce_scatter", "ring", ring_reduce_scatter),
        ("reduce_scatter", "direct", to_all_others),
        ("all_to_all", "direct", to_all_others),
        ("gather", "direct", to_the_root),
        ("scatter", "direct", from_the_root),
        ("barrier", "dissemination", nothing),
    ],
)
def test_every_rank_sends_what_the_closed_form_says(
    op: str,
    algorithm: str,
    closed_form: Callable[[int, int, int, Callable[[int], int]], int],
    n: int,
    size: int,
) -> None:
    plan, topology = world_plan([collective(op, size, algorithm=algorithm)], nranks=n)
    buffer_bytes = n * size if op in ("all_gather", "gather") else size

    def part(index: int) -> int:
        return part_bytes(buffer_bytes, nparts=n, part=index % n)

    shares = share_rows(simulate(plan, topology).records)
    assert {share.rank: share.sent_bytes for share in shares} == {
        rank: closed_form(size, n, rank, part) for rank in range(n)
    }
    sent, got = (
        sum(share.sent_bytes for share in shares),
        sum(share.received_bytes for share in shares),
    )
    assert sent == got


@pytest.mark.parametrize(
    ("op", "times"), [("broadcast", 1), ("reduce", 1), ("all_reduce", 2)]
)
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_a_tree_moves_the_buffer_once_per_edge(op: str, times: int, n: int) -> None:
    plan, topology = world_plan([collective(op, 10_001, algorithm="tree")], nranks=n)
    shares = share_rows(simulate(plan, topology).records)
    total_bytes = sum(share.sent_bytes for share in shares)
    assert total_bytes == times * (n - 1) * 10_001


# Time.


def test_one_message_takes_its_bytes_twice_and_the_way_back() -> None:
    world = world_group(2)
    topology = single_switch(2, 10**9, host_delay_ns=700)
    plan = make_plan(
        [program(0, world, [send(1, 4_000)]), program(1, world, [receive(0, 4_000)])],
        topology,
    )
    result = simulate(plan, topology)
    one_way_ns = 2 * (8 * wire_bytes(4_000, path_mtu=MTU) + 700)
    way_back_ns = 2 * (8 * ACK_BYTES + 700)
    (flow,) = flow_rows(result.records)
    assert flow.last_acked_ns == result.end_ns == one_way_ns + way_back_ns
    assert [share.end_ns for share in share_rows(result.records)] == [
        one_way_ns + way_back_ns,
        one_way_ns,
    ]


def test_packets_of_ipv6_are_20_bytes_longer_in_ideal_and_simulation() -> None:
    plan, topology = world_plan([collective("all_to_all", 40_000)], nranks=4)
    plan6 = of_ipv6(plan)
    assert (plan.family(), plan6.family()) == ("ipv4", "ipv6")
    results = [simulate(each, topology) for each in (plan, plan6)]
    assert {share.sent_bytes for share in share_rows(results[1].records)} == {30_000}
    packets = {f"h{rank}:eth0": 0 for rank in range(4)}
    for flow in flow_rows(results[1].records):
        packets[f"h{flow.rank}:eth0"] += flow.packets
    for name, data_packets in packets.items():
        old, new = (result.link_bytes[name] for result in results)
        answers, rest = divmod(new - old - 20 * data_packets, 20)
        assert rest == 0
        assert answers >= 3
    ideals = [bounds(each, topology)[0] for each in (plan, plan6)]
    assert all(ideals[1][key] > ideals[0][key] for key in ideals[0])


def of_ipv6(plan: Plan) -> Plan:
    """Return a plan of one agent with ports of IPv6."""
    (agent,) = plan.agents
    places = [(f"2001:2::{n + 1}", 4791) for n in range(len(agent.ports))]
    return replace(plan, agents=(moved(agent, places),))


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_one_message_alone_takes_its_ideal_time(family: str) -> None:
    world = world_group(2)
    topology = single_switch(2, 10**9, host_delay_ns=700)
    plan = make_plan(
        [program(0, world, [send(1, 90_001)]), program(1, world, [receive(0, 90_001)])],
        topology,
    )
    plan = of_ipv6(plan) if family == "ipv6" else plan
    result = simulate(plan, topology)
    (flow,) = flow_rows(result.records)
    ideal_ns = flow_ideal(plan, topology)(plan.ranks()[0].program.job, 0, 1, 90_001)
    assert flow.last_acked_ns - flow.posted_ns == pytest.approx(ideal_ns, abs=50)


SIZE = 16 << 20
CHUNK_WIRE_BYTES = wire_bytes(SIZE // 8, path_mtu=MTU)


@pytest.mark.parametrize("rate_bps", [250 * 10**6, 10**9])
@pytest.mark.parametrize(
    ("op", "algorithm", "messages"),
    [("all_reduce", "ring", 14), ("all_to_all", "direct", 7)],
)
def test_large_collectives_run_at_line_rate(
    op: str, algorithm: str, messages: int, rate_bps: int
) -> None:
    plan, topology = world_plan(
        [collective(op, SIZE, algorithm=algorithm)], nranks=8, rate_bps=rate_bps
    )
    closed_form_ns = messages * CHUNK_WIRE_BYTES * 8 * 10**9 // rate_bps
    result = simulate(plan, topology)
    assert result.burst_packets == 1
    assert closed_form_ns < result.end_ns < 1.02 * closed_form_ns


@pytest.mark.parametrize("burst_packets", [2, 3, 4, 5])
@pytest.mark.parametrize(
    ("op", "algorithm"), [("all_reduce", "ring"), ("all_to_all", "direct")]
)
def test_bursts_change_the_time_of_large_messages_little(
    op: str, algorithm: str, burst_packets: int
) -> None:
    plan, topology = world_plan(
        [collective(op, SIZE // 2, algorithm=algorithm)], nranks=8
    )
    exact = simulate(plan, topology, burst_packets=1)
    coarse = simulate(plan, topology, burst_packets=burst_packets)
    assert coarse.burst_packets == burst_packets
    assert coarse.events < exact.events
    assert 0.95 * exact.end_ns < coarse.end_ns < 1.05 * exact.end_ns


def test_slow_uplinks_are_what_everyone_waits_for() -> None:
    topology = clos(2, 1, 2, 10**9, 10**8)
    world = world_group(4)
    row = collective("all_reduce", 1 << 20)
    plan = make_plan([program(rank, world, [row]) for rank in range(4)], topology)
    chunk_ns = wire_bytes(1 << 18, path_mtu=MTU) * 8 * 10
    # Acknowledgements queue behind the data of the other direction.
    assert 6 * chunk_ns < simulate(plan, topology).end_ns < 1.1 * 6 * chunk_ns


def share_of_ideal(op: str, size: int, *, algorithm_name: str, nranks: int) -> float:
    """Return ideal over simulated time of a collective alone on one switch."""
    row = collective(op, size, algorithm=algorithm_name)
    plan, topology = world_plan([row], nranks=nranks, rate_bps=10**10)
    result = simulate(plan, topology, burst_packets=4)
    hosts = {rank: port.host for rank, port in enumerate(plan.ports())}
    ideal = ideal_ns(
        algorithm(row.op, algorithm_name),
        ranks=range(nranks),
        root=0,
        input_bytes=size,
        fabric=fabric_model(topology, hosts),
        path_mtu=MTU,
    )
    return ideal / result.end_ns


@pytest.mark.parametrize(
    ("op", "name", "least"),
    [
        ("broadcast", "tree", 0.97),  # 0.5 if all children got their copies at once
        ("all_reduce", "tree", 0.97),
        ("all_reduce", "double_binary_tree", 0.93),
        ("all_reduce", "ring", 0.96),
        ("broadcast", "ring", 0.96),
        ("all_to_all", "direct", 0.97),
    ],
)
def test_pipelines_flow(op: str, name: str, least: float) -> None:
    found = share_of_ideal(op, 16 << 20, algorithm_name=name, nranks=8)
    assert least < found <= 1


# Links.


def rings_over_two_leaves(*, groups: int = 2) -> tuple[Plan, Topology]:
    """All-to-alls over a fabric with two spines."""
    topology = clos(2, 2, 4, 10**9, 10**9)
    members = [
        ProcessGroup(name=f"group{each}", ranks=tuple(range(8)))
        for each in range(groups)
    ]
    rows = [collective("all_to_all", 80_000, group=each.name) for each in members]
    return make_plan(
        [program(rank, members, rows) for rank in range(8)], topology
    ), topology


def test_links_carry_what_was_sent_and_its_acknowledgements() -> None:
    plan, topology = rings_over_two_leaves()
    result = simulate(plan, topology)
    data = {f"h{rank}:eth0": 0 for rank in range(8)}
    for flow in flow_rows(result.records):
        data[f"h{flow.rank}:eth0"] += wire_bytes(flow.size_bytes, path_mtu=MTU)
    for name, data_bytes in data.items():
        answers, rest = divmod(result.link_bytes[name] - data_bytes, ACK_BYTES)
        assert rest == 0
        assert answers >= 2 * 7  # a message, an ACK at least

    def total(*names: str) -> int:
        return sum(result.link_bytes[name] for name in names)

    into_hosts = total(*(f"leaf{host // 4}:h{host}" for host in range(8)))
    assert into_hosts == total(*data)
    for leaf in (0, 1):
        up = total(f"leaf{leaf}:up0", f"leaf{leaf}:up1")
        assert up == total(f"spine0:down{1 - leaf}", f"spine1:down{1 - leaf}")
        assert (
            0 < up < total(*(f"h{host}:eth0" for host in range(4 * leaf, 4 * leaf + 4)))
        )


def test_the_seed_of_the_plan_chooses_the_uplinks() -> None:
    def uplinks(seed: int) -> list[int]:
        plan, topology = rings_over_two_leaves()
        (agent,) = plan.agents
        settings = replace(agent.settings, seed=seed)
        plan = replace(plan, agents=(replace(agent, settings=settings),))
        link_bytes = simulate(plan, topology).link_bytes
        return [link_bytes[name] for name in sorted(link_bytes) if ":up" in name]

    assert uplinks(1) == uplinks(1)
    assert len({tuple(uplinks(seed)) for seed in range(1, 6)}) > 1


def test_ranks_that_share_a_port_need_no_link_between_them() -> None:
    world = world_group(4)
    rows = [collective("all_to_all", 4_000)]
    topology = single_switch(2, 10**9)
    plan = make_plan(
        [program(rank, world, rows) for rank in range(4)], topology, ranks_per_port=2
    )
    result = simulate(plan, topology)
    data_bytes = 2 * 2 * wire_bytes(1_000, path_mtu=MTU)
    for name in ("h0:eth0", "h1:eth0"):
        assert result.link_bytes[name] == data_bytes + 4 * ACK_BYTES


# Runs.


def test_agents_share_the_work_of_a_plan() -> None:
    world = world_group(4)
    rows = [
        collective("all_reduce", 50_000),
        collective("barrier", number=1, after=[0]),
    ]
    topology = single_switch(4, 10**9)
    programs = [program(rank, world, rows) for rank in range(4)]
    one = simulate(make_plan(programs, topology), topology)
    two = simulate(make_plan(programs, topology, agents=2), topology)
    assert two.end_ns == one.end_ns
    assert sorted(share_rows(two.records)) == sorted(share_rows(one.records))


def test_iterations_can_be_chosen_for_the_simulation_alone() -> None:
    plan, topology = world_plan(
        [compute(10)], nranks=2, settings=RunSettings(warmup=3, measured=7)
    )
    rng = random.Random(1)
    usual = simulate_plan(plan, topology, rng=rng)
    assert len(iteration_rows(usual.records)) == 2 * 10
    short = simulate_plan(plan, topology, rng=rng, warmup=0, measured=1)
    assert len(iteration_rows(short.records)) == 2
    assert short.end_ns == 10


def test_jobs_above_the_target_are_simulated_in_bursts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, topology = world_plan([collective("all_reduce", SIZE // 4)], nranks=4)
    exact = simulate(plan, topology)
    assert exact.burst_packets == 1
    # 256 packets in each of 24 messages.
    monkeypatch.setattr(bursts, "BURSTS_TARGET", 24 * 256 // 3)
    coarse = simulate(plan, topology)
    assert coarse.burst_packets == 3
    assert 0.95 * exact.end_ns < coarse.end_ns < 1.05 * exact.end_ns


def test_a_job_that_hangs_is_ended_and_says_who_waits_for_whom() -> None:
    world = world_group(3)
    topology = single_switch(3, None)
    plan = make_plan(
        [
            program(0, world, [receive(1, 8), receive(2, 8), receive(1, 8, number=1)]),
            program(1, world, [receive(0, 8)]),
            program(2, world, []),
        ],
        topology,
    )
    with pytest.raises(RunFailed) as caught:
        simulate(plan, topology)
    assert str(caught.value) == (
        "simulation: nothing goes on any more, but the job is not done: "
        "job job rank 0: receive 0 from rank 1 in iteration 0 waits for the message of "
        "step 0 from rank 1; "
        "job job rank 0: receive 0 from rank 2 in iteration 0 waits for the message of "
        "step 0 from rank 2; "
        "job job rank 0: receive 1 from rank 1 in iteration 0 waits for the message of "
        "step 0 from rank 1; and 1 more (the programs of its ranks do not fit together)"
    )


def test_all_who_wait_are_named_if_they_are_few() -> None:
    world = world_group(2)
    topology = single_switch(2, None)
    plan = make_plan(
        [program(0, world, [receive(1, 8)]), program(1, world, [])], topology
    )
    with pytest.raises(RunFailed, match=r"from rank 1 \(the programs"):
        simulate(plan, topology)


def test_a_fabric_that_loses_everything_ends_the_run() -> None:
    plan, topology = world_plan(
        [collective("all_gather", 8)],
        nranks=2,
        settings=RunSettings(warmup=0, measured=1, drop_ratio=1.0),
    )
    with pytest.raises(RunFailed, match="is in error: gave up after 7 retries"):
        simulate(plan, topology)


def test_a_plan_without_agents_is_refused() -> None:
    with pytest.raises(PlanError, match="it has no agent"):
        simulate(Plan(run_id="x", agents=()), single_switch(1, None))


def test_a_rank_on_a_port_that_is_not_there_is_refused() -> None:
    plan, topology = world_plan([collective("all_gather", 8)], nranks=2)
    (agent,) = plan.agents
    fewer = replace(plan, agents=(replace(agent, ports=agent.ports[:1]),))
    with pytest.raises(PlanError, match="rank 1: agent agent0 has no port 1"):
        simulate(fewer, topology)


def test_a_host_that_is_not_in_the_topology_is_refused() -> None:
    plan, _ = world_plan([collective("all_gather", 8)], nranks=3)
    with pytest.raises(FabricError, match="h2"):
        simulate(plan, single_switch(2, None))


# Several jobs.


def test_chosen_iterations_go_before_those_of_jobs() -> None:
    settings = RunSettings(
        warmup=1, measured=3, jobs=(JobSettings(job="job", iterations=9),)
    )
    plan, topology = world_plan([compute(10)], nranks=1, settings=settings)
    rng = random.Random(1)
    assert len(iteration_rows(simulate_plan(plan, topology, rng=rng).records)) == 9
    short = simulate_plan(plan, topology, rng=rng, warmup=0, measured=2)
    assert len(iteration_rows(short.records)) == 2


def test_a_job_in_the_background_goes_on_until_the_others_have_ended() -> None:
    topology = single_switch(2, 10**9)
    world = world_group(2)
    programs = [
        program(rank, world, [collective("all_to_all", size)], job=job)
        for job, size in (("front", 1 << 20), ("back", 1 << 14))
        for rank in range(2)
    ]
    plan = make_plan(
        programs,
        topology,
        first_ports={"front": 0, "back": 0},
        settings=RunSettings(
            warmup=0,
            measured=2,
            jobs=(
                JobSettings(job="back", is_background=True),
                JobSettings(job="front", offset_ns=1_000_000),
            ),
        ),
    )
    rows = iteration_rows(simulate(plan, topology).records)
    front = [row for row in rows if row.rank < 2]
    back = [row for row in rows if row.rank >= 2]
    assert len(front) == 4
    assert front[0].start_ns == 1_000_000
    assert len(back) > 20
    assert max(row.start_ns for row in back) > max(row.start_ns for row in front)


def test_what_ports_disturb_is_counted_and_everything_still_arrives() -> None:
    faults = (
        PacketFault(action=FaultAction.DROP, nth=2, source=0),
        PacketFault(action=FaultAction.DUPLICATE, nth=1, destination=0, at_send=True),
    )
    plan, topology = world_plan(
        [collective("all_gather", 50_000)],
        nranks=2,
        settings=RunSettings(warmup=0, measured=1, faults=faults),
    )
    result = simulate_plan(plan, topology, rng=random.Random(1))

    found = {name: count for name, count in result.injected.items() if count}
    assert found == {"drops": 1, "duplicates": 1}
    assert [row.received_bytes for row in share_rows(result.records)] == [50_000] * 2

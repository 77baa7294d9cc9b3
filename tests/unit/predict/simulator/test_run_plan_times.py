"""Simulated times of messages and collectives, and bytes on links."""

from dataclasses import replace

import pytest

from chakram.collectives.algorithms import algorithm
from chakram.collectives.groups import ProcessGroup, world_group
from chakram.plan.plan import Plan
from chakram.plan.wire_cost import wire_bytes
from chakram.predict.simulator import run_plan
from chakram.predict.topology_to_fabric_model import fabric_model
from chakram.preparation.schedule_bounds import (
    bounds,
)
from chakram.topology.topology import Topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.made_plans import (
    collective,
    flow_rows,
    make_plan,
    program,
    receive,
    send,
    share_rows,
    world_plan,
)
from tests.plans import moved
from tests.single_bounds import bound_ns
from tests.support import fewer
from tests.unit.predict.simulator.simulating import ACK_BYTES, MTU, SIZE, simulate


def test_one_message_takes_two_serializations_and_the_return_path() -> None:
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


def test_packets_of_ipv6_are_20_bytes_longer_in_bound_and_simulation() -> None:
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
    least = [bounds(each, topology).times_ns for each in (plan, plan6)]
    assert all(least[1][key] > least[0][key] for key in least[0])


def of_ipv6(plan: Plan) -> Plan:
    """Return a plan of one agent with ports of IPv6."""
    (agent,) = plan.agents
    places = [(f"2001:2::{n + 1}", 4791) for n in range(len(agent.ports))]
    return replace(plan, agents=(moved(agent, places),))


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_one_message_alone_takes_its_bound(family: str) -> None:
    world = world_group(2)
    topology = single_switch(2, 10**9, host_delay_ns=700)
    plan = make_plan(
        [program(0, world, [send(1, 90_001)]), program(1, world, [receive(0, 90_001)])],
        topology,
    )
    plan = of_ipv6(plan) if family == "ipv6" else plan
    result = simulate(plan, topology)
    (flow,) = flow_rows(result.records)
    least_ns = bounds(plan, topology).of_message(
        plan.ranks()[0].program.job, 0, 1, 90_001
    )
    assert 0 <= flow.last_acked_ns - flow.posted_ns - least_ns <= 50


CHUNK_WIRE_BYTES = wire_bytes(SIZE // 8, path_mtu=MTU)


@pytest.mark.parametrize("rate_bps", fewer([10**9, 250 * 10**6]))
@pytest.mark.slow
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


@pytest.mark.parametrize("burst_packets", fewer([4, 2, 3, 5]))
@pytest.mark.slow
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


def test_slow_uplinks_determine_the_time() -> None:
    topology = clos(2, 1, 2, 10**9, 10**8)
    world = world_group(4)
    row = collective("all_reduce", 1 << 20)
    plan = make_plan([program(rank, world, [row]) for rank in range(4)], topology)
    chunk_ns = wire_bytes(1 << 18, path_mtu=MTU) * 8 * 10
    # Acknowledgments queue behind the data of the other direction.
    assert 6 * chunk_ns < simulate(plan, topology).end_ns < 1.1 * 6 * chunk_ns


def share_of_bound(op: str, size: int, *, algorithm_name: str, nranks: int) -> float:
    """Return bound over simulated time of a collective alone on one switch."""
    row = collective(op, size, algorithm=algorithm_name)
    plan, topology = world_plan([row], nranks=nranks, rate_bps=10**10)
    result = simulate(plan, topology, burst_packets=4)
    hosts = {rank: port.host for rank, port in enumerate(plan.ports())}
    bound = bound_ns(
        algorithm(row.op, algorithm_name),
        ranks=range(nranks),
        root=0,
        input_bytes=size,
        fabric=fabric_model(topology, hosts),
        path_mtu=MTU,
    )
    return bound / result.end_ns


@pytest.mark.parametrize(
    ("op", "name", "least"),
    fewer(
        [
            ("broadcast", "tree", 0.97),  # 0.5 if all children got their copies at once
            ("all_reduce", "tree", 0.97),
            ("all_reduce", "double_binary_tree", 0.78),
            ("all_reduce", "ring", 0.96),
            ("broadcast", "ring", 0.96),
            ("all_to_all", "direct", 0.97),
        ]
    ),
)
def test_pipelined_steps_overlap(op: str, name: str, least: float) -> None:
    found = share_of_bound(op, 16 << 20, algorithm_name=name, nranks=8)
    assert least < found <= 1


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


def test_links_carry_data_and_acknowledgements() -> None:
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


@pytest.mark.parametrize(("many", "asked"), [(12, 1), (13, 0)])
def test_huge_pages_are_for_many_queue_pairs(
    monkeypatch: pytest.MonkeyPatch, many: int, asked: int
) -> None:
    plan, topology = world_plan([collective("all_to_all", 4_000)], nranks=4)
    calls: list[bool] = []
    monkeypatch.setattr(run_plan, "use_huge_pages", lambda: calls.append(True))
    monkeypatch.setattr(run_plan, "_MANY_QUEUE_PAIRS", many)
    simulate(plan, topology)
    assert len(calls) == asked

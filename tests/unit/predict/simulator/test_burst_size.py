from __future__ import annotations

import pytest

from chakram.collectives.groups import ProcessGroup, world_group
from chakram.collectives.ops import CollectiveOp
from chakram.plan.plan import Plan, RunSettings
from chakram.predict.simulator.burst_size import (
    BURSTS_TARGET,
    Traffic,
    burst_packets_for,
    longest_path,
    plan_traffic,
    program_traffic,
)
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.topology.topology import Topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.made_plans import (
    collective,
    flow_rows,
    make_plan,
    matrix_splits,
    program,
    receive,
    send,
)


def traffic(messages: int, packets: int) -> Traffic:
    """So many messages of so many packets each."""
    return Traffic(
        messages=messages,
        packets=messages * packets,
        squares=messages * packets * packets,
    )


def test_small_jobs_are_simulated_packet_by_packet() -> None:
    for each in (Traffic(), traffic(1, 1), traffic(1_000, BURSTS_TARGET // 1_000)):
        assert burst_packets_for(each, spare_packets=1 << 20, links=2) == 1


def test_large_jobs_get_as_many_packets_as_keep_bursts_below_the_target() -> None:
    for factor in (2, 5, 30):
        job = traffic(factor, BURSTS_TARGET)
        assert burst_packets_for(job, spare_packets=1 << 20, links=2) == factor
    just_over = traffic(1, BURSTS_TARGET + 1)
    assert burst_packets_for(just_over, spare_packets=1 << 20, links=2) == 2


def test_no_burst_is_larger_than_a_port_allows() -> None:
    job = traffic(10_000, BURSTS_TARGET)
    assert burst_packets_for(job, spare_packets=1 << 20, links=2) == 64


def test_a_message_loses_a_twentieth_of_its_time_at_most() -> None:
    for packets in (1, 39, 40, 400, 4_000):
        job = traffic(10**9, packets)
        for links in (1, 2, 4):
            burst = burst_packets_for(job, spare_packets=1 << 20, links=links)
            assert burst == 1 or (burst - 1) * links <= packets / 20


def test_the_window_holds_a_burst_on_every_link_and_two_more() -> None:
    job = traffic(10**4, 10**6)
    assert burst_packets_for(job, spare_packets=16, links=2) == 4
    assert burst_packets_for(job, spare_packets=18, links=4) == 3
    assert burst_packets_for(job, spare_packets=1, links=4) == 1
    assert burst_packets_for(job, spare_packets=-9, links=0) == 1


def test_many_small_messages_do_not_hide_that_most_packets_are_in_large_ones() -> None:
    mixed = traffic(1_000, 1) + traffic(10, 1_000)
    assert mixed.packets == 11_000
    assert mixed.typical_packets() == 909
    assert Traffic().typical_packets() == 0


@pytest.mark.parametrize("op", list(CollectiveOp))
@pytest.mark.parametrize("nranks", [1, 2, 5, 16])
def test_traffic_of_a_plan_is_the_sum_of_its_ranks(
    op: CollectiveOp, nranks: int
) -> None:
    root = nranks // 2 if op in ("broadcast", "reduce", "gather", "scatter") else 0
    matrix = [
        [70_001 * src * dst % 9_001 for dst in range(nranks)] for src in range(nranks)
    ]
    uneven = op is CollectiveOp.ALL_TO_ALL_V
    programs = [
        program(
            rank,
            world_group(nranks),
            [
                collective(
                    op,
                    70_001,
                    root=root,
                    splits=matrix_splits(matrix, rank) if uneven else None,
                )
            ],
        )
        for rank in range(nranks)
    ]
    topology = single_switch(nranks, None)
    plan = make_plan(programs, topology, settings=RunSettings(warmup=1, measured=1))
    records = simulate_plan(plan, topology, seed=1).records
    sent = flow_rows(records)
    assert plan_traffic(plan, iterations=2) == Traffic(
        messages=len(sent),
        packets=sum(flow.packets for flow in sent),
        squares=sum(flow.packets**2 for flow in sent),
    )


def test_bursts_do_not_depend_on_messages_within_hosts() -> None:
    across = ProcessGroup(name="across", ranks=(1, 2))
    small = collective("all_reduce", 40_960, group="across")
    topology = single_switch(2, 10**11)

    def plan(*, with_local: bool) -> Plan:
        programs = []
        for rank in range(4):
            first = rank // 2 * 2
            pair = ProcessGroup(name=f"pair{first}", ranks=(first, first + 1))
            rows = [
                collective("all_reduce", 4 << 30, group=pair.name, number=number)
                for number in range(3)
            ]
            groups = [pair] if with_local else []
            programs.append(
                program(
                    rank,
                    [*groups, *([across] if rank in across else [])],
                    [
                        *(rows if with_local else []),
                        *([small] if rank in across else []),
                    ],
                )
            )
        return make_plan(programs, topology, ranks_per_port=2, local_rate_bps=10**12)

    both, one = plan(with_local=True), plan(with_local=False)
    assert plan_traffic(both, iterations=3, with_local=False) == plan_traffic(
        one, iterations=3
    )
    assert plan_traffic(both, iterations=3).packets > 10 * BURSTS_TARGET
    assert simulate_plan(both, topology, seed=1).burst_packets == 1


def test_messages_between_ranks_count_once() -> None:
    world = world_group(2)
    programs = [
        program(0, world, [send(1, 10_000), send(1, 0, number=1)]),
        program(1, world, [receive(0, 10_000), receive(0, 0, number=1)]),
    ]
    assert program_traffic(programs, path_mtu=4096) == Traffic(
        messages=2, packets=4, squares=10
    )


@pytest.mark.parametrize(
    ("op", "messages"),
    [
        ("all_reduce", 100 * 198),
        ("all_to_all", 100 * 99),
        ("scatter", 99),
        ("gather", 99),
    ],
)
def test_large_groups_are_estimated(op: str, messages: int) -> None:
    world = world_group(100)
    rows = [collective(op, 409_600, root=99 if op in ("scatter", "gather") else 0)]
    programs = [program(rank, world, rows) for rank in range(100)]
    estimate = program_traffic(programs, path_mtu=4096)
    assert estimate.messages == messages
    assert estimate.packets == messages * (100 if op == "gather" else 1)


def test_a_plan_without_agents_sends_nothing() -> None:
    assert plan_traffic(Plan(run_id="x", agents=()), iterations=9) == Traffic()


def test_the_longest_path_crosses_the_spines() -> None:
    assert longest_path(Topology(hosts=(), switches=(), links=())) == 0
    assert longest_path(single_switch(1, None)) == 0
    assert longest_path(single_switch(3, None)) == 2
    assert longest_path(clos(2, 2, 2, None, None)) == 4
    assert longest_path(clos(1, 2, 2, None, None)) == 2

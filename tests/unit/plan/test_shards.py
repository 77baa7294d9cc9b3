"""Which data-plane process drives which ranks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.collectives.groups import world_group
from chakram.collectives.ops import CollectiveOp
from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.plan.placement import PlacementOptions, place
from chakram.plan.plan import Plan, RunSettings
from chakram.plan.plan_check import check_plan
from chakram.plan.port_plan import PortPlan
from chakram.plan.queue_pairs import (
    MAX_SHARDS,
    SOURCE_PORT_BASE,
    SOURCE_PORT_POOL,
    QueuePairLayout,
)
from chakram.plan.transport import TransportPlan, notification_scope
from chakram.program.operations import RankProgram
from tests.made_plans import collective, program
from tests.port_plans import port_plan

JOBS = "abcdefgh"


def ports(
    count: int, *, agents: int = 1, open_spec: str = "udp:eth0"
) -> list[PortPlan]:
    return [
        port_plan(number, agent=f"agent{number % agents}", open_spec=open_spec)
        for number in range(count)
    ]


def programs(job: str, nranks: int) -> list[RankProgram]:
    world = world_group(nranks)
    operation = collective(CollectiveOp.ALL_TO_ALL, 1000)
    return [program(rank, world, [operation], job=job) for rank in range(nranks)]


def limited_notifications(scope: str) -> TransportPlan:
    return TransportPlan(
        congestion_parameters=(
            ("cnp_interval_ns", 50_000),
            ("cnp_scope", notification_scope(scope)),
        )
    )


def plan_of(
    nports: int,
    *,
    shards: int,
    jobs: int = 1,
    ranks_per_port: int = 1,
    agents: int = 1,
    layout: QueuePairLayout | None = None,
    open_spec: str = "udp:eth0",
    faults: tuple[PacketFault, ...] = (),
    local_rate_bps: int | None = None,
    transport: TransportPlan | None = None,
) -> Plan:
    """Place jobs that all use the same ports."""
    made = ports(nports, agents=agents, open_spec=open_spec)
    options = PlacementOptions(
        first_port=0, ranks_per_port=ranks_per_port, local_rate_bps=local_rate_bps
    )
    return place(
        {job: programs(job, nports * ranks_per_port) for job in JOBS[:jobs]},
        made,
        dict.fromkeys(JOBS[:jobs], options),
        transport or TransportPlan(),
        RunSettings(faults=faults),
        shards={port.agent: shards for port in made},
        run_id="r",
        layout=layout,
    )


def shards_of(plan: Plan) -> dict[int, tuple[int, ...]]:
    return {
        port: shards
        for agent in plan.agents
        for port, shards in agent.shards_of_ports().items()
    }


@given(
    nports=st.integers(1, 6),
    jobs=st.integers(1, 4),
    ranks_per_port=st.integers(1, 4),
    shards=st.integers(1, 16),
    agents=st.integers(1, 3),
    listed=st.sampled_from([0, 1, 3, 4, 16, 64]),
    count=st.integers(1, 3),
)
def test_every_divided_plan_is_valid(
    nports: int,
    jobs: int,
    ranks_per_port: int,
    shards: int,
    agents: int,
    listed: int,
    count: int,
) -> None:
    layout = QueuePairLayout(
        source_ports=tuple(range(5000, 5000 + listed)), count=count
    )
    plan = plan_of(
        nports,
        jobs=jobs,
        ranks_per_port=ranks_per_port,
        shards=shards,
        agents=agents,
        layout=layout,
    )
    assert check_plan(plan) == []
    for agent in plan.agents:
        load = Counter(rank.shard for rank in agent.ranks)
        # No shard idles, and none has more than a whole port more than another.
        assert sorted(load) == list(range(agent.shards))
        assert agent.shards <= shards
        assert max(load.values()) - min(load.values()) <= jobs * ranks_per_port
        if len(agent.ports) > shards:
            assert all(len(each) == 1 for each in agent.shards_of_ports().values())


@given(
    jobs=st.integers(1, 8),
    shards=st.integers(1, 16),
    listed=st.sampled_from([0, 7, 64]),
)
def test_a_source_port_leads_to_one_shard_of_a_port(
    jobs: int, shards: int, listed: int
) -> None:
    layout = QueuePairLayout(source_ports=tuple(range(5000, 5000 + listed)))
    plan = plan_of(3, jobs=jobs, shards=shards, layout=layout)
    found: dict[tuple[int, int, int], set[int]] = {}
    for rank in plan.ranks():
        for pair in rank.queue_pairs:
            flow = (rank.port, pair.source_port, pair.remote_port)
            found.setdefault(flow, set()).add(pair.remote_qpn % MAX_SHARDS)
            if not listed:
                assert 0 <= pair.source_port - SOURCE_PORT_BASE < SOURCE_PORT_POOL
    assert all(len(each) == 1 for each in found.values())


def test_ports_are_divided_only_with_spare_shards() -> None:
    for shards, expected in (
        (1, {0: (0,), 1: (0,)}),
        (2, {0: (0,), 1: (1,)}),
        (3, {0: (0,), 1: (1,)}),  # one more would leave the ports unlike
        (4, {0: (0, 1), 1: (2, 3)}),
        (6, {0: (0, 1, 2), 1: (3, 4, 5)}),
        (60, {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)}),  # a rank stays whole
    ):
        plan = plan_of(2, jobs=4, shards=shards)
        assert shards_of(plan) == expected
        assert plan.agents[0].shards == 1 + max(expected[1])


def test_the_port_with_most_ranks_is_divided_first() -> None:
    made = ports(2)
    jobs = {"a": programs("a", 6), "b": programs("b", 2)}
    options = {
        "a": PlacementOptions(ports=(0,), ranks_per_port=6),
        "b": PlacementOptions(ports=(1,), ranks_per_port=2),
    }
    plan = place(
        jobs,
        made,
        options,
        TransportPlan(),
        RunSettings(),
        shards={"agent0": 4},
        run_id="r",
    )
    assert shards_of(plan) == {0: (0, 1, 2), 1: (3,)}


def test_every_part_has_ranks_of_every_job() -> None:
    plan = plan_of(2, jobs=2, ranks_per_port=2, shards=4)
    jobs: dict[int, set[str]] = {}
    for rank in plan.ranks():
        jobs.setdefault(rank.shard, set()).add(rank.program.job)
    assert jobs == {shard: {"a", "b"} for shard in range(4)}


def test_source_ports_limit_the_parts() -> None:
    for listed, parts in ((1, 1), (3, 1), (4, 2), (10, 3), (0, 8)):
        layout = QueuePairLayout(source_ports=tuple(range(5000, 5000 + listed)))
        plan = plan_of(1, jobs=2, ranks_per_port=8, shards=16, layout=layout)
        assert len(shards_of(plan)[0]) == parts


@pytest.mark.parametrize(
    "settings",
    [
        {"open_spec": "memory:"},
        {"local_rate_bps": 10**9, "ranks_per_port": 2},
        {"faults": (PacketFault(action=FaultAction.DROP, nth=3),)},
        {"faults": (PacketFault(action=FaultAction.DROP, nth=3, source=1),)},
        {"faults": (PacketFault(action=FaultAction.DROP, nth=3, destination=1),)},
        {"transport": limited_notifications("destination")},
    ],
)
def test_some_ports_are_not_divided(settings: dict[str, Any]) -> None:
    plan = plan_of(2, jobs=2, shards=4, **settings)
    assert len(shards_of(plan)[1]) == 1
    assert check_plan(plan) == []


@pytest.mark.parametrize(("scope", "parts"), [("queue_pair", 2), ("port", 2)])
def test_limits_of_notifications_that_processes_can_share_divide(
    scope: str, parts: int
) -> None:
    plan = plan_of(2, jobs=2, shards=4, transport=limited_notifications(scope))
    assert len(shards_of(plan)[1]) == parts


@pytest.mark.parametrize(
    "fault",
    [
        PacketFault(action=FaultAction.DROP, probability=0.1),
        PacketFault(action=FaultAction.DROP, nth=3, job="a", destination=1),
        PacketFault(action=FaultAction.DROP, nth=3, job="a", source=1, at_send=True),
        PacketFault(action=FaultAction.DROP, nth=3, job="a"),
    ],
)
def test_chance_and_the_packets_of_one_rank_can_be_divided(fault: PacketFault) -> None:
    plan = plan_of(2, jobs=2, shards=4, faults=(fault,))
    assert shards_of(plan) == {0: (0, 1), 1: (2, 3)}


def test_joined_packets_for_two_shards_are_found() -> None:
    plan = plan_of(2, jobs=2, shards=4)
    agent = plan.agents[0]
    ranks = [
        replace(
            rank,
            queue_pairs=tuple(
                replace(pair, source_port=5000) for pair in rank.queue_pairs
            ),
        )
        for rank in agent.ranks
    ]
    problems = check_plan(replace(plan, agents=(replace(agent, ranks=tuple(ranks)),)))
    assert any(
        "its source port 5000 leads to shards 2 and 3 of port 1" in problem
        for problem in problems
    )

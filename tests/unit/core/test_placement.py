"""Ranks on ports, and the queue pairs between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.core.algorithms import algorithm_names
from chakram.core.collectives import CollectiveOp
from chakram.core.groups import ProcessGroup, world_group
from chakram.core.placement import PlacementOptions, place
from chakram.core.plan import (
    POINT_TO_POINT,
    Plan,
    PortPlan,
    RunSettings,
    TransportPlan,
)
from chakram.core.plan_check import check_plan
from chakram.core.program import (
    CollectiveOperation,
    Operation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
)
from chakram.core.queue_pairs import (
    FIRST_QUEUE_PAIR,
    SOURCE_PORT_BASE,
    SOURCE_PORT_POOL,
    QueuePairLayout,
    flow_label_port,
    source_port_of,
)
from chakram.errors import PlanError


def make_port(number: int, *, agent: str = "a0") -> PortPlan:
    return PortPlan(
        number=number,
        agent=agent,
        host=f"h{number}",
        open="udp:eth0",
        netns=f"/run/netns/h{number}",
        address=f"198.18.{number // 250}.{number % 250 + 1}",
        udp_port=4791,
        rate_bps=10**9,
        mtu=4200,
    )


def make_ports(count: int) -> list[PortPlan]:
    return [make_port(number) for number in range(count)]


def collective(
    op: CollectiveOp, *, group: str, number: int = 0, name: str = "auto"
) -> CollectiveOperation:
    return CollectiveOperation(
        node_id=None,
        name=op.value,
        dependencies=(),
        group=group,
        number=number,
        op=op,
        algorithm=name,
        input_bytes=1024,
        trace_bytes=1024,
    )


def make_job(
    nranks: int,
    *operations: Operation,
    job: str = "job",
    groups: tuple[ProcessGroup, ...] | None = None,
) -> list[RankProgram]:
    return [
        RankProgram(
            job=job,
            rank=rank,
            groups=(world_group(nranks),) if groups is None else groups,
            operations=operations,
        )
        for rank in range(nranks)
    ]


def make_plan(
    jobs: dict[str, list[RankProgram]],
    ports: list[PortPlan],
    options: dict[str, PlacementOptions] | None = None,
    *,
    shards: int = 1,
    seed: int = 1,
    layout: QueuePairLayout | None = None,
) -> Plan:
    return place(
        jobs,
        ports,
        options or {},
        TransportPlan(),
        RunSettings(seed=seed),
        shards={port.agent: shards for port in ports},
        run_id="r",
        layout=layout,
    )


ALL_TO_ALL = collective(CollectiveOp.ALL_TO_ALL, group="world")
RING = collective(CollectiveOp.ALL_REDUCE, group="world", name="ring")

ALGORITHMS = [(op, name) for op in CollectiveOp for name in algorithm_names(op)]


@given(
    kind=st.sampled_from(ALGORITHMS),
    nranks=st.integers(2, 12),
    ranks_per_port=st.integers(1, 3),
    shards=st.integers(1, 5),
)
def test_every_plan_is_sound(
    kind: tuple[CollectiveOp, str], nranks: int, ranks_per_port: int, shards: int
) -> None:
    op, name = kind
    nranks = 2 if op is CollectiveOp.SEND_RECV else nranks
    plan = make_plan(
        {"job": make_job(nranks, collective(op, group="world", name=name))},
        make_ports(nranks),
        {"job": PlacementOptions(ranks_per_port=ranks_per_port)},
        shards=shards,
    )
    assert check_plan(plan) == []
    assert all(rank.queue_pairs for rank in plan.ranks())


def test_a_direct_all_to_all_joins_every_pair_once() -> None:
    plan = make_plan({"job": make_job(5, ALL_TO_ALL)}, make_ports(5))
    for rank in plan.ranks():
        peers = [pair.peer_rank for pair in rank.queue_pairs]
        assert sorted(peers) == [each for each in range(5) if each != rank.number]


def test_a_ring_joins_neighbours_only() -> None:
    plan = make_plan({"job": make_job(5, RING)}, make_ports(5))
    assert sorted(pair.peer_rank for pair in plan.ranks()[2].queue_pairs) == [1, 3]


def test_a_ring_follows_the_order_of_its_group() -> None:
    group = ProcessGroup(name="g", ranks=(0, 2, 1, 3))
    ring = collective(CollectiveOp.ALL_REDUCE, group="g", name="ring")
    plan = make_plan({"job": make_job(4, ring, groups=(group,))}, make_ports(4))
    assert sorted(pair.peer_rank for pair in plan.ranks()[0].queue_pairs) == [2, 3]


def test_groups_have_queue_pairs_of_their_own() -> None:
    groups = (
        ProcessGroup(name="a", ranks=(0, 1)),
        ProcessGroup(name="b", ranks=(0, 1)),
    )
    operations = [collective(CollectiveOp.ALL_REDUCE, group=name) for name in "ab"]
    plan = make_plan({"job": make_job(2, *operations, groups=groups)}, make_ports(2))
    (first, second) = plan.ranks()[0].queue_pairs
    assert (first.group, second.group) == ("a", "b")
    assert first.qpn != second.qpn


def test_point_to_point_messages_have_queue_pairs_of_their_own() -> None:
    message = {
        "node_id": None,
        "name": "m",
        "dependencies": (),
        "number": 0,
        "tag": 0,
        "size_bytes": 8,
        "trace_bytes": 8,
    }
    programs = [
        RankProgram(
            job="job",
            rank=0,
            groups=(),
            operations=(SendOperation(peer=1, **message),),  # type: ignore[arg-type] # any of its arguments
        ),
        RankProgram(
            job="job",
            rank=1,
            groups=(),
            operations=(ReceiveOperation(peer=0, **message),),  # type: ignore[arg-type] # any of its arguments
        ),
    ]
    plan = make_plan({"job": programs}, make_ports(2))
    assert check_plan(plan) == []
    ((pair,), (other,)) = (rank.queue_pairs for rank in plan.ranks())
    assert pair.group == other.group == POINT_TO_POINT
    with pytest.raises(PlanError, match="rank 1, which is not in the job"):
        make_plan({"job": programs[:1]}, make_ports(2))


def test_ranks_of_several_jobs_are_numbered_one_after_another() -> None:
    plan = make_plan(
        {"x": make_job(2, RING, job="x"), "y": make_job(3, RING, job="y")},
        make_ports(5),
    )
    assert check_plan(plan) == []
    assert [(rank.program.job, rank.port) for rank in plan.ranks()] == [
        ("x", 0),
        ("x", 1),
        ("y", 2),
        ("y", 3),
        ("y", 4),
    ]
    assert plan.agents[0].numbers()["y", 2] == 4


def test_jobs_may_share_ports() -> None:
    plan = make_plan(
        {"x": make_job(2, RING, job="x"), "y": make_job(2, RING, job="y")},
        make_ports(2),
        {"y": PlacementOptions(first_port=0)},
    )
    assert check_plan(plan) == []
    assert [rank.port for rank in plan.ranks()] == [0, 1, 0, 1]


def test_ranks_follow_the_given_order() -> None:
    plan = make_plan(
        {"job": make_job(4, RING)},
        make_ports(4),
        {"job": PlacementOptions(order=(3, 1, 0, 2), ranks_per_port=2)},
    )
    assert [rank.port for rank in plan.ranks()] == [1, 0, 1, 0]
    assert [port.number for port in plan.ports()] == [0, 1]


def test_shards_get_equally_many_ranks_and_ports_stay_whole() -> None:
    plan = make_plan(
        {"job": make_job(8, ALL_TO_ALL)},
        make_ports(4),
        {"job": PlacementOptions(ranks_per_port=2)},
        shards=2,
    )
    assert Counter(rank.shard for rank in plan.ranks()) == {0: 4, 1: 4}
    by_port = {(rank.port, rank.shard) for rank in plan.ranks()}
    assert len(by_port) == 4
    assert all(
        pair.qpn & 63 == rank.shard and pair.qpn >> 6 >= FIRST_QUEUE_PAIR
        for rank in plan.ranks()
        for pair in rank.queue_pairs
    )


def test_there_are_no_more_shards_than_ports() -> None:
    plan = make_plan({"job": make_job(2, RING)}, make_ports(2), shards=8)
    assert plan.agents[0].shards == 2
    assert check_plan(plan) == []


def test_agents_get_their_own_ports_and_know_all_peers() -> None:
    ports = [make_port(0, agent="a"), make_port(1, agent="b"), make_port(2, agent="c")]
    plan = make_plan({"job": make_job(2, RING)}, ports)
    assert [agent.agent for agent in plan.agents] == ["a", "b"]
    assert [len(agent.ports) for agent in plan.agents] == [1, 1]
    assert plan.agents[0].peers == (ports[0].address, ports[1].address)


def test_the_same_input_gives_the_same_plan_and_another_seed_other_psns() -> None:
    jobs = {"job": make_job(4, ALL_TO_ALL)}
    assert make_plan(jobs, make_ports(4)) == make_plan(jobs, make_ports(4))

    def psns(seed: int) -> list[int]:
        plan = make_plan(jobs, make_ports(4), seed=seed)
        return [pair.send_psn for rank in plan.ranks() for pair in rank.queue_pairs]

    assert len(set(psns(1))) == 12
    assert not set(psns(1)) & set(psns(2))


@pytest.mark.parametrize(
    ("qpn", "remote_qpn", "port"),
    [
        (0x11, 0x12, 49458),
        (0xABCDEF, 0x123456, (0xAC3E3 & 0x3FFF) ^ (0xAC3E3 >> 14) | 0xC000),
    ],
)
def test_flow_labels_are_those_of_adapters(
    qpn: int, remote_qpn: int, port: int
) -> None:
    assert flow_label_port(qpn, remote_qpn) == port


@given(qpn=st.integers(0, 2**24 - 1), remote_qpn=st.integers(0, 2**24 - 1))
def test_both_ends_use_one_source_port_of_the_pool(qpn: int, remote_qpn: int) -> None:
    port = source_port_of(qpn, remote_qpn)
    assert port == source_port_of(remote_qpn, qpn)
    assert SOURCE_PORT_BASE <= port < SOURCE_PORT_BASE + SOURCE_PORT_POOL


def test_ranks_that_do_alike_have_different_source_ports() -> None:
    # Data-parallel pairs of 32 ranks: the same queue pairs on every rank.
    groups = tuple(
        ProcessGroup(name=f"g{rank}", ranks=(rank, rank + 16)) for rank in range(16)
    )
    programs = [
        RankProgram(
            job="job",
            rank=rank,
            groups=(groups[rank % 16],),
            operations=(
                collective(CollectiveOp.ALL_REDUCE, group=groups[rank % 16].name),
            ),
        )
        for rank in range(32)
    ]
    plan = make_plan({"job": programs}, make_ports(32))
    ports = {pair.source_port for rank in plan.ranks() for pair in rank.queue_pairs}
    assert len(ports) > 8


def test_queue_pairs_spread_over_the_source_ports() -> None:
    # Switches choose a path by it: few ports would be few paths.
    plan = make_plan({"job": make_job(16, ALL_TO_ALL)}, make_ports(16))
    used = Counter(
        pair.source_port for rank in plan.ranks() for pair in rank.queue_pairs
    )
    assert len(used) > SOURCE_PORT_POOL // 2
    assert max(used.values()) < sum(used.values()) // 8


def test_two_ranks_may_have_several_queue_pairs() -> None:
    one = make_plan({"job": make_job(3, RING)}, make_ports(3))
    plan = make_plan(
        {"job": make_job(3, RING)}, make_ports(3), layout=QueuePairLayout(count=4)
    )

    assert check_plan(plan) == []
    for rank, before in zip(plan.ranks(), one.ranks(), strict=True):
        assert len(rank.queue_pairs) == 4 * len(before.queue_pairs)
        by_peer = Counter((pair.peer_rank, pair.index) for pair in rank.queue_pairs)
        assert set(by_peer.values()) == {1}
        assert {index for _, index in by_peer} == {0, 1, 2, 3}
    psns = [pair.send_psn for rank in plan.ranks() for pair in rank.queue_pairs]
    assert len(set(psns)) == len(psns)


def test_listed_source_ports_are_used_in_turn() -> None:
    layout = QueuePairLayout(source_ports=(5000, 6000))
    plan = make_plan({"job": make_job(4, ALL_TO_ALL)}, make_ports(4), layout=layout)

    assert check_plan(plan) == []
    used = Counter(
        pair.source_port for rank in plan.ranks() for pair in rank.queue_pairs
    )
    assert used == {5000: 6, 6000: 6}


@pytest.mark.parametrize(
    "settings",
    [{"count": 0}, {"count": 65}, {"source_ports": tuple(range(2000, 2065))}],
)
def test_impossible_layouts_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"queue pairs are not in|more than 64 UDP"):
        QueuePairLayout(**settings)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (PlacementOptions(order=(0, 1, 1)), "rank 1 stands in two places"),
        (PlacementOptions(order=(0, 1)), "rank 2 stands nowhere"),
        (PlacementOptions(order=(0, 1, 3)), "there is no rank 3"),
        (PlacementOptions(first_port=1), "need ports 1 to 3, and the fabric has 3"),
    ],
)
def test_a_placement_that_does_not_fit_is_refused(
    options: PlacementOptions, expected: str
) -> None:
    with pytest.raises(PlanError, match=expected):
        make_plan({"job": make_job(3, RING)}, make_ports(3), {"job": options})


def test_too_few_ports_are_refused() -> None:
    with pytest.raises(PlanError, match="need ports 0 to 3, and the fabric has 2"):
        make_plan({"job": make_job(4, RING)}, make_ports(2))


def test_a_rank_with_two_programs_is_refused() -> None:
    programs = make_job(2, RING)
    with pytest.raises(PlanError, match="two programs for one rank"):
        make_plan({"job": [*programs, programs[0]]}, make_ports(3))


def test_groups_that_ranks_disagree_about_are_refused() -> None:
    programs = make_job(2, RING)
    other = replace(programs[1], groups=(ProcessGroup(name="world", ranks=(1, 0)),))
    with pytest.raises(PlanError, match="has other ranks than"):
        make_plan({"job": [programs[0], other]}, make_ports(2))


def test_a_group_with_a_rank_that_is_not_there_is_refused() -> None:
    with pytest.raises(PlanError, match="has rank 2, which is not in the job"):
        make_plan({"job": make_job(2, RING, groups=(world_group(3),))}, make_ports(2))


def test_a_group_may_not_be_called_like_point_to_point_messages() -> None:
    group = ProcessGroup(name=POINT_TO_POINT, ranks=(0, 1))
    with pytest.raises(PlanError, match="the name kept for"):
        make_plan({"job": make_job(2, groups=(group,))}, make_ports(2))


def test_impossible_shards_are_refused() -> None:
    with pytest.raises(PlanError, match="65 shards are not possible"):
        make_plan({"job": make_job(2, RING)}, make_ports(2), shards=65)


def broken(plan: Plan, **changes: object) -> list[str]:
    """Return what is found after one queue pair of rank 0 is changed."""
    agent = plan.agents[0]
    rank = agent.ranks[0]
    pair = replace(rank.queue_pairs[0], **changes)  # type: ignore[arg-type] # any of its arguments
    rank = replace(rank, queue_pairs=(pair, *rank.queue_pairs[1:]))
    agent = replace(agent, ranks=(rank, *agent.ranks[1:]))
    return check_plan(replace(plan, agents=(agent, *plan.agents[1:])))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"qpn": (FIRST_QUEUE_PAIR + 1) << 6}, "its number is used twice on its port"),
        ({"qpn": FIRST_QUEUE_PAIR << 6 | 1}, "does not name shard 0"),
        ({"remote_qpn": 1}, "has no other end"),
        ({"send_psn": 1}, "its other end does not agree"),
        ({"source_port": 1}, "its other end does not agree"),
        ({"group": "x"}, "its other end does not agree"),
        ({"remote_address": "10.0.0.1"}, "port 1 is not at 10.0.0.1:4791"),
        ({"remote_udp_port": 9}, "port 1 is not at 198.18.0.2:9"),
        ({"remote_port": 9}, "port 9 is not at"),
    ],
)
def test_a_broken_queue_pair_is_found(
    changes: dict[str, object], expected: str
) -> None:
    plan = make_plan({"job": make_job(3, ALL_TO_ALL)}, make_ports(3))
    assert any(expected in problem for problem in broken(plan, **changes))


def test_broken_ranks_and_ports_are_found() -> None:
    plan = make_plan({"job": make_job(2, RING)}, make_ports(2))
    (agent,) = plan.agents
    rank, other = agent.ranks

    def check(**changes: object) -> str:
        changed = replace(agent, **changes)  # type: ignore[arg-type] # any of its arguments
        return "; ".join(check_plan(replace(plan, agents=(changed,))))

    assert "stands in two places" in check(ranks=(rank, rank, other))
    assert "agent a0 has no port 7" in check(ranks=(replace(rank, port=7), other))
    assert "there is no shard 1" in check(ranks=(replace(rank, shard=1), other))
    assert "is number 5, not 1" in check(ranks=(replace(rank, number=5), other))
    assert "its rank numbers are not" in check(rank_numbers=())
    assert "its peers are not" in check(peers=("10.0.0.1",))
    twin = replace(agent.ports[1], address=agent.ports[0].address)
    assert "has the address" in check(ports=(agent.ports[0], twin))
    twin = replace(agent.ports[1], number=0)
    assert "two ports have the same number" in check(ports=(agent.ports[0], twin))
    stray = replace(agent.ports[1], agent="a1")
    assert "port 1 belongs to a1" in check(ports=(agent.ports[0], stray))

"""Which ranks have queue pairs, how many, and their numbers and source ports."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.collectives.groups import POINT_TO_POINT, ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import PlanError
from chakram.plan.placement import PlacementOptions, place
from chakram.plan.plan import CREDIT_CHANNELS, RunSettings
from chakram.plan.plan_check import check_plan
from chakram.plan.queue_pairs import (
    SOURCE_PORT_BASE,
    SOURCE_PORT_POOL,
    ClassRule,
    QueuePairLayout,
    flow_label_port,
    source_port_of,
)
from chakram.plan.transport import TransportPlan
from tests.made_plans import collective, program, receive, send
from tests.unit.plan.placing import ALL_TO_ALL, RING, make_job, make_plan, make_ports


def test_a_direct_all_to_all_joins_every_pair_once() -> None:
    plan = make_plan({"job": make_job(5, ALL_TO_ALL)}, make_ports(5))
    for rank in plan.ranks():
        peers = [pair.peer_rank for pair in rank.queue_pairs]
        assert sorted(peers) == [each for each in range(5) if each != rank.number]


def test_a_ring_joins_neighbors_only() -> None:
    plan = make_plan({"job": make_job(5, RING)}, make_ports(5))
    assert sorted(pair.peer_rank for pair in plan.ranks()[2].queue_pairs) == [1, 3]


def test_a_ring_follows_the_order_of_its_group() -> None:
    group = ProcessGroup(name="g", ranks=(0, 2, 1, 3))
    ring = collective("all_reduce", 1024, group="g", algorithm="ring")
    plan = make_plan({"job": make_job(4, ring, groups=(group,))}, make_ports(4))
    assert sorted(pair.peer_rank for pair in plan.ranks()[0].queue_pairs) == [2, 3]


def test_groups_have_separate_queue_pairs() -> None:
    groups = (
        ProcessGroup(name="a", ranks=(0, 1)),
        ProcessGroup(name="b", ranks=(0, 1)),
    )
    operations = [collective("all_reduce", 1024, group=name) for name in "ab"]
    plan = make_plan({"job": make_job(2, *operations, groups=groups)}, make_ports(2))
    (first, second) = plan.ranks()[0].queue_pairs
    assert (first.group, second.group) == ("a", "b")
    assert first.qpn != second.qpn


def test_point_to_point_messages_have_separate_queue_pairs() -> None:
    programs = [program(0, (), [send(1, 8)]), program(1, (), [receive(0, 8)])]
    plan = make_plan({"job": programs}, make_ports(2))
    assert check_plan(plan) == []
    ((pair,), (other,)) = (rank.queue_pairs for rank in plan.ranks())
    assert pair.group == other.group == POINT_TO_POINT
    with pytest.raises(PlanError, match="rank 1, which is not in the job"):
        make_plan({"job": programs[:1]}, make_ports(2))


def dscps_of(jobs: dict[str, Any], *rules: ClassRule) -> dict[tuple[str, str], Any]:
    """Return by job and group the DSCP of the queue pairs."""
    ports = make_ports(sum(map(len, jobs.values())))
    plan = make_plan(jobs, ports, layout=QueuePairLayout(classes=rules))
    assert check_plan(plan) == []
    found = {
        (rank.program.job, pair.group): pair.dscp
        for rank in plan.ranks()
        for pair in rank.queue_pairs
    }
    assert all(
        pair.dscp == found[rank.program.job, pair.group]
        for rank in plan.ranks()
        for pair in rank.queue_pairs
    )
    return found


def test_queue_pairs_have_the_class_of_the_first_rule_that_fits() -> None:
    groups = (
        ProcessGroup(name="dp", ranks=(0, 1)),
        ProcessGroup(name="ep", ranks=(0, 1)),
    )
    operations = [
        collective("all_reduce", 8, group="dp"),
        collective("all_to_all", 8, group="ep"),
    ]
    jobs = {job: make_job(2, *operations, groups=groups, job=job) for job in ("a", "b")}
    exchange = ClassRule(dscp=32, op=CollectiveOp.ALL_TO_ALL)
    assert set(dscps_of(jobs).values()) == {None}
    assert dscps_of(jobs, exchange) == {
        ("a", "dp"): None,
        ("a", "ep"): 32,
        ("b", "dp"): None,
        ("b", "ep"): 32,
    }
    only_b = ClassRule(dscp=40, job="b")
    in_d = ClassRule(dscp=0, group="d*")
    assert dscps_of(jobs, only_b, exchange, in_d) == {
        ("a", "dp"): 0,
        ("a", "ep"): 32,
        ("b", "dp"): 40,
        ("b", "ep"): 40,
    }


def test_messages_between_two_ranks_have_a_class_by_their_group() -> None:
    programs = [program(0, (), [send(1, 8)]), program(1, (), [receive(0, 8)])]
    rules = (
        ClassRule(dscp=8, op=CollectiveOp.ALL_TO_ALL),
        ClassRule(dscp=16, group=POINT_TO_POINT),
    )
    assert dscps_of({"job": programs}, *rules) == {("job", POINT_TO_POINT): 16}
    by_op = ClassRule(dscp=24, op=CollectiveOp.SEND_RECV)
    assert dscps_of({"job": programs}, by_op) == {("job", POINT_TO_POINT): 24}
    assert set(dscps_of({"job": make_job(2, RING)}, by_op).values()) == {None}


def test_collectives_that_share_queue_pairs_share_a_class() -> None:
    rule = ClassRule(dscp=32, op=CollectiveOp.ALL_TO_ALL)
    mixed = {"job": make_job(2, RING, ALL_TO_ALL)}
    with pytest.raises(PlanError, match=r"'world'.*all_to_all: DSCP 32"):
        dscps_of(mixed, rule)
    # One that names the group decides for both; barriers have no say.
    assert dscps_of(mixed, ClassRule(dscp=8, group="world"), rule)
    barrier = collective("barrier", 0, algorithm="dissemination")
    found = dscps_of({"job": make_job(2, ALL_TO_ALL, barrier)}, rule)
    assert found == {("job", "world"): 32}


@pytest.mark.parametrize(
    ("qpn", "remote_qpn", "port"),
    [
        (0x11, 0x12, 49458),
        (0xABCDEF, 0x123456, (0xAC3E3 & 0x3FFF) ^ (0xAC3E3 >> 14) | 0xC000),
    ],
)
def test_flow_labels_equal_those_of_adapters(
    qpn: int, remote_qpn: int, port: int
) -> None:
    assert flow_label_port(qpn, remote_qpn) == port


@given(qpn=st.integers(0, 2**24 - 1), remote_qpn=st.integers(0, 2**24 - 1))
def test_both_ends_use_one_source_port_of_the_pool(qpn: int, remote_qpn: int) -> None:
    port = source_port_of(qpn, remote_qpn)
    assert port == source_port_of(remote_qpn, qpn)
    assert SOURCE_PORT_BASE <= port < SOURCE_PORT_BASE + SOURCE_PORT_POOL


def test_ranks_with_equal_roles_have_different_source_ports() -> None:
    # Data-parallel pairs of 32 ranks: the same queue pairs on every rank.
    groups = tuple(
        ProcessGroup(name=f"g{rank}", ranks=(rank, rank + 16)) for rank in range(16)
    )
    programs = [
        program(rank, group, [collective("all_reduce", 1024, group=group.name)])
        for rank, group in enumerate(2 * groups)
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


def test_source_ports_are_the_same_for_any_number_of_processes() -> None:
    # A simulation has one, and takes the paths of a run that has several.
    plans = [
        make_plan({"job": make_job(8, ALL_TO_ALL)}, make_ports(8), shards=shards)
        for shards in (1, 3, 8)
    ]
    assert [plan.agents[0].shards for plan in plans] == [1, 3, 8]
    one, *others = (
        [
            (rank.number, pair.peer_rank, pair.source_port)
            for rank in plan.ranks()
            for pair in rank.queue_pairs
        ]
        for plan in plans
    )
    assert others == [one, one]


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


def test_listed_source_ports_alternate_among_queue_pairs_with_data_on_the_fabric() -> (
    None
):
    layout = QueuePairLayout(source_ports=(5000, 6000), with_grants=True)
    plan = place(
        {"job": make_job(8, RING)},
        make_ports(8),
        {"job": PlacementOptions(local_rate_bps=0)},
        TransportPlan(),
        RunSettings(credits=1),
        shards={"a0": 1},
        run_id="r",
        layout=layout,
        host_of=lambda port: str(port.number // 2),
    )

    used = Counter(
        pair.source_port
        for rank in plan.ranks()
        for pair in rank.queue_pairs
        if pair.channel < CREDIT_CHANNELS and pair.local_rate_bps is None
    )
    assert used == {5000: 4, 6000: 4}


@pytest.mark.parametrize(
    "settings",
    [{"count": 0}, {"count": 65}, {"source_ports": tuple(range(2000, 2065))}],
)
def test_impossible_layouts_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"queue pairs are not between|more than 64 UDP"
    ):
        QueuePairLayout(**settings)


def test_group_name_of_point_to_point_messages_is_reserved() -> None:
    group = ProcessGroup(name=POINT_TO_POINT, ranks=(0, 1))
    with pytest.raises(PlanError, match="which is reserved for"):
        make_plan({"job": make_job(2, groups=(group,))}, make_ports(2))

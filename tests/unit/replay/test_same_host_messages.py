"""Messages that stay within a host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from chakram.collectives.groups import world_group
from chakram.foundation.errors import PlanError
from chakram.plan.plan_check import check_plan
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.preparation.plan_settings import refuse_neighbors_on_one_port
from chakram.replay.endpoint import connect_local
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import (
    collective,
    flow_rows,
    make_plan,
    program,
    receive,
    send,
    share_rows,
)
from tests.port_plans import endpoints_of

if TYPE_CHECKING:
    from chakram.plan.plan import Plan
    from chakram.plan.port_plan import PortPlan
    from chakram.predict.simulator.run_plan import SimulationResult
    from chakram.program.operations import Operation

GBPS = 10**9
MIB = 1 << 20


def two_ports_each(port: PortPlan) -> str:
    return f"host{port.number // 2}"


def plan_of(
    operations: list[Operation], *, nranks: int = 4, **placed: Any
) -> tuple[Plan, SimulationResult]:
    world = world_group(nranks)
    ports = nranks // int(placed.get("ranks_per_port", 1))
    topology = single_switch(ports, GBPS)
    plan = make_plan(
        [program(rank, world, operations) for rank in range(nranks)],
        topology,
        **placed,
    )
    assert check_plan(plan) == []
    return plan, simulate_plan(plan, topology, seed=1)


def test_messages_between_ranks_of_one_port_bypass_it() -> None:
    ring = [collective("all_reduce", MIB, algorithm="ring")]
    plan, result = plan_of(ring, ranks_per_port=2, local_rate_bps=0)
    refuse_neighbors_on_one_port(plan)
    # Of the ring 0-1-2-3 two links cross, with 6 quarters each; the rest is local.
    crossed = result.link_bytes["h0:eth0"]
    assert 6 * MIB // 4 < crossed < 1.1 * 6 * MIB // 4
    assert sum(share.sent_bytes for share in share_rows(result.records)) == 6 * MIB
    local = [row for row in flow_rows(result.records) if row.packets == 0]
    assert {(row.rank, row.peer) for row in local} == {(0, 1), (2, 3)}
    assert {row.last_acked_ns - row.posted_ns for row in local} == {0}


def test_messages_within_a_host_bypass_its_ports() -> None:
    ring = [collective("all_reduce", MIB, algorithm="ring")]
    plan, result = plan_of(ring, local_rate_bps=0, host_of=two_ports_each)
    local = [row for row in flow_rows(result.records) if row.packets == 0]
    assert {(row.rank, row.peer) for row in local} == {(0, 1), (2, 3)}
    assert {rank.number: rank.shard for rank in plan.ranks()} == {
        0: 0,
        1: 0,
        2: 0,
        3: 0,
    }


def test_a_local_rate_is_kept_and_shared() -> None:
    # Rank 0 sends two messages to rank 1 at once: 1 MB each at 8 Gbit/s take 1 ms.
    operations = {
        0: [send(1, 10**6), send(1, 10**6, number=1)],
        1: [receive(0, 10**6), receive(0, 10**6, number=1)],
    }
    topology = single_switch(1, GBPS)
    plan = make_plan(
        [program(rank, (), rows) for rank, rows in operations.items()],
        topology,
        ranks_per_port=2,
        local_rate_bps=8 * GBPS,
    )
    result = simulate_plan(plan, topology, seed=1)
    assert [row.last_acked_ns for row in flow_rows(result.records)] == [
        1_000_000,
        2_000_000,
    ]
    assert result.end_ns == 2_000_000
    assert sum(result.link_bytes.values()) == 0


@pytest.mark.parametrize("op", ["all_to_all", "barrier", "all_gather"])
def test_a_host_with_all_ranks_needs_no_fabric(op: str) -> None:
    _, result = plan_of([collective(op, 4096)], ranks_per_port=4, local_rate_bps=0)
    assert result.end_ns == 0
    assert sum(result.link_bytes.values()) == 0


def test_without_skip_ranks_of_one_port_are_refused() -> None:
    topology = single_switch(1, GBPS)
    world = world_group(2)
    plan = make_plan(
        [program(rank, world, [collective("barrier")]) for rank in range(2)],
        topology,
        ranks_per_port=2,
    )
    with pytest.raises(PlanError, match="same_host: skip"):
        refuse_neighbors_on_one_port(plan)


def test_a_host_in_two_processes_is_refused() -> None:
    plan, _ = plan_of([collective("barrier")], local_rate_bps=0, host_of=two_ports_each)
    with pytest.raises(
        PlanError, match="port 1 of the same host is in another process"
    ):
        connect_local(endpoints_of(plan)[:1])

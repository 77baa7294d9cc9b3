"""Mistakes found in invalid plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.foundation.errors import PlanError
from chakram.plan import plan_check
from chakram.plan.plan import Plan
from chakram.plan.plan_check import check_plan, refuse_large_agents
from chakram.plan.queue_pairs import FIRST_QUEUE_PAIR
from tests.unit.plan.placing import ALL_TO_ALL, RING, make_job, make_plan, make_ports


def broken(plan: Plan, **changes: object) -> list[str]:
    """Return the findings after a change of one queue pair of rank 0."""
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
        ({"qpn": FIRST_QUEUE_PAIR << 6 | 1}, "its number does not belong to shard 0"),
        ({"remote_qpn": 1}, "has no other end"),
        ({"send_psn": 1}, "its other end has different properties"),
        ({"source_port": 1}, "its other end has different properties"),
        ({"group": "x"}, "its other end has different properties"),
        (
            {"remote_address": "10.0.0.1"},
            "port 1 does not have the address 10.0.0.1:4791",
        ),
        ({"remote_udp_port": 9}, "port 1 does not have the address 198.18.0.2:9"),
        ({"remote_port": 9}, "port 9 does not have the address"),
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

    assert "occurs twice" in check(ranks=(rank, rank, other))
    assert "agent a0 has no port 7" in check(ranks=(replace(rank, port=7), other))
    assert "there is no shard 1" in check(ranks=(replace(rank, shard=1), other))
    assert "is number 5, but must be 1" in check(ranks=(replace(rank, number=5), other))
    assert "its rank numbers differ" in check(rank_numbers=())
    assert "its peers differ" in check(peers=("10.0.0.1",))
    twin = replace(agent.ports[1], address=agent.ports[0].address)
    assert "has the address" in check(ports=(agent.ports[0], twin))
    twin = replace(agent.ports[1], number=0)
    assert "two ports have the same number" in check(ports=(agent.ports[0], twin))
    stray = replace(agent.ports[1], agent="a1")
    assert "port 1 belongs to a1" in check(ports=(agent.ports[0], stray))


@pytest.mark.parametrize(
    ("limit", "what"), [("MAX_PORTS", "ports"), ("MAX_RANKS", "ranks")]
)
def test_agents_with_too_much_work_are_refused(
    monkeypatch: pytest.MonkeyPatch, limit: str, what: str
) -> None:
    plan = make_plan({"job": make_job(4, RING)}, make_ports(4))
    refuse_large_agents(plan)
    monkeypatch.setattr(plan_check, limit, 1)
    with pytest.raises(PlanError, match=f"has [24] {what}, more than 1"):
        refuse_large_agents(plan)

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.foundation.errors import ConfigError, PlanError
from chakram_agent.send_limits import Policy, parse_prefix
from tests.plans import ring_plan


def test_only_test_networks_and_loopback_are_allowed_by_default() -> None:
    policy = Policy()
    for address in ("198.18.0.1", "198.19.255.254", "127.0.0.1", "2001:2::1", "::1"):
        policy.check_destination(address, where="x")
    for address in ("198.20.0.1", "10.0.0.1", "8.8.8.8", "2001:db8::1", "fe80::1"):
        with pytest.raises(PlanError, match=f"this agent does not send to {address}"):
            policy.check_destination(address, where="x")


@pytest.mark.parametrize(
    ("text", "limit"),
    [("0.0.0.0/0", 8), ("0.0.0.0/7", 8), ("::/0", 32), ("2001::/31", 32)],
)
def test_allowing_all_addresses_is_refused(text: str, limit: int) -> None:
    with pytest.raises(ConfigError, match=f"use /{limit} or a longer prefix"):
        parse_prefix(text, where="--allow")


@pytest.mark.parametrize("text", ["", "10.0.0.1/8", "10.0.0.0/33", "::1/8", "h1"])
def test_invalid_prefix_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a prefix"):
        parse_prefix(text, where="--allow")


def test_a_single_address_is_a_prefix() -> None:
    assert parse_prefix("192.0.2.1", where="x") == IPv4Network("192.0.2.1/32")


def test_a_plan_that_leaves_the_allowed_prefixes_is_refused() -> None:
    with pytest.raises(PlanError, match=r"plan run-1: agent a: .* to 192\.0\.2\.1"):
        Policy().limit(ring_plan(prefix="192.0.2"))


def test_without_a_cap_the_plan_stays() -> None:
    plan = ring_plan()
    assert Policy().limit(plan) == (plan, [])


def test_a_plan_below_the_cap_stays() -> None:
    plan = ring_plan(rate_bps=10**9)
    assert Policy(max_rate_bps=2 * 10**9).limit(plan) == (plan, [])


@given(
    rates=st.lists(st.none() | st.integers(1, 10**12), min_size=2, max_size=2),
    cap_bps=st.integers(2, 10**12),
)
def test_all_ports_together_stay_within_the_cap(
    rates: list[int | None], cap_bps: int
) -> None:
    plan = ring_plan()
    ports = tuple(
        replace(port, rate_bps=rate)
        for port, rate in zip(plan.ports, rates, strict=True)
    )
    limited, notes = Policy(max_rate_bps=cap_bps).limit(replace(plan, ports=ports))
    assert sum(port.rate_bps or 10**18 for port in limited.ports) <= cap_bps
    changed = sum(a != b for a, b in zip(ports, limited.ports, strict=True))
    assert len(notes) == changed


def test_a_cap_is_refused_where_a_nic_sends() -> None:
    plan = ring_plan(open_spec="verbs:mlx5_0")
    assert Policy().limit(plan) == (plan, [])
    with pytest.raises(PlanError, match="on an RDMA NIC, whose rate"):
        Policy(max_rate_bps=10**9).limit(plan)

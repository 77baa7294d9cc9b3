"""Ports on RDMA NICs: what is verified on them, and sockets in their place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.collectives.groups import POINT_TO_POINT
from chakram.execution.preflight_session import refuse_shared_namespaces
from chakram.foundation.errors import ConfigError, PlanError
from chakram.plan.nic_queue_pairs import (
    BoundQueuePair,
    as_sockets,
    is_verified,
    payload_slots,
    peers_of,
)
from chakram.plan.plan import RunSettings
from chakram.plan.transport import TransportPlan
from tests.plans import ring_plan

PLAN = ring_plan(open_spec="verbs:mlx5_0")


@pytest.mark.parametrize(
    ("transport", "slots", "verified"),
    [
        (TransportPlan(), 3, True),
        (TransportPlan(verify_every=0), 0, False),
        (TransportPlan(verb="send"), 0, True),
        (TransportPlan(verb="send", verify_every=0), 0, False),
    ],
)
def test_credits_are_the_slots_of_writes(
    transport: TransportPlan, slots: int, verified: bool
) -> None:
    settings = RunSettings(credits=3)
    assert payload_slots(PLAN.ranks, transport, settings) == slots
    assert is_verified(PLAN.ranks, transport, settings) == verified


def test_point_to_point_messages_have_no_credits() -> None:
    (rank, _) = PLAN.ranks
    pairs = tuple(replace(each, group=POINT_TO_POINT) for each in rank.queue_pairs)
    ranks = [replace(rank, queue_pairs=pairs)]
    assert payload_slots(ranks, TransportPlan(), RunSettings(credits=3)) == 0


def test_an_end_that_was_made_twice_is_refused() -> None:
    end = BoundQueuePair(
        port=0,
        qpn=5,
        device_qpn=7,
        address=0,
        key=0,
        slot_bytes=1,
        slots=1,
        path_mtu=1024,
    )
    with pytest.raises(PlanError, match="queue pair 5 was made twice"):
        peers_of(PLAN, [end, replace(end, device_qpn=8)])


def test_sockets_replace_nics_on_the_next_udp_port() -> None:
    nic, socket = PLAN.ports[0], ring_plan().ports[1]
    assert as_sockets(socket) is socket
    found = as_sockets(nic)
    assert (found.open, found.udp_port) == ("udp:", nic.udp_port + 1)
    assert found.address == nic.address


def test_preflight_refuses_nics_that_share_a_namespace() -> None:
    with pytest.raises(ConfigError, match="h0 and h1 share a network namespace"):
        refuse_shared_namespaces(PLAN.ports)
    first, second = PLAN.ports
    refuse_shared_namespaces([first, replace(second, netns="/run/netns/port1")])
    refuse_shared_namespaces([first, replace(second, agent="b")])
    refuse_shared_namespaces(ring_plan().ports)

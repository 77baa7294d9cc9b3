"""Ports and queue pairs of small plans, and the endpoints that execute them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.plan.plan import QueuePairPlan
from chakram.plan.port_plan import PortPlan
from chakram.replay.endpoint import Endpoint

if TYPE_CHECKING:
    from chakram.plan.plan import Plan

__all__ = ["endpoints_of", "pair_plan", "port_plan"]


def port_plan(
    number: int = 0,
    *,
    agent: str = "a",
    host: str | None = None,
    open_spec: str = "memory:",
    netns: str | None = None,
    address: str | None = None,
    udp_port: int = 4791,
    rate_bps: int | None = 10**9,
    mtu: int = 4200,
) -> PortPlan:
    """Return a port; host and address follow its number unless they are given."""
    return PortPlan(
        number=number,
        agent=agent,
        host=f"h{number}" if host is None else host,
        open=open_spec,
        netns=netns,
        address=f"198.18.0.{number + 1}" if address is None else address,
        udp_port=udp_port,
        rate_bps=rate_bps,
        mtu=mtu,
    )


def pair_plan(
    qpn: int,
    remote_qpn: int,
    *,
    remote: PortPlan,
    group: str = "all",
    peer_rank: int = 0,
    source_port: int = 0xC000,
    send_psn: int = 0,
    receive_psn: int = 0,
) -> QueuePairPlan:
    """Return one end of a queue pair whose other end is behind the port *remote*."""
    return QueuePairPlan(
        group=group,
        channel=0,
        peer_rank=peer_rank,
        qpn=qpn,
        remote_qpn=remote_qpn,
        remote_port=remote.number,
        remote_address=remote.address,
        remote_udp_port=remote.udp_port,
        source_port=source_port,
        send_psn=send_psn,
        receive_psn=receive_psn,
    )


def endpoints_of(plan: Plan) -> list[Endpoint]:
    """Return the endpoints of a plan of one agent, one a port."""
    (agent,) = plan.agents
    return [
        Endpoint(
            port=port,
            ranks=[rank for rank in agent.ranks if rank.port == port.number],
            transport=agent.transport,
            settings=agent.settings,
            rank_numbers=agent.numbers(),
        )
        for port in agent.ports
    ]

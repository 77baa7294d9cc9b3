"""Ports, transports and settings for tests of the preflight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.plan.port_plan import PortPlan
from chakram.plan.transport import TransportPlan
from tests.port_plans import port_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

MBIT = 10**6
TRANSPORT = TransportPlan(path_mtu=1024, window_bytes=2**16, max_burst_packets=1)


def ports(
    count: int,
    *,
    rates_bps: Sequence[int | None] | None = None,
    mtu: int = 1500,
    address: str = "198.18.0.{}",
) -> list[PortPlan]:
    """Return ports h0, h1, ... of one agent each."""
    return [
        port_plan(
            10 + number,
            agent=f"a{number}",
            host=f"h{number}",
            open_spec="udp:eth0",
            address=address.format(number + 1),
            rate_bps=100 * MBIT if rates_bps is None else rates_bps[number],
            mtu=mtu,
        )
        for number in range(count)
    ]

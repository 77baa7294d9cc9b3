"""The fabric ``loopback``: ports are addresses of this machine's loopback interface."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from chakram.errors import ConfigError
from chakram.fabric.kinds.kind import (
    ROCE_UDP_PORT,
    Addressing,
    LocalFabric,
    World,
    WorldRequest,
)
from chakram.fabric.kinds.shape import MAX_HOSTS
from chakram.fabric.shapes import single_switch
from chakram.plan.plan import PortPlan
from chakram.settings.quantities import Rate, Whole
from chakram.units import format_rate

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from chakram.fabric.topology import Topology

__all__ = ["KIND", "LoopbackFabric"]


class LoopbackFabric(LocalFabric):
    """Ports are addresses of this machine's loopback interface."""

    rate_key: ClassVar[str] = "fabric.rate"
    has_switches: ClassVar[bool] = False

    kind: Literal["loopback"]
    """Ports are addresses of this machine's loopback interface."""
    ports: Whole | None = Field(default=None, ge=1, le=MAX_HOSTS, examples=[8])
    """Number of ports; without it as many as the jobs need."""
    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Rate that each port paces itself to; without it as fast as it goes."""
    addressing: Addressing = "ipv4"
    """Address family of all ports. IPv6 has one loopback address, so ports have the UDP
    ports from udp_port on there."""
    mtu: Whole = Field(default=65_535, ge=576, le=65_535)
    """Largest IP packet, in bytes."""
    udp_port: Whole = Field(default=ROCE_UDP_PORT, ge=1, le=65_535)
    """UDP port that all ports receive on; over IPv6 that of the first."""

    @property
    def port_rate_bps(self) -> int | None:
        """The rate of all ports."""
        return self.rate_bps

    @property
    def nports(self) -> int | None:
        """How many ports there are; None: as many as are needed."""
        return self.ports

    def details(self) -> str:
        """Return the rate in words."""
        rate = "no rate" if self.rate_bps is None else format_rate(self.rate_bps)
        return f"{rate} per port"

    def to_topology(self, nports: int | None = None) -> Topology:
        """Return the ports as hosts on one switch.

        Raises:
            ConfigError: If their number is known from nowhere.
        """
        ports = self.ports or nports
        if ports is None:
            raise ConfigError(
                "fabric.ports", "the number of ports is not known", "e.g. ports: 8"
            )
        return single_switch(ports, self.rate_bps)

    async def bring_up(self, stack: AsyncExitStack, request: WorldRequest) -> World:
        """Start an agent whose ports are loopback addresses."""
        from chakram.fabric.loopback import check_ports_free, loopback_ports

        ports = loopback_ports(
            self.ports or request.nports,
            udp_port=self.udp_port,
            family=self.addressing,
        )
        check_ports_free(ports)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="chakram-"))
        agent, _ = await self.start_agent(stack, request, Path(folder) / "agent.sock")
        return World(
            ports=tuple(
                PortPlan(
                    number=number,
                    agent=agent.name,
                    host=port.host,
                    open="udp:",
                    netns=None,
                    address=port.address,
                    udp_port=port.udp_port,
                    rate_bps=self.rate_bps,
                    mtu=self.mtu,
                )
                for number, port in enumerate(ports)
            ),
            agents=(agent,),
            topology=self.to_topology(request.nports),
            notes=("loopback has no switch: what limits it is this machine",),
        )


KIND = LoopbackFabric

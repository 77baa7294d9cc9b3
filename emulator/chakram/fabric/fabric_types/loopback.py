"""Fabric type ``loopback``: every port is an address in 127.0.0.0/8.

IPv6 has only one loopback address, ``::1``. With IPv6, every port is therefore a UDP
port of that address. The fabric has no switch and needs no privileges. If ``rate`` is
not set, only this machine's processor limits the rate.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from chakram.fabric.fabric_types.base import (
    ROCE_UDP_PORT,
    Addressing,
    LocalFabric,
    World,
    WorldRequest,
)
from chakram.fabric.fabric_types.topology_settings import MAX_HOSTS
from chakram.foundation.errors import ConfigError, FabricError, PortInUse
from chakram.foundation.ip_addresses import IPV4, LOOPBACK_IPV6, is_ipv6, socket_text
from chakram.foundation.socket_folder import socket_folder
from chakram.foundation.units import format_rate
from chakram.plan.port_plan import PortPlan
from chakram.plan.queue_pairs import SOURCE_PORT_BASE
from chakram.settings.field_types import Rate, Whole
from chakram.topology.addressing import loopback_addresses
from chakram.topology.topology import Topology
from chakram.topology.topology_helpers import single_switch


class LoopbackFabric(LocalFabric):
    """Ports are addresses of this machine's loopback interface."""

    has_switches: ClassVar[bool] = False

    kind: Literal["loopback"]
    """Ports are addresses of this machine's loopback interface."""
    ports: Whole | None = Field(default=None, ge=1, le=MAX_HOSTS, examples=[8])
    """Number of ports. Default: as many as the jobs need."""
    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Pacing rate of each port. Default: unlimited."""
    addressing: Addressing = "ipv4"
    """Address family of all ports. With IPv6, ports share one address and use
    consecutive UDP ports from udp_port."""
    mtu: Whole = Field(default=65_535, ge=576, le=65_535)
    """Largest IP packet, in bytes."""
    udp_port: Whole = Field(default=ROCE_UDP_PORT, ge=1, le=65_535)
    """UDP port that ports receive on, or the first one with IPv6."""

    @property
    def receiving_udp_ports(self) -> range:
        """UDP ports that ports receive on. With IPv6, each port uses a separate one."""
        count = 1 if self.addressing == IPV4 else self.ports or 1
        return range(self.udp_port, self.udp_port + count)

    @property
    def port_rate_bps(self) -> int | None:
        """The rate of all ports."""
        return self.rate_bps

    @property
    def nports(self) -> int | None:
        """Number of ports, or None for as many as the jobs need."""
        return self.ports

    def details(self) -> str:
        """Return the port rate as text."""
        rate = "no rate" if self.rate_bps is None else format_rate(self.rate_bps)
        return f"{rate} per port"

    def to_topology(self, nports: int | None = None) -> Topology:
        """Return the ports as hosts on one switch.

        Raises:
            ConfigError: If the number of ports is unknown.
        """
        ports = self.ports or nports
        if ports is None:
            raise ConfigError(
                "fabric.ports", "the number of ports is not known", "e.g. ports: 8"
            )
        return single_switch(ports, self.rate_bps)

    async def bring_up(self, stack: AsyncExitStack, request: WorldRequest) -> World:
        """Start an agent whose ports are loopback addresses."""
        ports = loopback_ports(
            self.ports or request.nports,
            udp_port=self.udp_port,
            family=self.addressing,
        )
        check_ports_free(ports)
        folder = stack.enter_context(socket_folder())
        agent, _ = await self.start_agent(stack, request, folder / "agent.sock")
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
            notes=("loopback has no switch: this machine limits the rate",),
        )


KIND = LoopbackFabric


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopbackPort:
    """Socket address of one port, and the name of its host in the topology."""

    host: str
    address: str
    udp_port: int


def loopback_ports(
    nports: int, *, udp_port: int, family: str = IPV4
) -> tuple[LoopbackPort, ...]:
    """Return ports ``h0``, ``h1``, ... with their addresses.

    Args:
        nports: Number of ports.
        udp_port: UDP port of all ports. With IPv6, the first port uses it, and the
            others use the following UDP ports.
        family: ``ipv4`` or ``ipv6``.

    Raises:
        FabricError: If there are more ports than planned addresses or UDP ports.
    """
    if family == IPV4:
        places = [(address, udp_port) for address in loopback_addresses(nports)]
    else:
        last = udp_port + nports - 1
        if last >= SOURCE_PORT_BASE:
            raise FabricError(
                "fabric.udp_port",
                f"{nports} ports of {LOOPBACK_IPV6} would use UDP ports {udp_port} to "
                f"{last}, but ports from {SOURCE_PORT_BASE} on belong to queue pairs",
                "choose a lower port, or addressing: ipv4",
            )
        places = [(LOOPBACK_IPV6, udp_port + number) for number in range(nports)]
    return tuple(
        LoopbackPort(host=f"h{number}", address=address, udp_port=port)
        for number, (address, port) in enumerate(places)
    )


def check_ports_free(ports: tuple[LoopbackPort, ...]) -> None:
    """Check that no other run or program uses the address of a port.

    Raises:
        PortInUse: If a socket address of a port is taken.
        FabricError: If this machine does not have the loopback addresses.
    """
    if any(is_ipv6(port.address) for port in ports):
        from chakram.fabric.labs.enter_namespace import require_ipv6

        require_ipv6()
    for port in ports:
        where = f"port {port.host} at {socket_text(port.address, port.udp_port)}"
        family = socket.AF_INET6 if is_ipv6(port.address) else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((port.address, port.udp_port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise PortInUse(
                        where,
                        "another program uses it",
                        "end that program, or set fabric.udp_port",
                    ) from error
                raise FabricError(
                    where,
                    f"cannot bind it ({os.strerror(error.errno or 0)})",
                    "is the loopback interface up? see: chakram doctor",
                ) from error

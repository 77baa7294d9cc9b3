"""Settings of hosts and their ports, in experiments and in inventory files."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chakram.fabric.fabric_types.base import ROCE_UDP_PORT
from chakram.settings.addresses import AgentAddress, InterfaceAddress
from chakram.settings.quantities import (
    FilePath,
    Model,
    Name,
    PortSpecification,
    Rate,
    Whole,
)


class PortSettings(Model):
    """One port of a host."""

    open: PortSpecification
    """Kind and interface; agents support udp."""
    address: InterfaceAddress
    """Address with prefix length; all ports have the same family."""
    netns: FilePath | None = Field(default=None, examples=["/run/netns/port0"])
    """Network namespace of the interface. Default: that of the agent."""
    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Rate. Default: defaults.rate."""
    mtu: Whole | None = Field(default=None, ge=576, le=65_535, examples=[9000])
    """Largest IP packet, in bytes. Default: defaults.mtu."""


class HostSettings(Model):
    """A host that an agent controls."""

    name: Name
    """Name of the host and its only port in results; names of several ports also
    contain open, e.g. h1:udp:ens1f0."""
    agent: AgentAddress
    """The host's agent: address:port, or unix:/path on this machine."""
    ports: tuple[PortSettings, ...] = Field(min_length=1, max_length=64)
    """Ports under test, in the order of placement."""


class PortDefaults(Model):
    """Defaults for the settings of ports."""

    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Pacing rate of each port. Default: unlimited."""
    mtu: Whole = Field(default=1500, ge=576, le=65_535)
    """Largest IP packet of a port, in bytes."""
    isolate: Literal["none", "namespace"] = "none"
    """namespace: every port must name its network namespace, so that traffic within a
    server uses the fabric."""
    udp_port: Whole = Field(default=ROCE_UDP_PORT, ge=1, le=65_535)
    """UDP port that ports receive on."""

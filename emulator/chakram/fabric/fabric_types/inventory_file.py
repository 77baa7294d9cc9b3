"""Hosts and ports of a cluster, in experiments and in inventory files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from chakram.fabric.fabric_types.base import ROCE_UDP_PORT, TlsSettings
from chakram.fabric.fabric_types.topology_settings import MAX_HOSTS
from chakram.settings.addresses import AgentAddress, InterfaceAddress, Login, Prefix
from chakram.settings.field_types import (
    BASE_DIRECTORY,
    FilePath,
    Model,
    Name,
    PortSpecification,
    Rate,
    Whole,
)
from chakram.settings.located_errors import Location, Mistake
from chakram.settings.yaml_document import LIST_FACTOR, read_model


class PortSettings(Model):
    """One port of a host."""

    open: PortSpecification
    """udp: followed by an interface, or verbs: followed by an RDMA device."""
    address: InterfaceAddress
    """Address with prefix length. All ports have the same address family."""
    netns: FilePath | None = Field(default=None, examples=["/run/netns/port0"])
    """Network namespace of the interface. Default: the agent's namespace."""
    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Pacing rate. Default: defaults.rate."""
    mtu: Whole | None = Field(default=None, ge=576, le=65_535, examples=[9000])
    """Largest IP packet, in bytes. Default: defaults.mtu."""


class HostSettings(Model):
    """A host that an agent controls."""

    name: Name
    """Name of the host in results. If the host has one port, the port has the same
    name; otherwise, port names also contain open, e.g. h1:udp:ens1f0."""
    agent: AgentAddress | None = None
    """The host's agent: address:port, or unix:/path on this machine. Default: the
    agent is started with --launch."""
    login: Login | None = None
    """Name or address for ssh and mpirun, e.g. user@192.0.2.11. Default: name."""
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


class Inventory(Model):
    """The hosts and ports of a cluster.

    ``chakram hosts find`` writes such a file.
    """

    version: Literal[1]
    """Version of the file format."""
    hosts: tuple[HostSettings, ...] = Field(min_length=1, max_length=MAX_HOSTS)
    """The hosts, with one agent each, in the order of placement."""
    defaults: PortDefaults = PortDefaults.section_defaults()
    """Defaults for the settings of ports."""
    allow: tuple[Prefix, ...] | None = Field(default=None, min_length=1, max_length=64)
    """Prefixes that must contain every port address. Default: the default of
    experiments."""
    tls: TlsSettings | None = None
    """Mutual TLS with the agents. Paths are relative to the folder of this file."""


def read_inventory(path: Path) -> Inventory:
    """Return the inventory in a file.

    Raises:
        ConfigError: If the file is invalid. The error lists every mistake with its
            line, problem and hint.
    """
    return read_model(
        path,
        Inventory,
        context={BASE_DIRECTORY: path.parent},
        check=lambda inventory: check_hosts(inventory.hosts, ()),
        factor=LIST_FACTOR,
    )


def located_ports(
    hosts: Sequence[HostSettings], at: Location
) -> Iterator[tuple[Location, HostSettings, PortSettings]]:
    """Yield all ports, each with its location and host; *at* contains ``hosts``."""
    for index, host in enumerate(hosts):
        for number, port in enumerate(host.ports):
            yield (*at, "hosts", index, "ports", number), host, port


def check_hosts(hosts: Sequence[HostSettings], at: Location) -> Iterator[Mistake]:
    """Yield conflicts between hosts: equal names, agents or addresses, or two families.

    Args:
        hosts: The hosts.
        at: Location of the section that contains ``hosts``.
    """
    yield from _check_unique(hosts, at)
    first = next(iter(located_ports(hosts, at)))
    family = first[2].address.version
    owners: dict[object, str] = {}
    for location, host, port in located_ports(hosts, at):
        address = port.address.ip
        if address in owners:
            yield Mistake(
                location=(*location, "address"),
                found=f"{address} is the address of a port of {owners[address]}",
                hint="give every port a unique address",
            )
        owners.setdefault(address, host.name)
        if address.version != family:
            yield Mistake(
                location=(*location, "address"),
                found=(
                    f"{address} is an IPv{address.version} address, but "
                    f"{first[2].address.ip} (host {first[1].name}) is an IPv{family} "
                    "address: they cannot reach each other"
                ),
                hint="give all ports addresses of the same family",
            )


def _check_unique(hosts: Sequence[HostSettings], at: Location) -> Iterator[Mistake]:
    for key in ("name", "agent"):
        seen: dict[str, int] = {}
        for index, host in enumerate(hosts):
            value = getattr(host, key)
            if value is None:
                continue
            if value in seen:
                yield Mistake(
                    location=(*at, "hosts", index, key),
                    found=f"host {seen[value]} also has {value!r}",
                    hint=f"give every host a unique {key}"
                    if key == "name"
                    else "list all ports of an agent under one host",
                )
            seen.setdefault(value, index)

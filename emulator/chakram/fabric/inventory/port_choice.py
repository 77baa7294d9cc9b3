"""Choose the ports of hosts by subnet or interface, and write an inventory file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network, ip_interface

from chakram.fabric.inventory.reported_interfaces import HostPort
from chakram.foundation.errors import ConfigError
from chakram.foundation.units import format_rate

Prefix = IPv4Network | IPv6Network
CERTIFICATES = {"ca": "ca.pem", "cert": "controller.pem", "key": "controller.key"}
"""Names of the controller's files in a certificate folder, by key of ``tls``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortChoice:
    """Conditions for the ports of a host that belong to the fabric under test.

    Attributes:
        prefixes: A port must have an address in one of these prefixes. Empty for any
            address.
        interfaces: Patterns of interface names, e.g. ``ens*f?np0``. Empty for any name.
    """

    prefixes: Collection[Prefix] = ()
    interfaces: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHost:
    """A host with its agent and its chosen ports, each with its address.

    Attributes:
        name: Name of the host.
        ports: Chosen ports, in the order of placement.
        agent: Address of the host's agent, or None if each run launches an agent.
        login: Address of the host for launchers, or None to use its name.
    """

    name: str
    ports: Sequence[tuple[HostPort, str]]
    agent: str | None = None
    login: str | None = None


def choose_ports(
    host: str, ports: Sequence[HostPort], choice: PortChoice
) -> list[tuple[HostPort, str]]:
    """Return the chosen ports of a host, in natural order, each with its address.

    Raises:
        ConfigError: If no port matches, or a chosen port is down.
    """
    found = []
    for port in sorted(ports, key=_natural):
        address = _address(port, choice)
        if address is None:
            continue
        if not port.is_up:
            raise ConfigError(
                f"host {host}",
                f"{port.interface} ({address}) is down",
                "bring it up: ip link set, and check its cable",
            )
        found.append((port, address))
    if not found:
        seen = ", ".join(
            f"{port.interface} ({' '.join(port.addresses) or 'no address'})"
            for port in sorted(ports, key=_natural)
        )
        raise ConfigError(
            f"host {host}",
            f"has no such port; it has {seen or 'no network interface'}",
            "change --port-in or --interface, or give the ports addresses",
        )
    return found


def _address(port: HostPort, choice: PortChoice) -> str | None:
    """Return the first matching address of a port, or None if none matches."""
    if choice.interfaces and not any(
        fnmatchcase(port.interface, pattern) for pattern in choice.interfaces
    ):
        return None
    for text in port.addresses:
        address = ip_interface(text).ip
        if not choice.prefixes or any(
            address.version == each.version and address in each
            for each in choice.prefixes
        ):
            return text
    return None


def _natural(port: HostPort) -> list[tuple[int, str]]:
    """Return a key that sorts ``eth10`` after ``eth9``."""
    return [
        (int(part), "") if part.isdigit() else (-1, part)
        for text in (port.netns or "", port.interface)
        for part in (*re.split(r"([0-9]+)", text), "")
    ]


def inventory_text(
    hosts: Sequence[FoundHost],
    *,
    allow: Collection[Prefix],
    certificates: str | None,
    on_nics: bool = False,
) -> str:
    """Return the text of an inventory file.

    Args:
        hosts: The hosts, in the order of placement.
        allow: Prefixes that experiments may send to. Empty to leave the choice to
            experiments.
        certificates: Folder with the controller's certificate, or None for no TLS.
        on_nics: Whether ports with an RDMA device use the device instead of sockets.
    """
    return "\n".join(_lines(hosts, allow, certificates, on_nics)) + "\n"


def _lines(
    hosts: Sequence[FoundHost],
    allow: Collection[Prefix],
    certificates: str | None,
    on_nics: bool,
) -> Iterator[str]:
    yield f"# {len(hosts)} hosts, {sum(len(host.ports) for host in hosts)} ports"
    yield "version: 1"
    if allow:
        yield f"allow: [{', '.join(map(_quoted, allow))}]"
    if certificates is not None:
        yield "tls:"
        for key, name in CERTIFICATES.items():
            yield f"  {key}: {_quoted(f'{certificates}/{name}')}"
    yield "hosts:"
    for host in hosts:
        yield f"  - name: {_quoted(host.name)}"
        if host.agent is not None:
            yield f"    agent: {_quoted(host.agent)}"
        if host.login is not None:
            yield f"    login: {_quoted(host.login)}"
        yield "    ports:"
        for port, address in host.ports:
            kind = f"udp:{port.interface}"
            if on_nics and port.rdma_device:
                kind = f"verbs:{port.rdma_device}"
            keys = [f"open: {_quoted(kind)}"]
            keys += [f"address: {_quoted(address)}", f"mtu: {port.mtu}"]
            if port.netns is not None:
                keys.append(f"netns: {_quoted(port.netns)}")
            yield f"      - {{{', '.join(keys)}}}{_remark(port)}"


def _remark(port: HostPort) -> str:
    """Return a comment that describes a port for readers of the inventory."""
    facts = [
        "" if port.rate_bps is None else format_rate(port.rate_bps),
        port.driver,
        "" if port.numa_node is None else f"NUMA node {port.numa_node}",
        port.rdma_device,
    ]
    text = ", ".join(filter(None, facts))
    return f"  # {text}" if text else ""


def _quoted(value: object) -> str:
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'

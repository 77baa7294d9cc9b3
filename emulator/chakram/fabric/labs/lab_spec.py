"""Specification and state of a lab, as data and as JSON.

The controller or the command line writes a ``LabSpec`` to the standard input of the
lab's holder. The holder answers with a ``LabState``, which it also stores in the lab's
directory.
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args, get_origin

from chakram.foundation.errors import ConfigError, FabricError
from chakram.foundation.field_bounds import Declared, declared, declared_fields
from chakram.foundation.ip_addresses import FAMILIES
from chakram.switch.profiles import Profile
from chakram.topology.topology import Topology, check_topology
from chakram.topology.topology_helpers import switch_names

LIFETIMES = ("run", "up")
"""``run``: the lab ends with the process that started it. ``up``: the lab lasts until
it is taken down."""

FORWARDINGS = ("kernel", "model")
"""``kernel``: bridges and routes of the kernel forward packets. ``model``: a switch
process forwards packets between bare ports."""

_T = TypeVar("_T")

# The longest path in a lab's directory is a socket path, which may have at most 107
# bytes. Names are lower case, because they become part of host names in reports.
_LAB_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\Z")

MODEL_SWITCH = "switch"
"""Usual name of the only switch namespace in a lab with modeled switches."""

# Linux: IFNAMSIZ is 16 including the final zero. Interfaces cannot have the names of
# the loopback interface, and of the sysctl folders next to the folders of interfaces.
_LONGEST_INTERFACE = 15
_NO_INTERFACES = frozenset({"lo", "all", "default"})

# Minimum and maximum MTU of a veth device.
_MTU_RANGE = (576, 65535)


def check_lab_name(name: str) -> None:
    """Check that a lab name can be part of a file name and of a host name.

    Raises:
        ConfigError: If *name* is not 1 to 32 lower-case letters, digits or dashes.
    """
    if not _LAB_NAME.match(name):
        raise ConfigError(
            f"lab {name!r}",
            "a lab's name has 1 to 32 lower-case letters, digits and dashes"
            " and does not begin with a dash",
            "e.g. lab1",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSpec:
    """Specification of a lab.

    Attributes:
        name: Prefix of everything that is visible outside the lab.
        topology: Hosts, switches and links of the lab.
        seed: Seed of the switches' ECMP hashes. Equal seeds result in equal paths.
        addressing: Address family of all interfaces, ``ipv4`` or ``ipv6``.
        mtu: Largest IP packet of every interface, in bytes.
        capture_hosts: Hosts whose link carries separate packets instead of bursts
            (``tx-udp-segmentation off`` at both ends). Captures then show the packets
            that a wire would carry.
        forwarding: One of ``FORWARDINGS``.
        lifetime: One of ``LIFETIMES``.
        state_root: Directory in which the lab's own directory is created.
        profile: Settings of modeled switches.
    """

    name: str
    topology: Topology
    seed: int
    addressing: str
    mtu: int
    capture_hosts: tuple[str, ...]
    forwarding: str
    lifetime: str
    state_root: str
    profile: Profile = field(default_factory=Profile)

    def __post_init__(self) -> None:
        check_lab_name(self.name)
        where = f"lab {self.name}"
        for problem in check_topology(self.topology):
            raise FabricError(where, problem, "see the fabric section")
        smallest, largest = _MTU_RANGE
        if not smallest <= self.mtu <= largest:
            raise FabricError(
                where, f"mtu {self.mtu} is not between {smallest} and {largest}"
            )
        for host in self.capture_hosts:
            if host not in self.topology.hosts:
                raise FabricError(
                    where, f"there is no host {host!r} to capture at", "e.g. h0"
                )
        for name, value, known in (
            ("addressing", self.addressing, FAMILIES),
            ("forwarding", self.forwarding, FORWARDINGS),
            ("lifetime", self.lifetime, LIFETIMES),
        ):
            if value not in known:
                raise FabricError(
                    where, f"unknown {name} {value!r}", f"one of {', '.join(known)}"
                )

    @property
    def model_switch(self) -> str:
        """Name of the namespace with the modeled switches, which is not a host name."""
        (name,) = switch_names([MODEL_SWITCH], self.topology.hosts)
        return name

    def model_interfaces(self) -> dict[str, str]:
        """Return the interface of each host in the namespace of modeled switches.

        An interface has the name of its host, or ``port`` and a number if that name is
        not a valid interface name.
        """
        hosts = frozenset(self.topology.hosts)
        names: dict[str, str] = {}
        for number, host in enumerate(self.topology.hosts):
            name = host
            if len(host) > _LONGEST_INTERFACE or host in _NO_INTERFACES:
                name = f"port{number}"
                while name in hosts:
                    name += "-"
            names[host] = name
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """Network access of one host.

    Attributes:
        name: Name of the host in the topology.
        netns: Path that other processes use to enter its network namespace.
        netns_name: Name for ``ip netns exec``, or None in a rootless lab.
        interface: Only interface of the host.
        address: IPv4 or IPv6 address of that interface.
        prefix_length: Prefix length of its subnet.
        mac: MAC address of that interface.
        mtu: Largest IP packet, in bytes.
        switch_interface: Name of the port at the other end of its link.
    """

    name: str
    netns: str
    netns_name: str | None
    interface: str
    address: str
    prefix_length: int
    mac: str
    mtu: int
    switch_interface: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PortState:
    """One port of a switch: its interface, and the link that it belongs to."""

    interface: str
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchState:
    """One switch: its namespace and its ports."""

    name: str
    netns: str
    netns_name: str | None
    ports: tuple[PortState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabState:
    """State of a running lab.

    Attributes:
        name: Name of the lab.
        holder_pid: Process that owns the lab's namespaces.
        holder_start_ticks: Start time of that process, in ticks since boot.
        rootless: Whether the lab is in a user namespace. If so, outside programs enter
            its namespaces with ``python -m chakram.fabric.enter_lab``.
        lifetime: One of ``LIFETIMES``.
        forwarding: One of ``FORWARDINGS``.
        seed: See ``LabSpec``.
        mtu: See ``LabSpec``.
        directory: Directory of the lab, with sockets, process files and the holder's
            log.
        hosts: Hosts of the lab, in the order of the topology.
        switches: Switches of the lab. ``model`` forwarding has only one switch, usually
            named ``switch``, with the other ends of all host links.
        notes: Parts of the specification that this kernel does not support, one
            sentence each.
        topology: See ``LabSpec``.
        capture_hosts: See ``LabSpec``.
        profile: See ``LabSpec``.
    """

    name: str
    holder_pid: int
    holder_start_ticks: int
    rootless: bool
    lifetime: str
    forwarding: str
    seed: int
    mtu: int
    directory: str
    hosts: tuple[HostState, ...]
    switches: tuple[SwitchState, ...]
    notes: tuple[str, ...]
    topology: Topology
    capture_hosts: tuple[str, ...] = ()
    profile: Profile = field(default_factory=Profile)

    def host(self, name: str) -> HostState:
        """Return one host.

        Raises:
            FabricError: If there is no such host.
        """
        for host in self.hosts:
            if host.name == name:
                return host
        raise FabricError(f"lab {self.name}", f"there is no host {name!r}", "e.g. h0")


def encode_spec(spec: LabSpec) -> str:
    """Return *spec* as one line of JSON."""
    return json.dumps(_plain(spec))


def decode_spec(text: str) -> LabSpec:
    """Return the ``LabSpec`` in one line of JSON.

    Raises:
        FabricError: If the line is not a valid ``LabSpec``.
    """
    return _decoded(LabSpec, text, "lab description")


def encode_state(state: LabState) -> str:
    """Return *state* as one line of JSON."""
    return json.dumps(_plain(state))


def decode_state(text: str) -> LabState:
    """Return the ``LabState`` in one line of JSON.

    Raises:
        FabricError: If the line is not a valid ``LabState``.
    """
    return _decoded(LabState, text, "lab state")


def _plain(value: Any) -> Any:
    """Return dataclasses as dictionaries of their constructor arguments."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: _plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.init
        }
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value


def _decoded(kind: type[_T], text: str, where: str) -> _T:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise FabricError(where, "it is not JSON") from None
    if not isinstance(value, dict):
        raise FabricError(where, "it is not a JSON object")
    try:
        return _made(kind, value)
    except (KeyError, TypeError) as error:
        raise FabricError(
            where,
            f"a field is missing or has the wrong type ({error})",
            "it was written by another version of chakram",
        ) from error


def _made(kind: type[_T], value: Any) -> _T:
    """Convert a JSON object to an instance of a dataclass."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    types = declared_fields(kind)
    return kind(**{name: _value(types[name], each) for name, each in value.items()})


def _value(kind: Declared, value: Any) -> Any:
    """Return a field's value from JSON, or raise TypeError if the type is wrong."""
    if value is None and kind.may_be_none:
        return None
    if isinstance(kind.kind, type) and dataclasses.is_dataclass(kind.kind):
        return _made(kind.kind, value)
    if get_origin(kind.kind) is tuple:
        if not isinstance(value, list):
            raise TypeError(f"{value!r} is not a list")
        each = declared(get_args(kind.kind)[0])
        return tuple(_value(each, item) for item in value)
    if kind.kind in (str, int, bool) and type(value) is not kind.kind:
        raise TypeError(f"{value!r} is not {kind.kind.__name__}")
    return value

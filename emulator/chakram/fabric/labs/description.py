"""What a lab shall be and what it became, as data and as JSON.

The controller or the command line writes a ``LabSpec`` to the holder's standard
input; the holder answers with a ``LabState``, which it also keeps in the lab's
directory.
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args, get_origin

from chakram.foundation.errors import FabricError
from chakram.foundation.field_bounds import Declared, declared, declared_fields
from chakram.foundation.ip_addresses import FAMILIES
from chakram.switch.profiles import Profile
from chakram.topology.topology import Topology, check_topology

LIFETIMES = ("run", "up")
"""``run``: ends with the process that started it.  ``up``: stays until it is ended."""

FORWARDINGS = ("kernel", "model")
"""``kernel``: bridges and routes.  ``model``: bare ports, for a switch in a program."""

_T = TypeVar("_T")

# The longest path in a lab's directory is that of a socket, and a socket's path has
# at most 107 bytes; lower case, because names end up in host names of reports.
_LAB_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\Z")

# Smallest and largest MTU of a veth device.
_MTU_RANGE = (576, 65535)


def check_lab_name(name: str) -> None:
    """Refuse a name that cannot be part of a file or host name.

    Raises:
        FabricError: If *name* is not 1 to 32 lower-case letters, digits or dashes.
    """
    if not _LAB_NAME.match(name):
        raise FabricError(
            f"lab {name!r}",
            "a lab's name has 1 to 32 lower-case letters, digits and dashes"
            " and does not begin with a dash",
            "e.g. lab1",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSpec:
    """What a lab shall be.

    Attributes:
        name: Prefix of everything that is visible outside the lab.
        topology: Its hosts, switches and links.
        seed: Decides the switches' ECMP hashes; the same seed places flows alike.
        addressing: Address family of all interfaces, ``ipv4`` or ``ipv6``.
        mtu: Largest IP packet of every interface, in bytes.
        capture_hosts: Hosts whose link carries packets one by one
            (``tx-udp-segmentation off`` at both ends), so that a capture shows what a
            wire would carry.
        forwarding: One of ``FORWARDINGS``.
        lifetime: One of ``LIFETIMES``.
        state_root: Directory in which the lab gets one of its own.
        profile: What modelled switches are like.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """Where one host's traffic leaves and enters.

    Attributes:
        name: The host in the topology.
        netns: Path by which other processes enter its network namespace.
        netns_name: Name for ``ip netns exec``, or None in a rootless lab.
        interface: Its one interface.
        address: Address of that interface, of IPv4 or IPv6.
        prefix_length: Bits of its subnet.
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
    """One port of a switch: its interface and the link it belongs to."""

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
    """A lab that runs.

    Attributes:
        name: Name of the lab.
        holder_pid: Process that owns its namespaces.
        holder_start_ticks: Start time of that process, in ticks since boot.
        rootless: Whether it lives in a user namespace; then programs outside reach
            its namespaces by ``python -m chakram.fabric.enter_lab``.
        lifetime: One of ``LIFETIMES``.
        forwarding: One of ``FORWARDINGS``.
        seed: As specified.
        mtu: As specified.
        directory: The lab's own directory: sockets, process files, the holder's log.
        hosts: Its hosts, in the order of the topology.
        switches: Its switches.  With ``model`` forwarding there is one, named
            ``switch``, that has the other ends of all hosts' links.
        notes: What this kernel could not do as specified, one sentence each.
        topology: As specified.
        capture_hosts: As specified.
        profile: As specified.
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
    """Return the ``LabSpec`` of one line of JSON.

    Raises:
        FabricError: If it is not one.
    """
    return _decoded(LabSpec, text, "lab description")


def encode_state(state: LabState) -> str:
    """Return *state* as one line of JSON."""
    return json.dumps(_plain(state))


def decode_state(text: str) -> LabState:
    """Return the ``LabState`` of one line of JSON.

    Raises:
        FabricError: If it is not one.
    """
    return _decoded(LabState, text, "lab state")


def _plain(value: Any) -> Any:
    """Return dataclasses as dictionaries of what they are made with."""
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
            f"a field is missing or of a wrong type ({error})",
            "it was written by another version of chakram",
        ) from error


def _made(kind: type[_T], value: Any) -> _T:
    """Return the dataclass whose fields a JSON object has."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    types = declared_fields(kind)
    return kind(**{name: _value(types[name], each) for name, each in value.items()})


def _value(kind: Declared, value: Any) -> Any:
    """Return what JSON says of a field; TypeError if its type is another."""
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

"""Functions that open ports from specifications of the format ``kind:details``.

Route lookups that refuse destinations behind ``lo`` and group addresses.

Two addresses in one network namespace reach each other through ``lo``, whichever
interfaces they belong to. Such packets would never reach the device under test. The
lookup sends one netlink message to the kernel, because data-plane processes do not load
netlink libraries.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from ipaddress import ip_address
from typing import TYPE_CHECKING

from chakram.fabric.labs.enter_namespace import in_namespace
from chakram.foundation.errors import ConfigError, FabricError, PeerError
from chakram.foundation.ip_addresses import is_ipv6
from chakram.plan.plan import HEARS_PAUSES, PortPlan
from chakram.plan.transport import TransportPlan
from chakram_agent.dataplane.burst_port import Port
from chakram_agent.dataplane.loop import Line
from chakram_agent.dataplane.memory_port import MemoryNetwork, MemoryPort
from chakram_agent.dataplane.pause_listener import PauseListener
from chakram_agent.dataplane.port_options import PortOptions, of_class
from chakram_agent.dataplane.udp_port import open_udp_port
from chakram_agent.send_limits import Policy

if TYPE_CHECKING:
    from chakram.replay.endpoint import Endpoint


PORT_KINDS = ("udp", "memory")


def open_port(
    specification: str, options: PortOptions, network: MemoryNetwork | None = None
) -> Port:
    """Open a port in the calling thread's network namespace.

    Args:
        specification: ``udp:``, ``udp:INTERFACE`` or ``memory:``. An interface may be
            followed by ``,pauses``; see ``open_line``.
        options: Addresses, source ports, buffers.
        network: Network that connects the ``memory:`` ports of this process.

    Raises:
        ConfigError: If the kind of port is unknown.
        EnvironmentProblem: If the port cannot be opened.
    """
    kind, colon, details = specification.partition(":")
    if colon and kind == "udp":
        return open_udp_port(details.removesuffix(HEARS_PAUSES), options)
    if colon and kind == "memory" and not details:
        return MemoryPort(network or MemoryNetwork(), options)
    raise ConfigError(
        f"port {specification!r}",
        "this agent does not support that kind of port",
        f"known: {', '.join(f'{each}:' for each in PORT_KINDS)}",
    )


@contextmanager
def place_of(
    port: PortPlan,
    addresses: Iterable[str],
    *,
    policy: Policy,
    members: Collection[str],
) -> Iterator[None]:
    """Enter the namespace of a port and check the *addresses* that it will send to.

    Raises:
        ChakramError: If an address is not allowed, is not a member of the plan, or
            would be reached through ``lo``.
    """
    where = f"port {port.number} ({port.host})"
    # A process cannot leave a rootless lab's namespace again; a shard need not leave
    # it.
    with (
        nullcontext() if port.netns is None else in_namespace(port.netns, may_stay=True)
    ):
        for address in addresses:
            policy.check_destination(address, where=where)
            if address not in members:
                raise PeerError(where, f"{address} is not a member of the plan")
            if port.open.startswith("udp:"):
                check_route(address, source=port.address)
        yield


def open_line(
    endpoint: Endpoint,
    transport: TransportPlan,
    *,
    policy: Policy,
    members: Collection[str],
    network: MemoryNetwork | None = None,
    receiver: socket.socket | None = None,
) -> Line:
    """Open the port of *endpoint* in its network namespace.

    If the specification ends with ``,pauses``, the port obeys pause frames that arrive.

    Args:
        endpoint: The endpoint with all its queue pairs.
        transport: Settings of the queue pairs.
        policy: Destinations this agent may send to.
        members: Addresses of the plan; nothing is sent to other addresses.
        network: Network that connects the ``memory:`` ports of this process.
        receiver: Receiving socket of this part of a divided port; None: the port opens
            its own.

    Raises:
        ChakramError: If the port cannot be opened, or a destination is not allowed or
            would be reached through ``lo``.
    """
    port = endpoint.port
    queue_pairs = endpoint.engine.queue_pairs()
    sources: dict[int, int] = {}
    if port.open.startswith("udp:"):
        sources = {
            pair.qpn: of_class(
                pair.source_port, endpoint.dscps[pair.qpn] << 2 | transport.ecn
            )
            for pair in queue_pairs
            if pair.qpn in endpoint.dscps
        }
    options = PortOptions(
        address=port.address,
        udp_port=port.udp_port,
        destinations=endpoint.destinations,
        source_ports=sorted(
            {pair.source_port for pair in queue_pairs}.union(sources.values())
        ),
        data_tos=transport.dscp_data << 2 | transport.ecn,
        control_tos=transport.dscp_ack << 2 | transport.ecn,
        cnp_tos=transport.dscp_cnp << 2 | transport.ecn,
        receiver=receiver,
    )
    addresses = [address for address, _ in endpoint.destinations]
    with place_of(port, addresses, policy=policy, members=members):
        line = Line(endpoint, open_port(port.open, options, network), transport)
        # ACKs and NAKs use the class of their queue pair's data unless the plan sets a
        # separate class for them.
        together = transport.dscp_ack == transport.dscp_data
        line.use_classes(sources, sources if together else {})
        if port.obeys_pauses:
            try:
                line.pauses = PauseListener(
                    port.interface,
                    rate_bps=port.rate_bps,
                    data_dscps={
                        endpoint.dscps.get(pair.qpn, transport.dscp_data)
                        for pair in queue_pairs
                    },
                    ack_dscp=transport.dscp_ack,
                )
            except BaseException:
                line.port.close()
                raise
        return line


LOOPBACK_INDEX = 1
"""Index of ``lo`` in every network namespace."""

_RTM_GETROUTE = 26
_RTM_NEWROUTE = 24
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_RTA_DST = 1
_RTA_OIF = 4
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg
_TYPE_OFFSET = 7  # rtm_type in rtmsg
_SHARED_TYPES = frozenset({3, 4, 5})  # RTN_BROADCAST, RTN_ANYCAST, RTN_MULTICAST
_ATTRIBUTE = struct.Struct("=HH")  # rtattr


def outgoing_interface(address: str) -> int:
    """Return the index of the egress interface for packets to *address*.

    The index belongs to the calling thread's network namespace.

    Raises:
        FabricError: If there is no route, or if *address* is a broadcast, multicast or
            anycast address.

    Source: rtnetlink(7), RTM_GETROUTE.
    """
    family = socket.AF_INET6 if is_ipv6(address) else socket.AF_INET
    packed = socket.inet_pton(family, address)
    route = _ROUTE.pack(family, 8 * len(packed), 0, 0, 0, 0, 0, 0, 0)
    destination = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), _RTA_DST)
    body = route + destination + packed
    request = _HEADER.pack(
        _HEADER.size + len(body), _RTM_GETROUTE, _NLM_F_REQUEST, 1, 0
    )
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
    ) as netlink:
        netlink.send(request + body)
        answer = netlink.recv(8192)
    _, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind == _NLMSG_ERROR:
        (code,) = struct.unpack_from("=i", answer, _HEADER.size)
        raise FabricError(
            f"destination {address}", f"there is no route to it ({os.strerror(-code)})"
        )
    if kind == _RTM_NEWROUTE and answer[_HEADER.size + _TYPE_OFFSET] in _SHARED_TYPES:
        raise _many_hosts(address)
    offset = _HEADER.size + _ROUTE.size
    while kind == _RTM_NEWROUTE and offset + _ATTRIBUTE.size <= len(answer):
        length, name = _ATTRIBUTE.unpack_from(answer, offset)
        if name == _RTA_OIF:
            (index,) = struct.unpack_from("=i", answer, offset + _ATTRIBUTE.size)
            return int(index)
        offset += max(_ATTRIBUTE.size, (length + 3) & ~3)
    raise FabricError(
        f"destination {address}", "the kernel reports no interface for it"
    )


def _many_hosts(address: str) -> FabricError:
    return FabricError(
        f"destination {address}",
        "it is the broadcast address of a subnet, or another address of several hosts",
        "give each port the address of a single host",
    )


def check_route(address: str, *, source: str) -> None:
    """Refuse a destination that packets from *source* reach through ``lo``.

    A loopback address (127.0.0.0/8 or ::1) is accepted if *source* is one, too.

    Raises:
        FabricError: If packets would go through ``lo``, if there is no route, or if
            *address* belongs to several hosts.
    """
    if ip_address(address).is_multicast:
        raise _many_hosts(address)
    interface = outgoing_interface(address)
    if ip_address(source).is_loopback and ip_address(address).is_loopback:
        return
    if interface == LOOPBACK_INDEX:
        raise FabricError(
            f"port at {source}",
            f"packets to {address} would go through lo, not through the network",
            "give each port its own network namespace (isolate: namespace)",
        )

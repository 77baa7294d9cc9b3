"""The loopback fabric: every port is an address of 127.0.0.0/8.  Needs no rights.

IPv6 has one loopback address, so every port is a UDP port of ``::1`` there.  It has no
switch and no rate of its own; what limits it is this machine's processor.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass

from chakram.addresses import IPV4, LOOPBACK_IPV6, is_ipv6, socket_text
from chakram.errors import FabricError, PortInUse
from chakram.fabric.addressing import loopback_addresses
from chakram.fabric.families import require_ipv6
from chakram.plan.queue_pairs import SOURCE_PORT_BASE

__all__ = ["LOOPBACK_INTERFACE", "LoopbackPort", "check_ports_free", "loopback_ports"]

LOOPBACK_INTERFACE = "lo"
"""Interface of all loopback ports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopbackPort:
    """One port: a name, as hosts of a topology have, and where it is."""

    host: str
    address: str
    udp_port: int
    interface: str = LOOPBACK_INTERFACE


def loopback_ports(
    nports: int, *, udp_port: int, family: str = IPV4
) -> tuple[LoopbackPort, ...]:
    """Return ports ``h0``, ``h1``, ... with their addresses.

    Args:
        nports: How many.
        udp_port: Of all of them; with IPv6, of the first one, and the others count up.
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
                f"{nports} ports of {LOOPBACK_IPV6} would be UDP ports {udp_port} to "
                f"{last}; those from {SOURCE_PORT_BASE} on are of queue pairs",
                "choose a lower one, or addressing: ipv4",
            )
        places = [(LOOPBACK_IPV6, udp_port + number) for number in range(nports)]
    return tuple(
        LoopbackPort(host=f"h{number}", address=address, udp_port=port)
        for number, (address, port) in enumerate(places)
    )


def check_ports_free(ports: tuple[LoopbackPort, ...]) -> None:
    """Refuse to start where another run, or another program, holds an address.

    Raises:
        PortInUse: If a socket address of a port is taken.
        FabricError: If this machine does not have the loopback addresses.
    """
    if any(is_ipv6(port.address) for port in ports):
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
                        "another program holds it",
                        "end the other run, or set fabric.udp_port",
                    ) from error
                raise FabricError(
                    where,
                    f"cannot bind it ({os.strerror(error.errno or 0)})",
                    "is the loopback interface up? see: chakram doctor",
                ) from error

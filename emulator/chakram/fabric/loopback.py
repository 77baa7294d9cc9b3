"""The loopback fabric: every port is an address of 127.0.0.0/8.  Needs no rights.

It has no switch and no rate of its own; what limits it is this machine's processor.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass

from chakram.errors import FabricError, PortInUse
from chakram.fabric.addressing import loopback_addresses

__all__ = ["LOOPBACK_INTERFACE", "LoopbackPort", "check_ports_free", "loopback_ports"]

LOOPBACK_INTERFACE = "lo"
"""Interface of all loopback ports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopbackPort:
    """One port: a name, as hosts of a topology have, and an address."""

    host: str
    address: str
    interface: str = LOOPBACK_INTERFACE


def loopback_ports(nports: int) -> tuple[LoopbackPort, ...]:
    """Return ports ``h0``, ``h1``, ... with their addresses.

    Raises:
        FabricError: If there are more ports than planned addresses.
    """
    return tuple(
        LoopbackPort(host=f"h{number}", address=address)
        for number, address in enumerate(loopback_addresses(nports))
    )


def check_ports_free(ports: tuple[LoopbackPort, ...], udp_port: int) -> None:
    """Refuse to start where another run, or another program, holds an address.

    Raises:
        PortInUse: If a socket address of a port is taken.
        FabricError: If this machine does not have the loopback addresses.
    """
    for port in ports:
        where = f"port {port.host} at {port.address}:{udp_port}"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((port.address, udp_port))
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

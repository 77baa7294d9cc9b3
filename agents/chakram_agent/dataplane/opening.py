"""Opens ports by their specification: ``kind:details``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.errors import ConfigError
from chakram_agent.dataplane.memory import MemoryNetwork, MemoryPort
from chakram_agent.dataplane.udp import open_udp_port

if TYPE_CHECKING:
    from chakram_agent.dataplane.port import Port, PortOptions

__all__ = ["PORT_KINDS", "open_port"]

PORT_KINDS = ("udp", "memory")


def open_port(
    specification: str, options: PortOptions, network: MemoryNetwork | None = None
) -> Port:
    """Open a port in the calling thread's network namespace.

    Args:
        specification: ``udp:``, ``udp:INTERFACE`` or ``memory:``.
        options: Addresses, source ports, buffers.
        network: Where ``memory:`` ports of this process meet.

    Raises:
        ConfigError: If the specification is not known here.
        EnvironmentProblem: If the port cannot be opened.
    """
    kind, colon, details = specification.partition(":")
    if colon and kind == "udp":
        return open_udp_port(details, options)
    if colon and kind == "memory" and not details:
        return MemoryPort(network or MemoryNetwork(), options)
    raise ConfigError(
        f"port {specification!r}",
        "that is not a kind of port this agent has",
        f"known: {', '.join(f'{each}:' for each in PORT_KINDS)}",
    )

"""Checked options of ``chakram-agent serve``.

This module must not import gRPC, because the agent checks its options before it forks
the fork server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.control.tls_files import TlsFiles
from chakram_agent.send_limits import Policy
from chakram_agent.state import TRAFFIC_LEASE_NS

if TYPE_CHECKING:
    from chakram.control.call_home.token_file import TokenFile


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Listen address, security and limits of an agent.

    Attributes:
        listen: ``unix:/path`` or ``host:port``. Port 0 selects a free port. Not used if
            the agent calls its controller.
        tls: Certificates. May be None only if no remote host can connect.
        home: Token of the controller to connect to. If None, the agent listens instead.
        insecure: Whether to allow TCP on loopback without certificates. Every local
            user can then command the agent.
        policy: Limits on destinations and rate.
        pin: Whether to pin each data-plane process to one core.
        traffic_lease_ns: Longest time without a heartbeat while there is traffic.
        idle_lease_ns: Longest time without a controller, after which the agent ends
            itself. If None, the agent waits forever.
    """

    listen: str
    tls: TlsFiles | None
    policy: Policy
    home: TokenFile | None = None
    insecure: bool = False
    pin: bool = False
    traffic_lease_ns: int = TRAFFIC_LEASE_NS
    idle_lease_ns: int | None = None

"""Limits on what an agent sends, regardless of the plan.

A traffic generator can be misused. An agent therefore sends only to members of the
plan, only into prefixes that its own administrator allows, and never faster than its
own cap. The agent checks these limits when a plan arrives, and again when a port gets
its destinations. This module does no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from chakram.foundation.errors import ConfigError, PlanError
from chakram.foundation.units import format_rate
from chakram.plan.nic_queue_pairs import is_verbs
from chakram.plan.plan import AgentPlan

DEFAULT_ALLOW = ("198.18.0.0/15", "127.0.0.0/8", "2001:2::/48", "::1/128")
"""Prefixes reserved for network benchmarks (RFC 2544, RFC 5180), and loopback."""

SHORTEST_PREFIX = {4: 8, 6: 32}
"""Shortest allowed prefix by IP version. Test networks have longer prefixes."""

Prefix = IPv4Network | IPv6Network


def parse_prefix(text: str, *, where: str) -> Prefix:
    """Parse a prefix that the agent may send to.

    Raises:
        ConfigError: If *text* is not a prefix or covers too many addresses. *where* is
            the error's location.
    """
    try:
        prefix = ip_network(text)
    except ValueError as error:
        raise ConfigError(
            where,
            f"{text!r} is not a prefix ({error})",
            "e.g. 198.18.0.0/15 or 2001:2::/48",
        ) from None
    shortest = SHORTEST_PREFIX[prefix.version]
    if prefix.prefixlen < shortest:
        raise ConfigError(
            where,
            f"{text} covers {prefix.num_addresses} addresses",
            f"use /{shortest} or a longer prefix",
        )
    return prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits of one agent.

    Attributes:
        allow: Prefixes that the agent may send to.
        max_rate_bps: Highest total rate of all ports. None if there is no limit.
    """

    allow: tuple[Prefix, ...] = tuple(map(ip_network, DEFAULT_ALLOW))
    max_rate_bps: int | None = None

    def check_destination(self, address: str, *, where: str) -> None:
        """Refuse an address that is not allowed.

        Raises:
            PlanError: If the address is outside all allowed prefixes. *where* is the
                error's location.
        """
        parsed = ip_address(address)
        if not any(parsed in prefix for prefix in self.allow):
            raise PlanError(
                where,
                f"this agent does not send to {address}",
                f"it allows {', '.join(map(str, self.allow))}; add a prefix with the "
                "agent's option --allow",
            )

    def check_destinations(self, addresses: set[str], *, where: str) -> None:
        """Refuse the first address that is not allowed.

        Raises:
            PlanError: If an address is outside all allowed prefixes. *where* is the
                error's location.
        """
        for address in sorted(addresses):
            self.check_destination(address, where=where)

    def port_rate_bps(self, rate_bps: int | None, *, ports: int) -> int | None:
        """Return the plan's rate of a port, but at most the port's share of the cap.

        The cap is divided evenly among the agent's ports. They therefore never exceed
        it in total, without any coordination.
        """
        if self.max_rate_bps is None:
            return rate_bps
        share_bps = max(1, self.max_rate_bps // ports)
        return share_bps if rate_bps is None else min(rate_bps, share_bps)

    def limit(self, plan: AgentPlan) -> tuple[AgentPlan, list[str]]:
        """Return *plan* with its port rates within the cap, and notes on the changes.

        Raises:
            PlanError: If the plan sends to an address that is not allowed, or a cap
                cannot be enforced.
        """
        where = f"plan {plan.run_id}: agent {plan.agent}"
        self.check_destinations(destinations(plan), where=where)
        notes: list[str] = []
        ports = []
        for port in plan.ports:
            rate_bps = self.port_rate_bps(port.rate_bps, ports=len(plan.ports))
            if is_verbs(port):
                if self.max_rate_bps is not None:
                    raise PlanError(
                        f"{where}: port {port.number} ({port.host})",
                        "is on an RDMA NIC, whose rate this agent cannot limit",
                        "start the agent without --max-rate, or use sockets (udp:)",
                    )
                rate_bps = port.rate_bps
            if rate_bps != port.rate_bps and rate_bps is not None:
                notes.append(
                    f"port {port.number} ({port.host}) sends at most "
                    f"{format_rate(rate_bps)}: its share of the rate limit of agent "
                    f"{plan.agent}"
                )
                port = replace(port, rate_bps=rate_bps)
            ports.append(port)
        return replace(plan, ports=tuple(ports)), notes


def destinations(plan: AgentPlan) -> set[str]:
    """Return all addresses that the ranks or probes of *plan* send to."""
    found = {pair.remote_address for rank in plan.ranks for pair in rank.queue_pairs}
    if plan.probes is not None:
        found.update(target.address for target in plan.probes.targets)
    return found

"""What an agent allows, whatever a plan says. Pure.

A traffic generator is a weapon: an agent sends only to members of the plan *and* only
into prefixes that its own administrator allows, and in all no faster than its own cap.
This is checked when a plan arrives, and again where a port gets its destinations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from chakram.foundation.errors import ConfigError, PlanError
from chakram.foundation.units import format_rate

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan


DEFAULT_ALLOW = ("198.18.0.0/15", "127.0.0.0/8", "2001:2::/48", "::1/128")
"""The prefixes reserved for benchmarks of networks (RFC 2544, RFC 5180), loopback."""

SHORTEST_PREFIX = {4: 8, 6: 32}
"""By IP version. A shorter one is no test network; 0.0.0.0/0 is the internet."""

Prefix = IPv4Network | IPv6Network


def parse_prefix(text: str, *, where: str) -> Prefix:
    """Return a prefix that may be sent to.

    Raises:
        ConfigError: At *where*, if it is none, or nearly everything.
    """
    try:
        prefix = ip_network(text)
    except ValueError as error:
        raise ConfigError(
            where,
            f"{text!r} is no prefix ({error})",
            "e.g. 198.18.0.0/15 or 2001:2::/48",
        ) from None
    shortest = SHORTEST_PREFIX[prefix.version]
    if prefix.prefixlen < shortest:
        raise ConfigError(
            where,
            f"{text} allows {prefix.num_addresses} addresses",
            f"an agent never sends to more than a /{shortest}",
        )
    return prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits of one agent.

    Attributes:
        allow: Prefixes that may be sent to.
        max_rate_bps: What all ports together send at most; None: no limit.
    """

    allow: tuple[Prefix, ...] = tuple(map(ip_network, DEFAULT_ALLOW))
    max_rate_bps: int | None = None

    def check_destination(self, address: str, *, where: str) -> None:
        """Refuse an address that is not allowed.

        Raises:
            PlanError: At *where*.
        """
        parsed = ip_address(address)
        if not any(parsed in prefix for prefix in self.allow):
            raise PlanError(
                where,
                f"this agent does not send to {address}",
                f"it allows {', '.join(map(str, self.allow))}; its administrator can "
                "add to that with --allow",
            )

    def check_destinations(self, addresses: set[str], *, where: str) -> None:
        """Refuse the first address that is not allowed.

        Raises:
            PlanError: At *where*.
        """
        for address in sorted(addresses):
            self.check_destination(address, where=where)

    def port_rate_bps(self, rate_bps: int | None, *, ports: int) -> int | None:
        """Return what a port may send: what the plan says, but not above its share.

        The cap is divided evenly among the agent's ports, so that they keep it
        together whatever they do, without a word among them.
        """
        if self.max_rate_bps is None:
            return rate_bps
        share_bps = max(1, self.max_rate_bps // ports)
        return share_bps if rate_bps is None else min(rate_bps, share_bps)

    def limit(self, plan: AgentPlan) -> tuple[AgentPlan, list[str]]:
        """Return *plan* with its ports within the cap, and what that changed.

        Raises:
            PlanError: If the plan sends to an address that is not allowed.
        """
        where = f"plan {plan.run_id}: agent {plan.agent}"
        self.check_destinations(destinations(plan), where=where)
        notes: list[str] = []
        ports = []
        for port in plan.ports:
            rate_bps = self.port_rate_bps(port.rate_bps, ports=len(plan.ports))
            if rate_bps != port.rate_bps and rate_bps is not None:
                notes.append(
                    f"port {port.number} ({port.host}) sends {format_rate(rate_bps)} "
                    f"at most: the cap of agent {plan.agent} shared by its ports"
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

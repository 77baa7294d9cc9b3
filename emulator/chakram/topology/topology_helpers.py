"""Builders of single-switch fabrics, and helpers that all topology builders share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from chakram.foundation.errors import FabricError
from chakram.topology.topology import (
    HOST_INTERFACE,
    EcnThresholds,
    Link,
    PortRef,
    Topology,
    check_link,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkKind:
    """Properties that all links of one kind share (see ``Link``)."""

    rate_bps: int | None = None
    delay_ns: int = 0
    queue_bytes: int | None = None
    ecn: EcnThresholds | None = None

    def link(self, a: PortRef, b: PortRef, name: str) -> Link:
        """Return a link of this kind."""
        return Link(
            a=a,
            b=b,
            rate_bps=self.rate_bps,
            delay_ns=self.delay_ns,
            queue_bytes=self.queue_bytes,
            ecn=self.ecn,
            name=name,
        )


def single_switch(
    nhosts: int,
    host_rate_bps: int | None,
    *,
    host_delay_ns: int = 0,
    host_queue_bytes: int | None = None,
    host_ecn: EcnThresholds | None = None,
    names: Sequence[str] | None = None,
) -> Topology:
    """Return a topology of *nhosts* hosts ``h0``, ``h1``, ... on one switch ``s0``.

    Args:
        nhosts: Number of hosts.
        host_rate_bps: Rate of each host link.
        host_delay_ns: Propagation delay of each host link.
        host_queue_bytes: Queue limit of each host link.
        host_ecn: ECN thresholds of each host link.
        names: Distinct host names to use instead of ``h0``, ``h1``, ...

    Raises:
        FabricError: If *nhosts* is not positive or differs from the number of names, or
            a link's values are invalid.
    """
    require_positive(nhosts=nhosts)
    hosts = host_names(nhosts, names)
    (switch,) = switch_names(["s0"], hosts)
    kind = LinkKind(
        rate_bps=host_rate_bps,
        delay_ns=host_delay_ns,
        queue_bytes=host_queue_bytes,
        ecn=host_ecn,
    )
    links = tuple(host_links(hosts, [switch] * nhosts, kind))
    return checked(Topology(hosts=hosts, switches=(switch,), links=links))


def host_names(nhosts: int, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the given host names, or ``h0``, ``h1``, ... if there are none."""
    if names is None:
        return tuple(f"h{number}" for number in range(nhosts))
    if len(names) != nhosts:
        raise FabricError(
            "topology",
            f"has {nhosts} hosts, but there are {len(names)} ports",
            "use one port per host of the topology, in order",
        )
    return tuple(names)


def switch_names(names: list[str], hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return switch names that differ from all host names."""
    taken = frozenset(hosts)
    while not taken.isdisjoint(names):
        names = [f"switch-{name}" for name in names]
    return tuple(names)


def host_links(
    hosts: Sequence[str], switches: Sequence[str], kind: LinkKind
) -> Iterator[Link]:
    """Yield one link from each host to its switch."""
    for number, (host, switch) in enumerate(zip(hosts, switches, strict=True)):
        yield kind.link(
            PortRef(node=host, port=HOST_INTERFACE),
            PortRef(node=switch, port=f"h{number}"),
            f"{host}-{switch}",
        )


class LinkNamer:
    """Generates the port and link names of a graph, in order of ``join`` calls."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(hosts)
        self._used: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()

    def join(self, *nodes: str) -> tuple[PortRef, PortRef, str]:
        """Return the two ends of a link (a host first) and the name of the link."""
        ends = []
        for node in sorted(nodes, key=lambda each: each not in self._hosts):
            port = HOST_INTERFACE if node in self._hosts else f"p{self._used[node]}"
            self._used[node] += 1
            ends.append(PortRef(node=node, port=port))
        a, b = ends
        name = f"{a.node}-{b.node}"
        copy = self._taken[name]
        self._taken[name] += 1
        return a, b, f"{name}-{copy}" if copy else name


def require_positive(**counts: int) -> None:
    """Raise a ``FabricError`` if any of the named counts is not positive."""
    for name, value in counts.items():
        if value <= 0:
            raise FabricError("topology", f"{name} is {value}", "use at least 1")


def checked(topology: Topology) -> Topology:
    """Return *topology*, or raise ``FabricError`` if a link has invalid values."""
    # The builders create valid shapes, so only the links' values can be invalid. All
    # links of a kind have the same values, so the first problem is enough.
    nodes = frozenset((*topology.hosts, *topology.switches))
    for link in topology.links:
        for problem in check_link(link, nodes, frozenset()):
            raise FabricError("topology", problem, "check the fabric's links section")
    return topology

"""Network model of the coarser levels: links, and the next links to each destination.

*Routers* are the nodes that forward messages: switches, and hosts in a fabric where
hosts forward. Every host is attached to a router. This router is the host's switch,
with an up link and a down link, or the host itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from chakram.foundation.errors import FabricError
from chakram.topology.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelLink:
    """One direction of a link.

    Attributes:
        name: Port at which the link starts.
        rate_bps: Rate; None means no limit.
        delay_ns: Propagation delay.
        to: Number of the router at the end of the link; None means that it ends at a
            host.
        is_local: Whether the link is within a host, where messages have no headers.
    """

    name: str
    rate_bps: int | None
    delay_ns: int = 0
    to: int | None = None
    is_local: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Attachment of a host: its router, and the links to and from the router.

    There are no links if the host is the router.
    """

    router: int
    up: int | None = None
    down: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelNetwork:
    """Hosts, routers and links, identified by their indices.

    Attributes:
        hosts: Attachment of each host.
        routers: Number of routers.
        links: All directed links.
        leaving: For each router, its links to other routers.
    """

    hosts: tuple[Attachment, ...]
    routers: int
    links: tuple[LevelLink, ...]
    leaving: tuple[tuple[int, ...], ...]
    _arriving: tuple[tuple[tuple[int, int], ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        arriving: list[list[tuple[int, int]]] = [[] for _ in range(self.routers)]
        for router, links in enumerate(self.leaving):
            for link in links:
                to = self.links[link].to
                if to is None:
                    raise ValueError(
                        f"link {self.links[link].name} does not lead to a router"
                    )
                arriving[to].append((router, link))
        object.__setattr__(self, "_arriving", tuple(map(tuple, arriving)))

    def upwards_first(self) -> LevelNetwork:
        """Return the network with each router's links sorted by upward distance.

        The upward distance of a link is the increase of the router's number, modulo the
        number of routers. The upward path around a ring then comes first if both paths
        are equally long.
        """
        leaving = (
            tuple(sorted(links, key=lambda link: (self._end(link) - at) % self.routers))
            for at, links in enumerate(self.leaving)
        )
        return replace(self, leaving=tuple(leaving))

    def next_links(self, destination: int) -> list[tuple[int, ...]]:
        """Return each router's next links on shortest paths to router *destination*.

        If there are several next links, they have equal cost and are in the order of
        ``leaving``. At the destination, and at routers that cannot reach it, the tuple
        is empty.
        """
        distance = self._distances(destination)
        return [
            tuple(
                link
                for link in self.leaving[router]
                if distance.get(self._end(link), -1) == distance[router] - 1
            )
            if distance.get(router)
            else ()
            for router in range(self.routers)
        ]

    def longest_path(self) -> int:
        """Return the maximum number of links between two hosts."""
        ends = [
            sum(each is not None for each in (host.up, host.down))
            for host in self.hosts
        ]
        return max(
            (
                max(self._distances(router).values())
                for router in {host.router for host in self.hosts}
            ),
            default=0,
        ) + max(ends, default=0)

    def _distances(self, destination: int) -> dict[int, int]:
        """Return the distance of each router to *destination*, in links."""
        distance = {destination: 0}
        waiting = deque([destination])
        while waiting:
            node = waiting.popleft()
            for before, _ in self._arriving[node]:
                if before not in distance:
                    distance[before] = distance[node] + 1
                    waiting.append(before)
        return distance

    def path(self, source: int, destination: int) -> tuple[int, ...]:
        """Return the links between two hosts, on the first of the equal-cost paths.

        Raises:
            FabricError: If there is no path.
        """
        if source == destination:
            return ()
        begin, end = self.hosts[source], self.hosts[destination]
        hops = self.next_links(end.router)
        links = [] if begin.up is None else [begin.up]
        router = begin.router
        while router != end.router:
            if not hops[router]:
                raise FabricError(
                    "topology",
                    f"there is no path from host {source} to host {destination}",
                )
            links.append(hops[router][0])
            router = self._end(hops[router][0])
        return (*links, *(() if end.down is None else (end.down,)))

    def _end(self, link: int) -> int:
        to = self.links[link].to
        return -1 if to is None else to


def network_of(
    topology: Topology,
    *,
    without: Collection[str] = (),
    rates_bps: Mapping[str, int] | None = None,
) -> tuple[LevelNetwork, Mapping[str, int]]:
    """Return the network of a topology, and the numbers of its hosts by name.

    Args:
        topology: Hosts, switches and links.
        without: Names of inter-switch links that are down. No path uses them.
        rates_bps: Maximum link rates, by the port at which the direction begins.

    Raises:
        FabricError: If the links that are down disconnect a host.
    """
    rates_bps = rates_bps or {}
    switches = frozenset(topology.switches)
    links: list[LevelLink] = []
    number_of = {switch: number for number, switch in enumerate(topology.switches)}
    leaving: list[list[int]] = [[] for _ in topology.switches]
    up: dict[str, int] = {}
    down: dict[str, int] = {}
    for link in topology.links:
        is_down = link.name in without
        if is_down and not switches.issuperset((link.a.node, link.b.node)):
            raise FabricError(
                f"link {link.name}",
                f"is down, so that no path leads to host {link.a.node}",
                "choose a link between two switches",
            )
        for end, other in ((link.a, link.b), (link.b, link.a)):
            if end.node not in switches:
                up[end.node] = len(links)
            elif other.node in switches:
                if not is_down:
                    leaving[number_of[end.node]].append(len(links))
            else:
                down[other.node] = len(links)
            links.append(
                LevelLink(
                    name=str(end),
                    rate_bps=_lower(link.rate_bps, rates_bps.get(str(end))),
                    delay_ns=link.delay_ns,
                    to=number_of.get(other.node),
                )
            )
    network = LevelNetwork(
        hosts=tuple(
            Attachment(
                router=number_of[topology.switch_of(host)],
                up=up[host],
                down=down[host],
            )
            for host in topology.hosts
        ),
        routers=len(topology.switches),
        links=tuple(links),
        leaving=tuple(map(tuple, leaving)),
    )
    if without:
        reached = network._distances(network.hosts[0].router)
        for name, host in zip(topology.hosts, network.hosts, strict=True):
            if host.router not in reached:
                raise FabricError(
                    f"links {', '.join(sorted(without))}",
                    f"are down, so that no path leads from host {topology.hosts[0]} to "
                    f"host {name}",
                    "choose links that have alternative paths",
                )
    return network, {host: number for number, host in enumerate(topology.hosts)}


def _lower(rate_bps: int | None, limit_bps: int | None) -> int | None:
    """Return the lower rate. None means no limit."""
    if rate_bps is None or limit_bps is None:
        return limit_bps if rate_bps is None else rate_bps
    return min(rate_bps, limit_bps)

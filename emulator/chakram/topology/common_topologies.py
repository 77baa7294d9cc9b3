"""Builders of single-switch fabrics, and helpers that all topology builders share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

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
    """Properties shared by links of one kind; see ``Link``."""

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
    """Generator of the port and link names of a graph, in the order of joins."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(hosts)
        self._used: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()

    def join(self, *nodes: str) -> tuple[PortRef, PortRef, str]:
        """Return the two ends of a link, host first, and the link's name."""
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
    """Return *topology*; raise ``FabricError`` if a link has invalid values."""
    # The builders create valid shapes, so only the links' values can be invalid. All
    # links of a kind have the same values, so the first problem is enough.
    nodes = frozenset((*topology.hosts, *topology.switches))
    for link in topology.links:
        for problem in check_link(link, nodes, frozenset()):
            raise FabricError("topology", problem, "check the fabric's links section")
    return topology


def leaf_spine(
    leaves: int,
    spines: int,
    hosts_per_leaf: int,
    *,
    uplinks: int,
    host: LinkKind,
    uplink: LinkKind,
    names: Sequence[str] | None = None,
) -> Topology:
    """Return a leaf-spine fabric in which every leaf has *uplinks* uplinks.

    The uplinks of a leaf are assigned to the spines round robin. If *uplinks* is not a
    multiple of *spines*, the remaining uplinks start at a different spine on each leaf.
    Hosts are numbered leaf by leaf.

    Raises:
        FabricError: If a count is not positive, the number of names differs from the
            number of hosts, or a link's values are invalid.
    """
    require_positive(
        leaves=leaves, spines=spines, hosts_per_leaf=hosts_per_leaf, uplinks=uplinks
    )
    hosts = host_names(leaves * hosts_per_leaf, names)
    leaf_names = switch_names([f"leaf{number}" for number in range(leaves)], hosts)
    spine_names = switch_names([f"spine{number}" for number in range(spines)], hosts)
    return checked(
        Topology(
            hosts=hosts,
            switches=(*leaf_names, *spine_names),
            links=(
                *host_links(hosts, _repeated(leaf_names, hosts_per_leaf), host),
                *_round_robin_links(leaf_names, spine_names, uplinks, uplink),
            ),
        )
    )


def fat_tree(
    pods: int,
    leaves: int,
    spines: int,
    cores: int,
    hosts_per_leaf: int,
    *,
    host: LinkKind,
    uplink: LinkKind,
    core: LinkKind,
    names: Sequence[str] | None = None,
) -> Topology:
    """Return a three-tier fat tree.

    Each pod has *leaves* leaves and *spines* spines. Every leaf has one link to every
    spine of its pod. Spines with the same number in all pods share *cores* cores, and
    each of these spines has one link to each of the cores. Hosts are numbered pod by
    pod, leaf by leaf. In a k-ary fat tree, *pods* is k and all other counts are k/2.

    Raises:
        FabricError: See ``leaf_spine``.
    """
    require_positive(
        pods=pods,
        leaves=leaves,
        spines=spines,
        cores=cores,
        hosts_per_leaf=hosts_per_leaf,
    )
    hosts = host_names(pods * leaves * hosts_per_leaf, names)

    def of_pods(what: str, count: int) -> tuple[str, ...]:
        named = [f"pod{pod}-{what}{n}" for pod in range(pods) for n in range(count)]
        return switch_names(named, hosts)

    leaf_names, spine_names = of_pods("leaf", leaves), of_pods("spine", spines)
    core_names = switch_names([f"core{n}" for n in range(spines * cores)], hosts)
    links = list(host_links(hosts, _repeated(leaf_names, hosts_per_leaf), host))
    for pod in range(pods):
        links += _round_robin_links(
            leaf_names[pod * leaves : (pod + 1) * leaves],
            spine_names[pod * spines : (pod + 1) * spines],
            spines,
            uplink,
        )
    for spine in range(spines):
        links += _round_robin_links(
            spine_names[spine::spines],
            core_names[spine * cores : (spine + 1) * cores],
            cores,
            core,
        )
    return checked(
        Topology(
            hosts=hosts,
            switches=(*leaf_names, *spine_names, *core_names),
            links=tuple(links),
        )
    )


def rails(
    servers: int,
    ports: int,
    spines: int,
    *,
    uplinks: int,
    host: LinkKind,
    uplink: LinkKind,
    names: Sequence[str] | None = None,
) -> Topology:
    """Return a rail-optimized fabric: port r of every server is on leaf r.

    Every port is a host, numbered server by server. The leaves are ``rail0``,
    ``rail1``, ... and have uplinks to the spines as in ``leaf_spine``.

    Raises:
        FabricError: See ``leaf_spine``.
    """
    require_positive(servers=servers, ports=ports, spines=spines, uplinks=uplinks)
    hosts = host_names(servers * ports, names)
    rail_names = switch_names([f"rail{number}" for number in range(ports)], hosts)
    spine_names = switch_names([f"spine{number}" for number in range(spines)], hosts)
    return checked(
        Topology(
            hosts=hosts,
            switches=(*rail_names, *spine_names),
            links=(
                *host_links(hosts, rail_names * servers, host),
                *_round_robin_links(rail_names, spine_names, uplinks, uplink),
            ),
        )
    )


def forwarding_nodes(
    nodes: int,
    pairs: Iterable[tuple[int, int]],
    *,
    host: LinkKind,
    between: LinkKind,
    names: Sequence[str] | None = None,
) -> Topology:
    """Return nodes that forward packets for each other, without separate switches.

    Each node is a host and its own switch, ``n0``, ``n1``, ...

    Args:
        nodes: Number of nodes.
        pairs: Pairs of nodes that have a link.
        host: Kind of the link between a host and its switch.
        between: Kind of the links between pairs.
        names: Distinct host names to use instead of ``h0``, ``h1``, ...

    Raises:
        FabricError: See ``leaf_spine``.
    """
    require_positive(nodes=nodes)
    hosts = host_names(nodes, names)
    switches = switch_names([f"n{number}" for number in range(nodes)], hosts)
    return checked(
        Topology(
            hosts=hosts,
            switches=switches,
            links=(
                *host_links(hosts, switches, host),
                *(
                    between.link(
                        PortRef(node=switches[a], port=f"to{b}"),
                        PortRef(node=switches[b], port=f"to{a}"),
                        f"{switches[a]}-{switches[b]}",
                    )
                    for a, b in pairs
                ),
            ),
        )
    )


def torus_pairs(dimensions: Sequence[int]) -> list[tuple[int, int]]:
    """Return the pairs of neighbors in a torus; a ring if it has one dimension.

    Node numbers increase fastest along the first dimension. The two nodes in a
    dimension of size 2 have only one link.
    """
    strides = [prod(dimensions[:axis]) for axis in range(len(dimensions))]
    pairs: dict[tuple[int, int], None] = {}
    for place in product(*(range(size) for size in reversed(dimensions))):
        at = place[::-1]
        number = sum(n * stride for n, stride in zip(at, strides, strict=True))
        for axis, size in enumerate(dimensions):
            if size > 1:
                step = ((at[axis] + 1) % size - at[axis]) * strides[axis]
                pairs.setdefault(_ordered(number, number + step))
    return list(pairs)


def fully_connected_pairs(nodes: int) -> list[tuple[int, int]]:
    """Return all pairs of nodes."""
    return list(combinations(range(nodes), 2))


def _ordered(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def _repeated(names: Sequence[str], times: int) -> list[str]:
    return [name for name in names for _ in range(times)]


def _round_robin_links(
    lower: Sequence[str], upper: Sequence[str], uplinks: int, kind: LinkKind
) -> Iterator[Link]:
    """Yield uplinks of *lower* switches, assigned to *upper* switches round robin."""
    for number, name in enumerate(lower):
        whole = uplinks // len(upper) * len(upper)
        copies: dict[int, int] = {}
        for index in range(uplinks):
            # The remaining uplinks start at a different place on every switch.
            shift = 0 if index < whole else number * (uplinks - whole)
            place = (index + shift) % len(upper)
            copy = copies[place] = copies.get(place, -1) + 1
            suffix = f"-{copy}" if copy else ""
            yield kind.link(
                PortRef(node=name, port=f"up{index}"),
                PortRef(node=upper[place], port=f"down{number}{suffix}"),
                f"{name}-{upper[place]}{suffix}",
            )

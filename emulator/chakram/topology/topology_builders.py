"""Builders of multi-tier fabrics, and of fabrics whose nodes forward packets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from math import prod

from chakram.topology.topology import Link, PortRef, Topology
from chakram.topology.topology_helpers import (
    LinkKind,
    checked,
    host_links,
    host_names,
    require_positive,
    switch_names,
)


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
    links = host_links(hosts, _repeated(leaf_names, hosts_per_leaf), host)
    return _with_spines(hosts, leaf_names, links, spines, uplinks, uplink)


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
    links = host_links(hosts, rail_names * servers, host)
    return _with_spines(hosts, rail_names, links, spines, uplinks, uplink)


def _with_spines(
    hosts: tuple[str, ...],
    leaves: tuple[str, ...],
    links: Iterable[Link],
    spines: int,
    uplinks: int,
    uplink: LinkKind,
) -> Topology:
    """Return a topology of hosts, leaves and spines, with links between them."""
    upper = switch_names([f"spine{number}" for number in range(spines)], hosts)
    return checked(
        Topology(
            hosts=hosts,
            switches=(*leaves, *upper),
            links=(*links, *_round_robin_links(leaves, upper, uplinks, uplink)),
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
    """Return the pairs of neighbors in a torus. A torus of one dimension is a ring.

    Node numbers increase fastest along the first dimension. Two nodes have only one
    link along a dimension of size 2.
    """
    strides = [prod(dimensions[:axis]) for axis in range(len(dimensions))]
    pairs: dict[tuple[int, int], None] = {}
    for place in product(*(range(size) for size in reversed(dimensions))):
        at = place[::-1]
        number = sum(n * stride for n, stride in zip(at, strides, strict=True))
        for axis, size in enumerate(dimensions):
            if size > 1:
                step = ((at[axis] + 1) % size - at[axis]) * strides[axis]
                pairs.setdefault((number + min(0, step), number + max(0, step)))
    return list(pairs)


def fully_connected_pairs(nodes: int) -> list[tuple[int, int]]:
    """Return all pairs of nodes."""
    return list(combinations(range(nodes), 2))


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

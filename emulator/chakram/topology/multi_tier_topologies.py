"""Shapes of fabrics of several tiers, and of nodes that forward by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from math import prod

from chakram.topology.common_topologies import (
    LinkKind,
    checked,
    host_links,
    host_names,
    require_positive,
    switch_names,
)
from chakram.topology.topology import Link, PortRef, Topology


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
    """Return a leaf-spine fabric in which every leaf has so many uplinks.

    They go to the spines in turn; what is left over where *uplinks* is no multiple of
    *spines* goes to other spines at every leaf.  Hosts are numbered leaf by leaf.

    Raises:
        FabricError: If a count is not positive, there are not as many hosts as names,
            or a link's values are impossible.
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
                *_dealt_links(leaf_names, spine_names, uplinks, uplink),
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
    """Return a fat tree of three tiers.

    Each pod has *leaves* and *spines*, every leaf with one link to every spine of its
    pod; the spines of one number in all pods have *cores* of their own, each with one
    link to each of them.  Hosts are numbered pod by pod, leaf by leaf.  A k-ary fat
    tree has k pods of k/2 leaves and k/2 spines, k/2 cores and k/2 hosts a leaf.

    Raises:
        FabricError: As ``leaf_spine``.
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
        links += _dealt_links(
            leaf_names[pod * leaves : (pod + 1) * leaves],
            spine_names[pod * spines : (pod + 1) * spines],
            spines,
            uplink,
        )
    for spine in range(spines):
        links += _dealt_links(
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
    """Return a rail-optimised fabric: port r of every server is on leaf r.

    Every port is a host, numbered server by server; leaves, called ``rail0`` and so
    on, have uplinks to the spines as in ``leaf_spine``.

    Raises:
        FabricError: As ``leaf_spine``.
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
                *_dealt_links(rail_names, spine_names, uplinks, uplink),
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
    """Return nodes that forward for one another, as accelerators do without switches.

    Each is a host and a switch of its own, ``n0`` and so on.

    Args:
        nodes: How many.
        pairs: Those that are linked.
        host: What is between a host and its switch.
        between: The links of the pairs.
        names: What the hosts are called instead; no two alike.

    Raises:
        FabricError: As ``leaf_spine``.
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
    """Return the neighbours in a torus; of one dimension it is a ring.

    Nodes are numbered with the first dimension fastest.  Two nodes in a dimension have
    one link.
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


def _dealt_links(
    lower: Sequence[str], upper: Sequence[str], uplinks: int, kind: LinkKind
) -> Iterator[Link]:
    """Yield the uplinks of switches, dealt to those above in turn."""
    for number, name in enumerate(lower):
        whole = uplinks // len(upper) * len(upper)
        copies: dict[int, int] = {}
        for index in range(uplinks):
            # What is left over begins elsewhere at every switch.
            shift = 0 if index < whole else number * (uplinks - whole)
            place = (index + shift) % len(upper)
            copy = copies[place] = copies.get(place, -1) + 1
            suffix = f"-{copy}" if copy else ""
            yield kind.link(
                PortRef(node=name, port=f"up{index}"),
                PortRef(node=upper[place], port=f"down{number}{suffix}"),
                f"{name}-{upper[place]}{suffix}",
            )

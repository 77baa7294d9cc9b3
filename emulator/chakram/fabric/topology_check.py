"""What is wrong with the shape of a fabric, in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.fabric.topology import Link, PortRef, Topology


# Linux: IFNAMSIZ is 16 with the closing zero; "/" and white space are not allowed.
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}\Z")
# A node's name becomes part of a file name (/run/netns/<lab>-<node>).
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


def check_topology(topology: Topology) -> list[str]:
    """Return what is wrong with *topology*, one sentence each; empty when sound."""
    problems = list(_check_names(topology))
    nodes = frozenset((*topology.hosts, *topology.switches))
    hosts = frozenset(topology.hosts)
    degree = dict.fromkeys(topology.hosts, 0)
    ports: set[PortRef] = set()
    for link in topology.links:
        problems += check_link(link, nodes, hosts)
        for end in (link.a, link.b):
            if end in ports:
                problems.append(f"link {link.name}: port {end} has two links")
            ports.add(end)
            if end.node in degree:
                degree[end.node] += 1
    problems += [
        f"host {host}: has {count} links, must have exactly one"
        for host, count in degree.items()
        if count != 1
    ]
    return problems or _check_connected(topology)


def _check_names(topology: Topology) -> Iterator[str]:
    if not topology.hosts:
        yield "there is no host"
    seen: set[str] = set()
    for kind, names in (
        ("host", topology.hosts),
        ("switch", topology.switches),
        ("link", tuple(link.name for link in topology.links)),
    ):
        if kind == "link":
            seen = set()  # a link may be called like a node
        for name in names:
            if name in seen:
                yield f"{kind} {name}: the name is used twice"
            seen.add(name)
            if not _NODE.match(name):
                yield (
                    f"{kind} {name!r}: a name has 1 to 64 letters, digits, '_', '.'"
                    " or '-' and begins with a letter or digit"
                )


def check_link(link: Link, nodes: frozenset[str], hosts: frozenset[str]) -> list[str]:
    """Return what is wrong with *link* by itself, one sentence each.

    Args:
        link: The link.
        nodes: All nodes that there are.
        hosts: Those that links may not join with each other.
    """
    problems: list[str] = []
    for end in (link.a, link.b):
        if end.node not in nodes:
            problems.append(f"link {link.name}: there is no node {end.node!r}")
        if not _INTERFACE.match(end.port):
            problems.append(
                f"link {link.name}: {end.port!r} is not an interface name of at most"
                " 15 letters, digits, '_', '.' or '-'"
            )
    if link.a.node == link.b.node:
        problems.append(f"link {link.name}: connects {link.a.node} with itself")
    elif link.a.node in hosts and link.b.node in hosts:
        problems.append(f"link {link.name}: connects two hosts without a switch")
    if link.rate_bps is not None and link.rate_bps <= 0:
        problems.append(f"link {link.name}: rate {link.rate_bps} bit/s is not positive")
    if link.delay_ns < 0:
        problems.append(f"link {link.name}: delay {link.delay_ns} ns is negative")
    if link.queue_bytes is not None and link.queue_bytes <= 0:
        problems.append(
            f"link {link.name}: queue of {link.queue_bytes} bytes is not positive"
        )
    return problems


def _check_connected(topology: Topology) -> list[str]:
    first = topology.hosts[0]
    return [
        f"host {host}: there is no path from {first}"
        for host in topology.hosts[1:]
        if not topology.next_hops(first, host)
    ]

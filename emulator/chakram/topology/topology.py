"""Fabric topology: hosts, switches and the links between them.

The namespace builder, the simulator and the lower bound all read the same ``Topology``,
so they agree on the connections. ``chakram.topology.topology_helpers`` builds common
shapes. ``check_topology`` validates topologies from other sources.

Every link is full duplex. ``rate_bps`` applies to each direction, and each direction
has a separate queue at its egress port. A switch stores and forwards each packet unless
it cuts through.

Lab links are virtual: token buckets in the kernel enforce their rates. Packets sent in
one burst stay together and are queued or dropped as a unit. A burst leaves at the start
of its serialization time, not at the end. A port that was idle may run ahead of its
rate by one bucket.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from chakram.foundation.errors import FabricError

HOST_INTERFACE = "eth0"
"""Name of each host's only interface."""

_BUCKET_BYTES = 15_000
BUCKET_NS = 200_000
"""Idle time for which a lab port accumulates unused rate."""

HOST_BUCKET_NS = 2_000_000
"""Idle time for which a host port of a lab accumulates unused rate.

Chakram's ports pace themselves. After a delay of their process, they catch up with a
burst, which may contain a millisecond of traffic at the port rate. With a smaller
bucket, each of these bursts would wait for a kernel timer. Timers are the main cost of
a throttled class: 3-6 us each in a virtual machine, or a quarter of the duration of an
all-to-all among 8 hosts at 1 Gbit/s. Over longer times, a port still does not exceed
its rate. Switch ports, whose rates receivers observe, have small buckets.
"""


def bucket_bytes(rate_bps: int, *, bucket_ns: int = BUCKET_NS) -> int:
    """Return the bucket of a lab port: the bytes that it may send at once when idle.

    The bucket is small because saved tokens let an incast of short messages exceed the
    line rate. It must still be larger than a burst of packets, which leaves as a whole
    and puts the bucket into debt. Otherwise the next ACK waits for a timer. At 1 Gbit/s
    with 15 KB and bursts of four 4 KiB packets, nearly every ACK waited. Timers took a
    third of the time of a ring collective among 8 hosts. A bucket of 25 KB, which is
    200 us, has room for bursts of five packets. It reduced the time of that collective
    from 445 ms to 256 ms.
    """
    return max(_BUCKET_BYTES, rate_bps * bucket_ns // (8 * 10**9))


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PortRef:
    """A port of a node, where packets enter and leave."""

    node: str
    port: str

    def __str__(self) -> str:
        return f"{self.node}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EcnThresholds:
    """Queue lengths at which a switch sets ECN marks.

    Attributes:
        kmin_bytes: Queue length up to which no packet is marked.
        kmax_bytes: Queue length above which every packet is marked.
        probability: Fraction of packets marked at *kmax_bytes*. The fraction rises
            linearly from 0 at *kmin_bytes*.
    """

    kmin_bytes: int
    kmax_bytes: int
    probability: float

    def __post_init__(self) -> None:
        if not 0 <= self.kmin_bytes <= self.kmax_bytes:
            raise ValueError(
                f"ECN thresholds {self.kmin_bytes}..{self.kmax_bytes} are not a range"
            )
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"{self.probability} is not a probability")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A full-duplex link between two ports.

    Attributes:
        a: One end. If the link connects a host, this is the end at the host.
        b: The other end.
        rate_bps: Rate of each direction, in bits of layer-2 packets per second (without
            preamble, FCS and gap), or None if unlimited.
        delay_ns: Propagation delay of each direction.
        queue_bytes: Limit of the queue at each end, in bytes, or None if unlimited.
        ecn: ECN thresholds for packets that a switch sends into the link, or None for
            no marks.
        name: Unique name, used in counters and reports.
    """

    a: PortRef
    b: PortRef
    rate_bps: int | None
    delay_ns: int = 0
    queue_bytes: int | None = None
    ecn: EcnThresholds | None = None
    name: str

    def other_end(self, node: str) -> PortRef:
        """Return the port at the end that is not *node*."""
        return self.b if self.a.node == node else self.a

    def end_at(self, node: str) -> PortRef:
        """Return the port at the end that is *node*."""
        return self.a if self.a.node == node else self.b


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Hosts, switches and the links between them. Only switches forward packets.

    Attributes:
        hosts: Names of the hosts, in the order in which ranks are placed on them.
        switches: Names of the switches.
        links: All links. Each host has exactly one link, which connects it to a switch.
        cuts_through: Whether switches may forward a packet before they have received
            all of it. Lower bounds on packet times depend on this setting.
        is_shaped: Whether token buckets enforce the link rates, as in labs.
    """

    hosts: tuple[str, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]
    is_shaped: bool = False
    cuts_through: bool = False
    _links_of: dict[str, tuple[Link, ...]] = field(
        init=False, repr=False, compare=False
    )
    # Number of each host.
    _hosts: dict[str, int] = field(init=False, repr=False, compare=False)
    # Number of hops from every switch to one switch, filled on demand. A simulation of
    # 1,024 hosts queries a million pairs of hosts, but few distinct switches.
    _distances: dict[str, dict[str, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    # Next nodes from each switch toward another switch, and the neighbors of each node.
    # Both are filled on demand.
    _following: dict[tuple[str, str], tuple[str, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _near: dict[str, tuple[str, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        found: dict[str, list[Link]] = {
            node: [] for node in (*self.hosts, *self.switches)
        }
        for link in self.links:
            for end in (link.a, link.b):
                found.setdefault(end.node, []).append(link)
        links_of = {node: tuple(links) for node, links in found.items()}
        object.__setattr__(self, "_links_of", links_of)
        numbers = {host: number for number, host in enumerate(self.hosts)}
        object.__setattr__(self, "_hosts", numbers)

    def links_of(self, node: str) -> tuple[Link, ...]:
        """Return the links of a host or switch.

        Raises:
            FabricError: If there is no such node.
        """
        try:
            return self._links_of[node]
        except KeyError:
            raise FabricError(
                "topology",
                f"there is no node {node!r}",
                "choose from its hosts and switches",
            ) from None

    def ends(self) -> list[tuple[str, Link]]:
        """Return node and link of each link end, in the order of switch model ports."""
        return [
            (node, link)
            for node in (*self.switches, *self.hosts)
            for link in self.links_of(node)
        ]

    def saved_bytes(self, node: str, link: Link) -> int | None:
        """Return the bytes that an idle port of *node* on *link* accumulates.

        Returns None if the link has no rate, or if token buckets do not enforce its
        rate.
        """
        if link.rate_bps is None or not self.is_shaped:
            return None
        bucket_ns = HOST_BUCKET_NS if node in self._hosts else BUCKET_NS
        return bucket_bytes(link.rate_bps, bucket_ns=bucket_ns)

    def host_link(self, host: str) -> Link:
        """Return the only link of *host*.

        Raises:
            FabricError: If there is no such host or it has no link.
        """
        links = self.links_of(host)
        if host not in self._hosts or not links:
            raise FabricError(
                "topology",
                f"{host!r} is not a host with a link",
                "check the topology with check_topology",
            )
        return links[0]

    def switch_of(self, host: str) -> str:
        """Return the switch that *host* is connected to."""
        return self.host_link(host).other_end(host).node

    def hosts_of(self, switch: str) -> tuple[str, ...]:
        """Return the hosts connected to *switch*, in the order of ``hosts``."""
        near = {link.other_end(switch).node for link in self.links_of(switch)}
        return tuple(sorted(near & self._hosts.keys(), key=self._hosts.__getitem__))

    def equal_cost(self) -> dict[PortRef, str]:
        """Return the equal-cost group of each switch port that belongs to a group.

        The ports of a group are next hops of equal-cost shortest paths to a host. The
        name of a group consists of its switch and a number.
        """
        groups: dict[PortRef, str] = {}
        near = {self.switch_of(host): host for host in self.hosts}
        for switch in self.switches:
            number = 0
            for host in near.values():
                hops = self.next_hops(switch, host)
                if len(hops) > 1 and hops[0] not in groups:
                    groups |= dict.fromkeys(hops, f"{switch}#{number}")
                    number += 1
        return groups

    def uplinks(self) -> tuple[Link, ...]:
        """Return the links between switches."""
        switches = frozenset(self.switches)
        return tuple(
            link
            for link in self.links
            if link.a.node in switches and link.b.node in switches
        )

    def uplink_ports(self) -> dict[str, tuple[str, str]]:
        """Return the link and direction in which each port of an uplink sends."""
        return {
            str(end): (link.name, direction)
            for link in self.uplinks()
            for end, direction in ((link.a, "up"), (link.b, "down"))
        }

    def has_choice(self, switch: str) -> bool:
        """Return whether *switch* has several equal-cost paths to any host."""
        return any(len(self.next_hops(switch, host)) > 1 for host in self.hosts)

    def path_has_choice(self, switch: str) -> bool:
        """Return whether *switch* or a later switch has several equal-cost paths."""
        for host in self.hosts:
            node = switch
            while node != host:
                hops = self.next_hops(node, host)
                if len(hops) > 1:
                    return True
                if not hops:
                    break
                node = self._link_at(hops[0]).other_end(node).node
        return False

    def next_hops(self, node: str, dst_host: str) -> tuple[PortRef, ...]:
        """Return the ports of *node* that are next hops of shortest paths to a host.

        Several ports mean equal-cost paths. The ports are in the order of ``links``.
        The result is empty if *dst_host* is unreachable or is *node* itself.
        """
        if node == dst_host:
            return ()
        last = self.switch_of(dst_host)
        if node == last:
            return (self.host_link(dst_host).end_at(node),)
        distance = self._hops_to(last)
        if node in self._hosts:
            link = self.host_link(node)
            return (link.end_at(node),) if link.other_end(node).node in distance else ()
        here = distance.get(node)
        if here is None:
            return ()
        ends = [
            (link.a, link.b) if link.a.node == node else (link.b, link.a)
            for link in self.links_of(node)
        ]
        return tuple(end for end, far in ends if distance.get(far.node) == here - 1)

    def paths(self, src_host: str, dst_host: str) -> list[tuple[Link, ...]]:
        """Return all equal-cost shortest paths between two hosts, as links in order.

        The list is empty if there is no path or both hosts are the same.
        """
        if src_host == dst_host:
            return []
        found: list[tuple[Link, ...]] = []
        # Depth first with reversed next hops, so that paths are in the order of links.
        stack: list[tuple[str, tuple[Link, ...]]] = [(src_host, ())]
        while stack:
            node, links = stack.pop()
            if node == dst_host:
                found.append(links)
                continue
            for port in reversed(self.next_hops(node, dst_host)):
                link = self._link_at(port)
                stack.append((link.other_end(node).node, (*links, link)))
        return found

    def layers(self, src_host: str, dst_host: str) -> tuple[tuple[str, ...], ...]:
        """Return the nodes on all shortest paths between two hosts, layer by layer.

        The first layer is the source host and the last is the destination host. If both
        are the same, there is one layer.

        Raises:
            FabricError: If there is no path.
        """
        layers: list[tuple[str, ...]] = [(src_host,)]
        while layers[-1] != (dst_host,):
            following = dict.fromkeys(
                other
                for node in layers[-1]
                for other in self._nodes_after(node, dst_host)
            )
            if not following:
                raise FabricError(
                    "topology", f"there is no path from {src_host} to {dst_host}"
                )
            layers.append(tuple(following))
        return tuple(layers)

    def _nodes_after(self, node: str, dst_host: str) -> tuple[str, ...]:
        """Return the distinct nodes that the next hops of *node* lead to."""
        last = self.switch_of(dst_host)
        if node == last:
            return (dst_host,)
        distance = self._hops_to(last)
        if node in self._hosts:
            first = self.switch_of(node)
            return (first,) if first in distance else ()
        known = self._following.get((node, last))
        if known is None:
            here = distance.get(node, 0)
            known = self._following[node, last] = tuple(
                each for each in self._neighbors(node) if distance.get(each) == here - 1
            )
        return known

    def _neighbors(self, node: str) -> tuple[str, ...]:
        """Return the distinct nodes at the other ends of the links of *node*."""
        known = self._near.get(node)
        if known is None:
            known = self._near[node] = tuple(
                dict.fromkeys(link.other_end(node).node for link in self.links_of(node))
            )
        return known

    def _link_at(self, port: PortRef) -> Link:
        return next(
            link for link in self.links_of(port.node) if link.end_at(port.node) == port
        )

    def _hops_to(self, switch: str) -> dict[str, int]:
        """Return the number of links from every connected switch to *switch*."""
        known = self._distances.get(switch)
        if known is not None:
            return known
        switches = frozenset(self.switches)
        distance = {switch: 0}
        waiting = deque([switch])
        while waiting:
            node = waiting.popleft()
            for other in self._neighbors(node):
                if other in switches and other not in distance:
                    distance[other] = distance[node] + 1
                    waiting.append(other)
        self._distances[switch] = distance
        return distance


# Linux: IFNAMSIZ is 16 including the final zero; "/" and white space are not allowed.
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}\Z")
# A node's name becomes part of a file name (/run/netns/<lab>-<node>).
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


def check_topology(topology: Topology) -> list[str]:
    """Return the problems of *topology*, one sentence each, or an empty list."""
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
        f"host {host}: has {count} links, but must have exactly one"
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
            seen = set()  # a link and a node may have the same name
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
    """Return the problems of *link* alone, one sentence each.

    Args:
        link: The link.
        nodes: Names of all nodes.
        hosts: Names of hosts between which direct links are not allowed.
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
        problems.append(f"link {link.name}: connects {link.a.node} to itself")
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

"""Settings of the shape of a fabric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Annotated, ClassVar

from pydantic import Field

from chakram.fabric.fabric_types.link_settings import DEFAULT_QUEUE_BYTES, LinksSettings
from chakram.foundation.errors import ConfigError
from chakram.settings.field_types import Model, Name, Rate, Time, Whole
from chakram.settings.located_errors import Mistake
from chakram.topology.topology import (
    Link,
    Topology,
    check_topology,
)
from chakram.topology.topology_builders import (
    fat_tree,
    forwarding_nodes,
    fully_connected_pairs,
    leaf_spine,
    rails,
    torus_pairs,
)
from chakram.topology.topology_helpers import (
    LinkNamer,
    host_names,
    single_switch,
    switch_names,
)

MAX_SWITCH_HOSTS = 65_536
"""Maximum number of hosts on a single switch."""

MAX_HOSTS = 16_384

MOST_PARALLEL = 64
"""Maximum number of parallel links in one entry of a graph."""

MAX_FABRIC_HOSTS = 1 << 17
"""Maximum number of hosts in a shape of several tiers. Experiments cannot have more
ranks."""

MAX_FABRIC_LINKS = 1 << 19
"""Maximum number of links between the switches of a shape. Creating that many takes
seconds."""

Names = Sequence[str] | None


class Shape(Model, ABC):
    """Base class for the shapes of a fabric.

    Attributes:
        tiers: Number of tiers of switches.
        is_built: Whether namespace labs support the shape.
        has_uplinks: Whether the shape has links between switches.
        has_cores: Whether the shape has a third tier, whose links have separate
            settings.
    """

    tiers: ClassVar[int] = 2
    is_built: ClassVar[bool] = True
    has_uplinks: ClassVar[bool] = True
    has_cores: ClassVar[bool] = False

    @property
    @abstractmethod
    def nhosts(self) -> int:
        """Number of hosts."""

    @abstractmethod
    def describe(self) -> str:
        """Return the shape as text."""

    @abstractmethod
    def to_topology(self, links: LinksSettings, names: Names) -> Topology:
        """Return the topology: see ``TopologySettings.to_topology``."""

    def check(self) -> list[Mistake]:
        """Return the mistakes within the shape."""
        return []

    def check_size(self, name: str, nlinks: int) -> list[Mistake]:
        """Check the numbers of hosts and of links between switches.

        Args:
            name: Key of the shape.
            nlinks: Number of links between switches.
        """
        return [
            Mistake(
                location=("fabric", "topology", name),
                found=f"has {count} {what}",
                hint=f"at most {most}",
            )
            for count, what, most in (
                (self.nhosts, "hosts", MAX_FABRIC_HOSTS),
                (nlinks, "links between switches", MAX_FABRIC_LINKS),
            )
            if count > most
        ]

    def server_of(self, host: int) -> int:
        """Return the server that a host is a port of, by default the host itself."""
        return host

    def port_rate_bps(self, links: LinksSettings) -> int | None:
        """Return the usual rate of hosts' links, or None if they have no rate."""
        return links.host.rate_bps


class _ServerShape(Shape):
    """A shape whose hosts may be ports of servers."""

    server_ports: Whole = Field(default=1, ge=1, le=1024, examples=[8])
    """Ports per server. The ports are consecutive hosts; see same_host of placement."""

    def server_of(self, host: int) -> int:
        """Return the server that a host is a port of."""
        return host // self.server_ports


class GraphLink(Model):
    """A link of a graph."""

    ends: tuple[Name, Name] = Field(examples=[["h0", "s0"]])
    """The two nodes that the link connects. The name of the link begins with the host
    if there is one, otherwise with the first node."""
    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Rate of each direction. Default: the rate in links.host or links.uplink."""
    delay_ns: Time | None = Field(default=None, alias="delay")
    """Propagation delay. Default: the delay in links.host or links.uplink."""
    count: Whole = Field(default=1, ge=1, le=MOST_PARALLEL)
    """Number of parallel links."""


class GraphShape(Shape):
    """Hosts, switches and links, listed individually."""

    hosts: tuple[Name, ...] = Field(
        min_length=1, max_length=MAX_HOSTS, examples=[["a", "b"]]
    )
    """Names of the hosts, in the order of placement."""
    switches: tuple[Name, ...] = Field(
        min_length=1, max_length=MAX_HOSTS, examples=[["s0"]]
    )
    """Names of the switches."""
    links: tuple[GraphLink, ...] = Field(
        min_length=1,
        max_length=1 << 16,
        examples=[[{"ends": ["a", "s0"]}, {"ends": ["b", "s0"]}]],
    )
    """All links. Each host has exactly one link, to a switch."""

    @property
    def nhosts(self) -> int:
        """Number of hosts."""
        return len(self.hosts)

    def port_rate_bps(self, links: LinksSettings) -> int | None:
        """Return the most frequent rate of hosts' links, or the highest in a tie."""
        hosts = {*self.hosts}
        rates = Counter(
            links.host.rate_bps if each.rate_bps is None else each.rate_bps
            for each in self.links
            if hosts & {*each.ends}
        )
        del rates[None]
        return max(rates, key=lambda rate: (rates[rate], rate or 0), default=None)

    def describe(self) -> str:
        """Return the shape as text."""
        links = sum(link.count for link in self.links)
        return (
            f"graph of {len(self.hosts)} hosts, {len(self.switches)} switches, "
            f"{links} links"
        )

    def check(self) -> list[Mistake]:
        """Check the size, names and links, and that all hosts are connected."""
        hosts = {*self.hosts}
        uplinks = sum(link.count for link in self.links if not hosts & {*link.ends})
        if mistakes := self.check_size("graph", uplinks):
            return mistakes
        problems = [
            f"{name} is both a host and a switch"
            for name in sorted({*self.hosts} & {*self.switches})
        ]
        problems += check_topology(self.to_topology(LinksSettings(), None))
        return [
            Mistake(
                location=("fabric", "topology", "graph"),
                found=text,
                hint="connect all nodes, and give every host one link to a switch",
            )
            for text in problems
        ]

    def to_topology(self, links: LinksSettings, names: Names) -> Topology:
        """Return the topology."""
        own = host_names(self.nhosts, names) if names is not None else self.hosts
        renamed = dict(zip(self.hosts, own, strict=True))
        switches = switch_names(list(self.switches), own)
        renamed_switches = dict(zip(self.switches, switches, strict=True))
        joints = LinkNamer(own)
        made: list[Link] = []
        for each in self.links:
            is_host = not renamed.keys().isdisjoint(each.ends)
            usual = (links.host if is_host else links.uplink).kind
            kind = replace(
                usual,
                rate_bps=usual.rate_bps if each.rate_bps is None else each.rate_bps,
                delay_ns=usual.delay_ns if each.delay_ns is None else each.delay_ns,
            )
            if kind.queue_bytes is None and kind.rate_bps is not None:
                kind = replace(kind, queue_bytes=DEFAULT_QUEUE_BYTES)
            ends = [
                renamed.get(name) or renamed_switches.get(name, name)
                for name in each.ends
            ]
            # Put the host first, as in link counters.
            made += (kind.link(*joints.join(*ends)) for _ in range(each.count))
        return Topology(hosts=own, switches=switches, links=tuple(made))


class SingleSwitchShape(_ServerShape):
    """Hosts on one switch."""

    tiers: ClassVar[int] = 1
    has_uplinks: ClassVar[bool] = False

    hosts: Whole = Field(ge=1, le=MAX_SWITCH_HOSTS, examples=[8])
    """Number of hosts, with one port each."""

    @property
    def nhosts(self) -> int:
        """Number of hosts."""
        return self.hosts

    def describe(self) -> str:
        """Return the shape as text."""
        return f"single switch, {self.hosts} hosts"

    def to_topology(self, links: LinksSettings, names: Names) -> Topology:
        """Return the topology."""
        return single_switch(
            self.hosts,
            links.host.rate_bps,
            host_delay_ns=links.host.delay_ns,
            host_queue_bytes=links.host.longest_queue_bytes,
            host_ecn=links.host.ecn_thresholds,
            names=names,
        )


class ClosShape(_ServerShape):
    """Leaves and spines."""

    leaves: Whole = Field(ge=1, le=1024, examples=[2])
    """Number of leaf switches."""
    spines: Whole = Field(ge=1, le=1024, examples=[2])
    """Number of spine switches."""
    hosts_per_leaf: Whole = Field(ge=1, le=1024, examples=[4])
    """Number of hosts per leaf, with one port each."""
    uplinks: Whole | None = Field(default=None, ge=1, le=1024, examples=[4])
    """Number of links from each leaf to the spines, assigned round robin. Default: one
    per spine."""

    @property
    def nhosts(self) -> int:
        """Number of hosts of all leaves."""
        return self.leaves * self.hosts_per_leaf

    def check(self) -> list[Mistake]:
        """Check the size, and that every leaf reaches every spine."""
        return [
            *_check_uplinks("clos", self.uplinks, self.spines),
            *self.check_size("clos", self.leaves * (self.uplinks or self.spines)),
        ]

    def describe(self) -> str:
        """Return the shape as text."""
        uplinks = f", {self.uplinks} uplinks each" if self.uplinks else ""
        return (
            f"Clos of {self.leaves} leaves x {self.spines} spines "
            f"x {self.hosts_per_leaf} hosts{uplinks}"
        )

    def to_topology(self, links: LinksSettings, names: Names) -> Topology:
        """Return the topology."""
        return leaf_spine(
            self.leaves,
            self.spines,
            self.hosts_per_leaf,
            uplinks=self.uplinks or self.spines,
            host=links.host.kind,
            uplink=links.uplink.kind,
            names=names,
        )


class FatTreeShape(_ServerShape):
    """Three tiers: pods of leaves and spines, and cores above them."""

    tiers: ClassVar[int] = 3
    has_cores: ClassVar[bool] = True

    pods: Whole = Field(ge=1, le=256, examples=[2])
    """Number of pods."""
    leaves: Whole = Field(ge=1, le=256, examples=[2])
    """Number of leaves per pod. Each leaf has a link to every spine of the pod."""
    spines: Whole = Field(ge=1, le=256, examples=[2])
    """Number of spines per pod."""
    cores: Whole = Field(ge=1, le=256, examples=[2])
    """Number of cores for each spine of a pod. These cores link to the spines with the
    same number in all pods. In a k-ary fat tree, pods is k, and all other counts are
    k/2."""
    hosts_per_leaf: Whole = Field(ge=1, le=1024, examples=[2])
    """Number of hosts per leaf, with one port each."""

    @property
    def nhosts(self) -> int:
        """Number of hosts of all pods."""
        return self.pods * self.leaves * self.hosts_per_leaf

    def check(self) -> list[Mistake]:
        """Check the size."""
        links = self.pods * self.spines * (self.leaves + self.cores)
        return self.check_size("fat_tree", links)

    def describe(self) -> str:
        """Return the shape as text."""
        return (
            f"fat tree of {self.pods} pods x {self.leaves} leaves x {self.spines} "
            f"spines x {self.hosts_per_leaf} hosts, {self.spines * self.cores} cores"
        )

    def to_topology(self, links: LinksSettings, names: Names) -> Topology:
        """Return the topology."""
        return fat_tree(
            self.pods,
            self.leaves,
            self.spines,
            self.cores,
            self.hosts_per_leaf,
            host=links.host.kind,
            uplink=links.uplink.kind,
            core=(links.core or links.uplink).kind,
            names=names,
        )


class RailShape(Shape):
    """Servers with several ports: port r of every server is on leaf r."""

    servers: Whole = Field(ge=1, le=MAX_HOSTS, examples=[4])
    """Number of servers."""
    ports: Whole = Field(ge=1, le=64, examples=[2])
    """Number of ports per server, which is also the number of leaves. Every port is
    a host. Hosts are numbered server by server; see same_host of placement."""
    spines: Whole = Field(ge=1, le=1024, examples=[2])
    """Number of spine switches."""
    uplinks: Whole | None = Field(default=None, ge=1, le=1024, examples=[4])
    """Number of links from each leaf to the spines, as in clos."""

    @property
    def nhosts(self) -> int:
        """Number of ports of all servers."""
        return self.servers * self.ports

    def check(self) -> list[Mistake]:
        """Check the size, and that every leaf reaches every spine."""
        return [
            *_check_uplinks("rail", self.uplinks, self.spines),
            *self.check_size("rail", self.ports * (self.uplinks or self.spines)),
        ]

    def describe(self) -> str:
        """Return the shape as text."""
        uplinks = f", {self.uplinks} uplinks each" if self.uplinks else ""
        return (
            f"{self.servers} servers x {self.ports} rails, {self.spines} "
            f"spines{uplinks}"
        )

    def to_topology(self, links: LinksSettings, names: Names) -> Topology:
        """Return the topology."""
        return rails(
            self.servers,
            self.ports,
            self.spines,
            uplinks=self.uplinks or self.spines,
            host=links.host.kind,
            uplink=links.uplink.kind,
            names=names,
        )

    def server_of(self, host: int) -> int:
        """Return the server that a host is a port of."""
        return host // self.ports


class _ForwardingShape(Shape):
    """Nodes that forward packets for each other, without switches."""

    tiers: ClassVar[int] = 1
    is_built: ClassVar[bool] = False

    @abstractmethod
    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of nodes that have a link."""

    def to_topology(self, links: LinksSettings, names: Names) -> Topology:
        """Return the topology."""
        return forwarding_nodes(
            self.nhosts,
            self.pairs(),
            host=links.host.kind,
            between=links.uplink.kind,
            names=names,
        )


class RingShape(_ForwardingShape):
    """Nodes in a ring."""

    nodes: Whole = Field(ge=2, le=MAX_HOSTS, examples=[8])
    """Number of nodes. In namespaces, more than 256 nodes need addressing: ipv6."""

    @property
    def nhosts(self) -> int:
        """Number of nodes."""
        return self.nodes

    def describe(self) -> str:
        """Return the shape as text."""
        return f"ring of {self.nodes} nodes"

    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of nodes that have a link."""
        return torus_pairs([self.nodes])


class TorusShape(_ForwardingShape):
    """Nodes in a torus."""

    dimensions: tuple[Annotated[Whole, Field(ge=1, le=MAX_HOSTS)], ...] = Field(
        min_length=1, max_length=6, examples=[[4, 4]]
    )
    """Number of nodes in each dimension. In namespaces, more than 256 nodes in total
    need addressing: ipv6. Node numbers increase fastest in the first dimension."""

    @property
    def nhosts(self) -> int:
        """Number of nodes."""
        return prod(self.dimensions)

    def check(self) -> list[Mistake]:
        """Check that there are not too many nodes."""
        if self.nhosts <= MAX_HOSTS:
            return []
        return [
            Mistake(
                location=("fabric", "topology", "torus", "dimensions"),
                found=f"make {self.nhosts} nodes",
                hint=f"at most {MAX_HOSTS}",
            )
        ]

    def describe(self) -> str:
        """Return the shape as text."""
        return f"torus of {' x '.join(map(str, self.dimensions))} nodes"

    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of nodes that have a link."""
        return torus_pairs(self.dimensions)


class FullyConnectedShape(_ForwardingShape):
    """Nodes with a link between every pair."""

    nodes: Whole = Field(ge=2, le=256, examples=[8])
    """Number of nodes."""

    @property
    def nhosts(self) -> int:
        """Number of nodes."""
        return self.nodes

    def describe(self) -> str:
        """Return the shape as text."""
        return f"{self.nodes} nodes, fully connected"

    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of nodes that have a link."""
        return fully_connected_pairs(self.nodes)


class TopologySettings(Model):
    """Shape of the fabric: exactly one of these keys."""

    single_switch: SingleSwitchShape | None = None
    """All hosts on one switch."""
    clos: ClosShape | None = None
    """A leaf-spine fabric of two tiers."""
    fat_tree: FatTreeShape | None = None
    """A fabric of three tiers."""
    rail: RailShape | None = None
    """A rail-optimized fabric: port r of every server is on leaf r."""
    graph: GraphShape | None = None
    """Hosts, switches and links, listed individually."""
    ring: RingShape | None = None
    """A ring of nodes that forward packets."""
    torus: TorusShape | None = None
    """A torus of nodes that forward packets."""
    fully_connected: FullyConnectedShape | None = None
    """Nodes that forward packets, each with a link to all others."""

    @property
    def shape(self) -> Shape | None:
        """The shape, or None if no key is set."""
        given = self._given()
        return given[0] if given else None

    def _given(self) -> list[Shape]:
        values = (getattr(self, name) for name in type(self).model_fields)
        return [each for each in values if each is not None]

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return 0 if self.shape is None else self.shape.nhosts

    @property
    def tiers(self) -> int:
        """Number of tiers of switches."""
        return 1 if self.shape is None else self.shape.tiers

    @property
    def has_uplinks(self) -> bool:
        """Whether the shape has links between switches, or nodes that forward."""
        return self.shape is not None and self.shape.has_uplinks

    @property
    def has_cores(self) -> bool:
        """Whether the shape has links with the settings of ``links.core``."""
        return self.shape is not None and self.shape.has_cores

    def warnings(self, links: LinksSettings) -> list[str]:
        """Return warnings about settings of links that the shape does not have."""
        if links.core is None or self.has_cores:
            return []
        return ["fabric.links.core: has no effect, because only a fat_tree has cores"]

    def describe(self) -> str:
        """Return the shape as text."""
        return "no shape" if self.shape is None else self.shape.describe()

    def check(self) -> list[Mistake]:
        """Check that exactly one shape is set, and check that shape."""
        given = self._given()
        if len(given) == 1:
            return given[0].check()
        names = list(type(self).model_fields)
        return [
            Mistake(
                location=("fabric", "topology"),
                found="names two shapes" if given else "names no shape",
                hint=f"write one of {', '.join(names[:-1])} or {names[-1]}",
            )
        ]

    def to_topology(self, links: LinksSettings, names: Names = None) -> Topology:
        """Return the topology of the shape, with the given link settings.

        Args:
            links: Settings of the links.
            names: Names of the hosts, or None for h0, h1, ...

        Raises:
            ConfigError: If no shape is set.
            FabricError: If the shape is impossible.
        """
        if self.shape is None:
            raise ConfigError(
                "fabric.topology", "names no shape", "write e.g. single_switch or clos"
            )
        return self.shape.to_topology(links, names)


def _check_uplinks(shape: str, uplinks: int | None, spines: int) -> list[Mistake]:
    if uplinks is None or uplinks >= spines:
        return []
    return [
        Mistake(
            location=("fabric", "topology", shape, "uplinks"),
            found=f"{uplinks} uplinks do not reach {spines} spines",
            hint=f"use at least {spines}, or fewer spines",
        )
    ]

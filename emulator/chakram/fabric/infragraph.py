"""Strict reader and writer of fabrics in the InfraGraph format.

Only elements that packets cross are converted. Every network card with an edge becomes
a host, named after its instance. Every instance with edges at its ports becomes a
switch. The internals of devices are ignored.

The reader rejects documents with the following faults, which the reference service
accepts:

- edges with unknown links
- slices that exceed a count
- endpoints that do not match one to one
- ports that are used twice
- instances without an edge

Source: https://infragraph.dev, schema 3.1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from pydantic import Field, ValidationError

from chakram.fabric.fabric_types.topology_settings import MOST_PARALLEL
from chakram.foundation.errors import ConfigError
from chakram.foundation.units import exact_rate, exact_time
from chakram.settings.field_types import BOUNDS, LARGEST_RATE_BPS, Model
from chakram.settings.located_errors import from_validation, report
from chakram.settings.yaml_document import parse_document
from chakram.topology.topology import Topology, check_topology
from chakram.topology.topology_helpers import LinkKind, LinkNamer

SIZE_LIMIT_BYTES = 4 << 20
"""Maximum size of an InfraGraph document."""

_MOST_LINKS = 1 << 16
_LARGEST = 1 << 16
_ENDPOINT = re.compile(r"([^\[\]]{1,64})(?:\[([0-9]{0,6})(:?)([0-9]{0,6})\])?\Z")
_GIGA = 10**9
_UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000}


class _Component(Model):
    name: str
    count: int = Field(default=1, ge=1, le=_LARGEST)
    choice: str
    description: str | None = None
    custom: dict[str, Any] | None = None
    device: str | dict[str, Any] | None = None


class _Device(Model):
    name: str
    description: str | None = None
    components: tuple[_Component, ...] = ()
    links: tuple[dict[str, Any], ...] = ()
    edges: tuple[dict[str, Any], ...] = ()


class _Bandwidth(Model):
    choice: Literal[
        "gigabits_per_second", "gigabytes_per_second", "gigatransfers_per_second"
    ]
    gigabits_per_second: float | None = Field(default=None, ge=1e-6, le=1e6)
    gigabytes_per_second: float | None = Field(default=None, ge=1e-6, le=1e6)
    gigatransfers_per_second: float | None = Field(default=None, gt=0)


class _Latency(Model):
    choice: Literal["ms", "us", "ns"]
    ms: float | None = Field(default=None, ge=0, le=1e4)
    us: float | None = Field(default=None, ge=0, le=1e7)
    ns: float | None = Field(default=None, ge=0, le=1e10)


class _Physical(Model):
    bandwidth: _Bandwidth | None = None
    latency: _Latency | None = None


class _Link(Model):
    name: str
    description: str | None = None
    physical: _Physical | None = None


class _Instance(Model):
    name: str
    device: str
    count: int = Field(default=1, ge=1, le=_LARGEST)
    description: str | None = None


class _Endpoint(Model):
    instance: str
    component: str


class _Edge(Model):
    ep1: _Endpoint
    ep2: _Endpoint
    scheme: Literal["one2one", "many2many", "ring"]
    link: str


class _Infrastructure(Model):
    name: str
    description: str | None = None
    devices: tuple[_Device, ...] = Field(min_length=1)
    links: tuple[_Link, ...] = Field(min_length=1)
    instances: tuple[_Instance, ...] = Field(min_length=1)
    edges: tuple[_Edge, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class _Place:
    """One port of one instance."""

    instance: str
    index: int
    component: str
    number: int

    def __str__(self) -> str:
        return f"{self.instance}.{self.index}.{self.component}.{self.number}"


def read_infragraph(text: bytes, *, source: str) -> Topology:
    """Return the fabric that an InfraGraph document in YAML describes.

    Args:
        text: Content of the document.
        source: Name of the document, for error messages.

    Raises:
        ConfigError: If the document is invalid or does not describe a fabric. The error
            names the location.
    """
    document = parse_document(text, source=source, hint=None)
    try:
        if document.mistakes:
            raise report(source, document.mistakes, document.line)
        infrastructure = _Infrastructure.model_validate(document.data)
    except ValidationError as error:
        mistakes = from_validation(error, model=_Infrastructure, data=document.data)
        raise report(source, mistakes, document.line) from None
    return _Reader(infrastructure, source).topology()


class _Reader:
    """Converts an infrastructure to a fabric. *source* names the document in errors."""

    def __init__(self, infrastructure: _Infrastructure, source: str) -> None:
        self._source = source
        self._infrastructure = infrastructure
        self._devices = self._named("devices", infrastructure.devices)
        self._instances = self._named("instances", infrastructure.instances)
        self._links = self._named("links", infrastructure.links)
        for number, each in enumerate(infrastructure.instances):
            if each.device not in self._devices:
                raise self._error(
                    f"instances[{number}].device", f"there is no device {each.device!r}"
                )
        self._used: dict[_Place, str] = {}

    def _error(self, where: str, found: str, hint: str | None = None) -> ConfigError:
        return ConfigError(f"{self._source}: {where}", found, hint)

    def _named(self, what: str, entries: Sequence[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for number, each in enumerate(entries):
            if each.name in found:
                raise self._error(
                    f"{what}[{number}].name", f"{each.name!r} is used twice"
                )
            found[each.name] = each
        return found

    def topology(self) -> Topology:
        """Return the fabric."""
        joined: list[tuple[_Place, _Place, _Link]] = []
        for number, edge in enumerate(self._infrastructure.edges):
            where = f"edges[{number}]"
            link = self._links.get(edge.link)
            if link is None:
                raise self._error(f"{where}.link", f"there is no link {edge.link!r}")
            for pair in self._pairs(edge, where):
                for place in pair:
                    if place in self._used:
                        raise self._error(
                            where, f"{place} is already used by {self._used[place]}"
                        )
                    self._used[place] = where
                joined.append((*pair, link))
                if len(joined) > _MOST_LINKS:
                    raise self._error(where, f"creates more than {_MOST_LINKS} links")
        with_edges = {place.instance for place in self._used}
        indices = {(place.instance, place.index) for place in self._used}
        for number, each in enumerate(self._infrastructure.instances):
            missing = [n for n in range(each.count) if (each.name, n) not in indices]
            if each.name not in with_edges or missing:
                raise self._error(
                    f"instances[{number}]",
                    f"{each.name}[{missing[0]}] has no edge",
                    "add an edge, or remove the instance",
                )
        return self._joined(joined)

    def _pairs(self, edge: _Edge, where: str) -> list[tuple[_Place, _Place]]:
        one = self._places(edge.ep1, f"{where}.ep1")
        other = self._places(edge.ep2, f"{where}.ep2")
        if edge.scheme == "many2many":
            if len(one) * len(other) > _MOST_LINKS:
                raise self._error(where, f"creates more than {_MOST_LINKS} links")
            return [(a, b) for a in one for b in other]
        if edge.scheme == "ring":
            raise self._error(f"{where}.scheme", "rings of ports are not supported")
        if len(one) != len(other):
            raise self._error(
                where,
                f"connects {len(one)} endpoints one to one with {len(other)}",
                "use slices of equal length",
            )
        return list(zip(one, other, strict=True))

    def _places(self, endpoint: _Endpoint, where: str) -> list[_Place]:
        name, indices = self._slice(
            endpoint.instance, f"{where}.instance", self._instances, "instance"
        )
        device = self._devices[self._instances[name].device]
        components = {each.name: each for each in device.components}
        component, numbers = self._slice(
            endpoint.component, f"{where}.component", components, "component"
        )
        if components[component].choice not in ("nic", "port"):
            raise self._error(
                f"{where}.component",
                f"{component} is a {components[component].choice}",
                "use nics and ports as ends of links",
            )
        if len(indices) * len(numbers) > _MOST_LINKS:
            raise self._error(where, f"names more than {_MOST_LINKS} endpoints")
        return [
            _Place(name, index, component, number)
            for index in indices
            for number in numbers
        ]

    def _slice(
        self, text: str, where: str, known: dict[str, Any], noun: str
    ) -> tuple[str, range]:
        """Return the name and the indices of a slice such as ``host[0:2]``."""
        match = _ENDPOINT.match(text)
        if match is None:
            raise self._error(
                where, f"{text!r} is not a valid {noun} with a slice", "e.g. host[0:2]"
            )
        name, first, colon, last = match.groups()
        if name not in known:
            raise self._error(where, f"there is no {noun} {name!r}")
        count = known[name].count
        if first is None:
            return name, range(count)
        begin = int(first or 0)
        end = begin + 1
        if colon:
            end = int(last or count)
        if (not colon and (not first or last)) or not begin < end <= count:
            raise self._error(where, f"{text!r} is out of range: there are {count}")
        return name, range(begin, end)

    def _is_host(self, place: _Place) -> bool:
        device = self._devices[self._instances[place.instance].device]
        return any(
            each.name == place.component and each.choice == "nic"
            for each in device.components
        )

    def _joined(self, joined: Sequence[tuple[_Place, _Place, _Link]]) -> Topology:
        cards = Counter(
            (place.instance, place.index)
            for place in self._used
            if self._is_host(place)
        )
        order = {name: number for number, name in enumerate(self._instances)}

        def key(place: _Place) -> tuple[int, int, str, int]:
            return order[place.instance], place.index, place.component, place.number

        def node(place: _Place) -> str:
            """Return the name of a port's node. Several cards are separate nodes."""
            several = self._instances[place.instance].count > 1
            name = f"{place.instance}{place.index}" if several else place.instance
            if self._is_host(place) and cards[place.instance, place.index] > 1:
                name += f"-{place.component}{place.number}"
            return name.replace(" ", "_")

        places = sorted(self._used, key=key)
        self._check_names(places, node)
        hosts = dict.fromkeys(node(each) for each in places if self._is_host(each))
        switches = dict.fromkeys(
            node(each) for each in places if not self._is_host(each)
        )
        joints = LinkNamer(hosts)
        links = []
        for one, other, link in joined:
            rate_bps, delay_ns = self._values(link)
            kind = LinkKind(rate_bps=rate_bps, delay_ns=delay_ns)
            links.append(kind.link(*joints.join(node(one), node(other))))
        topology = Topology(
            hosts=tuple(hosts), switches=tuple(switches), links=tuple(links)
        )
        for text in check_topology(topology):
            raise self._error(
                "edges", text, "describe a fabric of hosts, switches and links"
            )
        return topology

    def _check_names(
        self, places: Sequence[_Place], node: Callable[[_Place], str]
    ) -> None:
        """Reject different nodes with the same name, which would become one node."""
        owners: dict[tuple[str, bool], str] = {}
        for place in places:
            is_host = self._is_host(place)
            owner = f"{place.instance}[{place.index}]"
            if is_host:
                owner += f", {place.component}[{place.number}]"
            name = node(place)
            other = owners.setdefault((name, is_host), owner)
            if other != owner:
                raise self._error(
                    "instances",
                    f"{other} and {owner} are both called {name!r} in a fabric",
                    "rename an instance",
                )

    def _values(self, link: _Link) -> tuple[int | None, int]:
        """Return the rate and the delay of a link."""
        where = f"links: {link.name}"
        rate_bps, delay_ns = None, 0
        bandwidth = None if link.physical is None else link.physical.bandwidth
        if bandwidth is not None:
            value = getattr(bandwidth, bandwidth.choice)
            factor = {"gigabits_per_second": 1, "gigabytes_per_second": 8}.get(
                bandwidth.choice
            )
            if value is None or factor is None:
                raise self._error(
                    f"{where}: bandwidth",
                    f"{bandwidth.choice} has no value"
                    if value is None
                    else "transfers per second are not a bit rate",
                    "e.g. gigabits_per_second: 100",
                )
            rate_bps = int(Decimal(str(value)) * factor * _GIGA)
            if rate_bps > LARGEST_RATE_BPS:
                raise self._error(
                    f"{where}: bandwidth",
                    f"{exact_rate(rate_bps)} is not a valid network rate",
                    BOUNDS["rate"],
                )
        latency = None if link.physical is None else link.physical.latency
        if latency is not None:
            value = getattr(latency, latency.choice)
            if value is None:
                raise self._error(
                    f"{where}: latency",
                    f"{latency.choice} has no value",
                    "e.g. ns: 500",
                )
            delay_ns = int(Decimal(str(value)) * _UNITS_NS[latency.choice])
        return rate_bps, delay_ns


def to_infragraph(topology: Topology, name: str) -> dict[str, Any]:
    """Return a fabric as an InfraGraph infrastructure, without queues and ECN marks.

    Switches without links are omitted.
    """
    ports = {
        switch: count
        for switch in topology.switches
        if (count := len(topology.links_of(switch)))
    }
    kinds = {(link.rate_bps, link.delay_ns): "" for link in topology.links}
    for number, kind in enumerate(kinds):
        kinds[kind] = f"link{number}"
    used: Counter[str] = Counter()
    hosts = frozenset(topology.hosts)

    def endpoint(node: str) -> dict[str, str]:
        component = "nic" if node in hosts else "port"
        used[node] += 1
        return {
            "instance": f"{node}[0]",
            "component": f"{component}[{used[node] - 1}]",
        }

    return {
        "name": name,
        "devices": [
            {
                "name": "host",
                "components": [{"name": "nic", "count": 1, "choice": "nic"}],
            },
            *(
                {
                    "name": f"switch{count}",
                    "components": [{"name": "port", "count": count, "choice": "port"}],
                }
                for count in sorted(set(ports.values()))
            ),
        ],
        "links": [_link(kind, *values) for values, kind in kinds.items()],
        "instances": [
            *({"name": host, "device": "host", "count": 1} for host in topology.hosts),
            *(
                {"name": switch, "device": f"switch{count}", "count": 1}
                for switch, count in ports.items()
            ),
        ],
        "edges": [
            {
                "ep1": endpoint(link.a.node),
                "ep2": endpoint(link.b.node),
                "scheme": "one2one",
                "link": kinds[link.rate_bps, link.delay_ns],
            }
            for link in topology.links
        ],
    }


def _link(name: str, rate_bps: int | None, delay_ns: int) -> dict[str, Any]:
    physical: dict[str, Any] = {}
    if rate_bps is not None:
        gigabits, rest = divmod(rate_bps, _GIGA)
        physical["bandwidth"] = {
            "choice": "gigabits_per_second",
            "gigabits_per_second": rate_bps / _GIGA if rest else gigabits,
        }
    if delay_ns:
        physical["latency"] = {"choice": "ns", "ns": delay_ns}
    return {"name": name, "physical": physical} if physical else {"name": name}


def graph_section(topology: Topology) -> dict[str, Any]:
    """Return a fabric as the value of ``graph`` in an experiment's topology."""
    links: list[dict[str, Any]] = []
    for link in topology.links:
        entry: dict[str, Any] = {"ends": [link.a.node, link.b.node]}
        if link.rate_bps is not None:
            entry["rate"] = exact_rate(link.rate_bps)
        if link.delay_ns:
            entry["delay"] = exact_time(link.delay_ns)
        last = links[-1] if links else {}
        count = last.get("count", 1)
        if {**last, "count": 1} == {**entry, "count": 1} and count < MOST_PARALLEL:
            last["count"] = count + 1
        else:
            links.append(entry)
    return {
        "hosts": list(topology.hosts),
        "switches": list(topology.switches),
        "links": links,
    }

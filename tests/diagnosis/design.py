"""Designs of experiments: fabric, jobs and transport, written to files."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from chakram.chakra.et_codec import CollectiveType, NodeType
from chakram.topology.topology import HOST_INTERFACE
from chakram.topology.topology_builders import fat_tree, leaf_spine, rails
from chakram.topology.topology_helpers import LinkKind, single_switch
from tests.diagnosis.role_jobs import write_slower
from tests.trace_bytes import collective, metadata, node

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from chakram.topology.topology import Topology

NANOSECOND = 10**9

CLASSES = [3]
"""Traffic classes of data packets, which a storm of pauses has to name."""


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A link by its name, its lower and its upper end, and its tier.

    ``ports`` are the interfaces of both ends, where the fabric is no list of links.
    """

    name: str
    lower: str
    upper: str
    tier: str
    ports: tuple[str, str] = ("", "")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A fabric: its name in the product, its section, its hosts and links.

    ``section`` is None where only a graph says it.
    """

    kind: str
    section: dict[str, Any] | None
    hosts: tuple[str, ...]
    switches: tuple[str, ...]
    wires: tuple[Wire, ...]

    def wire(self, name: str) -> Wire:
        """Return the link of a name."""
        return next(each for each in self.wires if each.name == name)

    def host_wire(self, host: str) -> Wire:
        """Return the link of a host."""
        return next(each for each in self.wires if each.lower == host)

    @property
    def has_paths(self) -> bool:
        """Whether a switch has two equal links, or more, to send up."""
        ups = Counter(
            each.lower if self.section else (each.lower, each.upper)
            for each in self.wires
            if each.tier != "host"
        )
        return max(ups.values(), default=0) > 1


def star(hosts: int) -> Shape:
    """Return hosts on one switch."""
    section = {"single_switch": {"hosts": hosts}}
    return _of("star", section, single_switch(hosts, None))


def clos(leaves: int, spines: int, hosts_per_leaf: int, uplinks: int) -> Shape:
    """Return leaves and spines."""
    section = {
        "leaves": leaves,
        "spines": spines,
        "hosts_per_leaf": hosts_per_leaf,
        "uplinks": uplinks,
    }
    kind = LinkKind()
    made = leaf_spine(
        leaves, spines, hosts_per_leaf, uplinks=uplinks, host=kind, uplink=kind
    )
    return _of("clos", {"clos": section}, made)


def tree(pods: int, leaves: int, spines: int, cores: int, hosts_per_leaf: int) -> Shape:
    """Return a fat tree of three tiers."""
    section = {
        "pods": pods,
        "leaves": leaves,
        "spines": spines,
        "cores": cores,
        "hosts_per_leaf": hosts_per_leaf,
    }
    kind = LinkKind()
    made = fat_tree(
        pods, leaves, spines, cores, hosts_per_leaf, host=kind, uplink=kind, core=kind
    )
    return _of("fat tree", {"fat_tree": section}, made)


def rail(servers: int, ports: int, spines: int) -> Shape:
    """Return servers of several ports, each on a leaf."""
    section = {"rail": {"servers": servers, "ports": ports, "spines": spines}}
    kind = LinkKind()
    made = rails(servers, ports, spines, uplinks=spines, host=kind, uplink=kind)
    return _of("rail", section, made)


def listed(hosts_of: Mapping[str, int], trunks: list[tuple[str, str, int]]) -> Shape:
    """Return a list of links: hosts by switch, and links side by side between two."""
    wires: list[Wire] = []
    hosts: list[str] = []
    for switch, count in hosts_of.items():
        for _ in range(count):
            hosts.append(f"n{len(hosts)}")
            wires.append(_wire(hosts[-1], switch, "host", 0))
    for lower, upper, count in trunks:
        wires += [_wire(lower, upper, "uplink", copy) for copy in range(count)]
    return Shape(
        kind="list of links",
        section=None,
        hosts=tuple(hosts),
        switches=tuple(hosts_of),
        wires=tuple(wires),
    )


def _wire(lower: str, upper: str, tier: str, copy: int) -> Wire:
    name = f"{lower}-{upper}" + (f"-{copy}" if copy else "")
    return Wire(name=name, lower=lower, upper=upper, tier=tier)


def _of(kind: str, section: dict[str, Any], made: Topology) -> Shape:
    wires = []
    for link in made.links:
        is_core = "core" in link.b.node
        tier = "host" if link.a.node in made.hosts else "core" if is_core else "uplink"
        wires.append(
            Wire(
                name=link.name,
                lower=link.a.node,
                upper=link.b.node,
                tier=tier,
                ports=(link.a.port, link.b.port),
            )
        )
    return Shape(
        kind=kind,
        section=section,
        hosts=made.hosts,
        switches=made.switches,
        wires=tuple(wires),
    )


@dataclass(frozen=True, kw_only=True)
class Step:
    """A computation of every rank, and the collective that follows."""

    op: CollectiveType
    size_bytes: int
    compute_ns: int
    overlaps: bool = False
    """Whether the next computation does not wait for the collective."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job with a trace in files, or a synthetic one.

    Attributes:
        name: Of the job.
        ranks: How many.
        ports: Hosts of the ranks, in order.
        steps: What the files say.
        synth: The synthetic trace instead.
        scales: Factors of its sizes and computations, ``size_scale`` and ``compute``.
        slower: By rank of a synthetic trace, the factor of its computations.
        with_peers: Ranks of such a trace whose work others do, too.
        longer_ns: By rank and step, how much longer a computation takes.
        loading_ns: By rank, a computation before everything that others lack.
        late_ns: By rank, by how much later everything of it was recorded to start; if
            there are any, jobs replay recorded starts.
        beside_ns: By rank, a computation that nothing waits for.
    """

    name: str
    ranks: int
    ports: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    synth: dict[str, Any] | None = None
    scales: Mapping[str, Any] = field(default_factory=dict)
    slower: Mapping[int, float] = field(default_factory=dict)
    with_peers: tuple[int, ...] = ()
    longer_ns: Mapping[tuple[int, int], int] = field(default_factory=dict)
    loading_ns: Mapping[int, int] = field(default_factory=dict)
    late_ns: Mapping[int, int] = field(default_factory=dict)
    beside_ns: Mapping[int, int] = field(default_factory=dict)

    def section(self, folder: Path) -> dict[str, Any]:
        """Return the section of an experiment; write the trace into *folder*."""
        trace = self.synth
        if trace is not None and self.slower:
            path = folder / self.name
            write_slower(path, trace, self.slower)
            trace = {"path": str(path)}
        if trace is None:
            for rank in range(self.ranks):
                path = folder / f"{self.name}.{rank}.et"
                path.write_bytes(self._records(rank))
            trace = {"path": str(folder / self.name), "duration_unit": "1ns"}
        return {
            "name": self.name,
            "trace": trace,
            "order": "start_times" if self.late_ns else "dependencies",
            "placement": {"ports": list(self.ports)},
            **self.scales,
        }

    def _records(self, rank: int) -> bytes:
        records = [metadata()]
        last: tuple[int, ...] = ()
        if rank in self.loading_ns:
            records.append(_compute(1, "load", self.loading_ns[rank], ()))
            last = (1,)
        if rank in self.beside_ns:
            records.append(_compute(2, "log", self.beside_ns[rank], (), stream=9))
        start_ns = self.late_ns.get(rank, 0)
        for number, step in enumerate(self.steps):
            compute, message = 10 + 2 * number, 11 + 2 * number
            took_ns = step.compute_ns + self.longer_ns.get((rank, number), 0)
            records.append(
                _compute(
                    compute,
                    f"forward{number}",
                    took_ns,
                    last,
                    start_ns=start_ns,
                )
            )
            records.append(
                collective(
                    message,
                    name=f"{step.op.name.lower()}{number}",
                    comm_type=int(step.op),
                    comm_size=step.size_bytes,
                    data_deps=(compute,),
                    start_time_micros=1 + start_ns,
                )
            )
            last = (compute,) if step.overlaps else (message,)
        return b"".join(records)


def _compute(
    number: int,
    name: str,
    took_ns: int,
    after: tuple[int, ...],
    *,
    start_ns: int = 0,
    stream: int | None = None,
) -> bytes:
    fields: dict[str, Any] = {} if stream is None else {"stream": stream}
    return node(
        number,
        NodeType.COMP,
        name=name,
        duration_micros=took_ns,
        start_time_micros=1 + start_ns,  # all zero: none were recorded
        data_deps=after,
        **fields,
    )


@dataclass(frozen=True, kw_only=True)
class Design:
    """An experiment that can be changed piece by piece.

    Attributes:
        shape: The fabric.
        rates_bps: By tier of links.
        delays_ns: By tier of links.
        jobs: What runs.
        collectives: Algorithms.
        transport: Section of the experiment.
        queue_bytes: Longest queue of all links.
        ecn: Thresholds of all links.
        switches: Section of the fabric.
        own_rates_bps: Links of another rate than those of their tier.
        is_graph: Whether the fabric is written as a list of links in any case.
        links: Faults of links.
        packets: Faults of packets.
        measured: How many iterations.
        seed: Of the experiment.
        more: Other keys of the experiment.
        fabric_keys: Other keys of its fabric.
    """

    shape: Shape
    rates_bps: Mapping[str, int]
    delays_ns: Mapping[str, int]
    jobs: tuple[Job, ...]
    collectives: Mapping[str, str] = field(default_factory=dict)
    transport: Mapping[str, Any] = field(default_factory=dict)
    queue_bytes: int = 64 << 20
    ecn: Mapping[str, Any] | None = None
    switches: Mapping[str, Any] = field(default_factory=dict)
    own_rates_bps: Mapping[str, int] = field(default_factory=dict)
    is_graph: bool = False
    links: tuple[Mapping[str, Any], ...] = ()
    packets: tuple[Mapping[str, Any], ...] = ()
    measured: int = 2
    seed: int = 1
    more: Mapping[str, Any] = field(default_factory=dict)
    fabric_keys: Mapping[str, Any] = field(default_factory=dict)

    def rate_bps(self, name: str) -> int:
        """Return the rate of a link."""
        tier = self.shape.wire(name).tier
        return self.own_rates_bps.get(name, self.rates_bps[tier])

    def sender(self, name: str, direction: str) -> tuple[str, str]:
        """Return node and interface that send into a direction of a link."""
        side = 0 if direction == "up" else 1
        wire = self.shape.wire(name)
        node = (wire.lower, wire.upper)[side]
        if not self._lists_links:
            return node, wire.ports[side]
        if node in self.shape.hosts:
            return node, HOST_INTERFACE
        own = [each for each in self.shape.wires if node in (each.lower, each.upper)]
        return node, f"p{own.index(wire)}"

    def with_transport(self, **settings: Any) -> Design:
        """Return it with other settings of its transport; None removes one."""
        changed = {**self.transport, **settings}
        kept = {key: value for key, value in changed.items() if value is not None}
        return replace(self, transport=kept)

    def with_job(self, index: int, **changes: Any) -> Design:
        """Return it with one job that is different."""
        jobs = list(self.jobs)
        jobs[index] = replace(jobs[index], **changes)
        return replace(self, jobs=tuple(jobs))

    def with_link_fault(self, **fault: Any) -> Design:
        """Return it with one more fault of a link."""
        return replace(self, links=(*self.links, fault))

    def experiment(self, folder: Path) -> dict[str, Any]:
        """Return the experiment; its traces are in *folder* then."""
        faults = {"links": list(self.links), "packets": list(self.packets)}
        document = {
            "version": 1,
            "name": "draw",
            "jobs": [job.section(folder) for job in self.jobs],
            "collectives": dict(self.collectives),
            "iterations": {"warmup": 0, "measured": self.measured},
            "fabric": {
                "kind": "namespaces",
                "topology": self._topology(),
                "links": {tier: self._tier(tier) for tier in self._tiers()},
                **({"switches": dict(self.switches)} if self.switches else {}),
                **self.fabric_keys,
            },
            "transport": dict(self.transport),
            "faults": {key: value for key, value in faults.items() if value},
            "seed": self.seed,
            **self.more,
        }
        return {key: value for key, value in document.items() if value != {}}

    def write(self, folder: Path) -> Path:
        """Write the experiment and its traces into *folder*; return its file."""
        path = folder / "experiment.yaml"
        text = json.dumps(self.experiment(folder), indent=1)  # JSON is YAML
        path.write_text(text, encoding="utf-8")
        return path

    @property
    def _lists_links(self) -> bool:
        return bool(self.is_graph or self.own_rates_bps or self.shape.section is None)

    def _tiers(self) -> list[str]:
        tiers = sorted({wire.tier for wire in self.shape.wires})
        # A list of links knows two kinds.
        return [each for each in tiers if each != "core" or not self._lists_links]

    def _tier(self, tier: str) -> dict[str, Any]:
        values: dict[str, Any] = {
            "rate": f"{self.rates_bps[tier]}bit",
            "delay": f"{self.delays_ns[tier]}ns",
            "queue": f"{self.queue_bytes}B",
        }
        if self.ecn is not None:
            values["ecn"] = dict(self.ecn)
        return values

    def _topology(self) -> dict[str, Any]:
        if not self._lists_links:
            assert self.shape.section is not None
            return self.shape.section
        links = []
        for wire in self.shape.wires:
            entry: dict[str, Any] = {"ends": [wire.lower, wire.upper]}
            if wire.tier == "core" or wire.name in self.own_rates_bps:
                entry["rate"] = f"{self.rate_bps(wire.name)}bit"
                entry["delay"] = f"{self.delays_ns[wire.tier]}ns"
            links.append(entry)
        graph = {
            "hosts": list(self.shape.hosts),
            "switches": list(self.shape.switches),
            "links": links,
        }
        return {"graph": graph}

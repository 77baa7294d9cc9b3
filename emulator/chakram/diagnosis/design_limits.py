"""Limits of the design that may cost time, e.g. rates, delays, windows and other jobs.

A limit is not a fault.  Each limit has a change that relaxes it, so that a simulation
shows how much time the limit costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median_low
from typing import TYPE_CHECKING, Any

from chakram.analysis.cause_ranking import CauseClass, Suspect
from chakram.diagnosis.counterfactual import Case, Change
from chakram.foundation.units import (
    exact_rate,
    exact_time,
    format_rate,
    format_size,
    format_time,
    parse_rate,
    parse_time,
)
from chakram.preparation.plan_settings import transport_plan
from chakram.topology.comparable_links import comparable, slower_by_design

if TYPE_CHECKING:
    from chakram.analysis.lost_time_causes import Cause
    from chakram.diagnosis.counterfactual import Variant
    from chakram.records.run_records import LinkRecord
    from chakram.topology.topology import Topology

_FASTER = 10
_LINKS_LISTED = 3
_LONGER = 2
_OF_MANY = 0.5
"""Ranking weight of a remedy that changes many places at once."""
_OF_DISTANCE = 0.1
"""Ranking weight of shorter links.

The weight is low because a small window also costs time per round trip.
"""
_BUFFER = "16GiB"
ALL_HOSTS, _ALL_UPLINKS, _ALL_LINKS = "all hosts", "all uplinks", "all links"


def _limit(
    cause: str,
    place: str,
    change: Change,
    what: str,
    *,
    job: str | None = None,
    weight: float = 1.0,
) -> Case:
    return Case(
        suspect=Suspect(
            cause=cause,
            place=place,
            kind=CauseClass.LIMIT,
            remedy=what,
            advice=what,
            weight=weight,
        ),
        change=change,
        job=job,
    )


def limits_of(
    variant: Variant,
    topology: Topology,
    links: Sequence[LinkRecord],
    charged: Sequence[Cause],
) -> Iterator[Case]:
    """Yield the limits of the design, each with the change that relaxes it.

    Args:
        variant: The unchanged run.
        topology: Fabric of the run.
        links: Counters of the links in the run.
        charged: Causes on the run's critical path, largest first.
    """
    dilation = variant.experiment.dilation
    host_links = {link.link for link in links if link.kind == "host"}
    if any(topology.host_link(host).rate_bps for host in topology.hosts):
        yield _limit(
            "own port",
            ALL_HOSTS,
            lambda of: of.edited(_faster_hosts),
            "with host ports ten times as fast",
            weight=_OF_MANY,
        )
    uplinks = {
        link.name: _FASTER * link.rate_bps
        for link in topology.uplinks()
        if link.rate_bps
    }
    if uplinks:
        yield _limit(
            "contention",
            _ALL_UPLINKS if len(uplinks) > 1 else next(iter(uplinks)),
            lambda of: replace(of, link_rates_bps={**of.link_rates_bps, **uplinks}),
            "with links between switches ten times as fast",
            weight=_OF_MANY,
        )
    named = {f"{each.link} {each.direction}": each for each in links}
    full = sorted(
        (each for each in links if each.rate_bps and each.bytes),
        key=lambda each: -each.bytes / (each.rate_bps or 1),
    )
    places = [each.place for each in charged if each.place in named]
    places += [f"{each.link} {each.direction}" for each in full]
    for place in list(dict.fromkeys(places))[:_LINKS_LISTED]:
        link = named[place]
        if not link.rate_bps or link.port is None:
            continue

        def faster(
            of: Variant, port: str = link.port, to: int = link.rate_bps
        ) -> Variant:
            rates = {**of.port_rates_bps, port: _FASTER * to}
            return replace(of, port_rates_bps=rates)

        is_own = link.link in host_links and link.direction == "up"
        yield _limit(
            "own port" if is_own else "contention",
            place,
            faster,
            f"with that port at {format_rate(_FASTER * link.rate_bps * dilation)}",
        )
    overflowing = frozenset(each.link for each in links if each.drops)
    if overflowing:
        worst = max(links, key=lambda each: each.drops or 0)
        yield _limit(
            "queue overflow",
            f"{worst.link} {worst.direction}",
            lambda of: _with_large_buffers(of, overflowing),
            "with queues that never drop",
        )
    yield from _limits_of_transport(variant, topology)
    yield from _placements(variant, topology)
    yield from _links_of(topology, dilation)
    if any(each.cause == "spurious timeout" for each in charged):
        yield _limit(
            "spurious timeout",
            "all queue pairs",
            lambda of: of.edited(_patient),
            "with a timeout eight times as long",
        )


def _with_large_buffers(of: Variant, links: frozenset[str]) -> Variant:
    """Return a variant with queues that never drop, even those in shared buffers."""
    switches = of.experiment.fabric.simulated_switches
    profile = None if switches is None else switches.to_profile(1500)
    if profile is not None and profile.name != "fifo":
        of = of.edited(
            lambda document: document["fabric"]["switches"].update(buffer=_BUFFER)
        )
    return replace(of, without_queue_limit=links)


def _limits_of_transport(variant: Variant, topology: Topology) -> Iterator[Case]:
    """Yield the window and the congestion control, if they may limit the run."""
    transport = transport_plan(variant.experiment)
    window = transport.window_bytes
    if window:
        yield _limit(
            "window",
            "all queue pairs",
            lambda of: of.edited(
                lambda document: document["transport"].update(window=f"{2 * window}B")
            ),
            f"with a window of {format_size(2 * window)}",
        )
    switches = variant.experiment.fabric.simulated_switches
    sprays = switches is not None and switches.to_profile(1500).balancing != "hash"
    if sprays and variant.experiment.transport.reordering.accept is None:
        yield _limit(
            "go-back-N",
            "all queue pairs",
            lambda of: of.edited(
                lambda document: document["transport"].update(reordering="accept")
            ),
            "with receivers that accept packets in any order",
        )
    control = variant.experiment.transport.congestion_control
    fixed_bps = dict(transport.congestion_parameters).get("rate_bps")
    fastest_bps = max(
        (topology.host_link(host).rate_bps or 0 for host in topology.hosts), default=0
    )
    # A fixed rate equal to the port rate is not a limit.
    if control.name not in ("none", "fixed_rate") or (
        control.name == "fixed_rate"
        and isinstance(fixed_bps, int)
        and fixed_bps < fastest_bps
    ):
        yield _limit(
            "congestion control",
            control.name,
            lambda of: of.edited(_without_control),
            "without congestion control",
        )


def _placements(variant: Variant, topology: Topology) -> Iterator[Case]:
    """Yield the placement of each job on several switches, and rates within hosts."""
    for job in variant.jobs:
        placement = job.placement
        if variant.alone not in (None, job.name):
            continue
        is_packed = placement.pattern == "packed" and placement.order is None
        if topology.uplinks() and not is_packed:
            yield _limit(
                "placement",
                f"job {job.name}",
                _placed(job.name, pattern="packed", order=None),
                "with its ranks on consecutive ports",
            )
        if placement.local_rate_bps:
            faster_bps = _FASTER * placement.local_rate_bps
            yield _limit(
                "local rate",
                f"job {job.name}",
                _placed(job.name, local_rate_bps=faster_bps),
                f"with {format_rate(faster_bps * variant.experiment.dilation)} between "
                "the ranks of a host",
            )


def _placed(name: str, **changes: Any) -> Change:
    """Return a change that replaces fields in the placement of a job."""

    def changed(of: Variant) -> Variant:
        jobs = tuple(
            replace(each, placement=replace(each.placement, **changes))
            if each.name == name
            else each
            for each in of.jobs
        )
        return replace(of, jobs=jobs)

    return changed


def _links_of(topology: Topology, dilation: int) -> Iterator[Case]:
    """Yield links that are slower or longer than comparable links, and all delays.

    Texts contain undilated values.
    """
    ends = {link.name: (link.a.node, link.b.node) for link in topology.links}
    rates_bps = {link.name: link.rate_bps for link in topology.links if link.rate_bps}
    for names, usual_bps in slower_by_design(topology.hosts, ends, rates_bps):
        own_bps = rates_bps[names[0]]
        yield _limit(
            "uneven link rates",
            _all_of(names),
            _with_links("link_rates_bps", dict.fromkeys(names, usual_bps)),
            f"at {format_rate(usual_bps * dilation)} like similar links, not "
            f"{format_rate(own_bps * dilation)}",
            weight=_OF_MANY,
        )
    delays_ns = {link.name: link.delay_ns for link in topology.links}
    for names in comparable(topology.hosts, ends, delays_ns):
        usual_ns = median_low(delays_ns[name] for name in names)
        longer = [name for name in names if delays_ns[name] > _LONGER * usual_ns]
        if longer:
            longest_ns = max(delays_ns[name] for name in longer)
            yield _limit(
                "long link",
                _all_of(longer),
                _with_links("link_delays_ns", dict.fromkeys(longer, usual_ns)),
                f"with a delay of {format_time(usual_ns / dilation)} like similar "
                f"links, not {format_time(longest_ns / dilation)}",
            )
    delayed = {name: delay_ns for name, delay_ns in delays_ns.items() if delay_ns}
    if delayed:
        yield _limit(
            "propagation",
            _ALL_LINKS if len(delayed) > 1 else next(iter(delayed)),
            _with_links(
                "link_delays_ns",
                {name: delay_ns // _FASTER for name, delay_ns in delayed.items()},
            ),
            "with links a tenth as long",
            weight=_OF_DISTANCE,
        )


def _with_links(name: str, values: Mapping[str, int]) -> Change:
    """Return a change that adds values to the field *name* of a variant."""

    def changed(of: Variant) -> Variant:
        changes: dict[str, Any] = {name: {**getattr(of, name), **values}}
        return replace(of, **changes)

    return changed


def _all_of(names: Sequence[str]) -> str:
    """Return the names of links, abridged if there are many."""
    more = len(names) - _LINKS_LISTED
    listed = ", ".join(names[:_LINKS_LISTED])
    return f"{listed} and {more} more" if more > 0 else listed


def _faster_hosts(document: dict[str, Any]) -> None:
    fabric = document["fabric"]

    def faster(link: dict[str, Any]) -> None:
        if link.get("rate"):
            rate_bps = parse_rate(link["rate"], where="fabric.links.host.rate")
            link["rate"] = exact_rate(_FASTER * rate_bps)

    if "host" in (fabric.get("links") or {}):
        faster(fabric["links"]["host"])
    graph = (fabric.get("topology") or {}).get("graph")
    if graph:
        for link in graph["links"]:
            if {*link["ends"]} & {*graph["hosts"]}:
                faster(link)


def _without_control(document: dict[str, Any]) -> None:
    control = document["transport"]["congestion_control"]
    document["transport"]["congestion_control"] = {
        **dict.fromkeys(control, None),
        "none": {},
    }


def _patient(document: dict[str, Any]) -> None:
    transport = document["transport"]
    exponent = transport.get("local_ack_timeout")
    if exponent is not None:
        transport["local_ack_timeout"] = min(31, exponent + 3)
        return
    time_ns = parse_time(transport["retransmit_timeout"], where="retransmit_timeout")
    transport["retransmit_timeout"] = exact_time(8 * time_ns)


def other_jobs(variant: Variant, job: str | None) -> Iterator[Case]:
    """Yield the contention of each job with other jobs, and the change that removes it.

    Args:
        variant: The unchanged run.
        job: The job to explain. None means all jobs.
    """
    experiment = variant.experiment
    if variant.alone is not None or len(experiment.jobs) < 2:
        return
    for each in experiment.jobs:
        if job not in (None, each.name) or (each.is_background and job is None):
            continue
        others = ", ".join(one.name for one in experiment.jobs if one is not each)
        yield _limit(
            "contention",
            f"job {others}",
            lambda of, name=each.name: replace(of, alone=name),  # type: ignore[misc] # bound now
            f"with job {each.name} alone",
            job=each.name,
        )

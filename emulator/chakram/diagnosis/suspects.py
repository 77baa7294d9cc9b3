"""Suspected causes of lost time in a run, which a simulation can remove.

This module does not test whether a suspect costs time (see
``chakram.analysis.cause_ranking``).

A suspect of class fault is broken, or differs from its peers.  Such suspects are
declared faults, slow links, ranks that compute longer than their peers, and hashes that
overload one of several equal paths.  Suspects of class limit are in
``chakram.diagnosis.design_limits``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from chakram.analysis.cause_ranking import Suspect
from chakram.diagnosis.counterfactual import Case, Change
from chakram.diagnosis.design_limits import limits_of, other_jobs
from chakram.diagnosis.foreign_traffic import ADVICE as FOREIGN_ADVICE
from chakram.diagnosis.foreign_traffic import FOREIGN
from chakram.diagnosis.path_choices import bytes_by_choice, even_spread
from chakram.diagnosis.rank_suspects import (
    RANK_ADVICE,
    odd_ranks,
    uneven_computation,
    uneven_routing,
)
from chakram.foundation.units import (
    format_rate,
)
from chakram.records.row_layout import FLOW_FIELDS
from chakram.switch.ecmp import AssignedPaths, DrawnPaths
from chakram.topology.comparable_links import usual_rates_bps

if TYPE_CHECKING:
    from chakram.analysis.lost_time_causes import Cause
    from chakram.config.transport import PacketFaultSettings
    from chakram.diagnosis.counterfactual import Rerun, Variant
    from chakram.records.run_records import LinkRecord
    from chakram.topology.topology import Topology

_SLOWER = 0.98
"""A link is a suspect if its rate is below this share of its peers' rate."""

_UNEVEN = 1.1
"""Minimum ratio of the fullest path's load to the mean at which a hash is a suspect."""

_AS_UNEVEN = 0.8
"""Minimum load ratio of other switches to name, relative to the most uneven switch."""

_NAMED = 3
_RESENT = FLOW_FIELDS.index("retransmitted")
_ANY_ORDER = 65_536

_OF_LINK_FAULT = {
    "degrade": "slow link",
    "loss": "loss",
    "corruption": "loss",
    "pause_storm": "pause",
    "down": "dead uplink",
    "flap": "dead uplink",
}
_OF_PACKET_FAULT = {
    "drop": "loss",
    "corrupt": "loss",
    "delay": "delay",
    "reorder": "reordering",
    "duplicate": "duplication",
    "mark": "congestion control",
    "not_ready": "receiver not ready",
}
ADVICE = {
    "slow link": "check the speed, the cable and the rate limits of both ends",
    "loss": "check cable, optics and error counters of both ends of the link",
    "pause": "find out why the receiver pauses: a slow host, a storm, the wrong class",
    "dead uplink": "check the port and its cable; bring the link back",
    "delay": "look for queues, longer paths or retries of the link layer on this link",
    "reordering": "find out what lets packets overtake others: several paths of one "
    "flow, or retries of the link layer",
    "duplication": "find out what sends packets twice: a loop, a mirror port",
    "receiver not ready": "let the receiver post receives earlier, or more of them",
    "generator slow": "free cores on this host or use lower rates (see chakram doctor)",
    "hash imbalance": "change the seed or the fields of the hash, spread source ports, "
    "or use more queue pairs per pair of ranks",
    FOREIGN: FOREIGN_ADVICE,
    **RANK_ADVICE,
}
"""Advice by cause."""


def cases_of(
    variant: Variant,
    run: Rerun,
    *,
    links: Sequence[LinkRecord],
    charged: Sequence[Cause],
    time_ns: int,
    job: str | None = None,
) -> list[Case]:
    """Return the suspects of a simulated run, faults first.

    Args:
        variant: The unchanged run.
        run: Simulation of the unchanged run.
        links: Counters of the links in the run.
        charged: Causes on the critical path of the run, largest first.
        time_ns: Mean time of an iteration.
        job: The job to explain. None means all jobs.
    """
    topology = run.topology
    odd = list(odd_ranks(variant, time_ns))
    return [
        *_declared_link_faults(variant),
        *_declared_packet_faults(variant, run),
        *slow_links(topology, variant.experiment.dilation),
        *odd,
        *_hashes(variant, run, links),
        *limits_of(variant, topology, links, charged),
        *uneven_routing(variant),
        *uneven_computation(variant, odd),
        *other_jobs(variant, job),
    ]


def _fault(
    cause: str,
    place: str,
    change: Change,
    evidence: str,
    other_change: Change | None = None,
    **more: Any,
) -> Case:
    return Case(
        suspect=Suspect(
            cause=cause,
            place=place,
            evidence=evidence,
            advice=ADVICE.get(cause, ""),
            **more,
        ),
        change=change,
        other_change=other_change,
    )


def _declared_link_faults(variant: Variant) -> Iterator[Case]:
    settings = variant.experiment.faults.links
    words = variant.experiment.written.faults.links
    groups: dict[tuple[str, str], list[int]] = {}
    for at, each in enumerate(settings):
        place = f"{each.link} {each.direction}".removesuffix(" both")
        groups.setdefault((_OF_LINK_FAULT[each.kind], place), []).append(at)
    for (cause, place), members in groups.items():
        gone = [settings[at] for at in members]

        def change(of: Variant, gone: Sequence[object] = tuple(gone)) -> Variant:
            left = tuple(
                each
                for each in of.experiment.faults.links
                if not any(each is other for other in gone)
            )
            return of.with_faults(links=left)

        yield _fault(
            cause,
            place,
            change,
            "; ".join(words[at].describe() for at in members),
            remedy="without this fault",
        )


def _declared_packet_faults(variant: Variant, run: Rerun) -> Iterator[Case]:
    faults = variant.experiment.faults
    host_of = {port.number: port.host for port in run.plan.ports()}
    link_of = {
        (rank.program.job, rank.program.rank): run.topology.host_link(
            host_of[rank.port]
        ).name
        for rank in run.plan.ranks()
        if host_of[rank.port] in run.topology.hosts
    }
    if faults.drop:
        yield _fault(
            "loss",
            "all ports",
            lambda of: of.with_faults(drop=0.0),
            f"ports drop {faults.drop:.2%} of what they receive",
            remedy="without it",
        )
    for entry in faults.packets:
        fault = entry.fault()
        action = fault.action.name.lower()
        # The fault acts at the port of the sender, or of the receiver.
        rank = fault.source if fault.at_send else fault.destination
        jobs = [fault.job] if fault.job else [job.name for job in variant.jobs]
        links = [
            link_of[job, rank]
            for job in jobs
            if rank is not None and (job, rank) in link_of
        ]
        if len({*links}) == 1:
            place = f"{links[0]} {'up' if fault.at_send else 'down'}"
        else:
            place = "ports of all senders" if fault.at_send else "all ports"

        def change(of: Variant, gone: object = entry) -> Variant:
            return of.with_faults(
                packets=tuple(
                    each for each in of.experiment.faults.packets if each is not gone
                )
            )

        yield _fault(
            _OF_PACKET_FAULT[action],
            place,
            change,
            f"injected at the port: {_described(entry)}",
            remedy="without this fault",
        )


def _described(entry: PacketFaultSettings) -> str:
    """Describe a packet fault by the keys that are set."""
    keys = entry.model_dump(mode="json", exclude_defaults=True)
    return ", ".join(f"{name} {value}" for name, value in keys.items())


def slow_links(topology: Topology, dilation: int) -> Iterator[Case]:
    """Yield the links that are slower than comparable links.

    Args:
        topology: The fabric.
        dilation: Factor by which rates of the fabric are lower than the undilated rates
            in texts.
    """
    usual_rates = usual_rates_bps(
        topology.hosts,
        {link.name: (link.a.node, link.b.node) for link in topology.links},
        {link.name: link.rate_bps for link in topology.links if link.rate_bps},
    )
    for link in topology.links:
        usual_bps = usual_rates.get(link.name, 0)
        if not link.rate_bps or link.rate_bps >= _SLOWER * usual_bps:
            continue

        def change(
            of: Variant, name: str = link.name, rate_bps: int = usual_bps
        ) -> Variant:
            return replace(of, link_rates_bps={**of.link_rates_bps, name: rate_bps})

        yield _fault(
            "slow link",
            link.name,
            change,
            f"{format_rate(link.rate_bps * dilation)}; similar links have "
            f"{format_rate(usual_bps * dilation)}",
            remedy=f"at {format_rate(usual_bps * dilation)}",
        )


# Paths.


def _hashes(
    variant: Variant, run: Rerun, links: Sequence[LinkRecord]
) -> Iterator[Case]:
    if variant.ports is not None and isinstance(run.ecmp, DrawnPaths):
        return  # the paths of that run are unknown
    switches = variant.experiment.fabric.simulated_switches
    if switches is not None and switches.to_profile(1500).balancing != "hash":
        return
    uneven: dict[str, tuple[float, float]] = {}
    rates_bps = {each.port: each.rate_bps for each in links}
    for hops, carried in bytes_by_choice(run).items():
        mean = carried.total() / len(hops)
        if mean:
            most = max(carried.values()) / mean
            excess = (most - 1) * mean / (rates_bps.get(str(hops[0])) or 1)
            switch = hops[0].node
            uneven[switch] = max(uneven.get(switch, (0.0, 0.0)), (most, excess))
    worst, _ = max(uneven.values(), default=(0.0, 0.0))
    if worst < _UNEVEN:
        return
    # Name the most uneven switches.  The switch with the longest excess time comes
    # first.
    named = sorted(
        (
            name
            for name, (most, _) in uneven.items()
            if most >= max(_AS_UNEVEN * worst, _UNEVEN)
        ),
        key=lambda name: -uneven[name][1],
    )
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    # Counters show how much a path carries, but not which flows take it.
    unknown = " (as counted; its flows are unknown)" * isinstance(
        run.ecmp, AssignedPaths
    )
    has_resent = any(run.result.records.flows[_RESENT :: len(FLOW_FIELDS)])

    def spread(how: str, of: Variant) -> Variant:
        if has_resent and _loses(of):
            # A receiver that accepts any order does not detect losses, so each loss
            # would cost a timeout.
            return replace(of, ecmp=even_spread(run))
        return of.edited(partial(_balance, how))

    yield _fault(
        "hash imbalance",
        ", ".join(named[:_NAMED]) + more,
        partial(spread, "round_robin"),
        f"an equal-cost path carries {worst:.2f} times the mean of its group{unknown}; "
        "the saving is that of an even spread at all switches",
        partial(spread, "adaptive"),
        remedy="with switches that spread the traffic evenly over equal-cost paths",
        round=1,
    )


def _loses(variant: Variant) -> bool:
    """Return whether faults of a run lose packets."""
    faults = variant.experiment.faults
    return bool(
        faults.drop
        or any(each.action in ("drop", "corrupt") for each in faults.packets)
        or any(each.kind in ("loss", "corruption") for each in faults.links)
        or any(each.kind in ("loss", "corruption") for each in variant.assumed)
    )


def _balance(how: str, document: dict[str, Any]) -> None:
    fabric, transport = document["fabric"], document["transport"]
    fabric["switches"] = {**(fabric.get("switches") or {}), "balancing": how}
    transport["reordering"] = {"accept": {"window": _ANY_ORDER}}

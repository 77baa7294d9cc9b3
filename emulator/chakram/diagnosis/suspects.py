"""Suspected causes of lost time in a run, which a simulation can remove.

This module does not test whether a suspect costs time (see
``chakram.analysis.cause_ranking``).

A suspect of class fault is broken, or differs from its peers.  Such suspects are
declared faults, slow links, ranks that compute longer than their peers, and hashes that
overload one of several equal paths.  Suspects of class limit are in
``chakram.diagnosis.design_limits``.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median_high
from typing import TYPE_CHECKING, Any

from chakram.analysis.cause_ranking import Suspect
from chakram.diagnosis.counterfactual import Case, Change
from chakram.diagnosis.design_limits import limits_of, other_jobs
from chakram.foundation.grouping import grouped
from chakram.foundation.units import (
    format_rate,
    format_time,
)
from chakram.program.columns import COMPUTE
from chakram.switch.ecmp import AssignedPaths, DrawnPaths
from chakram.topology.comparable_links import usual_rates_bps
from chakram.trace.nullable_columns import NO_VALUE

if TYPE_CHECKING:
    from chakram.analysis.charged_causes import Cause
    from chakram.diagnosis.counterfactual import Rerun, Variant
    from chakram.program.operations import RankProgram
    from chakram.records.run_records import LinkRecord
    from chakram.topology.topology import Topology

_SLOWER = 0.9
"""A link is a suspect if its rate is below this share of its peers' rate."""

_LEAST_EXCESS = 0.01
"""A rank is a suspect if it is late by at least this share of the iteration time."""

_UNEVEN = 1.1
"""Minimum ratio of the fullest path's load to the mean at which a hash is a suspect."""

_AS_UNEVEN = 0.8
"""Minimum ratio of another named switch, relative to the most uneven one."""

_NAMED = 3
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
    "slow compute": "compare clocks, throttling and processes of this host with others",
    "late rank": "find out what this rank does before its peers begin",
    "generator slow": "free cores on this host or use lower rates (see chakram doctor)",
    "hash imbalance": "change the seed or the fields of the hash, spread source ports, "
    "or use more queue pairs per pair of ranks",
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
        job: The job to explain.  None: all jobs.
    """
    topology = run.topology
    return [
        *_declared_link_faults(variant),
        *_declared_packet_faults(variant, run),
        *slow_links(topology),
        *_ranks(variant, time_ns),
        *_hashes(variant, run, links),
        *limits_of(variant, topology, links, charged),
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
        if len(links) == 1:
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
            f"{fault.packets} packets, {action}, at the port",
            remedy="without this fault",
        )


def slow_links(topology: Topology) -> Iterator[Case]:
    """Yield the links that are slower than comparable links."""
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
            f"{format_rate(link.rate_bps)}; similar links have "
            f"{format_rate(usual_bps)}",
            remedy=f"at {format_rate(usual_bps)}",
        )


# Ranks.


def _ranks(variant: Variant, time_ns: int) -> Iterator[Case]:
    for job in variant.jobs:
        if variant.alone not in (None, job.name):
            continue
        alike = grouped((_work(program), program) for program in job.programs)
        for programs in alike.values():
            if len(programs) > 1:
                named = f"{job.name} rank" if len(variant.jobs) > 1 else "rank"
                yield from _odd_ranks(job.name, named, programs, time_ns)


def _work(program: RankProgram) -> tuple[object, ...]:
    """Return a key that is equal for ranks with the same communication."""
    columns = program.columns
    rows = [row for row, kind in enumerate(columns.kinds) if kind != COMPUTE]
    return tuple(
        (columns.kinds[row], columns.algorithms[row], columns.trace_bytes[row])
        for row in rows
    )


def _odd_ranks(
    job: str, named: str, programs: Sequence[RankProgram], time_ns: int
) -> Iterator[Case]:
    """Yield ranks that compute longer, or start later, than most of their peers."""
    durations: dict[tuple[str, int], list[int]] = {}
    tables = []
    for program in programs:
        rows = _computations(program)
        tables.append((program, rows))
        for key, row in rows.items():
            durations.setdefault(key, []).append(program.columns.amounts[row])
    # If most ranks lack a computation, its usual time is 0.
    usual_ns = {
        key: median_high(sorted(found)) if 2 * len(found) > len(programs) else 0
        for key, found in durations.items()
    }
    if len(programs) == 2:
        usual_ns = {
            key: min(found) if len(found) == 2 else 0
            for key, found in durations.items()
        }
    starts: dict[int, list[int]] = {}
    for program in programs:
        for row, start_ns in enumerate(program.columns.starts_ns):
            if start_ns != NO_VALUE:
                starts.setdefault(row, []).append(start_ns)
    for program, rows in tables:
        columns = program.columns
        longer = {
            key: columns.amounts[row] - usual_ns[key]
            for key, row in rows.items()
            if columns.amounts[row] > usual_ns[key]
        }
        place = f"{named} {program.rank}"
        # A rank is late if it has extra computations before its first message.
        first = _first_message(program)
        before = {key for key in longer if rows[key] < first and usual_ns[key] == 0}
        for cause, keys in (
            ("late rank", before),
            ("slow compute", longer.keys() - before),
        ):
            excess_ns = sum(longer[key] for key in keys)
            if excess_ns < _LEAST_EXCESS * time_ns or not keys:
                continue
            most = max(keys, key=lambda key: (longer[key], key))
            yield _fault(
                cause,
                place,
                _with_columns(
                    job, program, amounts={rows[key]: usual_ns[key] for key in keys}
                ),
                f"computes {format_time(excess_ns)} longer than its peers in an "
                f"iteration, most of it in {most[0]}",
                remedy="with the durations of its peers",
            )
        late_ns = {
            row: start_ns - median_high(sorted(starts[row]))
            for row, start_ns in enumerate(columns.starts_ns)
            if start_ns != NO_VALUE
        }
        latest_ns = max(late_ns.values(), default=0)
        if latest_ns >= _LEAST_EXCESS * time_ns:
            usual = {
                row: columns.starts_ns[row] - max(0, lateness_ns)
                for row, lateness_ns in late_ns.items()
            }
            yield _fault(
                "late rank",
                place,
                _with_columns(job, program, starts_ns=usual),
                f"its recorded starts are up to {format_time(latest_ns)} later than "
                "those of its peers",
                remedy="with the starts of its peers",
            )


def _computations(program: RankProgram) -> dict[tuple[str, int], int]:
    """Return the row of each computation by its name and its index in that name."""
    seen: Counter[str] = Counter()
    rows = {}
    for row in program.columns.rows_of(COMPUTE):
        name = program.columns.name(row)
        rows[name, seen[name]] = row
        seen[name] += 1
    return rows


def _first_message(program: RankProgram) -> int:
    kinds = program.columns.kinds
    return next((row for row, kind in enumerate(kinds) if kind != COMPUTE), len(kinds))


def _with_columns(
    job: str, program: RankProgram, **changes: Mapping[int, int]
) -> Change:
    """Return a change that sets some rows in the columns of a program."""

    def changed(each: RankProgram) -> RankProgram:
        if each.rank != program.rank:
            return each
        columns: dict[str, Any] = {}
        for name, rows in changes.items():
            columns[name] = array("q", getattr(each.columns, name))
            for row, value in rows.items():
                columns[name][row] = value
        return replace(each, columns=replace(each.columns, **columns))

    return lambda of: replace(
        of,
        jobs=tuple(
            replace(each, programs=tuple(map(changed, each.programs)))
            if each.name == job
            else each
            for each in of.jobs
        ),
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
    groups: dict[str, list[LinkRecord]] = {}
    for link in links:
        if link.equal_cost is not None:
            groups.setdefault(link.equal_cost, []).append(link)
    for name, members in groups.items():
        mean = sum(each.bytes for each in members) / len(members)
        if len(members) > 1 and mean:
            most = max(each.bytes for each in members) / mean
            excess = (most - 1) * mean / (members[0].rate_bps or 1)
            switch = name.rpartition("#")[0]
            uneven[switch] = max(uneven.get(switch, (0.0, 0.0)), (most, excess))
    worst, _ = max(uneven.values(), default=(0.0, 0.0))
    if worst < _UNEVEN:
        return
    # Name the most uneven switches, that with the longest excess time first.
    named = sorted(
        (
            name
            for name, (most, _) in uneven.items()
            if most >= max(_AS_UNEVEN * worst, _UNEVEN)
        ),
        key=lambda name: -uneven[name][1],
    )
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    # Counters show how much a path carries, but not which flows.
    unknown = " (as counted; its flows are unknown)" * isinstance(
        run.ecmp, AssignedPaths
    )
    yield _fault(
        "hash imbalance",
        ", ".join(named[:_NAMED]) + more,
        lambda of: of.edited(partial(_balance, "round_robin")),
        f"an equal-cost path carries {worst:.2f} times the mean of its group{unknown}; "
        "the saving is that of an even spread at all switches",
        lambda of: of.edited(partial(_balance, "adaptive")),
        remedy="with switches that spread packets evenly over equal-cost paths",
        round=1,
    )


def _balance(how: str, document: dict[str, Any]) -> None:
    fabric, transport = document["fabric"], document["transport"]
    fabric["switches"] = {**(fabric.get("switches") or {}), "balancing": how}
    transport["reordering"] = {"accept": {"window": _ANY_ORDER}}

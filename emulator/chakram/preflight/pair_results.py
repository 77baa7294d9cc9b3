"""Combination of probe and message results into a report about all pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from chakram.foundation.ip_addresses import family_of
from chakram.plan.wire_cost import overhead_bytes_of, wire_bytes
from chakram.preflight.confirmation import Evidence
from chakram.preflight.grouped_findings import fold
from chakram.preflight.pair_faults import pair_facts, path_facts, path_mtu_of
from chakram.preflight.probe_plan import PathReport, headers_bytes
from chakram.preflight.rate_measurements import Figures
from chakram.preflight.report import (
    FAILED,
    Finding,
    PairReport,
    PreflightReport,
    share_of,
)
from chakram.summary.bandwidth import percentile

if TYPE_CHECKING:
    from chakram.plan.port_plan import PortPlan
    from chakram.plan.probes import ProbePacket
    from chakram.plan.transport import TransportPlan
    from chakram.preflight.report import PreflightSettings


Pair = tuple[int, int]
"""Positions of two ports: sender and receiver."""


@dataclass(slots=True, kw_only=True)
class Measured:
    """All measurements of a preflight, by positions of ports.

    Attributes:
        packets: Kinds of probes.
        source_ports: UDP source ports of the probes.
        paths: Probe results of pairs.
        tested: Pairs to test.
        alone: Figures of pairs without traffic of other pairs on their links.
        permutation: Pairs of the measurement in which all ports send at once.
        together: Figures while all ports send.
        not_measured: Reason why figures may be missing.
        evidence: Additional evidence on pairs whose figures are inconclusive.
        absent: Reasons why agents cannot be used, by agent.
    """

    packets: tuple[ProbePacket, ...] = ()
    source_ports: tuple[int, ...] = ()
    paths: Mapping[Pair, PathReport] = field(default_factory=dict)
    tested: Collection[Pair] = ()
    alone: Mapping[Pair, Figures] = field(default_factory=dict)
    permutation: Sequence[Pair] = ()
    together: Mapping[Pair, Figures] = field(default_factory=dict)
    not_measured: str | None = None
    evidence: Mapping[Pair, Evidence] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


def passing(
    paths: Mapping[Pair, PathReport],
    packets: Sequence[ProbePacket],
    *,
    npaths: int,
    packet_bytes: int,
    classes: Collection[int] = (),
) -> set[Pair]:
    """Return the pairs whose packets of *packet_bytes* arrive over every path.

    The size applies to packets of the data class.  For each of *classes*, a packet of
    any size must arrive.
    """
    data = packets[0].tos if packets else None
    return {
        pair
        for pair, report in paths.items()
        if all(
            report.largest(packets, path, tos=data) >= packet_bytes
            and all(report.largest(packets, path, tos=tos) for tos in classes)
            for path in range(npaths)
        )
    }


def expected_bps(
    source: PortPlan,
    destination: PortPlan,
    transport: TransportPlan,
    *,
    size_bytes: int,
) -> float | None:
    """Return the payload rate that two ports allow, or None if no rate is given.

    The payload rate is the rate of the slower port minus the headers.
    """
    rates = [
        port.rate_bps for port in (source, destination) if port.rate_bps is not None
    ]
    if not rates or not size_bytes:
        return None
    on_wire = wire_bytes(
        size_bytes,
        path_mtu=transport.path_mtu,
        verb=transport.verb,
        overhead_bytes=overhead_bytes_of(family_of(destination.address)),
    )
    return min(rates) * size_bytes / on_wire


def rate_share(
    figures: Figures,
    source: PortPlan,
    destination: PortPlan,
    transport: TransportPlan,
) -> float | None:
    """Return goodput as a share of the expected payload rate, or None if unknown."""
    expected = expected_bps(
        source, destination, transport, size_bytes=figures.size_bytes
    )
    return share_of(_goodput(figures), expected)


def report_of(
    ports: Sequence[PortPlan],
    measured: Measured,
    *,
    transport: TransportPlan,
    settings: PreflightSettings,
) -> PreflightReport:
    """Return the report of a preflight of *ports*."""
    names = port_names(ports)
    present = [port.agent not in measured.absent for port in ports]
    facts = []
    pairs = []
    for a, b in sorted(measured.tested):
        if not (present[a] and present[b]):
            continue
        pair = _figures(ports, names, (a, b), measured, transport)
        pairs.append(pair)
        broken = list(
            path_facts(
                (names[a], names[b]),
                measured.paths.get((a, b)),
                packets=measured.packets,
                source_ports=measured.source_ports,
                address=ports[b].address,
                settings=settings,
            )
        )
        # If packets do not pass, another fact already explains the missing rate.
        is_cut = any(fact.check in ("reach", "mtu") for fact in broken)
        why = None if is_cut else measured.not_measured
        back = measured.paths.get((b, a))
        if not is_cut and (back is None or not back.arrived):
            why = why or "acknowledgments do not come back"
        facts += broken
        facts += pair_facts(
            pair,
            settings,
            not_measured=why,
            in_permutation=(a, b) in measured.permutation,
            evidence=measured.evidence.get((a, b), Evidence()),
        )
    tested = [(pair.source, pair.destination) for pair in pairs]
    return PreflightReport(
        ports=tuple(names),
        pairs=tuple(pairs),
        findings=(*_absent(ports, names, measured), *fold(facts, tested)),
        settings=settings,
    )


def port_names(ports: Sequence[PortPlan]) -> list[str]:
    """Return the names of ports. The only port of an agent has the agent's name."""
    agents = Counter(port.agent for port in ports)
    return [
        port.agent
        if agents[port.agent] == 1 and port.host.startswith(f"{port.agent}:")
        else port.host
        for port in ports
    ]


def _absent(
    ports: Sequence[PortPlan], names: Sequence[str], measured: Measured
) -> list[Finding]:
    named = list(zip(names, ports, strict=True))
    return [
        Finding(
            check="agent",
            verdict=FAILED,
            where=_with_ports(agent, [n for n, port in named if port.agent == agent]),
            found=reason,
            hint=None,
            pairs=tuple(
                (a_name, b_name)
                for a_name, a in named
                for b_name, b in named
                if a is not b and agent in (a.agent, b.agent)
            ),
        )
        for agent, reason in sorted(measured.absent.items())
    ]


def _with_ports(agent: str, names: Sequence[str]) -> str:
    return agent if list(names) == [agent] else f"{agent} ({', '.join(names)})"


def _figures(
    ports: Sequence[PortPlan],
    names: Sequence[str],
    pair: Pair,
    measured: Measured,
    transport: TransportPlan,
) -> PairReport:
    source, destination = (ports[place] for place in pair)
    path = measured.paths.get(pair, PathReport())
    alone = measured.alone.get(pair, Figures())
    together = measured.together.get(pair, Figures())
    size_bytes = alone.size_bytes or together.size_bytes
    times_ns = alone.round_trips_ns
    failed, longest = _over_paths(measured.paths.get(pair), measured)
    expected = expected_bps(
        source,
        destination,
        transport,
        size_bytes=size_bytes or transport.path_mtu,
    )
    train = measured.evidence.get(pair, Evidence()).train_share
    return PairReport(
        source=names[pair[0]],
        destination=names[pair[1]],
        probes_sent=path.sent.total(),
        probes_arrived=path.arrived.total(),
        paths_failed=failed,
        path_mtu=_path_mtu(longest, destination.address, measured),
        packet_bytes=longest,
        classes=tuple(
            (sent, arrived, count)
            for (sent, arrived), count in sorted(path.classes.items())
        ),
        goodput_bps=_goodput(alone),
        expected_bps=expected if size_bytes or train is not None else None,
        train_bps=None if train is None or expected is None else train * expected,
        together_bps=_goodput(together),
        round_trip_min_ns=min(times_ns) if times_ns else None,
        round_trip_p50_ns=percentile(times_ns, 50) if times_ns else None,
        round_trip_p99_ns=percentile(times_ns, 99) if times_ns else None,
        jitter_ns=_jitter(times_ns),
        packets=alone.packets,
        retransmitted=alone.retransmitted,
        generator_share=(
            alone.generator_wait_ns / alone.elapsed_ns
            if alone.size_bytes and alone.elapsed_ns
            else None
        ),
    )


def _over_paths(
    report: PathReport | None, measured: Measured
) -> tuple[tuple[int, ...], int | None]:
    """Return source ports of broken paths, and the size that passes all other paths."""
    if report is None:
        return (), None
    longest = {
        number: report.largest(measured.packets, path)
        for path, number in enumerate(measured.source_ports)
    }
    working = [size for size in longest.values() if size]
    failed = tuple(number for number, size in longest.items() if not size)
    return failed, min(working) if working else None


def _path_mtu(longest: int | None, address: str, measured: Measured) -> int | None:
    """Return the path MTU that passes, or None if only short packets were sent."""
    smallest = min((each.size_bytes for each in measured.packets), default=0)
    if longest is None or longest == smallest < headers_bytes(address) + 256:
        return None
    return path_mtu_of(longest, address)


def _goodput(figures: Figures) -> float | None:
    if not figures.size_bytes or not figures.elapsed_ns:
        return None
    return figures.size_bytes * 8e9 / figures.elapsed_ns


def _jitter(times_ns: Sequence[int]) -> float | None:
    """Return the mean difference between successive times (like RFC 3550, 6.4.1)."""
    if len(times_ns) < 2:
        return None
    return sum(abs(b - a) for a, b in pairwise(times_ns)) / (len(times_ns) - 1)

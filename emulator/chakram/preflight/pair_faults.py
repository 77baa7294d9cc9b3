"""Facts about faults of pairs, derived from measurements, with suggested actions."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Iterator, Sequence
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, NamedTuple

from chakram.foundation.units import format_rate
from chakram.plan.transport import PATH_MTUS
from chakram.preflight.confirmation import Evidence
from chakram.preflight.grouped_findings import Fact
from chakram.preflight.probe_plan import SMALL_BYTES, PathReport, headers_bytes
from chakram.preflight.report import FAILED, UNPROVEN, PairReport, share_of

if TYPE_CHECKING:
    from chakram.plan.probes import ProbePacket
    from chakram.preflight.report import PreflightSettings


GENERATOR_SHARE = 0.05
"""Maximum share of a measurement's time for which the data plane may delay the traffic.
A measurement with a larger share is inconclusive."""

_NO_EVIDENCE = Evidence()

_ECN_NAMES = ("Not-ECT", "ECT(1)", "ECT(0)", "CE")
_CE = 3

_ERRORS = {
    errno.ENETUNREACH: "there is no route",
    errno.EHOSTUNREACH: "the host does not answer",
    errno.ECONNREFUSED: "no process uses the UDP port",
    errno.EMSGSIZE: "too long for its MTU",
    errno.EPERM: "blocked by a filter",
    errno.EACCES: "blocked by a filter",
    errno.ENETDOWN: "the interface is down",
}


def path_facts(
    pair: tuple[str, str],
    report: PathReport | None,
    *,
    packets: Sequence[ProbePacket],
    source_ports: Sequence[int],
    address: str,
    settings: PreflightSettings,
) -> Iterator[Fact]:
    """Yield the faults that probes show on the paths from one port to another.

    Args:
        pair: Names of the two ports.
        report: Counts of the probes. None if there are no counts.
        packets: Kinds of probes.
        source_ports: UDP source port of each path.
        address: Address of the receiving port.
        settings: Checks and limits.
    """
    found = report or PathReport()
    paths = range(len(source_ports))
    reached = [path for path in paths if found.largest(packets, path)]
    pair_paths = _Paths(pair, found, reached, packets, source_ports)
    if not reached:
        yield pair_paths.lost(
            "reach", "no packet arrives", _why_not(report), found.missing
        )
        return
    lost = [path for path in paths if path not in reached]
    if lost:
        yield pair_paths.lost(
            "reach",
            f"nothing arrives{_from(lost, source_ports)}",
            "check the equal-cost paths: one of them is broken",
            [kind for kind in found.missing if kind[1] not in reached],
        )
    if settings.check_mtu:
        yield from _mtu_facts(pair_paths, address, settings)
    if settings.check_classes:
        yield from _lost_classes(pair_paths)
        # Report the same fault of several classes only once.
        yield from dict.fromkeys(_class_facts(pair, found))


class _Paths(NamedTuple):
    """The probes between a pair of ports, and the paths over which any arrived."""

    pair: tuple[str, str]
    report: PathReport
    reached: Sequence[int]
    packets: Sequence[ProbePacket]
    source_ports: Sequence[int]

    def lost(
        self, check: str, found: str, hint: str, kinds: Collection[tuple[int, int]]
    ) -> Fact:
        """Return a fact about missing probes: failed if they prove loss, else unproven.

        *kinds* lists the kind and path of each missing probe.
        """
        if self.report.is_proof(kinds):
            return Fact(check, FAILED, self.pair, found, hint)
        why = (
            "but the sender may not have sent them, or the receiver may have had no "
            "buffer space"
        )
        return Fact(
            check,
            UNPROVEN,
            self.pair,
            f"{found}, {why}",
            "check the load of both hosts",
        )


def _why_not(report: PathReport | None) -> str:
    if report is None:
        return "none was sent; check the log of the sender's agent"
    if report.refused:
        refused = _said(report.refused.values())
        return f"the sender's own kernel refuses them: {refused}"
    if report.unreachable:
        number, address = min(report.unreachable)
        return f"{_who(address)} reports: {_said([number])}"
    return "no ICMP error arrives; check cables, VLANs, filters and routes"


def _mtu_facts(
    paths: _Paths, address: str, settings: PreflightSettings
) -> Iterator[Fact]:
    _, report, reached, packets, source_ports = paths
    needed = settings.path_mtu + headers_bytes(address)
    # Long probes have the data class, so compare only with probes of that class.
    data = packets[0].tos
    longest = {path: report.largest(packets, path, tos=data) for path in reached}
    short = [path for path in reached if 0 < longest[path] < needed]
    if not short:
        return
    kinds = [
        each
        for each in report.missing
        if each[1] in short and packets[each[0]].size_bytes >= needed
    ]
    passing = path_mtu_of(min(longest[path] for path in short), address)
    where = _from(short, source_ports) if len(short) < len(reached) else ""
    rest = (
        f"but those of path MTU {passing} do"
        if passing
        else "and not even those of path MTU 256 do"
    )
    yield paths.lost(
        "mtu",
        f"packets of {needed} bytes (path MTU {settings.path_mtu}) do not arrive"
        f"{where}, {rest}; {_who_drops(report, kinds)}",
        f"raise the MTU of every port on the path to {needed} bytes or more"
        + (f", or set transport.path_mtu: {passing}" if passing else ""),
        kinds,
    )


def _who_drops(report: PathReport, kinds: Collection[tuple[int, int]]) -> str:
    """Describe what drops long packets, based on reported errors if there are any."""
    refused = {report.refused[kind] for kind in kinds if kind in report.refused}
    if refused:
        return f"the sender's own interface refuses them: {_said(refused)}"
    if report.too_big:
        mtu, address = min(report.too_big)
        return f"{_who(address)} reports an MTU of {mtu}"
    return "no ICMP error arrives: the path silently drops large packets"


def _lost_classes(pair_paths: _Paths) -> Iterator[Fact]:
    """Yield a fact for each class that is lost on a path where other classes arrive."""
    _, report, reached, packets, source_ports = pair_paths
    # For each DSCP and ECN field, the tested paths over which nothing arrived.
    lost: dict[int, dict[int, set[int]]] = {}
    for number, packet in enumerate(packets):
        # Longer probes may be lost because of their length.
        if packet.size_bytes == SMALL_BYTES:
            lost.setdefault(packet.tos >> 2, {})[packet.tos & _CE] = {
                path
                for path in reached
                if report.sent[number, path] and not report.arrived[number, path]
            }

    def where(paths: Collection[int]) -> str:
        return "" if len(paths) == len(reached) else _from(paths, source_ports)

    def missing(paths: Collection[int], tos: Collection[int]) -> list[tuple[int, int]]:
        return [
            (number, path)
            for number, path in report.missing
            if path in paths and packets[number].tos in tos
        ]

    for dscp, by_ecn in lost.items():
        whole = set.intersection(*by_ecn.values())
        if whole:
            yield pair_paths.lost(
                "dscp",
                f"no packet of DSCP {dscp} arrives{where(whole)}",
                "check for a filter, a policer, or a queue without bandwidth for this "
                "class",
                missing(whole, [dscp << 2 | ecn for ecn in by_ecn]),
            )
        fields: dict[tuple[int, ...], list[int]] = {}
        for ecn, paths in by_ecn.items():
            if paths - whole:
                key = tuple(sorted(paths - whole))
                fields.setdefault(key, []).append(ecn)
        for paths_of, ecns in fields.items():
            yield pair_paths.lost(
                "ecn",
                f"no packet of DSCP {dscp} with "
                f"{', '.join(_ECN_NAMES[ecn] for ecn in ecns)} arrives"
                f"{where(paths_of)}",
                "configure switches not to drop packets because of their ECN field",
                missing(paths_of, [dscp << 2 | ecn for ecn in ecns]),
            )


def _class_facts(pair: tuple[str, str], report: PathReport) -> Iterator[Fact]:
    for sent, arrived in sorted(report.classes):
        if sent >> 2 != arrived >> 2:
            dscp, now = sent >> 2, arrived >> 2
            how = "bleached" if now == 0 else "rewritten"
            found = f"DSCP {dscp} arrives as {now}: {how}"
            hint = "let the ports of every switch on the path trust DSCP"
            yield Fact("dscp", FAILED, pair, found, hint)
        before, after = sent & _CE, arrived & _CE
        if before == after:
            continue
        names = f"{_ECN_NAMES[before]} arrives as {_ECN_NAMES[after]}"
        if after == _CE and before:
            found = f"{names}: marked although the path is idle"
            hint = "check the marking thresholds of the queues on the path"
        elif after == 0:
            found = f"{names}: cleared"
            hint = (
                "let switches change ECN only to mark congestion; congestion control "
                "needs these marks"
            )
        else:
            found = f"{names}: rewritten"
            hint = "let switches change ECN only to mark congestion"
        yield Fact("ecn", FAILED, pair, found, hint)


def path_mtu_of(packet_bytes: int, address: str) -> int | None:
    """Return the largest path MTU whose packets have at most *packet_bytes*."""
    more = headers_bytes(address)
    return max(
        (each for each in PATH_MTUS if each + more <= packet_bytes), default=None
    )


def pair_facts(
    pair: PairReport,
    settings: PreflightSettings,
    *,
    not_measured: str | None,
    in_permutation: bool = False,
    evidence: Evidence = _NO_EVIDENCE,
) -> Iterator[Fact]:
    """Yield the faults that the figures of one direction of a pair show.

    Args:
        pair: Figures of the pair.
        settings: Checks and limits.
        not_measured: Reason why figures may be missing.
        in_permutation: Whether the pair is in the measurement in which all ports send
            at once.
        evidence: Additional evidence on the pair.
    """
    names = (pair.source, pair.destination)
    p50_ns = pair.round_trip_p50_ns
    limit_ns = settings.max_latency_ns
    needed = settings.min_permutation_share
    # If hosts were late, the figures describe the hosts, not the fabric.
    verdict = UNPROVEN if evidence.hosts_late else FAILED
    busy = ", but its hosts were late" if evidence.hosts_late else ""
    if p50_ns is not None and limit_ns is not None and p50_ns > limit_ns:
        yield Fact(
            "latency",
            verdict,
            names,
            f"the median round trip is longer than {limit_ns / 1000:g} us{busy}",
            None,
            p50_ns,
            f"{p50_ns / 1000:.1f} us",
        )
    if not_measured is not None:
        for check, is_demanded, figure in (
            ("latency", settings.check_latency and limit_ns is not None, p50_ns),
            ("rate", settings.check_rate, pair.rate_share or pair.goodput_bps),
            ("permutation", in_permutation and needed is not None, pair.together_bps),
        ):
            if is_demanded and figure is None:
                yield Fact(
                    check, UNPROVEN, names, f"not measured: {not_measured}", None
                )
    yield from _rate_facts(pair, settings, evidence)
    yield from _loss_facts(pair, settings, evidence)
    together = pair.together_share
    if together is not None and needed is not None and together < needed:
        yield Fact(
            "permutation",
            verdict,
            names,
            f"less than {needed:.0%} of its nominal rate while all ports send{busy}",
            "check the capacity of the uplinks and the balance of the equal-cost paths",
            together,
            f"{together:.0%}",
        )


def _rate_facts(
    pair: PairReport, settings: PreflightSettings, evidence: Evidence
) -> Iterator[Fact]:
    """Yield a fact if a pair is slow. Trains decide if its message is inconclusive."""
    least = settings.min_rate_share
    share = share_of(pair.goodput_bps, pair.expected_bps)
    if share is not None and share >= least:
        return
    trains = evidence.train_share
    held_up = pair.generator_share or 0.0
    is_moot = (
        share is None
        or evidence.hosts_late
        # The delay by the data plane is approximate, so allow for twice that delay.
        or (held_up > GENERATOR_SHARE and share >= least * max(0.0, 1 - 2 * held_up))
        # Retransmissions take time, regardless of the direction in which packets are
        # lost.
        or _resent(pair) > settings.max_loss_share
    )
    if is_moot and trains is not None and trains >= least:
        return
    slow = evidence.slow_share
    if slow is not None and trains is not None and trains < least:
        is_moot, share = False, max(slow, share or 0.0)
    if share is None:
        return
    yield Fact(
        "rate",
        UNPROVEN if is_moot else FAILED,
        (pair.source, pair.destination),
        f"less than {least:.0%} of its nominal rate"
        + (", but the data plane was the limit" if is_moot else ""),
        "use faster hosts, fewer ports per host or slower links"
        if is_moot
        else "check for a slower port, a shaper or a policer on the path",
        share,
        f"{share:.0%} ({format_rate(_rounded(share * (pair.expected_bps or 0)))})",
    )


def _loss_facts(
    pair: PairReport, settings: PreflightSettings, evidence: Evidence
) -> Iterator[Fact]:
    """Yield a fact if packets are lost, or are retransmitted without a proven loss."""
    resent, most = _resent(pair), settings.max_loss_share
    is_lossy = evidence.loses(most)
    by_probes = bool(is_lossy and evidence.probed)
    if is_lossy is False or not (by_probes or resent > most):
        return
    yield Fact(
        "loss",
        FAILED if is_lossy else UNPROVEN,
        (pair.source, pair.destination),
        f"loses more than {most:.2%} of its packets, although no other pair was sending"
        if is_lossy
        else f"more than {most:.2%} of its packets were sent again, but none is known "
        "to be lost",
        "check cables and optics, and for queues shorter than transport.window"
        if is_lossy
        else (
            "check whether transport.retransmit_timeout is below the response time of "
            "its hosts"
        ),
        evidence.lost / evidence.probed if by_probes else resent,
        f"{evidence.lost} of {evidence.probed}"
        if by_probes
        else f"{pair.retransmitted} sent again for {pair.packets}",
    )


def _resent(pair: PairReport) -> float:
    return pair.retransmitted / pair.packets if pair.packets else 0.0


def _rounded(rate_bps: float) -> int:
    """Round a rate to three digits, the precision of the measurements."""
    digits = len(str(round(rate_bps)))
    return round(round(rate_bps), min(0, 3 - digits))


def _from(paths: Collection[int], source_ports: Sequence[int]) -> str:
    """Return a phrase that lists the source ports of some paths."""
    listed = ", ".join(str(source_ports[path]) for path in sorted(paths)[:4])
    more = ", ..." if len(paths) > 4 else ""
    ports = "port" if len(paths) == 1 else "ports"
    return f" from UDP source {ports} {listed}{more} (of {len(source_ports)})"


def _said(numbers: Iterable[int]) -> str:
    return ", ".join(
        _ERRORS.get(number, f"error {errno.errorcode.get(number, number)}")
        for number in sorted(set(numbers))
    )


def _who(address: int) -> str:
    # Records contain only IPv4 addresses. All other senders have address 0.
    if not address:
        return "a router, or the sender's own kernel,"
    return str(IPv4Address(address))

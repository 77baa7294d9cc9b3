"""Faults that the records of a run on a network suggest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal, TypeAlias

from chakram.analysis.counter_evidence import PortCounters, node_of
from chakram.analysis.lossy_links import Crossing, lossy_ports
from chakram.analysis.simulation_misfit import Observed, Pair, slow_ports
from chakram.diagnosis.counterfactual import Assumption, Rerun, Variant
from chakram.diagnosis.foreign_traffic import (
    FOREIGN,
    SCALES,
    evidence_of,
    foreign_rates_bps,
    place_of,
    rates_left_bps,
)
from chakram.diagnosis.run_evidence import (
    End,
    bytes_sent,
    counted_at_ports,
    data_and_naks,
    duration_ns,
    paths_of,
    paused_spans,
    sent_and_received,
    ways_of,
)
from chakram.foundation.units import format_time
from chakram.plan.plan import Plan
from chakram.predict.routing import ports_of
from chakram.run_directory.reader import RunResults
from chakram.switch.ecmp import AssignedPaths, DrawnPaths

_EXPLAINED = 0.5
"""Minimum ratio of a host's late time to the lost time that it explains."""

_LEAST_EXCESS = 0.04
_MOST_LOSS = 0.7
LOSSES = (1e-4, _MOST_LOSS)
DELAYS_NS = (1e4, 1e9)
_LEAST_PAUSE = 0.01
CANDIDATES = 6
"""Number of suspected ports to simulate before the search checks the results."""

_MOST_CANDIDATES = 24
"""Maximum number of suspected ports, if the first ones do not explain the run."""

_FEW_LOST = 3
_OVERTAKING = (3, 10, 30, 100)
"""Numbers of packets that may overtake a late packet."""

_LEAST_DISORDER = 1e-3
"""Minimum share of all packets that are overtaken, or arrive twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A fault that may explain a run, and its misfit.

    Attributes:
        cause: Name of the cause.
        place: A direction of a link, a whole link, a switch or a host.
        assumed: Assumptions of the simulation.
        evidence: Evidence for the fault, in a few words.
        misfit: Misfit over the iterations that were not used for fitting.
        fitted: Misfit over the iterations that were used for fitting.
        span: Range that contains the best value of the fault's parameter. None means
            that the fault has no parameter.
        is_counted: Whether counters prove the fault.
        alike: Hypotheses that the same counters support equally well.
        pairs: Pairs of ranks whose messages cross a slow link.
    """

    cause: str
    place: str
    assumed: tuple[Assumption, ...]
    evidence: str = ""
    misfit: float = 0.0
    fitted: float = 0.0
    span: tuple[float, float] | None = None
    is_counted: bool = False
    alike: tuple[Hypothesis, ...] = ()
    pairs: frozenset[Pair] = frozenset()

    def __str__(self) -> str:
        return f"{self.cause} at {self.place}"


Found: TypeAlias = tuple[Hypothesis, tuple[Hypothesis, ...]]
"""A fault that explains a run, and other hypotheses that explain it equally well."""


class Proposals:
    """Faults that the records of a run suggest.

    Attributes:
        links: Link directions, by the egress port where each direction begins.
        counters: Counters of the ports in *links*.

    Args:
        results: Results of the run.
        run: Simulation of the run without faults.
        late: Share of the time for which the data plane was late, by late host.
        iterations: Number of measured iterations.
        overflow: Number of packets that queues drop in a simulation without faults.
    """

    def __init__(
        self,
        results: RunResults,
        run: Rerun,
        *,
        late: Mapping[str, float],
        iterations: int,
        overflow: float,
    ) -> None:
        self._results = results
        self._late = late
        self._iterations = iterations
        self._overflow = overflow
        self._paused = paused_spans(results)
        self._sent, self._received = sent_and_received(results)
        wrong, self._dropped = counted_at_ports(
            results, "invalid_packets", "socket_drops"
        )
        self.links = {each.port: each for each in results.links() if each.port}
        self.counters = PortCounters(
            links=self.links,
            packets=sum(self._sent.values()),
            wrong=wrong,
            uncounted={
                node
                for link in run.topology.links
                if any(
                    run.result.link_bytes.get(port) and port not in self.links
                    for port in (str(link.a), str(link.b))
                )
                for node in (link.a.node, link.b.node)
            },
        )

    def counted(self, variant: Variant, run: Rerun) -> Iterator[Hypothesis]:
        """Yield the faults that counters prove."""
        if not _knows_paths(run):
            return
        yield from (
            list(self._without_bytes(run))
            or list(self._disordered(variant, run, "duplication"))
            or list(self._foreign(run))
            or list(self._counted_losses(variant, run))
            or list(self._disordered(variant, run, "reordering"))
        )

    def _foreign(self, run: Rerun) -> Iterator[Hypothesis]:
        """Yield hypotheses of other traffic that uses part of some links' rates."""
        own_bytes = bytes_sent(self._results, run)
        time_ns = duration_ns(self._results)
        foreign_bps = foreign_rates_bps(self.links, own_bytes, time_ns)
        for scale in SCALES if foreign_bps else ():
            left = rates_left_bps(foreign_bps, self.links, scale)
            yield Hypothesis(
                cause=FOREIGN,
                place=place_of(foreign_bps, self.links),
                assumed=tuple(
                    Assumption(kind="degrade", port=port, rate_bps=rate_bps)
                    for port, rate_bps in left.items()
                ),
                evidence=evidence_of(foreign_bps, self.links, time_ns),
                is_counted=True,
            )

    def slower(
        self, run: Rerun, measured: Observed, simulated: Observed
    ) -> Iterator[Hypothesis]:
        """Yield faults that may delay messages."""
        yield from self.pauses(measured.iteration_ns)
        # If the hash is unknown, the paths between switches are drawn at random.
        kinds = ("host", "uplink") if _knows_paths(run) else ("host",)
        ways = {
            pair: frozenset(
                port
                for port in ports
                if port in self.links and self.links[port].kind in kinds
            )
            for pair, ports in ways_of(run).items()
        }
        own = {
            port.host: f"{port.host}:{port.interface}" for port in ports_of(run.plan)
        }
        slow = [own[host] for host in self._late if host in own]
        left = 1 - simulated.iteration_ns / measured.iteration_ns
        # If late data planes explain the lost time, no other link is a suspect.
        if max(self._late.values(), default=0.0) < _EXPLAINED * left or not slow:
            slow += slow_ports(ways, measured, simulated, least=_LEAST_EXCESS)
        for port in self._ends(slow):
            rate_bps = self.links[port].rate_bps
            if rate_bps:
                found = self._of_port(
                    "slow link",
                    Assumption(kind="degrade", port=port, rate_bps=rate_bps),
                    (0.03, 0.97),
                )
                crossing = (pair for pair, ports in ways.items() if port in ports)
                yield replace(found, pairs=frozenset(crossing))

    def pauses(self, iteration_ns: float) -> Iterator[Hypothesis]:
        """Yield the links whose sending port was paused."""
        whole_ns = self._iterations * iteration_ns
        dilation = self._results.manifest.dilation
        for port, spans in self._paused.items():
            link = self.links.get(port)
            paused_ns = sum(end_ns - at_ns for _, at_ns, end_ns in spans)
            if link is None or paused_ns < _LEAST_PAUSE * whole_ns:
                continue
            yield Hypothesis(
                cause="pause",
                place=f"{link.link} {link.direction}",
                assumed=tuple(
                    Assumption(
                        kind="pause_storm",
                        port=port,
                        at_ns=at_ns,
                        until_ns=end_ns,
                        classes=(traffic_class,),
                    )
                    for traffic_class, at_ns, end_ns in spans
                ),
                evidence=f"counted pauses of {format_time(paused_ns / dilation)}",
                is_counted=True,
            )

    def _of_port(
        self, cause: str, assumed: Assumption, span: tuple[float, float]
    ) -> Hypothesis:
        link = self.links[assumed.port]
        place = f"{link.link} {link.direction}"
        return Hypothesis(cause=cause, place=place, assumed=(assumed,), span=span)

    def _counted_losses(self, variant: Variant, run: Rerun) -> Iterator[Hypothesis]:
        """Yield lossy links, found from packets that were sent but not received."""
        ends = {
            end: (ports, self._lost(end, other, run.plan))
            for end, (ports, other) in paths_of(run).items()
        }
        lost_across: Counter[str] = Counter()
        for ports, lost in ends.values():
            lost_across.update(dict.fromkeys(ports, lost))
        # A queue overflows because of another fault.  Its drops hide packets that links
        # lose.
        full = self.counters.overflowing_instead(lost_across)
        paths = [
            Crossing(dict.fromkeys(ports, float(self._sent.get(end, 0))), lost)
            for end, (ports, lost) in ends.items()
            if full.isdisjoint(ports)
        ]
        over = _packets_over(paths)
        total = round(sum(each.lost for each in paths))
        if total < max(_FEW_LOST, self._overflow + self._dropped):
            return
        known = [each.port for each in variant.assumed if each.probability]
        likely = [
            replace(
                self._of_port(
                    "loss",
                    Assumption(kind="loss", port=port, probability=share),
                    LOSSES,
                ),
                span=None,
                is_counted=True,
                evidence=(
                    f"{share:.2%} of {over[port]} packets were lost or arrived damaged"
                ),
            )
            for port, share in lossy_ports(
                [*paths, *self.counters.through_switches(total)], known
            )
            if port in self.links and share <= _MOST_LOSS
        ]
        if likely:
            yield replace(likely[0], alike=tuple(likely[1:CANDIDATES]))

    def _lost(self, end: End, other: End, plan: Plan) -> int:
        """Return how many packets of a queue pair did not arrive.

        If the job did not end, packets that may have been in flight are excluded.
        """
        lost = self._sent.get(end, 0) - self._received.get(other, 0)
        manifest = self._results.manifest
        if self._results.incomplete or end[0] in manifest.background_jobs:
            transport = plan.agents[0].transport
            if not transport.window_bytes:
                return 0
            # Data of one end, and ACKs for data of the other end, may be in flight.
            lost -= 2 * ceil(transport.window_bytes / transport.path_mtu)
        return max(0, lost)

    def _disordered(
        self, variant: Variant, run: Rerun, cause: str
    ) -> Iterator[Hypothesis]:
        """Yield links where packets overtake others, or are sent twice.

        A receiver answers an overtaken packet like a lost packet. Packets that are sent
        twice use part of the rate.
        """
        if self._overflow or any(each.port for each in variant.assumed):
            return
        paths = paths_of(run)
        sent = self._sent
        found = {
            end: self._received.get(other, 0) - sent.get(end, 0)
            for end, (_, other) in paths.items()
        }
        what = "packets arrived twice"
        if cause == "reordering":
            sent, naks = data_and_naks(self._results)
            found = {end: naks.get(end, 0) + min(0, found[end]) for end in paths}
            what = "data packets arrived after later ones"
        crossings = [
            Crossing(dict.fromkeys(ports, float(sent.get(end, 0))), max(0, found[end]))
            for end, (ports, _) in paths.items()
        ]
        total = sum(each.lost for each in crossings)
        if total < max(_FEW_LOST, _LEAST_DISORDER * sum(self._sent.values())):
            return
        over = _packets_over(crossings)
        shares = [
            (port, share)
            for port, share in lossy_ports(crossings)
            if port in self.links and share <= _MOST_LOSS
        ]
        for behind in _OVERTAKING if cause == "reordering" else (0,):
            likely = [
                replace(
                    self._of_port(
                        cause, self._disorder(cause, port, share, behind), LOSSES
                    ),
                    span=None,
                    is_counted=True,
                    evidence=f"{share:.2%} of {over[port]} {what}",
                )
                for port, share in shares
            ]
            if likely:
                yield replace(likely[0], alike=tuple(likely[1:CANDIDATES]))

    def _disorder(self, cause: str, port: str, share: float, behind: int) -> Assumption:
        """Return the assumption for a share of overtaken or duplicate packets."""
        rate_bps, is_host = self.links[port].rate_bps, self.links[port].kind == "host"
        if cause == "reordering" or not rate_bps:
            # The simulator reorders packets of hosts only.
            kind: Literal["reordering", "loss"] = "reordering" if is_host else "loss"
            return Assumption(kind=kind, port=port, probability=share, behind=behind)
        return Assumption(
            kind="degrade", port=port, rate_bps=round(rate_bps / (1 + share))
        )

    def _ends(self, ports: Iterable[str]) -> list[str]:
        """Return the first few *ports*, each followed by the opposite port of its link.

        A fault of the opposite port may delay or lose the acknowledgments of the data.
        """
        both = [
            each
            for port in ports
            if port in self.links
            for each in (port, self.counters.other_end(port))
            if each is not None
        ]
        return list(dict.fromkeys(both))[:_MOST_CANDIDATES]

    def _without_bytes(self, run: Rerun) -> Iterator[Hypothesis]:
        """Yield explanations for idle links that a hash should select."""
        expected_bytes = run.result.link_bytes
        idle = self.counters.idle(expected_bytes)
        if not idle:
            return
        dead = self.counters.dead(idle, expected_bytes)
        if dead:
            yield Hypothesis(
                cause="dead uplink",
                place=self.counters.names_of(dead),
                assumed=tuple(Assumption(kind="down", port=port) for port in dead),
                evidence="carried none of the traffic that the hash sends there",
                is_counted=True,
            )
        groups = {self.links[port].equal_cost: node_of(port) for port in idle}
        for group, switch in groups.items():
            if len(groups) > 1 and all(
                port in dead for port in idle if self.links[port].equal_cost == group
            ):
                continue
            avoided = self.counters.avoided(group)
            yield Hypothesis(
                cause="hash imbalance",
                place=switch,
                assumed=tuple(
                    Assumption(kind="avoided", port=port) for port in avoided
                ),
                evidence=(
                    f"sent nothing through {self.counters.names_of(avoided)}, "
                    "although its hash selects them: its routes may have changed"
                ),
                is_counted=True,
            )


def _packets_over(crossings: Iterable[Crossing]) -> Counter[str]:
    """Return the number of packets that were sent over each port."""
    over: Counter[str] = Counter()
    for each in crossings:
        over.update({port: round(sent) for port, sent in each.packets.items()})
    return over


def _knows_paths(run: Rerun) -> bool:
    """Return whether the hash of the switches is known, or has no effect."""
    has_choice = any(map(run.topology.has_choice, run.topology.switches))
    # Several assignments of paths may agree with the same counters.
    return not (has_choice and isinstance(run.ecmp, DrawnPaths | AssignedPaths))

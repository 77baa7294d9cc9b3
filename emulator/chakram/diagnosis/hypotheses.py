"""Diagnosis of a run on a network by fitting simulated faults to measurements.

The declared faults of the experiment are not read.  The null hypothesis is a simulation
without any fault.  If the run does not fit it, the records propose hypotheses: slow
links, links that lose packets, links without traffic, paused ports and late hosts.  A
parameter that the records do not give is fitted to half of the measured iterations and
judged by the other half.  Other hypotheses are judged by all iterations.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import exp, log
from statistics import median
from typing import TYPE_CHECKING

from chakram.analysis.counter_evidence import PortCounters, node_of
from chakram.analysis.lossy_links import Crossing, lossy_ports
from chakram.analysis.simulation_misfit import (
    LATE,
    Message,
    Observed,
    intact,
    late_hosts,
    misfit,
    observed,
    slow_ports,
    takes_longer,
)
from chakram.diagnosis.counterfactual import (
    Assumption,
    Rerun,
    Variant,
    rerun,
    variant_of,
)
from chakram.diagnosis.run_evidence import (
    Messages,
    counted_at_ports,
    generator_waits,
    is_generator_bound,
    measured_messages,
    paths_of,
    paused_spans,
    sent_and_received,
    simulated_messages,
    ways_of,
)
from chakram.foundation.errors import ChakramError
from chakram.foundation.units import format_rate, format_time
from chakram.predict.routing import ports_of
from chakram.roce.constants import NEVER
from chakram.switch.ecmp import DrawnPaths

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults

_LEAST_MISFIT = 0.06
"""Maximum misfit of a simulation that explains a run."""

_BETTER = 0.6
"""Maximum misfit of an accepted hypothesis, as a share of the misfit without it."""

_COUNTED = 0.9
"""The same limit for a fault that counters prove."""

_SURER = 0.4
"""The same limit if hosts delayed collectives."""

_AS_GOOD = 1.5
"""Hypotheses whose misfits differ by less than this factor are equivalent."""

_RESOLVED = 0.01
"""Error of the fit; misfits with a smaller difference are equivalent, too."""

_EXPLAINED = 0.5
"""Hosts that were late for this share of the lost time explain all of it."""

_LEAST_EXCESS = 0.04
_MOST_LOSS = 0.7
_AMONG_LATEST = 0.8
_LOSSES = (1e-4, _MOST_LOSS)
_TWICE = 2
_LEAST_PAUSE = 0.01
_CANDIDATES = 6
"""Ports that are suspected at once."""

_MOST_CANDIDATES = 24
"""Ports that are suspected in turn if the first ones do not explain the run."""

_OF_SEARCH = 0.5
"""Share of the time for fitting after which no further ports are suspected."""

_STEPS = 6
_MORE_STEPS = 3
"""Further steps of bisection for hypotheses that may fit best."""

_AS_FINE = 2.0
"""Maximum misfit for further steps, relative to the smallest misfit."""

_AROUND = 0.7
"""Minimum rate of a two-way fault, relative to the fitted one-way rate."""

_TWO_WAY = 4
"""Links that are tried as slow in both directions, if one direction explains little."""

_BOTH = 0.6
"""Maximum misfit of a two-way fault, relative to the one-way fault."""

_SEEDS = 3
"""Number of seeds for a simulation with random losses."""

_OF_BUDGET = 0.6
"""Share of the time limit for fitting; the rest is for testing savings."""

_ITERATIONS = 3
_MOST_FAULTS = 3
_FEW_LOST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A fault that may explain a run, and its misfit.

    Attributes:
        cause: Name of the cause.
        place: A link with its direction, a link, a switch or a host.
        assumed: Assumptions of the simulation.
        evidence: Evidence for the fault, in a few words.
        misfit: Misfit over the iterations that were not used for fitting.
        fitted: Misfit over the iterations that were used for fitting.
        span: Range that contains the best value of its parameter; None: no parameter.
        is_counted: Whether counters prove the fault.
        alike: Hypotheses that the same counters support equally.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Result of fitting simulated faults to a run.

    Attributes:
        variant: The run with the faults that were found, and no declared ones.
        run: Simulation of that variant.
        found: Faults, each with the hypotheses that explain the run equally well.
        null_misfit: Misfit of the simulation without any fault.
        misfit: Misfit of the simulation with the faults that were found.
        noise: Misfit to expect from random numbers and late hosts.
        tried: Hypotheses that were simulated, in words.
        simulations: Number of simulations.
        measured: Number of measured iterations in each simulation.
        measured_ns: Mean time of a measured iteration.
        late: Hosts whose data plane was late, with the share of the time.
    """

    variant: Variant
    run: Rerun
    found: tuple[tuple[Hypothesis, tuple[Hypothesis, ...]], ...]
    null_misfit: float
    misfit: float
    noise: float
    tried: tuple[str, ...]
    simulations: int
    measured: int
    measured_ns: float
    late: Mapping[str, float]

    @property
    def is_explained(self) -> bool:
        """Whether the simulation fits the measured run."""
        return self.misfit <= max(_LEAST_MISFIT, 2 * self.noise)


def fit(results: RunResults, *, job: str | None = None, budget_s: float = 60.0) -> Fit:
    """Find the faults that explain a run on a network.

    Args:
        results: Results of the run.
        job: The job to explain; None: all jobs.
        budget_s: Time limit of the diagnosis, in seconds.  A share of it is for
            simulating hypotheses.

    Raises:
        InputError: If the experiment or its traces cannot be read.
        ChakramError: If the run cannot be simulated without faults.
    """
    return _Search(results, job, time.monotonic() + _OF_BUDGET * budget_s).fit()


_Found = tuple[Hypothesis, tuple[Hypothesis, ...]]
"""A fault that explains a run, and the hypotheses that explain it equally well."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """Observations of all iterations, and of the two halves."""

    whole: Observed
    fitted: Observed
    judged: Observed


class _Search:
    def __init__(self, results: RunResults, job: str | None, until_s: float) -> None:
        self._job = job
        now_s = time.monotonic()
        self._until_s = until_s
        self._search_until_s = now_s + _OF_SEARCH * (until_s - now_s)
        self._simulations = 1
        self._null = _without_faults(results)
        self._links = {each.port: each for each in results.links() if each.port}
        self._records = measured_messages(results, job)
        numbers = sorted(self._records[1])
        self._numbers = numbers[::2], numbers[1::2] or numbers
        self._show(is_intact=False)
        warmup = self._null.experiment.iterations.warmup
        self._all = 1 + max(map(max, self._numbers)) - warmup
        # Without faults, iterations are alike; a few show the effect of chance.
        self._few = min(self._all, _ITERATIONS)
        self._waits = generator_waits(results)
        self._noise = median(self._waits.values()) if self._waits else 0.0
        self._late = late_hosts(self._waits)
        self._is_late = is_generator_bound(results)
        self._paused = paused_spans(results)
        self._sent, self._received = sent_and_received(results)
        wrong, self._dropped = counted_at_ports(
            results, "invalid_packets", "socket_drops"
        )
        self._counters = PortCounters(
            links=self._links, packets=sum(self._sent.values()), wrong=wrong
        )
        self._overflow = 0.0
        self._tried: list[str] = []
        self._spreads: dict[tuple[bool, tuple[Assumption, ...]], float] = {}

    def fit(self) -> Fit:
        variant = self._null
        run, shown = self._simulated(variant)
        # Queues that overflow also overflow in the simulation.
        self._overflow = sum(run.result.drops.values()) * self._all / self._few
        null_misfit = misfit(self._measured.whole, shown.whole)
        found, variant = self._searched(variant, [])
        if _is_random(variant.assumed):
            # Random losses mask slow links, except in messages without losses.
            self._show(is_intact=True)
            found, variant = self._searched(variant, found)
            self._show(is_intact=False)
        run, shown = self._simulated(variant)
        return Fit(
            variant=variant,
            run=run,
            found=tuple(found),
            null_misfit=null_misfit,
            misfit=misfit(self._measured.whole, shown.whole),
            noise=max(self._noise, self._spread(variant)),
            tried=tuple(dict.fromkeys(self._tried)),
            simulations=self._simulations,
            measured=self._iterations(variant),
            measured_ns=self._measured.whole.iteration_ns,
            late=self._late,
        )

    def _show(self, *, is_intact: bool) -> None:
        """Select the messages to compare: all, or those without retransmissions."""
        self._is_intact = is_intact
        halves = self._numbers
        numbers = sorted({*halves[0], *halves[1]})
        self._measured = _Shown(
            *(self._observed(*self._records, each) for each in (numbers, *halves))
        )

    def _observed(
        self,
        flows: Mapping[int, Sequence[Message]],
        times_ns: Mapping[int, Sequence[int]],
        numbers: Iterable[int],
    ) -> Observed:
        chosen = [each for each in numbers if each in times_ns]
        own = [flow for each in chosen for flow in flows.get(each, ())]
        if self._is_intact:
            return intact(own)
        jobs = max(len(times_ns[each]) for each in chosen)
        return observed(own, [sum(times_ns[each]) // jobs for each in chosen])

    def _searched(
        self, variant: Variant, found: list[_Found]
    ) -> tuple[list[_Found], Variant]:
        """Add faults that improve the fit; return all faults and the run with them."""
        run, shown = self._simulated(variant)
        while len(found) < _MOST_FAULTS and time.monotonic() < self._until_s:
            now = misfit(self._measured.whole, shown.whole)
            noise = max(self._noise, self._spread(variant))
            is_near = now <= max(_LEAST_MISFIT, 2 * noise)
            if is_near and not any(each.is_counted for each, _ in found):
                break
            # Counters prove these faults, regardless of other faults.
            stages = [] if self._is_intact else [self._counted(variant, run)]
            stages.append(self._pauses() if is_near else self._slower(run, shown))
            best = None
            for proposed in stages:
                hypotheses = self._hypotheses(variant, proposed)
                best = _best(
                    [
                        each
                        for each in hypotheses
                        if self._is_better(each, variant, shown)
                    ]
                )
                if best is not None:
                    break
            if best is None:
                break
            limit = max(_AS_GOOD * best.misfit, best.misfit + _RESOLVED)
            rivals = best.alike or tuple(
                each
                for each in hypotheses
                if each.misfit <= limit
                and each.place != best.place
                and not (each.cause == best.cause and _ports(best) < _ports(each))
            )
            found = [*found, (self._labelled(best), rivals)]
            variant = replace(variant, assumed=(*variant.assumed, *best.assumed))
            run, shown = self._simulated(variant)
        return found, variant

    def _is_better(self, best: Hypothesis, variant: Variant, shown: _Shown) -> bool:
        now = misfit(self._measured.whole, shown.whole)
        if best.is_counted and best.cause != "pause":
            # Counters prove this fault.  Unlike a pause, it is not the effect of
            # another fault.
            changed = replace(variant, assumed=(*variant.assumed, *best.assumed))
            return best.misfit < now + self._spread(changed)
        if best.span is None:
            return best.misfit <= _COUNTED * now
        better = _SURER if self._is_late else _BETTER
        if best.misfit > better * self._judge(shown):
            return False
        return not self._is_intact or self._fits_all(best, variant)

    def _fits_all(self, best: Hypothesis, variant: Variant) -> bool:
        """Return whether the fault fits all messages, not only those without losses."""
        self._show(is_intact=False)
        changed = replace(variant, assumed=(*variant.assumed, *best.assumed))
        before, after = (
            misfit(self._measured.whole, self._simulated(each)[1].whole)
            for each in (variant, changed)
        )
        limit = before + self._spread(variant)
        self._show(is_intact=True)
        return after <= limit

    def _judge(self, shown: _Shown) -> float:
        return misfit(self._measured.judged, shown.judged)

    # Simulations.

    def _iterations(self, variant: Variant) -> int:
        return self._all if _is_timed(variant.assumed) else self._few

    def _simulated(self, variant: Variant) -> tuple[Rerun, _Shown]:
        measured = self._iterations(variant)
        run = rerun(variant, measured=measured)
        flows, times_ns = simulated_messages(run, self._job)
        if _is_timed(variant.assumed):
            fitted, judged = (
                self._observed(flows, times_ns, each) for each in self._numbers
            )
            whole = self._observed(flows, times_ns, times_ns)
            return run, _Shown(whole, fitted, judged)
        if _is_random(variant.assumed):
            for more_flows, more_ns in self._repeated(variant, measured):
                last = 1 + max(times_ns)
                flows |= {last + number: each for number, each in more_flows.items()}
                times_ns |= {last + number: each for number, each in more_ns.items()}
        shown = self._observed(flows, times_ns, times_ns)
        return run, _Shown(shown, shown, shown)

    def _spread(self, variant: Variant) -> float:
        """Return the misfit between simulations that differ only in their seed."""
        if not _is_random(variant.assumed):
            return 0.0
        key = self._is_intact, variant.assumed
        if key not in self._spreads:
            shown = [
                self._observed(flows, times_ns, times_ns)
                for flows, times_ns in self._repeated(variant, self._all)
            ]
            self._spreads[key] = misfit(*shown) if len(shown) > 1 else 0.0
        return self._spreads[key]

    def _repeated(self, variant: Variant, measured: int) -> Iterator[Messages]:
        """Yield the messages of simulations with other seeds, if they end."""
        seed = variant.experiment.seed
        for each in range(seed + 1, seed + _SEEDS):
            with suppress(ChakramError):
                again = rerun(replace(variant, seed=each), measured=measured)
                yield simulated_messages(again, self._job)

    def _try(self, variant: Variant, assumed: Sequence[Assumption]) -> _Shown | None:
        if time.monotonic() > self._until_s:
            return None
        self._simulations += 1
        changed = replace(variant, assumed=(*variant.assumed, *assumed))
        try:
            return self._simulated(changed)[1]
        except ChakramError:
            return None

    # Hypotheses and their misfits.

    def _hypotheses(
        self, variant: Variant, proposed: Iterable[Hypothesis]
    ) -> list[Hypothesis]:
        # A slow host link delays data alike in both directions, so exclude both.
        taken = {each.port for each in variant.assumed}
        taken |= {
            other
            for each in variant.assumed
            if each.kind == "degrade" and self._links[each.port].kind == "host"
            if (other := self._counters.other_end(each.port))
        }
        enough = max(_LEAST_MISFIT, 2 * self._noise)
        hypotheses: list[Hypothesis] = []
        tried = 0
        for each in proposed:
            if taken & _ports(each):
                continue
            if tried and not tried % _CANDIDATES and self._is_found(hypotheses, enough):
                break
            tried += 1
            fitted = self._fitted(variant, each)
            hypotheses += [] if fitted is None else [fitted]
        best = _best(hypotheses)
        if best is None or best.span is None:
            return hypotheses
        near = _AS_FINE * best.fitted + _RESOLVED
        hypotheses = [
            self._finer(variant, each) if each.fitted <= near else each
            for each in hypotheses
        ]
        return self._with_two_way(variant, hypotheses, taken, enough)

    def _with_two_way(
        self,
        variant: Variant,
        hypotheses: list[Hypothesis],
        taken: set[str],
        enough: float,
    ) -> list[Hypothesis]:
        """Prefer one fault in both directions of a link if it explains much more.

        If the best fault in one direction does not explain the run, several links are
        tried.
        """
        ranking = sorted(hypotheses, key=lambda each: each.fitted)
        best = ranking[0]
        links = {self._links[each.assumed[0].port].link: each for each in ranking[::-1]}
        chosen = sorted(links.values(), key=lambda each: each.fitted)
        found = [
            self._finer(variant, both)
            for each in chosen[: 1 if best.fitted <= enough else _TWO_WAY]
            if (both := self._two_way(variant, each, taken)) is not None
            and both.misfit < _BOTH * best.misfit - _RESOLVED
        ]
        if not found:
            return hypotheses
        ports = _ports(min(found, key=lambda each: each.fitted))
        return [*found, *(each for each in hypotheses if not _ports(each) <= ports)]

    def _two_way(
        self, variant: Variant, one_way: Hypothesis, taken: set[str]
    ) -> Hypothesis | None:
        """Return a slow link in both directions, fitted; None if it cannot be."""
        other = self._counters.other_end(one_way.assumed[0].port)
        if other is None or other in taken:
            return None
        share = (one_way.assumed[0].rate_bps or 0) / (self._links[other].rate_bps or 1)
        both = replace(
            one_way,
            place=self._links[other].link,
            assumed=(*one_way.assumed, replace(one_way.assumed[0], port=other)),
            span=(_AROUND * share, min(0.97, share / _AROUND)),
        )
        return self._fitted(variant, both)

    def _is_found(self, hypotheses: Sequence[Hypothesis], enough: float) -> bool:
        """Return whether a hypothesis explains the run, or the time is used up."""
        return (
            time.monotonic() > self._search_until_s
            or min((each.fitted for each in hypotheses), default=1.0) <= enough
        )

    def _counted(self, variant: Variant, run: Rerun) -> Iterator[Hypothesis]:
        """Yield the faults that counters prove."""
        if not _knows_paths(run):
            return
        idle = list(self._without_bytes(run))
        yield from idle or self._counted_losses(variant, run)

    def _slower(self, run: Rerun, shown: _Shown) -> Iterator[Hypothesis]:
        """Yield faults that may delay messages."""
        yield from self._pauses()
        # If the hash is unknown, a path between switches is only one random draw.
        kinds = ("host", "uplink") if _knows_paths(run) else ("host",)
        ways = {
            pair: frozenset(
                port
                for port in ports
                if port in self._links and self._links[port].kind in kinds
            )
            for pair, ports in ways_of(run).items()
        }
        own = {
            port.host: f"{port.host}:{port.interface}" for port in ports_of(run.plan)
        }
        slow = [own[host] for host in self._late if host in own]
        measured = self._measured.fitted
        left = 1 - shown.fitted.iteration_ns / measured.iteration_ns
        # If late data planes explain the lost time, no other link is a suspect.
        if max(self._late.values(), default=0.0) < _EXPLAINED * left or not slow:
            slow += slow_ports(ways, measured, shown.fitted, least=_LEAST_EXCESS)
        for port in self._ends(slow):
            rate_bps = self._links[port].rate_bps
            if rate_bps:
                yield self._of_port(
                    "slow link",
                    Assumption(kind="degrade", port=port, rate_bps=rate_bps),
                    (0.03, 0.97),
                )

    def _of_port(
        self, cause: str, assumed: Assumption, span: tuple[float, float]
    ) -> Hypothesis:
        link = self._links[assumed.port]
        place = f"{link.link} {link.direction}"
        return Hypothesis(cause=cause, place=place, assumed=(assumed,), span=span)

    def _counted_losses(self, variant: Variant, run: Rerun) -> Iterator[Hypothesis]:
        """Yield lossy links, found from packets that were sent but not received."""
        # A queue overflow is the effect of another fault, and masks losses.
        full = self._counters.overflowing
        paths = []
        for end, (ports, other) in paths_of(run).items():
            if full.isdisjoint(ports):
                sent = self._sent.get(end, 0)
                lost = max(0, sent - self._received.get(other, 0))
                paths.append(Crossing(dict.fromkeys(ports, float(sent)), lost))
        total = round(sum(each.lost for each in paths))
        if total < max(_FEW_LOST, self._overflow + self._dropped):
            return
        known = [each.port for each in variant.assumed if each.probability]
        likely = [
            replace(
                self._of_port(
                    "loss",
                    Assumption(kind="loss", port=port, probability=share),
                    _LOSSES,
                ),
                span=None,
                is_counted=True,
                evidence=(
                    f"{total} packets were lost or arrived damaged: {share:.2%} of the "
                    "packets sent over it"
                ),
            )
            for port, share in lossy_ports(
                [*paths, *self._counters.through_switches(total)], known
            )
            if port in self._links and share <= _MOST_LOSS
        ]
        if likely:
            yield replace(likely[0], alike=tuple(likely[1:_CANDIDATES]))

    def _ends(self, ports: Iterable[str]) -> list[str]:
        """Return the first ports, each followed by the opposite port of its link.

        Delayed or lost acknowledgments affect the data in the other direction.
        """
        both = [
            each
            for port in ports
            if port in self._links
            for each in (port, self._counters.other_end(port))
            if each is not None
        ]
        return list(dict.fromkeys(both))[:_MOST_CANDIDATES]

    def _without_bytes(self, run: Rerun) -> Iterator[Hypothesis]:
        """Yield explanations for idle links that a hash should select."""
        expected_bytes = run.result.link_bytes
        idle = self._counters.idle(expected_bytes)
        if not idle:
            return
        dead = self._counters.dead(idle, expected_bytes)
        if dead:
            yield Hypothesis(
                cause="dead uplink",
                place=self._counters.names_of(dead),
                assumed=tuple(Assumption(kind="down", port=port) for port in dead),
                evidence="carried none of the traffic that the hash sends there",
                is_counted=True,
            )
        groups = {self._links[port].equal_cost: node_of(port) for port in idle}
        for group, switch in groups.items():
            if len(groups) > 1 and all(
                port in dead for port in idle if self._links[port].equal_cost == group
            ):
                continue
            avoided = self._counters.avoided(group)
            yield Hypothesis(
                cause="hash imbalance",
                place=switch,
                assumed=tuple(
                    Assumption(kind="avoided", port=port) for port in avoided
                ),
                evidence=(
                    f"sent nothing through {self._counters.names_of(avoided)}, "
                    "although its hash selects them: its routes may have changed"
                ),
                is_counted=True,
            )

    def _pauses(self) -> Iterator[Hypothesis]:
        """Yield the links whose sending port was paused."""
        whole_ns = self._all * self._measured.fitted.iteration_ns
        for port, spans in self._paused.items():
            link = self._links.get(port)
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
                evidence=f"counted pauses of {format_time(paused_ns)}",
                is_counted=True,
            )

    def _fitted(self, variant: Variant, what: Hypothesis) -> Hypothesis | None:
        """Return a fault with its best parameter, or None if no simulation ends."""
        self._tried.append(f"{what.cause} at {what.place}")
        if what.span is not None:
            return self._bisected(variant, what, _STEPS)
        shown = self._try(variant, what.assumed)
        if shown is None:
            return None
        found = self._with(what, shown)
        seen = self._measured.whole.resent_share
        if what.cause != "loss" or seen < _TWICE * shown.whole.resent_share:
            return found
        # The counted rate causes too few retransmissions; fit the rate to them instead.
        more = self._bisected(variant, replace(what, span=_LOSSES), _STEPS)
        if more is None:
            return found
        return replace(more, span=None, evidence=what.evidence)

    def _finer(self, variant: Variant, best: Hypothesis) -> Hypothesis:
        if best.span is None:
            return best
        found = self._bisected(variant, best, _MORE_STEPS)
        return found if found is not None and found.fitted <= best.fitted else best

    def _bisected(
        self, variant: Variant, what: Hypothesis, steps: int
    ) -> Hypothesis | None:
        assert what.span is not None
        low, high = what.span
        is_slow = what.assumed[0].kind == "degrade"
        best: Hypothesis | None = None
        measured = self._measured.fitted
        for _ in range(steps):
            middle = exp((log(low) + log(high)) / 2)
            assumed = tuple(self._at(each, middle) for each in what.assumed)
            shown = self._try(variant, assumed)
            # If the simulation does not end, the actual fault is less severe.
            is_too_bad = True
            if shown is not None:
                found = self._with(replace(what, assumed=assumed), shown)
                if best is None or found.fitted < best.fitted:
                    best = found
                is_too_bad = (
                    takes_longer(shown.fitted, measured)
                    if is_slow
                    else shown.fitted.resent_share > measured.resent_share
                )
            if is_too_bad == is_slow:
                low = middle
            else:
                high = middle
        if best is None:
            return None
        text = "about " + (
            format_rate(best.assumed[0].rate_bps or 0)
            if is_slow
            else f"{best.assumed[0].probability:.2%} of the packets"
        )
        evidence = f"fits the measured messages best: {text}"
        return replace(best, span=(low, high), evidence=evidence)

    def _at(self, assumed: Assumption, value: float) -> Assumption:
        if assumed.kind != "degrade":
            return replace(assumed, probability=value)
        rate_bps = self._links[assumed.port].rate_bps or 0
        return replace(assumed, rate_bps=max(1000, round(value * rate_bps)))

    def _with(self, what: Hypothesis, shown: _Shown) -> Hypothesis:
        if what.span is None:
            whole = misfit(self._measured.whole, shown.whole)
            return replace(what, misfit=whole, fitted=whole)
        fitted = misfit(self._measured.fitted, shown.fitted)
        return replace(what, misfit=self._judge(shown), fitted=fitted)

    def _labelled(self, best: Hypothesis) -> Hypothesis:
        """Attribute a slow link to its host if few hosts were late for longer."""
        link = self._links[best.assumed[0].port]
        ends = {
            node_of(port)
            for port, each in self._links.items()
            if each.link == link.link
        }
        latest = max(self._waits.values(), default=0.0)
        limit = max(LATE, _AMONG_LATEST * latest)
        host = next((each for each in ends if self._waits.get(each, 0.0) >= limit), "")
        if best.cause != "slow link" or not host:
            return best
        evidence = f"its data plane was late for {self._waits[host]:.0%} of the time"
        return replace(best, cause="generator slow", place=host, evidence=evidence)


def _ports(what: Hypothesis) -> frozenset[str]:
    return frozenset(each.port for each in what.assumed)


def _knows_paths(run: Rerun) -> bool:
    return not isinstance(run.ecmp, DrawnPaths)


def _is_timed(assumed: Iterable[Assumption]) -> bool:
    return any(each.at_ns or each.until_ns != NEVER for each in assumed)


def _is_random(assumed: Iterable[Assumption]) -> bool:
    return any(each.probability for each in assumed)


def _best(hypotheses: Sequence[Hypothesis]) -> Hypothesis | None:
    """Return the best hypothesis; of equivalent ones, that with the fewest ports."""
    if not hypotheses:
        return None
    limit = min(each.fitted for each in hypotheses) + _RESOLVED
    alike = [each for each in hypotheses if each.fitted <= limit]
    return min(alike, key=lambda each: (len(_ports(each)), each.fitted))


def _without_faults(results: RunResults) -> Variant:
    """Return the variant of a run on a network without any declared fault."""
    manifest = results.manifest
    variant = variant_of(manifest, str(results.path))
    plan = results.plan()
    return replace(
        variant.with_faults(links=(), packets=(), drop=0.0),
        ports=tuple(results.ports()),
        shards={
            each.agent: each.shards for each in (() if plan is None else plan.agents)
        },
        psn_seed=manifest.psn_seed,
    )

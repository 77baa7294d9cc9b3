"""Diagnose a run on a network: which fault, if simulated, makes what was measured.

The declared faults of the experiment are not read.  A simulation without any fault is
the null hypothesis.  Where the run does not fit it, the records propose others: a port
at a lower rate, a port that loses packets, a link that is down.  Their parameter is
fitted to some of the measured iterations, and they are judged by the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from chakram.controller.counterfactual import (
    Assumption,
    Rerun,
    Variant,
    recorded_iterations,
    rerun,
    variant_of,
)
from chakram.errors import ChakramError, InputError
from chakram.predict.routing import Router, ports_of
from chakram.results.fitting import (
    Observed,
    Pair,
    excess_at,
    losses_at,
    misfit,
    observed,
)
from chakram.results.records import FlowRow, rows_of
from chakram.results.resolve import OperationTable
from chakram.switch.ecmp import DrawnPaths
from chakram.units import format_rate

if TYPE_CHECKING:
    from chakram.observe.run_results import RunResults

_NAMES = {"degrade": "slow link", "loss": "loss", "down": "dead uplink"}
_LEAST_MISFIT = 0.06
"""A simulation that is as near as that explains a run."""

_BETTER = 0.6
"""A hypothesis has to leave less than that part of the misfit of the null."""

_SURER = 0.4
"""And so little where hosts were late themselves."""

_AS_GOOD = 1.15
"""Hypotheses whose misfit is that near cannot be told apart."""

_RESOLVED = 0.01
"""And those whose misfits differ by less than that, which is the error of the fit."""

_LEAST_EXCESS = 0.04
_LEAST_LOSS = 2e-4
_CANDIDATES = 6
_STEPS = 6
_ITERATIONS = 3
_MOST_FAULTS = 3
_IDLE = 0.02
"""A link that carries less than that part of what its hash sends there is down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A fault with its fitted parameter, and how well it explains a run.

    Attributes:
        assumed: The fault.
        place: Link and direction.
        misfit: Of iterations that it was not fitted to.
        fitted: Of those that it was fitted to.
    """

    assumed: Assumption
    place: str
    misfit: float
    fitted: float

    @property
    def cause(self) -> str:
        """The name of the cause."""
        return _NAMES[self.assumed.kind]

    @property
    def evidence(self) -> str:
        """What was fitted."""
        assumed = self.assumed
        what = "down"
        if assumed.rate_bps is not None:
            what = f"about {format_rate(assumed.rate_bps)}"
        elif assumed.probability is not None:
            what = f"loses about {assumed.probability:.2%} of its packets"
        return f"fits the measured messages best: {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What explains a run.

    Attributes:
        variant: The run with the faults that were found, and no declared ones.
        run: Its simulation.
        found: The faults, with the hypotheses that explain as much.
        null_misfit: Of the simulation without any fault.
        misfit: Of that with the faults that were found.
        noise: How far the measured iterations are from one another.
        tried: What else was simulated.
        simulations: How many there were.
        measured: How many measured iterations each of them has.
        measured_ns: Mean time of a measured iteration.
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

    @property
    def is_explained(self) -> bool:
        """Whether the simulation is near what was measured."""
        return self.misfit <= max(_LEAST_MISFIT, 2 * self.noise)


def fit(results: RunResults, *, job: str | None = None, budget_s: float = 60.0) -> Fit:
    """Return the faults that explain a run on a network.

    Args:
        results: Of the run.
        job: The job that is explained; None: all.
        budget_s: After that time no further fault is looked for.

    Raises:
        InputError: If its experiment or its traces cannot be read again.
        ChakramError: If it cannot be simulated without faults.
    """
    return _Search(results, job, time.monotonic() + budget_s).fit()


class _Search:
    def __init__(self, results: RunResults, job: str | None, until_s: float) -> None:
        self._job = job
        self._until_s = until_s
        self._simulations = 1
        self._null = _without_faults(results)
        self._links = {each.port: each for each in results.links() if each.port}
        halves = _measured(results, job)
        self._fitted_to, self._judged_by = halves
        recorded = {each for _, each in recorded_iterations(results, job)}
        # Without faults iterations are alike; a few show what random numbers do.
        self.measured = min(len(recorded), _ITERATIONS)
        self._noise = misfit(*halves) if halves[0] is not halves[1] else 0.0
        self._is_late = any(results.table("collectives")["generator_bound"].to_pylist())
        self._tried: list[str] = []

    def fit(self) -> Fit:
        variant = self._null
        run = rerun(variant, measured=self.measured)
        shown = self._shown(run)
        found: list[tuple[Hypothesis, tuple[Hypothesis, ...]]] = []
        null_misfit = now = misfit(self._judged_by, shown)
        while (
            len(found) < _MOST_FAULTS
            and now > self._enough()
            and time.monotonic() < self._until_s
        ):
            ways = _ways(run)
            hypotheses = [
                hypothesis
                for assumed in self._candidates(run, shown, ways)
                if (hypothesis := self._fitted(variant, assumed)) is not None
            ]
            if not hypotheses:
                break
            best = min(hypotheses, key=lambda each: each.fitted)
            if best.misfit > (_SURER if self._is_late else _BETTER) * now:
                break
            rivals = tuple(
                each
                for each in hypotheses
                if each is not best
                and each.misfit <= max(_AS_GOOD * best.misfit, best.misfit + _RESOLVED)
            )
            found.append((best, rivals))
            variant = replace(variant, assumed=(*variant.assumed, best.assumed))
            run = rerun(variant, measured=self.measured)
            shown = self._shown(run)
            now = misfit(self._judged_by, shown)
        return Fit(
            variant=variant,
            run=run,
            found=tuple(found),
            null_misfit=null_misfit,
            misfit=now,
            noise=self._noise,
            tried=tuple(dict.fromkeys(self._tried)),
            simulations=self._simulations,
            measured=self.measured,
            measured_ns=(self._fitted_to.iteration_ns + self._judged_by.iteration_ns)
            / 2,
        )

    def _enough(self) -> float:
        return max(_LEAST_MISFIT, 2 * self._noise)

    def _shown(self, run: Rerun) -> Observed:
        return _simulated(run, self._job)

    # Which faults may explain what was measured.

    def _candidates(
        self, run: Rerun, shown: Observed, ways: Mapping[Pair, frozenset[str]]
    ) -> Iterable[Assumption]:
        # Where the hash is not known, a path between switches is one draw of many.
        knows_paths = not isinstance(run.ecmp, DrawnPaths)
        dead = self._dead(run) if knows_paths else []
        if dead:
            return dead
        ways = {
            pair: frozenset(
                port
                for port in ports
                if knows_paths
                or (port in self._links and self._links[port].kind == "host")
            )
            for pair, ports in ways.items()
        }
        taken = {each.port for each in run.assumed}
        excess = excess_at(ways, self._fitted_to, shown)
        # A slow direction delays the acknowledgements of the other one as well.
        suspected = [
            each
            for port in _highest(excess, _LEAST_EXCESS)
            if port in self._links
            for each in (port, self._other_end(port))
        ]
        slow = [
            Assumption(kind="degrade", port=port, rate_bps=rate_bps)
            for port in dict.fromkeys(suspected)
            if (rate_bps := self._links[port].rate_bps)
        ]
        losses = losses_at(ways, self._fitted_to, shown)
        lossy = [
            Assumption(kind="loss", port=port, probability=0.01)
            for port in _highest(losses, _LEAST_LOSS)
            if port in self._links
        ]
        return [
            each
            for each in (*slow[:_CANDIDATES], *lossy[:_CANDIDATES])
            if each.port not in taken
        ]

    def _other_end(self, port: str) -> str:
        """Return where the other direction of a link begins."""
        name = self._links[port].link
        return next(
            (
                other
                for other, link in self._links.items()
                if link.link == name and other != port
            ),
            port,
        )

    def _dead(self, run: Rerun) -> list[Assumption]:
        """Return links without bytes that the hash of their switch chooses."""
        return [
            Assumption(kind="down", port=port)
            for port, link in self._links.items()
            if link.equal_cost is not None
            and run.result.link_bytes.get(port, 0) > 0
            and link.bytes < _IDLE * run.result.link_bytes[port]
        ]

    # How well they do.

    def _fitted(self, variant: Variant, assumed: Assumption) -> Hypothesis | None:
        """Return a fault with the parameter that fits best; None: none does."""
        link = self._links[assumed.port]
        place = f"{link.link} {link.direction}"
        self._tried.append(f"{_NAMES[assumed.kind]} at {place}")
        if assumed.kind == "down":
            return self._judged(variant, assumed, place)
        best: Hypothesis | None = None
        low, high = (0.03, 0.97) if assumed.kind == "degrade" else (1e-4, 0.3)
        for _ in range(_STEPS):
            if time.monotonic() > self._until_s:
                break
            middle = exp((log(low) + log(high)) / 2)
            tried = (
                replace(assumed, rate_bps=max(1000, round(middle * link.rate_bps)))
                if assumed.kind == "degrade" and link.rate_bps
                else replace(assumed, probability=middle)
            )
            changed = replace(variant, assumed=(*variant.assumed, tried))
            shown = self._try(changed)
            if shown is None:
                # It does not even end: the fault is not as bad as that.
                is_too_bad = True
            else:
                found = self._hypothesis(tried, place, shown)
                if best is None or found.fitted < best.fitted:
                    best = found
                is_too_bad = (
                    shown.iteration_ns > self._fitted_to.iteration_ns
                    if assumed.kind == "degrade"
                    else shown.resent_share > self._fitted_to.resent_share
                )
            if is_too_bad == (assumed.kind == "degrade"):
                low = middle
            else:
                high = middle
        return best

    def _judged(
        self, variant: Variant, assumed: Assumption, place: str
    ) -> Hypothesis | None:
        shown = self._try(replace(variant, assumed=(*variant.assumed, assumed)))
        return None if shown is None else self._hypothesis(assumed, place, shown)

    def _hypothesis(
        self, assumed: Assumption, place: str, shown: Observed
    ) -> Hypothesis:
        return Hypothesis(
            assumed=assumed,
            place=place,
            misfit=misfit(self._judged_by, shown),
            fitted=misfit(self._fitted_to, shown),
        )

    def _try(self, variant: Variant) -> Observed | None:
        self._simulations += 1
        try:
            return self._shown(rerun(variant, measured=self.measured))
        except ChakramError:
            return None


def _highest(values: Mapping[str, float], least: float) -> list[str]:
    found = [port for port, value in values.items() if value >= least]
    return sorted(found, key=lambda port: (-values[port], port))


def _without_faults(results: RunResults) -> Variant:
    """Return a run on a network as it would have been without any fault."""
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


def _measured(results: RunResults, job: str | None) -> tuple[Observed, Observed]:
    """Return two halves of the measured iterations; the same one if there is one."""
    names = ("job", "iteration", "src", "dst", "posted_ns", "last_acked_ns")
    flows = results.table("flows", *names, "packets", "retransmitted", "measured")
    flows = flows.filter(pc.field("measured"))
    if job is not None:
        flows = flows.filter(pc.field("job") == job)
    columns = [flows[name].to_pylist() for name in (*names, "packets", "retransmitted")]
    of_iteration: dict[int, list[tuple[Pair, int, int, int]]] = {}
    for name, iteration, src, dst, posted_ns, acked_ns, packets, again in zip(
        *columns, strict=True
    ):
        of_iteration.setdefault(iteration, []).append(
            (Pair(name, src, dst), acked_ns - posted_ns, packets, again)
        )
    times_ns: dict[int, list[int]] = {}
    for (_, iteration), time_ns in recorded_iterations(results, job).items():
        times_ns.setdefault(iteration, []).append(time_ns)
    numbers = sorted(times_ns)
    if not numbers:
        raise InputError(
            str(results.path), "has no measured iteration that all ranks have ended"
        )

    def half(chosen: Sequence[int]) -> Observed:
        jobs = max(len(times_ns[each]) for each in chosen)
        return observed(
            (flow for each in chosen for flow in of_iteration.get(each, ())),
            [sum(times_ns[each]) // jobs for each in chosen],
        )

    first = half(numbers[::2])
    return first, half(numbers[1::2]) if len(numbers) > 1 else first


def _simulated(run: Rerun, job: str | None) -> Observed:
    table = OperationTable(run.plan)
    warmup = run.plan.agents[0].settings.warmup
    flows = []
    for row in rows_of(FlowRow, run.result.records.flows):
        name, src = table.rank(row.rank)
        if row.iteration >= warmup and job in (None, name):
            pair = Pair(name, src, table.rank(row.peer)[1])
            time_ns = row.last_acked_ns - row.posted_ns
            flows.append((pair, time_ns, row.packets, row.retransmitted))
    times: dict[int, list[int]] = {}
    for (_, iteration), time_ns in run.iterations_ns(job).items():
        times.setdefault(iteration, []).append(time_ns)
    return observed(flows, [sum(each) // len(each) for each in times.values()])


def _ways(run: Rerun) -> dict[Pair, frozenset[str]]:
    """Return by pair of ranks the ports that its messages leave by."""
    ports = ports_of(run.plan)
    router = Router(ports=ports, topology=run.topology, ecmp=run.ecmp)
    index_of = {port.number: index for index, port in enumerate(ports)}
    ways: dict[Pair, frozenset[str]] = {}
    for rank in run.plan.ranks():
        for queue_pair in rank.queue_pairs:
            if queue_pair.local_rate_bps is not None:
                continue
            ends, _ = router(
                index_of[rank.port],
                queue_pair.remote_address,
                queue_pair.remote_udp_port,
                queue_pair.source_port,
            )
            pair = Pair(rank.program.job, rank.program.rank, queue_pair.peer_rank)
            ways[pair] = ways.get(pair, frozenset()) | frozenset(map(str, ends))
    return ways

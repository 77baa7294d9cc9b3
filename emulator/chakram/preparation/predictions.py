"""Predicted durations of the collectives of a plan.

There are four predictions:

- the bound of the schedule
- the bound for any algorithm (``ceiling``)
- a simulation of the collective alone
- a simulation of the run
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from chakram.config.transport import Faults
from chakram.fabric.fabric_types.base import FabricKind
from chakram.foundation.errors import RunFailed
from chakram.foundation.grouping import grouped
from chakram.plan.isolated_collective import collective_alone
from chakram.plan.plan import Plan
from chakram.predict.simulator.burst_size import groups_within_hosts, longest_path
from chakram.predict.simulator.run_plan import SimulationResult, simulate_plan
from chakram.preparation.link_fault_times import LinkFaults, simulated_with
from chakram.preparation.schedule_bounds import collective_kinds
from chakram.records.collective_assembly import CollectiveJoiner
from chakram.records.named_rows import OperationTable
from chakram.records.row_layout import ITERATION_FIELDS
from chakram.records.run_records import CollectiveKey
from chakram.summary.run_summary import DRAW, SIMULATE
from chakram.switch.ecmp import EcmpHash
from chakram.switch.profiles import Switching
from chakram.topology.topology import Topology

ALONE_EVENTS = 1_500_000
"""Approximate limit on the events of all simulations of isolated collectives.

At this limit, the simulations take about two seconds if the hot modules are
compiled."""

FEW_EVENTS = 100_000
"""Limit on the events of simulations in a thread, which delay other tasks."""

DRAWS = 5
"""Number of simulations if the path choice of the switches is unknown."""

_EVENTS_PER_MESSAGE = 6
_EVENTS_PER_LINK = 20
"""Cost of starting a simulation, in events per link."""
_WITHOUT_MEMORY = frozenset({"none", "fixed_rate"})
"""Congestion controls that start each iteration in the same state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AloneTimes:
    """Simulated durations of collectives that run alone on the fabric.

    Attributes:
        times_ns: Duration by collective, without collectives that take too long to
            simulate.
        left_out: Number of kinds of collectives that the simulations omit.
        kinds: Number of all kinds.
    """

    times_ns: dict[CollectiveKey, int] = field(default_factory=dict)
    left_out: int = 0
    kinds: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes to show with the results."""
        if not self.left_out:
            return ()
        return (
            f"alone is not simulated for {self.left_out} of {self.kinds} kinds of "
            "collectives, because this would take too long: compare them with bound",
        )


def alone_events(plan: Plan, topology: Topology) -> int:
    """Return the approximate number of events to simulate collectives alone."""
    return sum(events for events, _, _ in _alone_kinds(plan, topology))


def alone_times(
    plan: Plan,
    topology: Topology,
    seed: int,
    switching: Switching,
    *,
    events: int = ALONE_EVENTS,
) -> AloneTimes:
    """Simulate one collective of each kind alone, the smallest ones first.

    Each collective uses the same ports, queue pairs and paths as in the run, but
    without other traffic.

    Args:
        plan: The whole plan.
        topology: The fabric.
        seed: Seed of random marks.
        switching: How packets cross the fabric.
        events: Approximate limit of events in all simulations together.

    Raises:
        RunFailed: If a simulated collective does not end.
    """

    def time_ns(alone: Callable[[], Plan]) -> int:
        plan_alone = alone()
        result = simulate_plan(
            plan_alone, topology, seed=seed, warmup=0, measured=1, switching=switching
        )
        (found_ns,) = durations(plan_alone, result).values()
        return found_ns

    return smallest_first(
        [
            (cost, keys, partial(time_ns, alone))
            for cost, keys, alone in _alone_kinds(plan, topology)
        ],
        events,
    )


def smallest_first(
    kinds: Iterable[tuple[int, Sequence[CollectiveKey], Callable[[], int]]], limit: int
) -> AloneTimes:
    """Simulate kinds of collectives, the cheapest first, up to a limit of their costs.

    Args:
        kinds: For each kind, its cost, its collectives, and a function that returns
            their time in ns.
        limit: Maximum of the sum of costs. Other kinds are omitted.
    """
    times_ns: dict[CollectiveKey, int] = {}
    left_out = count = 0
    for cost, keys, time_ns in sorted(kinds, key=itemgetter(0)):
        count += 1
        if cost > limit:
            left_out += 1
            continue
        limit -= cost
        times_ns |= dict.fromkeys(keys, time_ns())
    return AloneTimes(times_ns=times_ns, left_out=left_out, kinds=count)


def _alone_kinds(
    plan: Plan, topology: Topology
) -> list[tuple[int, list[CollectiveKey], Callable[[], Plan]]]:
    """Return the event count, the collectives and a plan factory for each kind."""
    if not plan.agents:
        return []
    path_mtu = plan.agents[0].transport.path_mtu
    links = longest_path(topology)
    local = groups_within_hosts(plan)
    found: list[tuple[int, list[CollectiveKey], Callable[[], Plan]]] = []
    for kind, keys in collective_kinds(plan).items():
        # Groups with the same members have separate queue pairs, and so different
        # paths.
        by_group = grouped((key.group, key) for key in keys)
        traffic = kind.traffic(path_mtu)
        events = (
            len(topology.links) * _EVENTS_PER_LINK
            + traffic.messages * _EVENTS_PER_MESSAGE
        )
        # Messages within hosts are not divided into packets.
        on_links = traffic.packets * (links + 1)
        found += [
            (
                events + (0 if (kind.job, group) in local else on_links),
                same,
                partial(collective_alone, plan, *same[0]),
            )
            for group, same in by_group.items()
        ]
    return found


def path_draws(
    fabric: FabricKind, topology: Topology, seed: int, *, known: EcmpHash | None
) -> list[Switching]:
    """Return the path choices for predictions: several if the real one is unknown.

    Args:
        fabric: Fabric that provides the path choices.
        topology: Hosts, switches and links.
        seed: Seed of the first draw. Each later draw uses the next seed.
        known: Path choice of the fabric's switches, or None if unknown.
    """
    switching = fabric.switching(seed)
    if known is not None:
        return [replace(switching, ecmp=known)]
    has_choice = any(map(topology.has_choice, topology.switches))
    return [
        replace(switching, ecmp=fabric.ecmp_hash(seed + draw))
        for draw in range(DRAWS if has_choice else 1)
    ]


def simulate_run(
    plan: Plan, topology: Topology, seed: int, switching: Switching, faults: Faults
) -> tuple[dict[CollectiveKey, int], SimulationResult]:
    """Simulate a run, and return the mean time of every collective and the result.

    One iteration is enough if all iterations are alike. Iterations are alike for a
    single job without faults, if its congestion control keeps no rate and no packet is
    dropped. Otherwise, all iterations are simulated.

    Raises:
        RunFailed: If the simulated job does not end.
    """
    settings = plan.agents[0].settings

    def simulated(warmup: int, measured: int | None) -> SimulationResult:
        return simulated_with(
            LinkFaults(faults.links, topology),
            faults.links,
            plan,
            lambda happening: simulate_plan(
                plan,
                topology,
                seed=seed,
                warmup=warmup,
                measured=measured,
                switching=switching,
                faults=happening,
            ),
            may_never_begin=True,
        )

    is_one = (
        faults == Faults() and len({rank.program.job for rank in plan.ranks()}) == 1
    )
    control = plan.agents[0].transport.congestion_control
    if not is_one or control not in _WITHOUT_MEMORY:
        result = simulated(settings.warmup, None)
        return durations(plan, result, warmup=settings.warmup), result
    one = simulated(0, 1)
    if one.dropped:
        # Timers and queues carry over from one iteration to the next.
        with suppress(RunFailed):
            result = simulated(settings.warmup, None)
            return durations(plan, result, warmup=settings.warmup), result
    return durations(plan, one), one


_STILL_SENT = 1 / 64
"""Maximum share of the packets sent again that may be in flight at the end of a run."""

EARLY_TIMEOUTS = "timeouts are shorter than the delay of packets under load"
"""Start of the note about timeouts that are too short."""


def lost_in(result: SimulationResult) -> int:
    """Return how many packets were dropped or disturbed by faults."""
    return sum(result.dropped.values()) + sum(result.injected.values())


def early_timeouts(resent: int, lost: int, missing: int = 0) -> tuple[str, ...]:
    """Return a note if timeouts were shorter than the delay of packets under load.

    Args:
        resent: Number of packets that were retransmitted after a timeout.
        lost: Number of packets that were dropped, disturbed by faults, or requested
            again with NAKs.
        missing: Number of packets that were sent but not received. Packets sent again
            just before the end of a run may arrive after the end.
    """
    if not resent or lost or missing > _STILL_SENT * resent:
        return ()
    return (
        f"{EARLY_TIMEOUTS}: {resent} are "
        "retransmitted although none is lost; raise transport.retransmit_timeout, or "
        "lower transport.window",
    )


class SimulatedDraws(NamedTuple):
    """Predictions of a run, simulated with several draws of the paths.

    Attributes:
        times_ns: Times of collectives by source.  The source is ``simulate``, with the
            number of the draw if there are several.
        notes: Notes on timeouts that are too short, or on a simulation with faults that
            does not end.
        run_ns: Longest time of the whole run, or None if unknown.
    """

    times_ns: dict[str, dict[CollectiveKey, int]]
    notes: tuple[str, ...]
    run_ns: int | None


def simulate_draws(
    plan: Plan,
    topology: Topology,
    seed: int,
    draws: Sequence[Switching],
    faults: Faults,
) -> SimulatedDraws:
    """Run ``simulate_run`` for each of several draws of the paths.

    Raises:
        RunFailed: If a simulated job without faults does not end.
    """
    name = f"{SIMULATE}{DRAW}{{}}" if len(draws) > 1 else SIMULATE
    try:
        found = [
            simulate_run(plan, topology, seed, switching, faults) for switching in draws
        ]
    except RunFailed as error:
        if faults == Faults():
            raise
        return SimulatedDraws({}, (f"no predictions with these faults: {error}",), None)
    notes = [
        early_timeouts(result.resent_for_timeout, lost_in(result))
        for _, result in found
    ]
    return SimulatedDraws(
        {name.format(number): times for number, (times, _) in enumerate(found)},
        tuple(f"simulated: {note}" for note in max(notes)),
        max(_run_ns(plan, result) for _, result in found),
    )


def _run_ns(plan: Plan, result: SimulationResult) -> int:
    """Return the time of a whole run, even if only a part of the run was simulated."""
    simulated = len(result.records.iterations) // len(ITERATION_FIELDS)
    planned = sum(plan.iterations_of().values())
    return result.end_ns * max(1, planned // max(1, simulated))


def medians(
    predictions: Mapping[str, Mapping[CollectiveKey, int]],
) -> dict[str, dict[CollectiveKey, int]]:
    """Return the median of each collective by source, over the draws of that source."""
    drawn: dict[str, dict[CollectiveKey, list[int]]] = {}
    for name, times_ns in predictions.items():
        of_source = drawn.setdefault(name.partition(DRAW)[0], {})
        for key, time_ns in times_ns.items():
            of_source.setdefault(key, []).append(time_ns)
    return {
        source: {key: round(median(times)) for key, times in of_source.items()}
        for source, of_source in drawn.items()
    }


def durations(
    plan: Plan, result: SimulationResult, *, warmup: int = 0
) -> dict[CollectiveKey, int]:
    """Return the mean duration of every collective, without warm-up iterations."""
    joiner = CollectiveJoiner(OperationTable(plan), warmup=warmup)
    times: dict[CollectiveKey, list[int]] = {}
    for record in joiner.add(result.records):
        if record.measured:
            times.setdefault(record.identity.key, []).append(record.duration_ns)
    return {key: round(sum(values) / len(values)) for key, values in times.items()}

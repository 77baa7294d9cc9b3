"""Predictions for runs whose hosts delay packets for longer than a window lasts.

Simulated hosts take no time to receive and acknowledge packets.  Real hosts do, and a
small window then limits their rate.  Here, simulated hosts get the delay with which
simulated round trips take as long as measured ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from chakram.collectives.ops import CollectiveOp
from chakram.config.transport import Faults
from chakram.plan.plan import Plan
from chakram.preparation.predictions import simulate_draws, simulate_run
from chakram.records.named_rows import OperationTable
from chakram.records.run_records import CollectiveKey
from chakram.summary.generator_health import median_ns
from chakram.summary.run_summary import DRAW, SIMULATE
from chakram.switch.profiles import Switching
from chakram.topology.topology import Topology

LEAST_SPREAD = 0.05
"""Minimum relative effect of the hosts' delays for which a prediction is a range."""

MAX_EVENTS = 2_000_000
"""Maximum number of events of a simulation that is repeated with host delays."""

_STEPS = 4
_HOST_LINKS = 4
"""Number of links of hosts that a packet and its acknowledgment cross."""

Times = Mapping[str, Mapping[CollectiveKey, int]]


def may_stall(plan: Plan, topology: Topology, round_trips_ns: Iterable[float]) -> bool:
    """Return whether a host sends a whole window before an acknowledgment arrives.

    Args:
        plan: Plan of the run.
        topology: Topology of the fabric.
        round_trips_ns: Medians of measured round trips, by agent.
    """
    transport = plan.agents[0].transport
    rates_bps = [
        link.rate_bps
        for host in topology.hosts
        for link in topology.links_of(host)
        if link.rate_bps
    ]
    # A receiver acknowledges several packets at once.
    rest_bytes = (
        transport.window_bytes - transport.ack_interval_packets * transport.path_mtu
    )
    return rest_bytes * 8e9 < max(rates_bps, default=0) * min(
        round_trips_ns, default=0.0
    )


def with_delay(topology: Topology, delay_ns: int) -> Topology:
    """Return a fabric whose hosts delay all packets that they send or receive."""
    hosts = frozenset(topology.hosts)
    return replace(
        topology,
        links=tuple(
            replace(link, delay_ns=link.delay_ns + delay_ns)
            if link.a.node in hosts
            else link
            for link in topology.links
        ),
    )


def times_with_host_delays(
    plan: Plan,
    topology: Topology,
    seed: int,
    draws: Sequence[Switching],
    faults: Faults,
    round_trips_ns: Mapping[str, float],
) -> tuple[int, Times]:
    """Predict the times of a run whose hosts delay packets.

    Args:
        plan: The whole plan.
        topology: The fabric, without delays of hosts.
        seed: Seed of random marks.
        draws: Path choices, as for the prediction without delays of hosts.
        faults: Faults of the run.
        round_trips_ns: Medians of measured round trips, by agent.

    Returns:
        The delay at each crossing of a host's link in ns, and the times by source, as
        ``simulate_draws`` returns them, without barriers.  The result is 0 and no times
        if simulated round trips are not shorter than the measured ones, or if the
        simulations would take too long.

    Raises:
        RunFailed: If a simulated run does not end.
    """
    delay_ns = 0
    delayed = topology
    for _ in range(_STEPS):
        _, result = simulate_run(plan, delayed, seed, draws[0], faults)
        if result.events > MAX_EVENTS:
            return 0, {}
        excess_ns = [
            round_trips_ns[agent] - simulated_ns
            for agent, counts in result.round_trips.items()
            if agent in round_trips_ns
            and (simulated_ns := median_ns(counts)) is not None
        ]
        # Use the minimum, because host delays alone do not explain longer round trips.
        step_ns = round(min(excess_ns, default=0) / _HOST_LINKS)
        delay_ns += step_ns
        if delay_ns <= 0:
            return 0, {}
        delayed = with_delay(topology, delay_ns)
        if abs(step_ns) < LEAST_SPREAD * delay_ns:
            break
    times = simulate_draws(plan, delayed, seed, draws, faults).times_ns
    barriers = {
        identity.key
        for identity in OperationTable(plan).identities
        if identity.op is CollectiveOp.BARRIER
    }
    return delay_ns, {
        source: {key: ns for key, ns in times_ns.items() if key not in barriers}
        for source, times_ns in times.items()
    }


def differs(undelayed: Times, delayed: Times) -> bool:
    """Return whether delays change a collective by more than ``LEAST_SPREAD``."""
    return any(
        delayed[source].get(key, 0) > (1 + LEAST_SPREAD) * time_ns
        for source, times_ns in undelayed.items()
        for key, time_ns in times_ns.items()
    )


def as_range(undelayed: Times, delayed: Times) -> dict[str, dict[CollectiveKey, int]]:
    """Return both predictions as draws of one source."""
    draws = (*undelayed.values(), *delayed.values())
    return {
        f"{SIMULATE}{DRAW}{number}": dict(times_ns)
        for number, times_ns in enumerate(draws)
    }

"""Advice for a traffic generator that did not keep up, from its own measurements.

A collective takes a time T.  During a part W of T, the data plane delays due packets.
On a fabric slower by a factor d, the network's part grows.  The generator's part stays
the same, because the number of packets is the same.  So the collective takes
d (T - W) + W.  The collective is no longer generator-bound if W is at most p = 5 % of
that time.  So the minimum factor is

    d = W (1 - p) / (p (T - W))

The factor of a run suffices for 95 % of the run's collectives.  Rarer delays have other
causes than the rate, for example another process that briefly takes the processor.  If
a process was busy for more than 90 % of the time, the factor is at least the busy share
divided by 90 %.

If ports have no rate, all data is due at once, and the network has no part.  Then the
advice is the rate at which the busiest process would be busy for half of the time.
This is the rate at which a rank sent while it communicated, times 0.5 and divided by
the busy share.

The factor is an estimate.  Waits in the queues of a fully loaded processor shrink
faster.  Waits caused by other programs on the machine do not shrink with the rate.  If
even the busiest process was idle for more than half of the time, a factor above 10 is
meaningless.  In that case, there is no advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10

from chakram.records.run_records import (
    GENERATOR_BOUND_PERCENT,
    CollectiveRecord,
    RankRecord,
)
from chakram.summary.bandwidth import percentile
from chakram.summary.generator_health import SATURATED_SHARE, GeneratorSummary
from chakram.summary.message_summary import PortFacts

_ENOUGH_PERCENT = 95
"""Percentage of the collectives for which a slower fabric must suffice."""

_ROOMY_SHARE = 0.5
"""Target busy share of a process whose ports have no rate."""

_CREDIBLE_SLOWDOWN = 10.0
"""Maximum credible factor if the processes were mostly idle."""

_MOST_SLOWDOWN = 100_000.0
"""Maximum factor, which is also the largest dilation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepingUp:
    """Slowdown and rates at which this machine would have kept up.

    Attributes:
        slowdown: Factor by which the fabric should be slower, rounded to two digits.  1
            means that the rate was not the cause.  None means that ports have no rate,
            or that the factor is unknown.
        dilation: Equivalent total dilation, including that of the run.  None if time
            cannot be dilated, or ports have no rate.
        port_rate_bps: Equivalent undilated rate of the slowest port, or None if
            unknown.
        idle_share: Share of the time in which the busiest process was idle, although
            packets waited.  None if unknown.
    """

    slowdown: float | None = None
    dilation: int | None = None
    port_rate_bps: int | None = None
    idle_share: float | None = None


def slowdown_needed(
    collectives: Sequence[CollectiveRecord], *, busy_share: float = 0.0
) -> float:
    """Return how much slower the fabric must be for the generator to keep up.

    Args:
        collectives: Measured, complete collectives that move data.
        busy_share: Busy share of the busiest process.

    Returns:
        A factor of at least 1, rounded up to two significant digits.
    """
    part = GENERATOR_BOUND_PERCENT / 100
    factors = [
        each.generator_wait_ns
        * (1 - part)
        / (part * max(1, each.duration_ns - each.generator_wait_ns))
        for each in collectives
    ]
    # Convert factors to millionths, because percentiles take integers.
    millionths = [round(1e6 * factor) for factor in factors]
    waits = percentile(millionths, _ENOUGH_PERCENT) / 1e6 if factors else 1.0
    busy = busy_share / SATURATED_SHARE if busy_share > SATURATED_SHARE else 1.0
    return min(_two_digits(max(1.0, waits, busy), up=True), _MOST_SLOWDOWN)


def keeping_up(
    collectives: Iterable[CollectiveRecord],
    *,
    ranks: Iterable[RankRecord],
    ports: Iterable[PortFacts],
    generator: GeneratorSummary | None,
    dilation: int,
    stretches: bool,
) -> KeepingUp | None:
    """Return the rates at which this machine would have kept up, or None if it did.

    Args:
        collectives: Collectives of the run.
        ranks: Iterations of the run's ranks.
        ports: Ports of the ranks, with their rates in the run.
        generator: Health of the generator, or None if unknown.
        dilation: Dilation of the run.
        stretches: Whether the run's time can be dilated.
    """
    judged = [each for each in collectives if each.is_judged]
    busy_share = generator.busy_share if generator is not None else 0.0
    idle_share = None if generator is None else max(0.0, 1 - busy_share)
    is_saturated = generator is not None and bool(generator.saturated)
    if not is_saturated and not any(each.generator_bound for each in judged):
        return None
    rates_bps = [port.rate_bps for port in ports]
    if not rates_bps:
        return None
    slowest_bps = min((rate for rate in rates_bps if rate), default=None)
    if slowest_bps is None:
        sent_bytes = sum(each.sent_bytes for each in judged)
        busy_ns = sum(each.communication_ns for each in ranks if each.measured)
        if not sent_bytes or not busy_ns:
            return None
        factor = min(1.0, _ROOMY_SHARE / busy_share) if busy_share else 1.0
        rate_bps = 8e9 * sent_bytes / busy_ns * factor * dilation
        return KeepingUp(port_rate_bps=_whole_rate(rate_bps), idle_share=idle_share)
    slowdown = slowdown_needed(judged, busy_share=busy_share if is_saturated else 0.0)
    is_crowded = idle_share is not None and idle_share > _ROOMY_SHARE
    if is_crowded and slowdown > _CREDIBLE_SLOWDOWN:
        return KeepingUp(idle_share=idle_share)
    return KeepingUp(
        slowdown=slowdown,
        dilation=ceil(dilation * slowdown) if stretches else None,
        port_rate_bps=_whole_rate(slowest_bps * dilation / slowdown),
        idle_share=idle_share,
    )


def _whole_rate(rate_bps: float) -> int | None:
    return max(1, int(_two_digits(rate_bps, up=False))) if 0 < rate_bps < inf else None


def _two_digits(value: float, *, up: bool) -> float:
    """Round *value* up or down to two significant digits."""
    unit = 10.0 ** (floor(log10(value)) - 1)
    # 3.2 has no exact binary form.  Without this rounding, it would become 3.3.
    near = round(value / unit, 6)
    return round((ceil(near) if up else floor(near)) * unit, 6)

"""What to do about a generator that did not keep up, from its own measurements.

A collective took a time T, and for a part W of it the data plane held due packets back.
On a fabric that is slower by a factor d the network's part grows and the generator's
stays, because as many packets cost as much: the collective takes d (T - W) + W.  It is
no longer generator-bound where W is at most p = 5 % of that, so from

    d = W (1 - p) / (p (T - W))

on.  The factor of a run is the one that is enough for 95 of 100 of its collectives:
what held up fewer than that, as another process that had the processor for a moment,
is nothing that a slower fabric mends.  A process that was busy for more than 90 % of
the time needs at least its share over 90 % besides.

Where ports have no rate all that may be sent is due, and there is no network's part.
Then it is the rate at which the busiest process would have been busy for half of the
time: what a rank sent per second while it communicated, by half over the busy share.

It is an estimate.  Waits of queues that a full processor builds shrink faster.  Those
that come from others on the machine do not shrink with the rate at all: where even the
busiest process had nothing to do for more than half of the time, and the factor came
out above 10 nevertheless, it would mean nothing, and there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10
from typing import TYPE_CHECKING

from chakram.collectives.ops import CollectiveOp
from chakram.records.run_records import (
    GENERATOR_BOUND_PERCENT,
    CollectiveRecord,
    RankRecord,
)
from chakram.summary.bandwidth import percentile
from chakram.summary.generator_health import SATURATED_SHARE, GeneratorSummary

if TYPE_CHECKING:
    from chakram.summary.message_summary import PortFacts


_ENOUGH_PERCENT = 95
"""Of the collectives that a slower fabric has to be enough for."""

_ROOMY_SHARE = 0.5
"""Of its time that a process without a rate to keep may be busy for."""

_CREDIBLE_SLOWDOWN = 10.0
"""More than that is no matter of rates where the processes had little to do."""

_MOST_SLOWDOWN = 100_000.0
"""That of the largest dilation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepingUp:
    """At what this machine would have kept up.

    Attributes:
        slowdown: Factor by which the fabric would have had to be slower, with two
            digits; 1: no slower, what held it up was not the fabric's rate; None:
            its ports have no rate, or nothing can be said.
        dilation: The whole factor of time, that of the run included, which comes to
            the same; None where time runs as it does, or ports have no rate.
        port_rate_bps: The rate of the slowest port that comes to the same, undilated;
            None if nothing can be said.
        idle_share: Part of the time in which the busiest process had nothing to do,
            and waits came nevertheless; None if it is unknown.
    """

    slowdown: float | None
    dilation: int | None
    port_rate_bps: int | None
    idle_share: float | None = None


def slowdown_needed(
    collectives: Sequence[CollectiveRecord], *, busy_share: float = 0.0
) -> float:
    """Return by what factor a fabric has to be slower for the generator to keep up.

    Args:
        collectives: Those measured, complete, that move data.
        busy_share: Of the busiest process.

    Returns:
        At least 1, with two digits, rounded up.
    """
    part = GENERATOR_BOUND_PERCENT / 100
    factors = [
        each.generator_wait_ns
        * (1 - part)
        / (part * max(1, each.duration_ns - each.generator_wait_ns))
        for each in collectives
    ]
    # Nearest rank; in millionths, because percentiles are of whole numbers.
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
    """Return at what this machine would have kept up; None if it did.

    Args:
        collectives: Of the run.
        ranks: Likewise.
        ports: Those of its ranks, with the rates that they had.
        generator: How it did, as far as anybody noted it.
        dilation: That of the run.
        stretches: Whether time can be stretched in its world.
    """
    judged = [
        each
        for each in collectives
        if each.measured
        and each.complete
        and each.identity.op is not CollectiveOp.BARRIER
    ]
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
        return KeepingUp(
            slowdown=None,
            dilation=None,
            port_rate_bps=_whole_rate(rate_bps),
            idle_share=idle_share,
        )
    slowdown = slowdown_needed(judged, busy_share=busy_share if is_saturated else 0.0)
    is_crowded = idle_share is not None and idle_share > _ROOMY_SHARE
    if is_crowded and slowdown > _CREDIBLE_SLOWDOWN:
        return KeepingUp(
            slowdown=None, dilation=None, port_rate_bps=None, idle_share=idle_share
        )
    return KeepingUp(
        slowdown=slowdown,
        dilation=ceil(dilation * slowdown) if stretches else None,
        port_rate_bps=_whole_rate(slowest_bps * dilation / slowdown),
        idle_share=idle_share,
    )


def _whole_rate(rate_bps: float) -> int | None:
    return max(1, int(_two_digits(rate_bps, up=False))) if 0 < rate_bps < inf else None


def _two_digits(value: float, *, up: bool) -> float:
    """Return *value* with two digits, rounded up or down."""
    unit = 10.0 ** (floor(log10(value)) - 1)
    # 3.2 is no binary fraction: without this it would be rounded up to 3.3.
    near = round(value / unit, 6)
    return round((ceil(near) if up else floor(near)) * unit, 6)

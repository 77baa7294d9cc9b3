"""Warnings at the top of the results of a run."""

from __future__ import annotations

from collections.abc import Sequence

from chakram.foundation.units import exact_rate
from chakram.records.run_records import GENERATOR_BOUND_PERCENT, is_generator_bound
from chakram.summary.generator_advice import KeepingUp
from chakram.summary.generator_health import GeneratorSummary
from chakram.summary.run_summary import COMPLETE, RunFacts, SummaryRow


def incomplete(status: str, reason: str | None) -> str | None:
    """Describe how an incomplete run ended, or return None if the run is complete.

    Args:
        status: Status in ``run.json``.
        reason: Why the run is incomplete, or None if unknown.
    """
    if status == COMPLETE:
        return None
    return f"{status.upper()}: {reason or _NO_REASON.get(status, _NO_END)}"


_NO_END = "the run did not finish"
_NO_REASON = {"running": "the run has not ended"}


def banners(
    facts: RunFacts,
    judged: Sequence[SummaryRow],
    unfinished: int,
    generator: GeneratorSummary | None,
    remedy: KeepingUp | None = None,
) -> tuple[str, ...]:
    """Return the warnings that precede all numbers, most important first.

    Args:
        facts: Facts of the run. Their banners come last.
        judged: Rows of collectives that move data.
        unfinished: Number of collectives that at least one rank has not finished.
        generator: Health of the generator, or None if unknown.
        remedy: Rates at which the generator would have kept up, or None if it kept up.
    """
    found = []
    if (ended := incomplete(facts.status, facts.reason)) is not None:
        left_out = f"; {unfinished} unfinished collectives are left out"
        found.append(f"{ended}{left_out if unfinished else ''}")
    largest = max((row.generator_wait_share for row in judged), default=0.0)
    bound = is_generator_bound(largest)
    known = remedy_sentence(remedy, facts)
    advice = f". {known}" if known else ""
    if bound:
        counts: dict[str, int] = {}
        for row in judged:
            if row.generator_bound:
                counts[row.op] = counts.get(row.op, 0) + row.generator_bound
        listed = ", ".join(f"{count} {op}" for op, count in counts.items())
        total = sum(row.samples for row in judged)
        found.append(
            f"GENERATOR-BOUND: {sum(counts.values())} of {total} collectives "
            f"({listed}) waited for this generator for more than "
            f"{GENERATOR_BOUND_PERCENT} % of their time, those of one row for "
            f"{100 * largest:.0f} % of its total time: these times are the "
            f"generator's, not the network's{advice}"
        )
    if generator is not None and generator.saturated:
        busiest = generator.saturated[0]
        others = len(generator.saturated) - 1
        found.append(
            f"GENERATOR SATURATED: data-plane process {busiest.shard} of agent "
            f"{busiest.agent}{f' (and {others} more)' if others else ''} was busy for "
            f"{100 * busiest.busy_share:.0f} % of the time in which its ranks "
            "communicated: this process, not the network, may be the "
            f"limit{'' if bound else advice}"
        )
    if facts.samples_dropped:
        found.append(
            f"SAMPLES DROPPED: {facts.samples_dropped} records were lost in transfer; "
            "counts and percentiles do not include them"
        )
    if facts.size_scale != "1":
        found.append(
            f"SIZES SCALED by {facts.size_scale}: sizes and bandwidths are those of "
            "the scaled messages of this run"
        )
    if facts.dilation != 1:
        found.append(
            f"TIME DILATED by {facts.dilation}: here, times are divided and bandwidths "
            "multiplied by this factor; records contain raw times"
        )
    return (*found, *facts.banners)


def remedy_sentence(remedy: KeepingUp | None, facts: RunFacts) -> str:
    """Return a sentence, without its period, about how the generator could keep up.

    The text is empty if the generator kept up.
    """
    if remedy is None:
        return ""
    if remedy.port_rate_bps is None:
        busy_share = 1 - (remedy.idle_share or 0.0)
        return (
            f"Its busiest process was busy for only {100 * busy_share:.0f} % of the "
            "time: it waited for processors that other processes used, so a slower "
            "fabric may not help; check what else runs there"
        )
    rate = exact_rate(remedy.port_rate_bps)
    if remedy.slowdown is None:
        key = f"--set {facts.rate_key}=" if facts.rate_key else "a rate of "
        return f"Ports have no rate: with {key}{rate} this machine would have kept up"
    if remedy.slowdown == 1:
        return (
            "Such collectives are few, and a slower fabric would not help: check what "
            "else runs on this machine"
        )
    share = f"At 1/{remedy.slowdown:g} of its rates"
    if remedy.dilation is not None:
        return (
            f"{share} (ports of {rate}, or --set fabric.dilation={remedy.dilation}) "
            f"this machine would have kept up"
        )
    return (
        f"{share} (ports of {rate}), or with {remedy.slowdown:g} times as many cores, "
        "these hosts would have kept up"
    )

"""Traffic of other senders on links that a fit takes for slow.

Traffic that the run did not send delays messages like a slow link.  The bytes that
switches count distinguish the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from chakram.diagnosis.fault_proposals import Found, Hypothesis
from chakram.foundation.units import format_rate
from chakram.records.run_records import LinkRecord

FOREIGN = "other traffic"
ADVICE = "find out what else sends over this link, on its host or elsewhere"

_OF_OWN = 0.15
"""Minimum ratio of the bytes of other senders to those of the run.

If a link carried fewer bytes than the run sent over it by this ratio, paths differ from
those assumed, and the excess on other links proves nothing.
"""

_OF_RATE = 0.5
"""Minimum share of the missing rate that the other traffic accounts for."""


def foreign_rates_bps(
    links: Iterable[LinkRecord], own_bytes: Mapping[str, float], time_ns: int
) -> dict[str, float]:
    """Return the mean rate of other senders at each egress port that has any.

    The result is empty if packets were lost, or took other paths than assumed.

    Args:
        links: Counters of the links.
        own_bytes: By egress port, the bytes that the run sent over it.
        time_ns: Duration of the run.
    """
    counted = {each.port: each.bytes for each in links if each.port in own_bytes}
    excess = {port: counted[port] - own_bytes[port] for port in counted if port}
    least = min((excess[port] / max(1, own_bytes[port]) for port in excess), default=0)
    if time_ns <= 0 or least < -_OF_OWN:
        return {}
    return {
        port: 8e9 * found / time_ns
        for port, found in excess.items()
        if found > _OF_OWN * own_bytes[port]
    }


def with_foreign_traffic(
    slow: Hypothesis,
    rivals: Sequence[Hypothesis],
    rates_bps: Mapping[str, float],
    links: Mapping[str, LinkRecord],
) -> Found:
    """Replace a slow link and its rivals by other traffic that takes their rates.

    If other traffic explains the slow link, rivals that it does not explain are
    dropped.

    Args:
        slow: A slow link.
        rivals: Other explanations.
        rates_bps: Rates of other senders, by egress port.
        links: Links by egress port.
    """
    found = [_explained(each, rates_bps, links) for each in (slow, *rivals)]
    if found[0] is None:
        return slow, tuple(rivals)
    best, *others = (each for each in found if each is not None)
    return best, tuple(others)


def _explained(
    slow: Hypothesis, rates_bps: Mapping[str, float], links: Mapping[str, LinkRecord]
) -> Hypothesis | None:
    """Return other traffic at a slow link if it takes most of the missing rate."""
    for each in slow.assumed if slow.cause == "slow link" else ():
        other_bps = rates_bps.get(each.port, 0.0)
        missing_bps = (links[each.port].rate_bps or 0) - (each.rate_bps or 0)
        if missing_bps > 0 and other_bps >= _OF_RATE * missing_bps:
            return replace(
                slow,
                cause=FOREIGN,
                evidence=f"counters show {format_rate(round(other_bps))} on average "
                "that this run did not send",
            )
    return None

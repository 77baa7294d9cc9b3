"""Traffic on links that a run did not send, found from bytes that switches count."""

from __future__ import annotations

from collections.abc import Mapping

from chakram.records.run_records import LinkRecord

FOREIGN = "other traffic"
ADVICE = "find out what else sends over this link, on its host or elsewhere"

_OF_OWN = 0.05
"""Minimum ratio of the bytes of other senders to those of the run."""

_MISSING = 0.15
"""Minimum share of the run's bytes that prove other paths if a link lacks them.

The excess on other links is then no evidence of other senders.
"""

_OF_RATE = 0.02
"""Minimum rate of other senders, as a share of the rate of the link."""

_LEAST_LEFT = 0.05
"""Minimum share of a link's rate that is left for the run."""

SCALES = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4)
"""Assumed rates of other senders, relative to their bytes divided by the run's time.

Counters are read some time before and after the run, and other senders may have a lower
rate while the run sends.
"""

_NAMED = 6


def foreign_rates_bps(
    links: Mapping[str, LinkRecord], own_bytes: Mapping[str, float], time_ns: int
) -> dict[str, int]:
    """Return the rate of other senders at each egress port that they use.

    The result is empty if packets were lost, or took other paths than assumed.

    Args:
        links: Counters of the links, by egress port.
        own_bytes: Bytes that the run sent over each egress port.
        time_ns: Duration of the run.
    """
    found: dict[str, int] = {}
    for port, link in links.items():
        own, rate_bps = own_bytes.get(port), link.rate_bps
        if own is None or not rate_bps or time_ns <= 0:
            continue
        if link.bytes < (1 - _MISSING) * own:
            return {}
        other_bps = 8e9 * (link.bytes - own) / time_ns
        if link.bytes > (1 + _OF_OWN) * own and other_bps >= _OF_RATE * rate_bps:
            found[port] = round(other_bps)
    return found


def rates_left_bps(
    foreign_bps: Mapping[str, int], links: Mapping[str, LinkRecord], scale: float
) -> dict[str, int]:
    """Return the rate that other senders leave to the run at each port.

    Args:
        foreign_bps: Rates of other senders.
        links: Links by egress port.
        scale: One of ``SCALES``.
    """
    rates = {port: links[port].rate_bps or 0 for port in foreign_bps}
    return {
        port: round(max(_LEAST_LEFT * rates[port], rates[port] - scale * other_bps))
        for port, other_bps in foreign_bps.items()
    }


def place_of(foreign_bps: Mapping[str, int], links: Mapping[str, LinkRecord]) -> str:
    """Return the link where other traffic enters, or else the fullest link."""

    def key(port: str) -> tuple[bool, float]:
        link = links[port]
        is_sender = link.kind == "host" and link.direction == "up"
        return is_sender, foreign_bps[port] / (link.rate_bps or 1)

    return _name(links[max(foreign_bps, key=key)])


def evidence_of(
    foreign_bps: Mapping[str, int], links: Mapping[str, LinkRecord], time_ns: int
) -> str:
    """Describe the amount of other traffic and the links that it uses."""
    most_bytes = max(foreign_bps.values()) * time_ns / 8e9
    names = [_name(links[port]) for port in sorted(foreign_bps)][:_NAMED]
    return (
        f"counters show {most_bytes / 1e6:.3g} MB that this run did not send, over "
        f"{', '.join(names)}"
    )


def _name(link: LinkRecord) -> str:
    return f"{link.link} {link.direction}"

"""Report of a preflight: figures of every pair, and findings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightSettings:
    """Checks for every pair of ports, and their limits.

    Attributes:
        path_mtu: Path MTU that must pass.
        check_mtu: Whether to send packets of all path MTUs.
        check_classes: Whether to compare received DSCP and ECN values with the sent
            ones.
        check_latency: Whether to measure round-trip times.
        check_rate: Whether to measure the rate of every pair.
        check_permutation: Whether to measure rates while all ports send.
        min_rate_share: Minimum share of the link rate that a pair must reach.
        min_permutation_share: Minimum share of the link rate while all ports send. None
            if there is no minimum.
        max_latency_ns: Maximum median round trip. None if there is no maximum.
        max_loss_share: Maximum share of retransmitted packets.
        rate_time_ns: How long a pair sends at the rate of its links.
        unrated_bytes: Number of bytes that a pair sends if its links have no rate.
        pings: Number of measured round trips in each direction of a pair.
        paths: Number of UDP source ports of probes.
        copies: Number of probes of each kind from each source port.
        rounds: Number of rounds of disjoint pairs. If None, as many as cover all pairs.
    """

    path_mtu: int
    check_mtu: bool = True
    check_classes: bool = True
    check_latency: bool = True
    check_rate: bool = True
    check_permutation: bool = True
    min_rate_share: float = 0.9
    min_permutation_share: float | None = None
    max_latency_ns: int | None = None
    max_loss_share: float = 0.001
    rate_time_ns: int = 100_000_000
    unrated_bytes: int = 4 << 20
    pings: int = 20
    paths: int = 1
    copies: int = 2
    rounds: int | None = None

    @property
    def sends_messages(self) -> bool:
        """Whether a check sends messages, which need queue pairs."""
        return self.check_latency or self.check_rate or self.check_permutation


CHECKS = (
    "agent",  # the agent of the host is usable
    "reach",  # packets arrive over every path
    "mtu",  # packets of the path MTU arrive
    "dscp",  # packets keep their DSCP
    "ecn",  # packets keep their ECN field
    "latency",
    "rate",
    "loss",
    "permutation",
)
"""Names of the checks, in order."""

FAILED = "failed"
UNPROVEN = "unproven"
"""Verdict if a test was impossible, or if the fabric was not the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault, or a check that remained unproven.

    Attributes:
        check: One of ``CHECKS``.
        verdict: ``failed`` or ``unproven``.
        where: Readable names of ports: ``h1 -> h2``, ``all others -> h2``.
        found: Description, as a clause.
        hint: Suggested action, or None if there is none.
        pairs: Names of source and destination of the affected pairs.
    """

    check: str
    verdict: str
    where: str
    found: str
    hint: str | None
    pairs: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        text = f"{self.check}: {self.where}: {self.found}"
        return f"{text} ({self.hint})" if self.hint else text


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReport:
    """Measurements from one port to another, with None for values not measured.

    Attributes:
        source: Name of the sending port.
        destination: Name of the receiving port.
        probes_sent: Number of single packets sent.
        probes_arrived: Number of single packets that arrived.
        paths_failed: UDP source ports from which no packet arrives.
        path_mtu: Largest path MTU that passes over all paths.
        packet_bytes: Size of the longest IP packet that arrived over all paths.
        classes: Type of service when sent, type of service on arrival, and count.
        goodput_bps: Payload bits per second of a large message, while only this pair
            sends.
        expected_bps: Payload bits per second that the link rates allow.
        train_bps: Payload bits per second of packets sent back to back, from their
            arrival times. None if the goodput was conclusive, or no train was complete.
        together_bps: Goodput while all ports send.
        round_trip_min_ns: Minimum round trip of single-packet messages on idle links.
        round_trip_p50_ns: Median of these round trips.
        round_trip_p99_ns: 99th percentile of these round trips.
        jitter_ns: Mean difference of successive round trips.
        packets: Number of packets of the large message, each counted once.
        retransmitted: Number of retransmitted packets of the large message.
        generator_share: Share of the large message's time for which the sender's data
            plane delayed it.
    """

    source: str
    destination: str
    probes_sent: int = 0
    probes_arrived: int = 0
    paths_failed: tuple[int, ...] = ()
    path_mtu: int | None = None
    packet_bytes: int | None = None
    classes: tuple[tuple[int, int, int], ...] = ()
    goodput_bps: float | None = None
    expected_bps: float | None = None
    train_bps: float | None = None
    together_bps: float | None = None
    round_trip_min_ns: int | None = None
    round_trip_p50_ns: int | None = None
    round_trip_p99_ns: int | None = None
    jitter_ns: float | None = None
    packets: int = 0
    retransmitted: int = 0
    generator_share: float | None = None

    @property
    def rate_share(self) -> float | None:
        """The higher of goodput and train rate, as a share of the expected rate."""
        rates = [each for each in (self.goodput_bps, self.train_bps) if each]
        return share_of(max(rates, default=None), self.expected_bps)

    @property
    def together_share(self) -> float | None:
        """Goodput while all ports send, as a share of the expected rate."""
        return share_of(self.together_bps, self.expected_bps)


def share_of(part: float | None, whole: float | None) -> float | None:
    """Return *part* / *whole*, or None if one is unknown or *whole* is 0."""
    return None if part is None or not whole else part / whole


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport:
    """Outcome of a preflight.

    Attributes:
        ports: Names of all ports, in order.
        pairs: Every tested pair, in both directions.
        findings: Findings, in the order of ``CHECKS``.
        settings: Settings of the preflight.
    """

    ports: tuple[str, ...]
    pairs: tuple[PairReport, ...]
    findings: tuple[Finding, ...]
    settings: PreflightSettings

    @property
    def failures(self) -> tuple[Finding, ...]:
        """Findings that make the preflight fail."""
        return tuple(each for each in self.findings if each.verdict == FAILED)

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failures

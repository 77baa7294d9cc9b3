"""What a preflight has found: the figures of every pair, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightSettings:
    """What is tested on every pair of ports, and what it must reach.

    Attributes:
        path_mtu: The path MTU that must pass.
        check_mtu: Whether packets of all path MTUs are sent.
        check_classes: Whether DSCP and ECN are compared with what was sent.
        check_latency: Whether round-trip times are measured.
        check_rate: Whether the rate of every pair is measured.
        check_permutation: Whether all ports send at once.
        min_rate_share: What of the rate of its links a pair must reach.
        min_permutation_share: Likewise, when all send at once; None: it is only told.
        max_latency_ns: Of the median round trip; None: any.
        max_loss_share: Packets sent again, of all.
        rate_time_ns: How long a pair sends at its links' rate.
        unrated_bytes: What a pair sends where the links have no rate.
        pings: Round trips that are measured in each direction of a pair.
        paths: UDP source ports that probes are sent from.
        copies: Probes of each kind from each of them.
        rounds: How many rounds of disjoint pairs; None: all, for all pairs.
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
        """Whether queue pairs are needed."""
        return self.check_latency or self.check_rate or self.check_permutation


CHECKS = (
    "agent",  # the host's agent can be used
    "reach",  # packets arrive, over every path
    "mtu",  # packets of the path MTU arrive
    "dscp",  # with the DSCP that they were sent with
    "ecn",  # likewise their ECN field
    "latency",
    "rate",
    "loss",
    "permutation",
)
"""What is tested, in this order."""

FAILED = "failed"
UNPROVEN = "unproven"
"""It could not be tested, or what limited was not the fabric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        check: One of ``CHECKS``.
        verdict: ``failed`` or ``unproven``.
        where: Of which ports, for people: ``h1 -> h2``, ``all -> h2``.
        found: What, as a clause.
        hint: What to do about it; None where nothing helpful can be said.
        pairs: (source, destination), by name.
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
    """What was measured from one port to another one; None: it was not.

    Attributes:
        source: Name of the port that sends.
        destination: Name of the port that receives.
        probes_sent: Single packets.
        probes_arrived: Of these.
        paths_failed: UDP source ports from which nothing arrives.
        path_mtu: The largest path MTU that passes over all paths.
        packet_bytes: The longest IP packet that has arrived over all paths.
        classes: (type of service as it was sent, as it arrived, how often).
        goodput_bps: Payload bits per second of a large message, the pair alone.
        expected_bps: What the rates of its links leave for payload.
        train_bps: Payload per second of packets that left back to back, by when they
            arrived; None: the goodput left no doubt, or no train arrived whole.
        together_bps: Goodput while all ports send.
        round_trip_min_ns: Of messages of one packet, on idle links.
        round_trip_p50_ns: Likewise.
        round_trip_p99_ns: Likewise.
        jitter_ns: Mean difference of one round trip and the next.
        packets: Of the large message, those sent again included.
        retransmitted: Those.
        generator_share: Part of its time that the sender's data plane held it up.
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
        """The better of goodput and trains as a part of what is expected."""
        rates = [each for each in (self.goodput_bps, self.train_bps) if each]
        return share_of(max(rates, default=None), self.expected_bps)

    @property
    def together_share(self) -> float | None:
        """Likewise, while all ports send."""
        return share_of(self.together_bps, self.expected_bps)


def share_of(part: float | None, whole: float | None) -> float | None:
    """Return a part of a whole; None if one of them is not known."""
    return None if part is None or not whole else part / whole


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport:
    """The outcome of a preflight.

    Attributes:
        ports: Names of all ports, in their order.
        pairs: Every tested pair in both directions.
        findings: What is wrong, in the order of ``CHECKS``.
        settings: What was tested.
    """

    ports: tuple[str, ...]
    pairs: tuple[PairReport, ...]
    findings: tuple[Finding, ...]
    settings: PreflightSettings

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that make it fail."""
        return tuple(each for each in self.findings if each.verdict == FAILED)

    @property
    def passed(self) -> bool:
        """Whether nothing has failed."""
        return not self.failures

"""What a preflight tests, and what it demands."""

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

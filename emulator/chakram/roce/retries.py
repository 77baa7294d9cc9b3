# cython: annotation_typing=False, language_level=3, cdivision=True
"""Retransmissions of a requester: reasons, limits and waiting times.

Retries are counted until there is progress, which resets the count. The limit is on
consecutive timeouts, or on consecutive NAKs for the same packet. Receiver-not-ready
NAKs have a separate count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.backoff import Backoff
from chakram.roce.constants import NEVER, RNR_RETRY_FOR_EVER

if TYPE_CHECKING:
    from chakram.plan.transport import TransportPlan

__all__ = ["FOR_NAK", "FOR_RNR", "FOR_TIMEOUT", "Retries"]

# Reasons for a retransmission: a NAK, a timeout, a receiver that was not ready.
FOR_NAK = 0
FOR_TIMEOUT = 1
FOR_RNR = 2

_NEVER = NEVER
_RNR_FOR_EVER = RNR_RETRY_FOR_EVER
_FOR_NAK = FOR_NAK
_FOR_TIMEOUT = FOR_TIMEOUT


class Retries:
    """Retry state of one requester.

    Attributes:
        timeout_ns: When the requested ACK is overdue; `NEVER`: no ACK is awaited.
        hold_until_ns: Nothing may leave before this time, because the peer is not
            ready.
        limit: Maximum number of retries without progress.
        rnr_limit: Maximum number of consecutive waits for a peer that is not ready;
            `RNR_RETRY_FOR_EVER` means no limit.
        reason: Why packets were last retransmitted.
        for_nak: Number of packets retransmitted because of a NAK.
        for_timeout: Number of packets retransmitted because of a timeout.
        for_rnr: Number of packets retransmitted because the peer was not ready.
    """

    __slots__ = (
        "_backoff",
        "_count",
        "_rnr_count",
        "for_nak",
        "for_rnr",
        "for_timeout",
        "hold_until_ns",
        "limit",
        "reason",
        "rnr_limit",
        "timeout_ns",
    )

    def __init__(self, settings: TransportPlan, *, seed: int) -> None:
        """Create the initial state: see `Backoff` for the *seed*."""
        self._backoff = Backoff(settings, seed=seed)
        self._count = 0
        self._rnr_count = 0
        self.limit = settings.retry_limit
        self.rnr_limit = settings.rnr_retry_limit
        self.timeout_ns = _NEVER
        self.hold_until_ns = 0
        self.reason = _FOR_NAK
        self.for_nak = 0
        self.for_timeout = 0
        self.for_rnr = 0

    def forgive(self) -> None:
        """Reset the counts after progress."""
        self._count = 0
        self._rnr_count = 0

    def may_go_back(self) -> bool:
        """Count a retry, and return whether the limit allows it."""
        self._count += 1
        return self._count <= self.limit

    def may_wait(self) -> bool:
        """Count a receiver-not-ready NAK, and return whether to wait again."""
        # The packet has arrived, so earlier retries were successful.
        self._count = 0
        if self.rnr_limit < _RNR_FOR_EVER:
            self._rnr_count += 1
            return self._rnr_count <= self.rnr_limit
        return True

    def await_ack(self, now_ns: int) -> None:
        """Start the timeout for the requested ACK."""
        wait_ns = self._backoff.timeout_ns(self._count)
        self.timeout_ns = _NEVER if wait_ns == _NEVER else now_ns + wait_ns

    def note_again(self, packets: int) -> None:
        """Count packets that have been retransmitted."""
        if self.reason == _FOR_NAK:
            self.for_nak += packets
        elif self.reason == _FOR_TIMEOUT:
            self.for_timeout += packets
        else:
            self.for_rnr += packets

# cython: annotation_typing=False, language_level=3, cdivision=True
"""Why a requester sends packets again, how often it may, and how long it waits.

Retries count as long as there is no progress, and any progress forgives them: the limit
is on how often in a row the peer may stay silent, or ask for the same packet. A peer
that is not ready has a count of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.backoff import Backoff
from chakram.roce.constants import NEVER, RNR_RETRY_FOR_EVER

if TYPE_CHECKING:
    from chakram.plan.transport import TransportPlan

__all__ = ["FOR_NAK", "FOR_RNR", "FOR_TIMEOUT", "Retries"]

# Why packets are sent again: the peer asked for one, no ACK came, it was not ready.
FOR_NAK = 0
FOR_TIMEOUT = 1
FOR_RNR = 2

_NEVER = NEVER
_RNR_FOR_EVER = RNR_RETRY_FOR_EVER
_FOR_NAK = FOR_NAK
_FOR_TIMEOUT = FOR_TIMEOUT


class Retries:
    """See the module; one requester's.

    Attributes:
        timeout_ns: When the ACK that was asked for is late; `NEVER`: none is awaited.
        hold_until_ns: Before that nothing may leave: the peer is not ready.
        limit: How often to go back without progress.
        rnr_limit: How often to wait for a peer that is not ready, in a row;
            `RNR_RETRY_FOR_EVER` is no limit.
        reason: Why packets were last sent again.
        for_nak: Packets that were sent again for each of the reasons.
        for_timeout: Likewise.
        for_rnr: Likewise.
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
        """Begin with none; see `Backoff` for the *seed*."""
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
        """Note progress."""
        self._count = 0
        self._rnr_count = 0

    def may_go_back(self) -> bool:
        """Count a retry; tell whether it is one of those that are allowed."""
        self._count += 1
        return self._count <= self.limit

    def may_wait(self) -> bool:
        """Count a peer that is not ready; tell whether to wait for it once more."""
        # The packet has arrived: what was asked for again was not asked in vain.
        self._count = 0
        if self.rnr_limit < _RNR_FOR_EVER:
            self._rnr_count += 1
            return self._rnr_count <= self.rnr_limit
        return True

    def await_ack(self, now_ns: int) -> None:
        """Wait for the ACK that was asked for."""
        wait_ns = self._backoff.timeout_ns(self._count)
        self.timeout_ns = _NEVER if wait_ns == _NEVER else now_ns + wait_ns

    def note_again(self, packets: int) -> None:
        """Count packets that have been sent again."""
        if self.reason == _FOR_NAK:
            self.for_nak += packets
        elif self.reason == _FOR_TIMEOUT:
            self.for_timeout += packets
        else:
            self.for_rnr += packets

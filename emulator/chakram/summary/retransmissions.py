"""Packets that the queue pairs of a run sent, and reasons for retransmissions.

Messages and collectives are recorded only when they complete.  Queue pairs count from
the start to the end of a run, however it ends.  So only these counters include
retransmissions for messages that never arrived.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Sums over the queue pairs of a run, including warm-up iterations.

    Attributes:
        packets: Data packets, each counted once, without retransmissions.
        retransmitted: Retransmitted data packets; the next three count parts of these.
        for_nak: Retransmitted because of a NAK for a missing packet.
        for_timeout: Retransmitted because no acknowledgment came in time.
        for_rnr: Retransmitted because the peer was not ready.
        timeouts: Timeouts without an acknowledgment.
        naks: NAKs that requested a missing packet.
        reordered: NAKs among these whose packet was late but not lost.
        marked: Data packets that arrived with the mark "congestion experienced".
        corrupted: Packets that ports dropped because of a wrong ICRC.
    """

    packets: int
    retransmitted: int
    for_nak: int
    for_timeout: int
    for_rnr: int
    timeouts: int
    naks: int
    reordered: int
    marked: int
    corrupted: int

    @property
    def lost(self) -> int:
        """NAKs whose packet was lost on the path, or dropped as corrupted."""
        return max(0, self.naks - self.reordered)

"""Packets that the queue pairs of a run sent, and reasons for retransmissions.

Messages and collectives are recorded only when they complete.  Queue pairs count
packets from the start to the end of a run, even if the run is interrupted.  So only the
counters of queue pairs include retransmissions for messages that never arrived.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Sums over the queue pairs of a run, including warm-up iterations.

    Attributes:
        packets: Number of data packets, each counted once, without retransmissions.
        retransmitted: Number of retransmitted data packets.  The next three attributes
            are parts of this number.
        for_nak: Packets that were retransmitted because of a NAK for a missing packet.
        for_timeout: Packets that were retransmitted because no acknowledgment came in
            time.
        for_rnr: Packets that were retransmitted because the peer was not ready.
        timeouts: Number of timeouts without an acknowledgment.
        naks: Number of NAKs that requested a missing packet.
        reordered: Number of NAKs among *naks* whose packet was late but not lost.
        marked: Number of data packets that arrived with the mark "congestion
            experienced".
        corrupted: Number of packets that ports dropped because of a wrong ICRC.
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
        """Number of NAKs whose packet was lost on the path, or dropped as corrupted."""
        return max(0, self.naks - self.reordered)

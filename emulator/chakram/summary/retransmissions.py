"""What the queue pairs of a run have sent, and why they sent some of it again.

Messages and collectives tell what they took when they are done.  Queue pairs count from
the start to the end of a run, whatever ends it: what was sent again for a message that
never arrived is here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Sums over the queue pairs of a run, warm-up iterations included.

    Attributes:
        packets: Data packets, each counted once however often it was sent.
        retransmitted: Data packets sent again; the next three are parts of them.
        for_nak: The peer asked for one that it had missed.
        for_timeout: No acknowledgement came in time.
        for_rnr: The peer was not ready.
        timeouts: Times that no acknowledgement came.
        naks: NAKs that asked for a missing packet.
        reordered: Of these, those whose packet was late and not lost.
        marked: Data packets that came marked "congestion experienced".
        corrupted: Packets that ports dropped because their ICRC was wrong.
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
        """NAKs whose packet was lost on its way, or dropped because it was damaged."""
        return max(0, self.naks - self.reordered)

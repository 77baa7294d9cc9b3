"""Receiver credits: the number of messages that a sender may send without a grant.

A receiver grants a message only after it has started the collective of the message,
even if the message arrived earlier. A late rank therefore delays its senders, as with
receive buffers that are posted step by step. A grant is an empty message on a separate
queue pair (``chakram.plan.queue_pairs``). It therefore costs as much as a small
message.

Only messages of collectives need credits. The collectives of a group run one at a time
and in the same order on all members. A collective that a receiver has not reached can
therefore never delay a collective that the receiver waits for, so credits cannot
deadlock. Point-to-point messages have no such order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from chakram.collectives.groups import POINT_TO_POINT
from chakram.plan.plan import CREDIT_CHANNELS, QueuePairPlan
from chakram.replay.rank_progress import Flow
from chakram.replay.rank_queue_pair import Pair

_IMMEDIATES = 1 << 32


class Credits:
    """The credits of one rank for all its peers.

    Args:
        credits: Number of messages without a grant, per (group, channel, peer).
        pairs: The queue pairs of the rank.
        by_qpn: The queue pairs by QPN, as used in the replay.
    """

    __slots__ = (
        "_by_qpn",
        "_data_of",
        "_grant_of",
        "_held",
        "_left",
        "_number",
        "_peer_of",
    )

    def __init__(
        self, credits: int, pairs: Sequence[QueuePairPlan], by_qpn: Mapping[int, Pair]
    ) -> None:
        self._by_qpn = by_qpn
        grants = {
            (pair.group, pair.channel - CREDIT_CHANNELS, pair.peer_rank): pair.qpn
            for pair in pairs
            if pair.channel >= CREDIT_CHANNELS
        }
        data = {
            (pair.group, pair.channel, pair.peer_rank): pair
            for pair in pairs
            if pair.channel < CREDIT_CHANNELS
            and pair.index == 0
            and pair.group != POINT_TO_POINT
        }
        self._grant_of = {
            pair.qpn: grants[key] for key, pair in data.items() if key in grants
        }
        self._data_of = {grant: qpn for qpn, grant in self._grant_of.items()}
        self._peer_of = {pair.qpn: pair.peer_rank for pair in data.values()}
        self._left = dict.fromkeys(self._grant_of, credits)
        self._held: dict[int, deque[Flow]] = {}
        self._number = 0

    def is_grant(self, qpn: int) -> bool:
        """Return whether a queue pair carries grants."""
        return qpn in self._data_of

    def holds(self, flow: Flow) -> bool:
        """Use a credit for a message, or keep the message and return True."""
        qpn = flow.pair.qpn
        left = self._left.get(qpn)
        if left is None:
            return False
        if left:
            self._left[qpn] = left - 1
            return False
        self._held.setdefault(qpn, deque()).append(flow)
        return True

    def granted(self, qpn: int) -> Flow | None:
        """Handle a grant that arrived on *qpn*, and return the message it releases."""
        data = self._data_of[qpn]
        held = self._held.get(data)
        if held:
            return held.popleft()
        self._left[data] += 1
        return None

    def grant(self, qpn: int) -> Flow | None:
        """Return the grant for a message that an operation received on *qpn*."""
        grant = self._grant_of.get(qpn)
        if grant is None:
            return None
        self._number = (self._number + 1) % _IMMEDIATES
        return Flow(self._by_qpn[grant], self._number)

    def waiting_for(self) -> list[str]:
        """Describe how many messages wait for a grant, in one clause per peer."""
        return [
            f"delays {len(held)} message(s) until rank {self._peer_of[qpn]} grants them"
            for qpn, held in self._held.items()
            if held
        ]

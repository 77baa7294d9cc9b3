"""Receiver credits: how many messages a sender may have that are not granted yet.

A receiver grants a message when it takes it up: when it has reached the collective the
message belongs to, not when the message arrives.  So a rank that is late holds up those
who send to it, as receive buffers do that are posted step by step.  A grant is an empty
message on a queue pair of its own beside that of the messages
(``chakram.plan.queue_pairs``), so it costs what a small message costs.

Only messages of collectives are counted.  Of one group these run one at a time, in one
order on all members: what a receiver has not reached yet never holds up what it waits
for, so credits cannot deadlock.  Messages from rank to rank have no such order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from chakram.plan.plan import CREDIT_CHANNELS, QueuePairPlan
from chakram.program.operations import POINT_TO_POINT
from chakram.replay.rank_progress import Flow

if TYPE_CHECKING:
    from chakram.replay.queue_pair_roles import Pair

_IMMEDIATES = 1 << 32


class Credits:
    """The credits of one rank, towards all its peers.

    Args:
        credits: Messages that may be under way to each (group, channel, peer).
        pairs: The queue pairs of the rank.
        by_qpn: The same, as replay sees them.
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
        """Use a credit for a message; True: there is none, and it is kept."""
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
        """Take a grant that came on *qpn*; return the message that it lets go."""
        data = self._data_of[qpn]
        held = self._held.get(data)
        if held:
            return held.popleft()
        self._left[data] += 1
        return None

    def grant(self, qpn: int) -> Flow | None:
        """Return the grant for a message that came on *qpn* and was taken up."""
        grant = self._grant_of.get(qpn)
        if grant is None:
            return None
        self._number = (self._number + 1) % _IMMEDIATES
        return Flow(self._by_qpn[grant], self._number)

    def waiting_for(self) -> list[str]:
        """Return for each peer how many messages it has not granted, as a clause."""
        return [
            f"holds {len(held)} message(s) until rank {self._peer_of[qpn]} grants them"
            for qpn, held in self._held.items()
            if held
        ]

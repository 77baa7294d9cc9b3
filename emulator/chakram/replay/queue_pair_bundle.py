"""Several queue pairs between the same two ranks, seen as one.

Replay knows one queue pair for each group, channel and peer, and messages as the
schedule has them. A bundle lies between it and the port where an experiment wants more:
messages go round robin over its queue pairs, or a part of each goes over all of them,
and long ones are posted as several. What is reported back is the message again.

How parts find together. Queue pairs deliver in order, and every queue pair carries its
part of every message (an empty one too), so the n-th message of each belongs to the
n-th message of the bundle: nothing has to be told on the wire. The pieces of a part but
the last have no immediate data, so they are not heard of, as NCCL's are not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chakram.roce.constants import NO_IMMEDIATE
from chakram.roce.events import MessageParts, MessageReceived, SendCompleted

if TYPE_CHECKING:
    from chakram.plan.plan import RankPlan
    from chakram.plan.transport import TransportPlan


PART_UNIT_BYTES = 128
"""Parts of a message are multiples of it, but for the last ones (as NCCL does it)."""


@dataclass(slots=True, eq=False)
class _Posted:
    """A message that is under way, and what is known of its end so far."""

    pieces_left: int = 0
    merged: SendCompleted | None = None
    wait_by_qpn: dict[int, int] = field(default_factory=dict)

    def add(self, qpn: int, event: SendCompleted) -> None:
        """Take note that a piece is acknowledged."""
        self.pieces_left -= 1
        # Pieces of one queue pair wait one after another, those of several at once.
        self.wait_by_qpn[qpn] = self.wait_by_qpn.get(qpn, 0) + event.generator_wait_ns
        last = self.merged
        if last is None:
            self.merged = event
            return
        message_id = event.message_id
        parts = last.parts
        if parts is None or _is_later(event, parts):
            parts = event.parts
        self.merged = SendCompleted(
            last.message_id if message_id == NO_IMMEDIATE else message_id,
            last.size_bytes + event.size_bytes,
            min(last.posted_ns, event.posted_ns),
            min(last.first_sent_ns, event.first_sent_ns),
            max(last.last_acked_ns, event.last_acked_ns),
            last.packets + event.packets,
            last.retransmitted + event.retransmitted,
            last.cnps + event.cnps,
            last.rate_at_start_bps,
            max(self.wait_by_qpn.values()),
            parts,
        )
        self.merged.context = last.context


def _is_later(event: SendCompleted, parts: MessageParts) -> bool:
    """Tell whether a piece was there later than another one, or left later."""
    own = event.parts
    return own is not None and (own.received_ns, own.left_ns) >= (
        parts.received_ns,
        parts.left_ns,
    )


@dataclass(slots=True, eq=False)
class _Arriving:
    """A message of which parts have come."""

    parts_left: int
    merged: MessageReceived | None = None

    def add(self, event: MessageReceived) -> None:
        """Take note that a part is there."""
        self.parts_left -= 1
        last = self.merged
        if last is None:
            self.merged = event
            return
        self.merged = MessageReceived(
            event.message_id,
            last.size_bytes + event.size_bytes,
            last.packets + event.packets,
            last.ce + event.ce,
            min(last.first_received_ns, event.first_received_ns),
            max(last.received_ns, event.received_ns),
            last.wrong + event.wrong,
        )


class Bundle:
    """The queue pairs between two ranks for one group and channel.

    Args:
        qpns: Theirs, in the order of the plan; the first one names the bundle.
        is_even: Whether each message is divided among all of them.
        message_bytes: Longer messages are posted as several; 0: they are not.

    Attributes:
        qpn: The first queue pair, which replay knows the bundle by.
    """

    __slots__ = (
        "_arrived",
        "_arriving",
        "_first_arriving",
        "_is_even",
        "_message_bytes",
        "_next",
        "_posted",
        "_qpns",
        "qpn",
    )

    def __init__(
        self, qpns: Sequence[int], *, is_even: bool, message_bytes: int
    ) -> None:
        self.qpn = qpns[0]
        self._qpns = tuple(qpns)
        self._is_even = is_even and len(qpns) > 1
        self._message_bytes = message_bytes
        self._next = 0
        # By queue pair: the message that each of its pieces belongs to, in order.
        self._posted: dict[int, deque[_Posted]] = {qpn: deque() for qpn in qpns}
        # Messages of which some parts have come, and how many the first ones are.
        self._arriving: deque[_Arriving] = deque()
        self._first_arriving = 0
        self._arrived = dict.fromkeys(qpns, 0)

    def post(self, message_id: int, size_bytes: int) -> list[tuple[int, int, int]]:
        """Return what to post for a message: (qpn, message id, size in bytes)."""
        parts: list[tuple[int, int]]
        if self._is_even:
            unit = PART_UNIT_BYTES
            share = -(-size_bytes // (len(self._qpns) * unit)) * unit
            parts = [
                (qpn, min(share, max(0, size_bytes - index * share)))
                for index, qpn in enumerate(self._qpns)
            ]
        else:
            parts = [(self._qpns[self._next], size_bytes)]
            self._next = (self._next + 1) % len(self._qpns)
        message = _Posted()
        posts = []
        for qpn, part_bytes in parts:
            whole = self._message_bytes
            while whole and part_bytes > whole:
                posts.append((qpn, NO_IMMEDIATE, whole))
                part_bytes -= whole
            posts.append((qpn, message_id, part_bytes))
        message.pieces_left = len(posts)
        for qpn, _, _ in posts:
            self._posted[qpn].append(message)
        return posts

    def acknowledged(self, qpn: int, event: SendCompleted) -> SendCompleted | None:
        """Take note of a piece; return the event of its message when that is whole."""
        message = self._posted[qpn].popleft()
        message.add(qpn, event)
        return message.merged if message.pieces_left == 0 else None

    def recorded_qpn(self, qpn: int) -> int:
        """Return the queue pair that a message which ended on *qpn* is recorded with.

        It is the one that carried it, or the first where all of them did.
        """
        return self.qpn if self._is_even else qpn

    def received(self, qpn: int, event: MessageReceived) -> MessageReceived | None:
        """Take note of a part; return the event of its message when that is whole."""
        if not self._is_even:
            return event
        index = self._arrived[qpn] - self._first_arriving
        self._arrived[qpn] += 1
        if index == len(self._arriving):
            self._arriving.append(_Arriving(len(self._qpns)))
        message = self._arriving[index]
        message.add(event)
        if message.parts_left:
            return None
        # What came before it is complete: every queue pair has delivered that, too.
        self._arriving.popleft()
        self._first_arriving += 1
        return message.merged


def bundles_of(rank: RankPlan, transport: TransportPlan) -> dict[int, Bundle]:
    """Return by QPN the bundles of a rank; none where each would be one queue pair.

    Raises:
        ValueError: If messages are to be divided that cannot be put together again.
    """
    if transport.message_bytes and transport.verb != "write":
        raise ValueError(
            "messages of a largest size need the verb write: a SEND is always heard of"
        )
    qpns_of: dict[tuple[str, int, int], list[int]] = {}
    for pair in sorted(rank.queue_pairs, key=lambda pair: pair.index):
        if pair.local_rate_bps is not None:
            continue
        key = (pair.group, pair.channel, pair.peer_rank)
        qpns_of.setdefault(key, []).append(pair.qpn)
    bundles: dict[int, Bundle] = {}
    for qpns in qpns_of.values():
        if len(qpns) > 1 or transport.message_bytes:
            bundle = Bundle(
                qpns,
                is_even=transport.split == "even",
                message_bytes=transport.message_bytes,
            )
            bundles |= dict.fromkeys(qpns, bundle)
    return bundles

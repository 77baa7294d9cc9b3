"""Several queue pairs between the same two ranks, presented as one.

The replay uses one queue pair per group, channel and peer, and the messages of the
schedule. If an experiment uses several queue pairs, a bundle connects the replay to the
port. The bundle assigns messages to the queue pairs round robin, or divides each
message among all queue pairs. It posts a long message in several pieces, but reports
the original message to the replay.

Reassembly needs no information on the wire. Queue pairs deliver in order, and each
queue pair carries a part of every message, even if the part is empty. The n-th message
of each queue pair therefore belongs to the n-th message of the bundle. As in NCCL, only
the last piece of a part has immediate data, so the receiver gets no event for the other
pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from chakram.plan.plan import RankPlan
from chakram.plan.transport import TransportPlan
from chakram.roce.constants import NO_IMMEDIATE
from chakram.roce.events import MessageParts, MessageReceived, SendCompleted

PART_UNIT_BYTES = 128
"""Unit of message parts. Only the end of a message may be smaller, as in NCCL."""


@dataclass(slots=True, eq=False)
class _Posted:
    """A posted message and the combined completions of its pieces so far."""

    pieces_left: int = 0
    merged: SendCompleted | None = None
    wait_by_qpn: dict[int, int] = field(default_factory=dict)

    def add(self, qpn: int, event: SendCompleted) -> None:
        """Add the completion of a piece."""
        self.pieces_left -= 1
        # Waits on one queue pair add up. Waits on different queue pairs overlap.
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
    """Return whether a piece arrived or left later than the piece with *parts*."""
    own = event.parts
    return own is not None and (own.received_ns, own.left_ns) >= (
        parts.received_ns,
        parts.left_ns,
    )


@dataclass(slots=True, eq=False)
class _Arriving:
    """A message that has arrived in part."""

    parts_left: int
    merged: MessageReceived | None = None

    def add(self, event: MessageReceived) -> None:
        """Add a part that has arrived."""
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
        qpns: QPNs in the order of the plan. The first one identifies the bundle.
        is_even: Whether to divide each message among all queue pairs.
        message_bytes: Maximum size of a posted piece; 0: no limit.

    Attributes:
        qpn: QPN of the first queue pair, which identifies the bundle in the replay.
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
        # For each queue pair, the messages of its posted pieces, in order.
        self._posted: dict[int, deque[_Posted]] = {qpn: deque() for qpn in qpns}
        # Partially received messages, and the number of complete messages before them.
        self._arriving: deque[_Arriving] = deque()
        self._first_arriving = 0
        self._arrived = dict.fromkeys(qpns, 0)

    def post(self, message_id: int, size_bytes: int) -> list[tuple[int, int, int]]:
        """Return the posts of a message: (QPN, message ID, size in bytes)."""
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
        """Add a completed piece, and return the completion after the last piece."""
        message = self._posted[qpn].popleft()
        message.add(qpn, event)
        return message.merged if message.pieces_left == 0 else None

    def recorded_qpn(self, qpn: int) -> int:
        """Return the QPN to record for a message whose last piece used *qpn*.

        This is the queue pair that carried the message, or the first queue pair if all
        carried a part.
        """
        return self.qpn if self._is_even else qpn

    def received(self, qpn: int, event: MessageReceived) -> MessageReceived | None:
        """Add a received part, and return the message's event after the last part."""
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
        # Earlier messages are complete, because every queue pair has already delivered
        # its parts of them.
        self._arriving.popleft()
        self._first_arriving += 1
        return message.merged


def bundles_of(rank: RankPlan, transport: TransportPlan) -> dict[int, Bundle]:
    """Return the bundles of a rank by QPN, or an empty dict if none is needed.

    Raises:
        ValueError: If the settings divide messages that cannot be reassembled.
    """
    if transport.message_bytes and transport.verb != "write":
        raise ValueError(
            "a maximum message size requires the verb write, because every SEND is "
            "reported to the receiver"
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

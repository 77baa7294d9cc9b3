"""The messages of all positions of a collective, stored in columns.

Most schedules *rotate*: position p sends the messages of position 0, with p added to
all positions and chunks. One position then represents all positions. The two million
messages of a thousand-rank ring take two thousand rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from chakram.collectives.algorithms.base import turns_by
from chakram.collectives.schedule import (
    Algorithm,
    LocalTransfer,
    RankSchedule,
    Transfer,
    build_share,
    transfer_bytes,
)
from chakram.collectives.split_sizes import Matrix, Splits
from chakram.collectives.uneven_messages import (
    matrix_bytes,
    uneven_message_bytes,
    uneven_share,
)

_EMPTY = partial(array, "q")
_FROM_ZERO = partial(array, "q", (0,))


@dataclass(slots=True, kw_only=True)
class MessageColumns:
    """The messages of one kind of collective.

    If the kind rotates, ``first_send`` and ``first_receive`` have one position, and
    peers are distances. For a send with chunk k, position p uses entry (k + p * turn)
    of ``chunk_sizes``, modulo its length.

    Attributes:
        nranks: Number of positions.
        first_send: For each position, the index of its first send. One extra entry
            marks the end.
        peers: For each send, its destination.
        sizes: For each send, its size in bytes, or its chunk if the kind rotates.
        steps: For each send, its step.
        channels: For each send, its channel.
        reduced: For each send, the number of bytes that the receiver reduces.
        receives: For each send, its index among the receives of the receiver.
        waits: For each send, 1 if it waits for any receive.
        first_receive: Like ``first_send``, for receives.
        first_dependent: For each receive, the index of its first dependent, with one
            extra entry.
        dependents: For each receive, the groups that wait for it, relative to the first
            group of the position.
        first_group: Like ``first_send``, for groups. A group consists of the sends that
            wait for the same receives.
        needs: For each group, the number of receives that it waits for.
        first_member: For each group, the index of its first member, with one extra
            entry.
        members: For each group, its sends, relative to the first send of the position.
        rotates: Whether one position represents all positions.
        turn: Chunk offset between adjacent positions.
        chunk_sizes: Size of each chunk in bytes. Empty if *sizes* is in bytes.
        awaits_sends: Whether a position completes only after its own messages have
            arrived, too.
        batch: Number of sends in the first batch of a position. A second batch of the
            same size follows, in which each processed message releases one send. 0
            means that sends wait for their dependencies.
        in_turn: Whether receives match messages by order of arrival. Each position
            receives from one other position. Its n-th receive is posted with its n-th
            send and takes the n-th message that arrives.
    """

    nranks: int
    first_send: array[int] = field(default_factory=_FROM_ZERO)
    peers: array[int] = field(default_factory=_EMPTY)
    sizes: array[int] = field(default_factory=_EMPTY)
    steps: array[int] = field(default_factory=_EMPTY)
    channels: array[int] = field(default_factory=_EMPTY)
    reduced: array[int] = field(default_factory=_EMPTY)
    receives: array[int] = field(default_factory=_EMPTY)
    waits: array[int] = field(default_factory=_EMPTY)
    first_receive: array[int] = field(default_factory=_FROM_ZERO)
    first_dependent: array[int] = field(default_factory=_FROM_ZERO)
    dependents: array[int] = field(default_factory=_EMPTY)
    first_group: array[int] = field(default_factory=_FROM_ZERO)
    needs: array[int] = field(default_factory=_EMPTY)
    first_member: array[int] = field(default_factory=_FROM_ZERO)
    members: array[int] = field(default_factory=_EMPTY)
    rotates: bool = False
    turn: int = 0
    chunk_sizes: array[int] = field(default_factory=_EMPTY)
    awaits_sends: bool = True
    batch: int = 0
    in_turn: bool = False

    @property
    def messages(self) -> int:
        """Number of messages of all positions."""
        return len(self.peers) * (self.nranks if self.rotates else 1)


ReducedBytes = Callable[["Transfer", int], int]
"""Function that maps a transfer and its size to the number of reduced bytes."""


def whole_message(transfer: Transfer, size_bytes: int) -> int:
    """Return the whole size of a message if the receiver reduces it, else 0."""
    return size_bytes if transfer.reduce else 0


def collective_columns(
    how: Algorithm,
    *,
    nranks: int,
    root: int,
    input_bytes: int,
    reduced_bytes: ReducedBytes = whole_message,
) -> MessageColumns:
    """Return the messages of a collective.

    Args:
        how: Algorithm that generates the schedule.
        nranks: Number of positions in the group.
        root: Position of the root.
        input_bytes: Contribution of one rank.
        reduced_bytes: Function that returns the number of bytes of a message that its
            receiver reduces. If the kind rotates, only whether the result is zero
            matters.
    """
    turn = turns_by(how, nranks)
    positions = range(nranks) if turn is None else range(1)

    def size_of(_: int, send: LocalTransfer) -> int:
        if turn is not None:
            return send.chunk % (nranks * turn)
        return transfer_bytes(how, send, nranks=nranks, input_bytes=input_bytes)

    columns = _listed(
        [
            build_share(how, position=position, nranks=nranks, root=root)
            for position in positions
        ],
        size_of=size_of,
        nranks=None if turn is None else nranks,
    )
    transfers = (
        transfer
        for position in positions
        for transfer in how.sends(position, nranks=nranks, root=root)
    )
    columns.reduced = array(
        "q",
        (
            reduced_bytes(transfer, size if turn is None else 1)
            for transfer, size in zip(transfers, columns.sizes, strict=True)
        ),
    )
    if turn is not None:
        columns.turn = turn
        columns.chunk_sizes = array(
            "q",
            (
                how.chunk_bytes(chunk, nranks=nranks, input_bytes=input_bytes)
                for chunk in range(nranks * turn)
            ),
        )
    return columns


def message_columns(size_bytes: int) -> MessageColumns:
    """Return one message from position 0 to position 1."""
    sent, received = (
        LocalTransfer(step=0, peer=peer, chunk=0, channel=0, message=0)
        for peer in (1, 0)
    )
    return _listed(
        [
            RankSchedule(sends=(sent,), receives=()),
            RankSchedule(sends=(), receives=(received,)),
        ],
        size_of=lambda *_: size_bytes,
    )


def uneven_columns(how: Algorithm, matrix: Matrix) -> MessageColumns:
    """Return the messages of an all_to_all_v.

    Args:
        how: Algorithm that generates the schedule.
        matrix: Bytes between each pair of positions.
    """
    nranks = len(matrix)
    pair_bytes = matrix_bytes(matrix)
    shares = [
        uneven_share(
            how,
            Splits(matrix[position], tuple(row[position] for row in matrix)),
            position=position,
        )
        for position in range(nranks)
    ]
    return _listed(
        shares,
        size_of=lambda position, send: uneven_message_bytes(
            how, send, src=position, dst=send.peer, pair_bytes=pair_bytes
        ),
    )


def _listed(
    shares: Sequence[RankSchedule],
    *,
    size_of: Callable[[int, LocalTransfer], int],
    nranks: int | None = None,
) -> MessageColumns:
    """Return the columns of the shares, with no reduced bytes.

    If *nranks* is given, the only share is that of position 0, and the kind rotates.
    """
    columns = MessageColumns(nranks=nranks or len(shares), rotates=nranks is not None)
    places = [_places(share) for share in shares]
    for position, share in enumerate(shares):
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, send in enumerate(share.sends):
            source, peers_places = (
                (-send.peer % nranks, places[0])
                if nranks is not None
                else (position, places[send.peer])
            )
            columns.peers.append(send.peer)
            columns.sizes.append(size_of(position, send))
            columns.steps.append(send.step)
            columns.channels.append(send.channel)
            columns.receives.append(peers_places[source, send.channel, send.message])
            columns.waits.append(bool(send.needs))
            columns.reduced.append(0)
            if send.needs:
                groups.setdefault(send.needs, []).append(index)
        dependents: list[list[int]] = [[] for _ in share.receives]
        for number, (needs, members) in enumerate(groups.items()):
            columns.needs.append(len(needs))
            columns.members.extend(members)
            columns.first_member.append(len(columns.members))
            for need in needs:
                dependents[need].append(number)
        columns.first_group.append(len(columns.needs))
        columns.first_send.append(len(columns.peers))
        columns.first_receive.append(columns.first_receive[-1] + len(share.receives))
        for each in dependents:
            columns.dependents.extend(each)
            columns.first_dependent.append(len(columns.dependents))
    return columns


def _places(share: RankSchedule) -> dict[tuple[int, int, int], int]:
    """Return the receive index by source, channel and message number."""
    return {
        (receive.peer, receive.channel, receive.message): index
        for index, receive in enumerate(share.receives)
    }

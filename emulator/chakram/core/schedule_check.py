"""Checks schedules: executes them symbolically, from precondition to postcondition.

What a position has of a chunk is the set of the positions whose contributions are in
it.  A collective says which sets there are before and which there must be after; a
transfer stores the sender's set at the receiver, or adds it there.  An algorithm is
right when executing its transfers step by step turns the one into the other.

In an all_to_all, and in a send_recv, chunks of the same number at different positions
are different data; there the source is part of a chunk's name, so an algorithm that
forwards other positions' chunks cannot be expressed.

Source of the idea: msccl-tools, ``msccl/collectives.py`` and ``msccl/algorithm.py``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from chakram.core.collectives import CollectiveOp
from chakram.core.schedule import Algorithm, RankSchedule, Transfer, rank_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Schedule",
    "build_schedule",
    "check_schedule",
    "received_bytes",
    "sent_bytes",
]

_OWN_CHUNKS = frozenset({CollectiveOp.ALL_TO_ALL, CollectiveOp.SEND_RECV})
_SUMS = frozenset(
    {CollectiveOp.ALL_REDUCE, CollectiveOp.REDUCE, CollectiveOp.REDUCE_SCATTER}
)

_Key = tuple[int, int]
"""(source or 0, chunk): what is the same data at every position."""
_Contents = list[dict[_Key, frozenset[int]]]
"""By position: the contributions in each chunk that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """All transfers of one collective of *nranks* positions, steps ascending."""

    op: CollectiveOp
    nranks: int
    root: int
    nchunks: int
    transfers: tuple[Transfer, ...]

    @property
    def nsteps(self) -> int:
        """Number of steps."""
        return 1 + max((transfer.step for transfer in self.transfers), default=-1)


def build_schedule(algorithm: Algorithm, *, nranks: int, root: int = 0) -> Schedule:
    """Return the transfers of all positions, by step, then by turn, then by position.

    The turn of a transfer is its place among those that its source sends in the step.
    """
    turns = [
        (transfer.step, turn, transfer)
        for position in range(nranks)
        for _, same_step in groupby(
            algorithm.sends(position, nranks=nranks, root=root),
            key=lambda transfer: transfer.step,
        )
        for turn, transfer in enumerate(same_step)
    ]
    turns.sort(key=lambda item: (item[0], item[1], item[2].src))
    return Schedule(
        op=algorithm.op,
        nranks=nranks,
        root=root,
        nchunks=algorithm.nchunks(nranks),
        transfers=tuple(transfer for _, _, transfer in turns),
    )


def check_schedule(algorithm: Algorithm, *, nranks: int, root: int = 0) -> list[str]:
    """Return what is wrong with an algorithm at this size; an empty list if nothing is.

    Checked are: both ends of every transfer know of it and count it alike; no position
    sends what it does not have, loses or counts twice a contribution, or sends and
    receives a chunk in one step; and in the end everybody has what the collective
    promises.
    """
    problems = _check_ends(algorithm, nranks, root)
    if problems:
        return problems  # executing it would only repeat them
    problems += _check_numbers(algorithm, nranks, root)
    schedule = build_schedule(algorithm, nranks=nranks, root=root)
    contents = _before(schedule)
    for step, transfers in groupby(schedule.transfers, key=lambda t: t.step):
        problems += _execute(schedule, contents, step, list(transfers))
    return problems + _check_after(schedule, contents)


def sent_bytes(
    algorithm: Algorithm, *, position: int, nranks: int, root: int, input_bytes: int
) -> int:
    """Return the payload that *position* sends in one collective."""
    return _total_bytes(
        algorithm,
        algorithm.sends(position, nranks=nranks, root=root),
        nranks=nranks,
        input_bytes=input_bytes,
    )


def received_bytes(
    algorithm: Algorithm, *, position: int, nranks: int, root: int, input_bytes: int
) -> int:
    """Return the payload that *position* receives in one collective."""
    return _total_bytes(
        algorithm,
        algorithm.receives(position, nranks=nranks, root=root),
        nranks=nranks,
        input_bytes=input_bytes,
    )


def _total_bytes(
    algorithm: Algorithm,
    transfers: Iterator[Transfer],
    *,
    nranks: int,
    input_bytes: int,
) -> int:
    return sum(
        algorithm.chunk_bytes(transfer.chunk, nranks=nranks, input_bytes=input_bytes)
        for transfer in transfers
    )


def _check_ends(algorithm: Algorithm, nranks: int, root: int) -> list[str]:
    problems: list[str] = []
    sent: Counter[Transfer] = Counter()
    expected: Counter[Transfer] = Counter()
    nchunks = algorithm.nchunks(nranks)
    for position in range(nranks):
        sends = list(algorithm.sends(position, nranks=nranks, root=root))
        receives = list(algorithm.receives(position, nranks=nranks, root=root))
        sent.update(sends)
        expected.update(receives)
        problems += [
            f"position {position} yields another's transfer {_text(transfer)}"
            for transfers, end in ((sends, "src"), (receives, "dst"))
            for transfer in transfers
            if getattr(transfer, end) != position
        ]
        problems += [
            f"position {position}: step {later.step} follows step {earlier.step}"
            for transfers in (sends, receives)
            for earlier, later in pairwise(transfers)
            if later.step < earlier.step
        ]
        problems += [
            f"{_text(transfer)}: outside of {nranks} positions and {nchunks} chunks"
            for transfer in sends
            if not (0 <= transfer.dst < nranks and 0 <= transfer.chunk < nchunks)
        ]
    problems += [
        f"{_text(transfer)}: sent, but position {transfer.dst} does not expect it"
        for transfer in sent - expected
    ]
    problems += [
        f"{_text(transfer)}: expected, but position {transfer.src} does not send it"
        for transfer in expected - sent
    ]
    return problems


def _check_numbers(algorithm: Algorithm, nranks: int, root: int) -> list[str]:
    """Check that both ends number the messages between them alike."""
    shares = [
        rank_schedule(algorithm, position=position, nranks=nranks, root=root)
        for position in range(nranks)
    ]
    at_source = {
        (position, send.peer, send.channel, send.message): (send.step, send.chunk)
        for position, share in enumerate(shares)
        for send in share.sends
    }
    at_destination = {
        (receive.peer, position, receive.channel, receive.message): (
            receive.step,
            receive.chunk,
        )
        for position, share in enumerate(shares)
        for receive in share.receives
    }
    problems = [
        f"message {message} from {src} to {dst} on channel {channel} is "
        f"{at_source.get((src, dst, channel, message))} at its source, "
        f"{at_destination.get((src, dst, channel, message))} at its destination"
        for src, dst, channel, message in sorted(at_source.keys() | at_destination)
        if at_source.get((src, dst, channel, message))
        != at_destination.get((src, dst, channel, message))
    ]
    for position, share in enumerate(shares):
        problems += _check_needs(position, share)
    return problems


def _check_needs(position: int, share: RankSchedule) -> list[str]:
    return [
        f"position {position} sends chunk {send.chunk} in step {send.step} but waits "
        f"for chunk {share.receives[need].chunk} of step {share.receives[need].step}"
        for send in share.sends
        for need in send.needs
        if share.receives[need].step >= send.step
        or share.receives[need].chunk != send.chunk
    ]


def _before(schedule: Schedule) -> _Contents:
    """Return what everybody has before the collective."""
    nranks, chunks = schedule.nranks, range(schedule.nchunks)
    contents: _Contents = [{} for _ in range(nranks)]
    match schedule.op:
        case CollectiveOp.ALL_GATHER | CollectiveOp.GATHER:
            for position in range(nranks):
                contents[position][0, position] = frozenset({position})
        case CollectiveOp.BROADCAST | CollectiveOp.SCATTER:
            for chunk in chunks:
                contents[schedule.root][0, chunk] = frozenset({schedule.root})
        case _:
            for position in range(nranks):
                source = position if schedule.op in _OWN_CHUNKS else 0
                for chunk in chunks:
                    contents[position][source, chunk] = frozenset({position})
    return contents


def _after(schedule: Schedule, position: int) -> dict[_Key, frozenset[int]]:
    """Return what *position* must have after the collective."""
    nranks, root, chunks = schedule.nranks, schedule.root, range(schedule.nchunks)
    everyone = frozenset(range(nranks))
    match schedule.op:
        case CollectiveOp.ALL_REDUCE | CollectiveOp.BARRIER:
            return {(0, chunk): everyone for chunk in chunks}
        case CollectiveOp.REDUCE:
            return {(0, chunk): everyone for chunk in chunks if position == root}
        case CollectiveOp.REDUCE_SCATTER:
            return {(0, position): everyone}
        case CollectiveOp.ALL_GATHER:
            return {(0, chunk): frozenset({chunk}) for chunk in chunks}
        case CollectiveOp.GATHER:
            return {
                (0, chunk): frozenset({chunk}) for chunk in chunks if position == root
            }
        case CollectiveOp.BROADCAST:
            return {(0, chunk): frozenset({root}) for chunk in chunks}
        case CollectiveOp.SCATTER:
            return {(0, position): frozenset({root})}
        case CollectiveOp.ALL_TO_ALL:
            return {(peer, position): frozenset({peer}) for peer in range(nranks)}
        case CollectiveOp.SEND_RECV:
            before = (position - 1) % nranks
            return {(before, chunk): frozenset({before}) for chunk in chunks}


def _execute(
    schedule: Schedule, contents: _Contents, step: int, transfers: list[Transfer]
) -> list[str]:
    """Carry out one step; all of it sees what there was before the step."""
    problems: list[str] = []
    leaving: set[tuple[int, _Key]] = set()
    loads: list[tuple[Transfer, _Key, frozenset[int]]] = []
    for transfer in transfers:
        key = (transfer.src if schedule.op in _OWN_CHUNKS else 0, transfer.chunk)
        leaving.add((transfer.src, key))
        load = contents[transfer.src].get(key)
        if load is None:
            problems.append(f"{_text(transfer)}: its source does not have it")
        else:
            loads.append((transfer, key, load))
    for transfer, key, load in loads:
        present = contents[transfer.dst].get(key, frozenset())
        if schedule.op in _SUMS and transfer.reduce and load & present:
            problems.append(f"{_text(transfer)}: counts {sorted(load & present)} twice")
        if not transfer.reduce and present - load:
            problems.append(f"{_text(transfer)}: loses {sorted(present - load)}")
        # A barrier only says who is there: hearing of it early does no harm.
        if (transfer.dst, key) in leaving and schedule.op != CollectiveOp.BARRIER:
            problems.append(
                f"{_text(transfer)}: its destination sends that chunk in step {step}"
            )
        contents[transfer.dst][key] = load | present if transfer.reduce else load
    return problems


def _check_after(schedule: Schedule, contents: _Contents) -> list[str]:
    return [
        f"position {position} ends with {sorted(contents[position].get(key, ()))} "
        f"of chunk {key[1]}, not with {sorted(wanted)}"
        for position in range(schedule.nranks)
        for key, wanted in _after(schedule, position).items()
        if contents[position].get(key) != wanted
    ]


def _text(transfer: Transfer) -> str:
    return (
        f"step {transfer.step}: chunk {transfer.chunk} "
        f"from {transfer.src} to {transfer.dst}"
    )

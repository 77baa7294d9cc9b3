"""Schedule checker: executes schedules symbolically and checks the postcondition.

The state of a chunk at a position is the set of positions whose contributions it
contains. A collective defines these sets before and after its execution. A transfer
stores the sender's set at the receiver or adds it there. An algorithm is correct if its
transfers, executed step by step, lead from the initial to the final sets.

A chunk number identifies the same data at every position. If positions start with
different data, each has its own chunk numbers (``Algorithm.nchunks``).

The approach follows msccl-tools, ``msccl/collectives.py`` and ``msccl/algorithm.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from operator import attrgetter
from typing import Any

from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule import (
    Algorithm,
    RankSchedule,
    Transfer,
    rank_schedule,
)

_BY_POSITION = frozenset(
    {
        CollectiveOp.ALL_GATHER,
        CollectiveOp.GATHER,
        CollectiveOp.REDUCE_SCATTER,
        CollectiveOp.SCATTER,
        CollectiveOp.SEND_RECV,
    }
)
_SUMS = frozenset(
    {CollectiveOp.ALL_REDUCE, CollectiveOp.REDUCE, CollectiveOp.REDUCE_SCATTER}
)

_OWN_INPUTS = frozenset(
    {
        CollectiveOp.ALL_GATHER,
        CollectiveOp.ALL_TO_ALL,
        CollectiveOp.ALL_TO_ALL_V,
        CollectiveOp.GATHER,
        CollectiveOp.SEND_RECV,
    }
)
"""Collectives whose chunks divide the separate input of each position."""

_CHECKED_INPUT_BYTES = (0, 1, 1_000_003, 1 << 30)
"""Input sizes for which chunk sizes are checked; the third is a prime number."""

_Contents = list[dict[int, frozenset[int]]]
"""For each position: the contributions in each chunk that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """All transfers of one collective of *nranks* positions, in order of step."""

    op: CollectiveOp
    nranks: int
    root: int
    nchunks: int
    transfers: tuple[Transfer, ...]


def build_schedule(algorithm: Algorithm, *, nranks: int, root: int = 0) -> Schedule:
    """Return the transfers of all positions, ordered by step, turn and position.

    The turn of a transfer is its index among the sends of its source in that step.
    """
    turns: dict[tuple[int, int], list[Transfer]] = {}
    for position in range(nranks):
        for step, same_step in groupby(
            algorithm.sends(position, nranks=nranks, root=root),
            key=attrgetter("step"),
        ):
            for turn, transfer in enumerate(same_step):
                turns.setdefault((step, turn), []).append(transfer)
    return Schedule(
        op=algorithm.op,
        nranks=nranks,
        root=root,
        nchunks=algorithm.nchunks(nranks),
        transfers=tuple(chain.from_iterable(turns[each] for each in sorted(turns))),
    )


def check_schedule(algorithm: Algorithm, *, nranks: int, root: int = 0) -> list[str]:
    """Return the problems of an algorithm for this group size, or an empty list.

    The check verifies that:

    - both ends of every transfer yield it with the same number
    - no position sends a chunk that it does not have
    - no transfer loses a contribution or counts it twice
    - no transfer overwrites a chunk that the destination sends in the same step
    - every position ends with the data that the collective requires
    - the sizes of the chunks add up to the buffer, for some small and large buffers
    """
    unfit = algorithm.unfit(nranks)
    if unfit is not None:
        return [unfit]
    problems = [
        *_check_chunks(algorithm, nranks),
        *_check_ends(algorithm, nranks, root),
    ]
    if problems:
        return problems  # execution would report the same problems again
    problems += _check_numbers(algorithm, nranks, root)
    schedule = build_schedule(algorithm, nranks=nranks, root=root)
    contents = contents_before(schedule)
    for step, transfers in groupby(schedule.transfers, key=lambda t: t.step):
        problems += _execute(schedule, contents, step, list(transfers))
    return problems + _check_after(schedule, contents)


def _check_chunks(algorithm: Algorithm, nranks: int) -> list[str]:
    """Check that the chunks divide evenly among the parts of the collective."""
    nchunks = algorithm.nchunks(nranks)
    parts = parts_of(algorithm.op, nranks)
    if nchunks > 0 and nchunks % parts == 0:
        return _check_sizes(algorithm, nranks, nchunks)
    return [f"{nchunks} chunks do not divide evenly into {parts} parts"]


def _check_sizes(algorithm: Algorithm, nranks: int, nchunks: int) -> list[str]:
    """Check that the chunks of every input add up to exactly its size."""
    inputs = inputs_of(algorithm.op, nranks)
    each = nchunks // inputs
    for input_bytes in _CHECKED_INPUT_BYTES:
        wanted = 0 if algorithm.op is CollectiveOp.BARRIER else input_bytes
        sizes: list[Any] = [  # the code of a plug-in may return anything
            algorithm.chunk_bytes(chunk, nranks=nranks, input_bytes=input_bytes)
            for chunk in range(nchunks)
        ]
        for chunk, size in enumerate(sizes):
            if not isinstance(size, int) or size < 0:
                return [
                    f"chunk {chunk} has {size!r} bytes if the input has {input_bytes}: "
                    "chunk_bytes must return integers from 0"
                ]
        for first in range(0, nchunks, each):
            found = sum(sizes[first : first + each])
            if found != wanted:
                return [
                    f"chunks {first} to {first + each - 1} add up to {found} bytes if "
                    f"the input has {input_bytes}: chunk_bytes must return sizes that "
                    f"add up to exactly {wanted}"
                ]
    return []


def inputs_of(op: CollectiveOp, nranks: int) -> int:
    """Return the number of separate inputs that the chunks of a collective divide."""
    return nranks if op in _OWN_INPUTS else 1


def parts_of(op: CollectiveOp, nranks: int) -> int:
    """Return the number of parts that the collective assigns to positions."""
    if op in (CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_TO_ALL_V):
        return nranks * nranks
    return nranks if op in _BY_POSITION else 1


def _check_ends(algorithm: Algorithm, nranks: int, root: int) -> Iterator[str]:
    sent: Counter[Transfer] = Counter()
    expected: Counter[Transfer] = Counter()
    nchunks = algorithm.nchunks(nranks)
    for position in range(nranks):
        sends, receives = (
            _listed(yields(position, nranks=nranks, root=root), end, position)
            for end, yields in (
                ("sends", algorithm.sends),
                ("receives", algorithm.receives),
            )
        )
        sent.update(sends)
        expected.update(receives)
        yield from [
            f"position {position} yields a transfer of another position: "
            f"{_text(transfer)}"
            for transfers, end in ((sends, "src"), (receives, "dst"))
            for transfer in transfers
            if getattr(transfer, end) != position
        ]
        yield from [
            f"position {position}: step {later.step} follows step {earlier.step}"
            for transfers in (sends, receives)
            for earlier, later in pairwise(transfers)
            if later.step < earlier.step
        ]
        yield from [
            f"{_text(transfer)}: outside {nranks} positions and {nchunks} chunks"
            for transfer in sends
            if not 0 <= transfer.dst < nranks
            or not all(0 <= chunk < nchunks for chunk in transfer.chunks)
        ]
        yield from [
            f"{_text(transfer)}: a position sends to itself"
            for transfer in sends
            if transfer.src == transfer.dst
        ]
        yield from [
            f"{_text(transfer)}: carries a chunk twice"
            for transfer in sends
            if len(set(transfer.chunks)) <= len(transfer.further)
        ]
        yield from _check_peers(algorithm, sends, position, nranks, root)
    yield from [
        f"{_text(transfer)}: sent, but position {transfer.dst} does not expect it"
        for transfer in sent - expected
    ]
    yield from [
        f"{_text(transfer)}: expected, but position {transfer.src} does not send it"
        for transfer in expected - sent
    ]


def _listed(given: object, end: str, position: int) -> list[Transfer]:
    """Return the transfers that a method yields, or raise a TypeError."""
    transfers: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    for each in transfers:
        if not isinstance(each, Transfer):
            raise TypeError(
                f"{end} of position {position} returns {str(each)[:60]}, not Transfers"
            )
    return transfers


def _check_peers(
    algorithm: Algorithm, sends: list[Transfer], position: int, nranks: int, root: int
) -> list[str]:
    told = algorithm.peers(position, nranks=nranks, root=root)
    found = {(transfer.channel, transfer.dst) for transfer in sends}
    if told == found:
        return []
    return [
        f"position {position} sends to {sorted(found)}, but its peers are "
        f"{sorted(told)} (channel, position)"
    ]


def _check_numbers(algorithm: Algorithm, nranks: int, root: int) -> list[str]:
    """Check that both ends agree on message numbers and on what sends await."""
    shares = [
        rank_schedule(algorithm, position=position, nranks=nranks, root=root)
        for position in range(nranks)
    ]
    at_source = {
        (position, send.peer, send.channel, send.message): (
            send.step,
            send.chunk,
        )
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
        f"{at_source.get((src, dst, channel, message))} at its source, but "
        f"{at_destination.get((src, dst, channel, message))} at its destination"
        for src, dst, channel, message in sorted(at_source.keys() | at_destination)
        if at_source.get((src, dst, channel, message))
        != at_destination.get((src, dst, channel, message))
    ]
    for position, share in enumerate(shares):
        sends = algorithm.sends(position, nranks=nranks, root=root)
        problems += _check_needs(position, share, sends, stepwise=algorithm.stepwise)
    return problems


def _check_needs(
    position: int, share: RankSchedule, sends: Iterator[Transfer], *, stepwise: bool
) -> list[str]:
    return [
        f"position {position} sends chunk {send.chunk} in step {send.step} but waits "
        f"for chunk {share.receives[need].chunk} of step {share.receives[need].step}"
        for send, transfer in zip(share.sends, sends, strict=True)
        for need in send.needs
        if share.receives[need].step >= send.step
        or not (stepwise or set(share.receives[need].chunks) & set(transfer.awaited))
    ]


def contents_before(schedule: Schedule) -> _Contents:
    """Return the contents of every position before the collective."""
    nranks, chunks = schedule.nranks, range(schedule.nchunks)
    match schedule.op:
        case CollectiveOp.ALL_GATHER | CollectiveOp.GATHER | CollectiveOp.SEND_RECV:
            first = {position: _own(schedule, position) for position in range(nranks)}
        case CollectiveOp.BROADCAST | CollectiveOp.SCATTER:
            first = {schedule.root: chunks}
        case CollectiveOp.ALL_TO_ALL | CollectiveOp.ALL_TO_ALL_V:
            each = schedule.nchunks // nranks
            first = {
                position: range(position * each, (position + 1) * each)
                for position in range(nranks)
            }
        case _:
            first = dict.fromkeys(range(nranks), chunks)
    return [
        {chunk: frozenset({position}) for chunk in first.get(position, ())}
        for position in range(nranks)
    ]


def _own(schedule: Schedule, position: int) -> range:
    """Return the chunks of *position* if each position has its own chunks."""
    each = schedule.nchunks // schedule.nranks
    return range(position * each, (position + 1) * each)


def promised(schedule: Schedule, position: int) -> dict[int, frozenset[int]]:
    """Return the required contents of *position* after the collective."""
    nranks, root, chunks = schedule.nranks, schedule.root, range(schedule.nchunks)
    each = schedule.nchunks // parts_of(schedule.op, nranks)
    everyone = frozenset(range(nranks))
    match schedule.op:
        case CollectiveOp.ALL_REDUCE | CollectiveOp.BARRIER:
            return dict.fromkeys(chunks, everyone)
        case CollectiveOp.REDUCE:
            return dict.fromkeys(chunks, everyone) if position == root else {}
        case CollectiveOp.REDUCE_SCATTER:
            return dict.fromkeys(_own(schedule, position), everyone)
        case CollectiveOp.ALL_GATHER:
            return {chunk: frozenset({chunk // each}) for chunk in chunks}
        case CollectiveOp.GATHER:
            return {
                chunk: frozenset({chunk // each})
                for chunk in chunks
                if position == root
            }
        case CollectiveOp.BROADCAST:
            return dict.fromkeys(chunks, frozenset({root}))
        case CollectiveOp.SCATTER:
            return dict.fromkeys(_own(schedule, position), frozenset({root}))
        case CollectiveOp.ALL_TO_ALL | CollectiveOp.ALL_TO_ALL_V:
            return {
                (peer * nranks + position) * each + part: frozenset({peer})
                for peer in range(nranks)
                for part in range(each)
            }
        case CollectiveOp.SEND_RECV:
            before = (position - 1) % nranks
            return dict.fromkeys(_own(schedule, before), frozenset({before}))


def _execute(
    schedule: Schedule, contents: _Contents, step: int, transfers: list[Transfer]
) -> Iterator[str]:
    """Execute one step. Every transfer reads the contents from before the step."""
    leaving: set[tuple[int, int]] = set()
    loads: list[tuple[Transfer, int, frozenset[int]]] = []
    for transfer in transfers:
        for chunk in transfer.chunks:
            leaving.add((transfer.src, chunk))
            load = contents[transfer.src].get(chunk)
            if load is None:
                yield f"{_text(transfer, chunk)}: its source does not have it"
            else:
                loads.append((transfer, chunk, load))
    for transfer, chunk, load in loads:
        where = _text(transfer, chunk)
        present = contents[transfer.dst].get(chunk, frozenset())
        if schedule.op in _SUMS and transfer.reduce and load & present:
            yield f"{where}: counts {sorted(load & present)} twice"
        if not transfer.reduce and present - load:
            yield f"{where}: loses {sorted(present - load)}"
        # A reduction waits in a separate buffer until the sends of the step are done.
        if not transfer.reduce and (transfer.dst, chunk) in leaving:
            yield f"{where}: its destination sends that chunk in step {step}"
        contents[transfer.dst][chunk] = load | present if transfer.reduce else load


def _check_after(schedule: Schedule, contents: _Contents) -> list[str]:
    return [
        f"position {position} ends with {sorted(contents[position].get(chunk, ()))} of "
        f"chunk {chunk}, but must have {sorted(wanted)}"
        for position in range(schedule.nranks)
        for chunk, wanted in promised(schedule, position).items()
        if contents[position].get(chunk) != wanted
    ]


def _text(transfer: Transfer, chunk: int | None = None) -> str:
    shown = transfer.chunk if chunk is None else chunk
    return f"step {transfer.step}: chunk {shown} from {transfer.src} to {transfer.dst}"

"""Programs on buffers, as users' algorithms are written, carried out symbolically.

MSCCL and its successors say what every rank does with *slots*: places in its input,
output and scratch buffers that hold a chunk each.  A ``BufferProgram`` is that in one
form for all of them: actions that read slots, add all of it up, and write slots (see
``chakram.collectives.algorithms.symbolic_execution``).

``carry_out`` executes it on values that say which part of the collective's buffer they
are and whose contributions they have, finds what is wrong, compares the end with what
the collective promises, and returns the messages as a ``ListedAlgorithm``.

Two actions on one slot, of which one writes, must be ordered by their causes: else
the outcome would depend on timing, and that is refused however it comes out here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from chakram.collectives.algorithms.symbolic_execution import (
    SHOWN,
    Action,
    Execution,
    Message,
)
from chakram.collectives.algorithms.transfer_lists import (
    ListedAlgorithm,
    ListedTransfer,
    runs_of,
)
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.schedule_check import (
    Schedule,
    contents_before,
    parts_of,
    promised,
)
from chakram.foundation.errors import ScheduleError

MAX_SLOTS = 1 << 22
"""Slots of all ranks together."""

MAX_MOVES = 1 << 24
"""Slots that all actions together read and write: some ten seconds of checking."""


_Value = tuple[int, frozenset[int]]
"""A part, and the ranks whose contributions are in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which slots of a rank hold its input before, and its output after.

    Attributes:
        nparts: Parts of the buffer, all ranks' together where everybody has his own.
        before: By rank, the part in each slot that holds one.
        after: By rank, for each slot that the collective promises something of: the
            part, and the ranks whose contributions must be in it.
        buffers: By rank, first slot and length of its input (i), output (o) and
            scratch (s); the last one ends with its slots.
    """

    nparts: int
    before: tuple[dict[int, int], ...]
    after: tuple[dict[int, _Value], ...]
    buffers: tuple[dict[str, tuple[int, int]], ...]

    def slots(self, rank: int) -> int:
        """Return how many slots a rank has."""
        return sum(self.buffers[rank]["s"])

    def slot_name(self, rank: int, slot: int) -> str:
        """Return a slot as users write it, e.g. ``i[3]``; in place the larger one's."""
        inside = (
            (length, buffer, first)
            for buffer, (first, length) in self.buffers[rank].items()
            if first <= slot < first + length
        )
        _, buffer, first = max(inside, key=lambda each: each[0])
        return f"{buffer}[{slot - first}]"

    def row(
        self, rank: int, buffer: str, offset: int, count: int, *, where: str
    ) -> range:
        """Return the slots from *offset* on in a buffer.

        Raises:
            ScheduleError: If the buffer has not so many.
        """
        first, size = self.buffers[rank][buffer]
        if offset + count > size:
            raise ScheduleError(
                where,
                f"uses {buffer}[{offset}..{offset + count - 1}], and {buffer} has "
                f"{size} chunks",
            )
        return range(first + offset, first + offset + count)


@dataclass(slots=True, kw_only=True)
class BufferProgram:
    """What all ranks do; ``messages`` are named by their places."""

    op: CollectiveOp
    nranks: int
    root: int
    layout: Layout
    actions: list[Action]
    messages: list[Message]


@dataclass(slots=True)
class _Slot:
    """Who touched a slot last."""

    writer: int | None = None
    readers: list[int] = field(default_factory=list)


class _SlotExecution(Execution):
    """Executes a program on its slots."""

    def __init__(self, program: BufferProgram) -> None:
        super().__init__(
            nranks=program.nranks, actions=program.actions, messages=program.messages
        )
        layout = program.layout
        self._layout = layout
        self._contents: list[list[_Value | None]] = [
            [None] * layout.slots(rank) for rank in range(program.nranks)
        ]
        for rank, before in enumerate(layout.before):
            for slot, part in before.items():
                self._contents[rank][slot] = (part, frozenset({rank}))
        self._touched: dict[tuple[int, int], _Slot] = {}
        self._loads: list[list[_Value | None]] = [[] for _ in program.messages]

    def act(self, index: int, action: Action, causes: int) -> None:
        """Add up what the action reads and gets; write it and send it."""
        rows = [self._read(index, action, row, causes) for row in action.reads]
        if action.receives is not None and self._loads[action.receives]:
            rows.append(self._loads[action.receives])
        length = max((len(row) for row in rows), default=0)
        if any(len(row) != length for row in [*rows, *action.writes]):
            self.say(f"{action.where}: what it reads, gets and writes differs in size")
            length = min((len(row) for row in [*rows, *action.writes]), default=0)
        result = [
            self._sum(action, [row[place] for row in rows]) for place in range(length)
        ]
        for slots in action.writes:
            for slot, value in zip(slots, result, strict=False):
                self._write(index, action, slot, value, causes)
        if action.sends is not None:
            self._loads[action.sends] = result
            if any(value is None for value in result):
                self.say(f"{action.where}: sends a slot that nothing was written to")

    def contents_of_messages(self) -> list[ListedTransfer]:
        """Return what every message carries."""
        return [
            ListedTransfer(
                step=0,
                src=message.src,
                dst=message.dst,
                parts=runs_of(value[0] for value in load if value),
                reduce=receiver is not None and bool(self._actions[receiver].reads),
            )
            for message, load, receiver in zip(
                self._messages, self._loads, self._receiver, strict=True
            )
        ]

    def _read(
        self, index: int, action: Action, row: Sequence[int], causes: int
    ) -> list[_Value | None]:
        for slot in row:
            touched = self._touched.setdefault((action.rank, slot), _Slot())
            if touched.writer is not None and not causes >> touched.writer & 1:
                self._tell_race(action, slot, touched.writer, "is written by")
            touched.readers.append(index)
        return [self._contents[action.rank][slot] for slot in row]

    def _write(
        self, index: int, action: Action, slot: int, value: _Value | None, causes: int
    ) -> None:
        touched = self._touched.setdefault((action.rank, slot), _Slot())
        if touched.writer is not None and not causes >> touched.writer & 1:
            self._tell_race(action, slot, touched.writer, "is written by")
        for reader in touched.readers:
            if reader != index and not causes >> reader & 1:
                self._tell_race(action, slot, reader, "is read by")
        touched.writer = index
        touched.readers = []
        self._contents[action.rank][slot] = value

    def _tell_race(self, action: Action, slot: int, other: int, does: str) -> None:
        name = self._layout.slot_name(action.rank, slot)
        self.say(
            f"{action.where}: {name} {does} {self._actions[other].where}, and "
            "neither waits for the other"
        )

    def _sum(self, action: Action, values: list[_Value | None]) -> _Value | None:
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            if len(values) > 1:
                self.say(f"{action.where}: adds a slot that nothing was written to")
            return None
        if not known:
            return None
        part, whose = known[0]
        for other_part, others in known[1:]:
            if other_part != part:
                self.say(f"{action.where}: adds part {other_part} to part {part}")
            elif whose & others:
                self.say(
                    f"{action.where}: counts rank {min(whose & others)} twice in part "
                    f"{part}"
                )
            whose = whose | others
        return part, whose

    def compare(self) -> None:
        """Compare the end with what the collective promises."""
        layout = self._layout
        for rank, wanted in enumerate(layout.after):
            for slot, (part, whose) in wanted.items():
                found = self._contents[rank][slot]
                if found == (part, whose):
                    continue
                name = layout.slot_name(rank, slot)
                if found is None:
                    self.say(f"rank {rank} ends without part {part} in {name}")
                elif found[0] != part:
                    self.say(
                        f"rank {rank} ends with part {found[0]} in {name}, not with "
                        f"part {part}"
                    )
                else:
                    self.say(
                        f"rank {rank} ends with part {part} in {name} "
                        f"{_difference(found[1], whose)}"
                    )


def _difference(found: frozenset[int], wanted: frozenset[int]) -> str:
    missing = sorted(wanted - found)
    if missing:
        ranks = ", ".join(map(str, missing[:SHOWN]))
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        plural = "s" if len(missing) > 1 else ""
        return f"without what rank{plural} {ranks}{more} must contribute"
    extra = sorted(found - wanted)
    return f"that has what rank {extra[0]} contributes as well"


def carry_out(
    program: BufferProgram, *, name: str
) -> tuple[ListedAlgorithm | None, list[str]]:
    """Return the list of a program's messages, and what is wrong with it.

    Args:
        program: What all ranks do.
        name: Of the algorithm in plans and records.

    Returns:
        The list and no problem, or no list and some of the problems.
    """
    moves = sum(
        len(row) for each in program.actions for row in (*each.reads, *each.writes)
    )
    if moves > MAX_MOVES:
        return None, [
            f"it moves {moves} chunks in all, at most {MAX_MOVES} are checked"
        ]
    execution = _SlotExecution(program)
    execution.execute()
    if not execution.problems:
        execution.compare()
    if execution.problems:
        return None, execution.problems
    listed = execution.listed(
        execution.contents_of_messages(),
        name=name,
        op=program.op,
        root=program.root,
        nparts=program.layout.nparts,
    )
    return listed, []


# What the collectives promise.


def layout_of(
    op: CollectiveOp,
    *,
    nranks: int,
    root: int,
    per_rank: int,
    in_place: bool,
    scratch: Sequence[int],
) -> Layout:
    """Return where a collective's parts are before and after it.

    Slots of a rank are its input, its output unless *in_place*, and its scratch, in
    this order.  In place the smaller one of input and output lies in the other where
    the rank's part is, as NCCL has it.

    Args:
        op: The collective; not send_recv, gather, scatter or a barrier.
        nranks: Ranks of the group.
        root: Position of the root.
        per_rank: Parts for each rank where ranks have parts of their own, else all.
        in_place: Whether input and output share their slots.
        scratch: By rank, slots of its scratch buffer.

    Raises:
        ScheduleError: If there are too many slots.
    """
    count = 2 * nranks * per_rank * (nranks if op in PARTED else 1) + sum(scratch)
    if count > MAX_SLOTS:
        raise ScheduleError(
            f"{op} of {nranks} ranks",
            f"its buffers have {count} chunks in all",
            f"at most {MAX_SLOTS} are possible: cut the buffer into fewer",
        )
    schedule = Schedule(
        op=op,
        nranks=nranks,
        root=root,
        nchunks=per_rank * parts_of(op, nranks),
        transfers=(),
    )
    has = contents_before(schedule)
    before: list[dict[int, int]] = []
    after: list[dict[int, _Value]] = []
    buffers: list[dict[str, tuple[int, int]]] = []
    for rank in range(nranks):
        placed = _place_buffers(
            op, rank=rank, per_rank=per_rank, nranks=nranks, in_place=in_place
        )
        buffers.append({**placed, "s": (placed["s"][0], scratch[rank])})
        (first, _), (output, _), _ = placed.values()
        before.append({first + place: part for place, part in enumerate(has[rank])})
        gets = promised(schedule, rank).items()
        after.append({output + place: value for place, value in enumerate(gets)})
    return Layout(
        nparts=schedule.nchunks,
        before=tuple(before),
        after=tuple(after),
        buffers=tuple(buffers),
    )


def _place_buffers(
    op: CollectiveOp, *, rank: int, per_rank: int, nranks: int, in_place: bool
) -> dict[str, tuple[int, int]]:
    """Return first slot and length of a rank's input, output and scratch (none yet)."""
    everything = nranks * per_rank if op in PARTED else per_rank
    inputs = per_rank if op == CollectiveOp.ALL_GATHER else everything
    outputs = per_rank if op == CollectiveOp.REDUCE_SCATTER else everything
    first, output, end = 0, inputs, inputs + outputs
    if in_place:
        own = rank * per_rank
        first = own if inputs < outputs else 0
        output, end = own if outputs < inputs else 0, everything
    return {"i": (first, inputs), "o": (output, outputs), "s": (end, 0)}


PARTED = frozenset(
    {
        CollectiveOp.ALL_GATHER,
        CollectiveOp.REDUCE_SCATTER,
        CollectiveOp.ALL_TO_ALL,
    }
)
"""Collectives in which every rank has a part of its own."""

"""Symbolic execution of buffer programs, which represent users' algorithms.

In MSCCL and its successors, each rank operates on *slots*. A slot is a place for one
chunk in the rank's input, output or scratch buffer. A ``BufferProgram`` is the common
representation of these programs. Its actions read slots, add their values, and write
slots (see ``chakram.collectives.algorithms.symbolic_execution``).

``carry_out`` executes a program on symbolic values. Each value consists of a part of
the collective's buffer and the ranks that contributed to it. ``carry_out`` reports
errors, compares the final state with the result that the collective requires, and
returns the messages as a ``ListedAlgorithm``.

If two actions use the same slot and at least one of them writes it, they must be
causally ordered. Otherwise the result depends on timing, so ``carry_out`` rejects the
program even if this execution gives the right result.
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
"""Maximum slots of all ranks together."""

MAX_MOVES = 1 << 24
"""Maximum slot reads and writes of all actions, about ten seconds of checking."""


_Value = tuple[int, frozenset[int]]
"""A part, and the ranks that contributed to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The slots of each rank, with their parts before and after the collective.

    Attributes:
        nparts: Number of parts of the buffer. If every rank has its own buffer, this is
            the total over all ranks.
        before: By rank, the part in each slot that initially contains a part.
        after: By rank, the required part and its contributing ranks, for each slot that
            the collective defines.
        buffers: By rank, first slot and length of its input (i), output (o) and scratch
            (s). The scratch buffer is the last.
    """

    nparts: int
    before: tuple[dict[int, int], ...]
    after: tuple[dict[int, _Value], ...]
    buffers: tuple[dict[str, tuple[int, int]], ...]

    def slots(self, rank: int) -> int:
        """Return the number of slots of a rank."""
        return sum(self.buffers[rank]["s"])

    def slot_name(self, rank: int, slot: int) -> str:
        """Return the name of a slot in the user's program, e.g. ``i[3]``.

        In place, input and output overlap, and the name refers to the larger one.
        """
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
        """Return *count* slots of a buffer, starting at *offset*.

        Raises:
            ScheduleError: If the buffer is too short.
        """
        first, size = self.buffers[rank][buffer]
        if offset + count > size:
            raise ScheduleError(
                where,
                f"uses {buffer}[{offset}..{offset + count - 1}], but {buffer} has "
                f"{size} chunks",
                "correct the offset or the count, or make the buffer larger",
            )
        return range(first + offset, first + offset + count)


@dataclass(slots=True, kw_only=True)
class BufferProgram:
    """A program for all ranks. Actions refer to ``messages`` by index."""

    op: CollectiveOp
    nranks: int
    root: int
    layout: Layout
    actions: list[Action]
    messages: list[Message]


@dataclass(slots=True)
class _Slot:
    """The latest writer of a slot, and its readers since then."""

    writer: int | None = None
    readers: list[int] = field(default_factory=list)


class _SlotExecution(Execution):
    """Symbolic execution of a program on its slots."""

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
        """Write and send the sum of the values that the action reads and receives."""
        rows = [self._read(index, action, row, causes) for row in action.reads]
        if action.receives is not None and self._loads[action.receives]:
            rows.append(self._loads[action.receives])
        length = max((len(row) for row in rows), default=0)
        if any(len(row) != length for row in [*rows, *action.writes]):
            self.say(
                f"{action.where}: the sizes of its reads, receives and writes differ"
            )
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
                self.say(f"{action.where}: sends an empty slot")

    def contents_of_messages(self) -> list[ListedTransfer]:
        """Return the content of every message."""
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
                self._report_race(action, slot, touched.writer, "is written by")
            touched.readers.append(index)
        return [self._contents[action.rank][slot] for slot in row]

    def _write(
        self, index: int, action: Action, slot: int, value: _Value | None, causes: int
    ) -> None:
        touched = self._touched.setdefault((action.rank, slot), _Slot())
        if touched.writer is not None and not causes >> touched.writer & 1:
            self._report_race(action, slot, touched.writer, "is written by")
        for reader in touched.readers:
            if reader != index and not causes >> reader & 1:
                self._report_race(action, slot, reader, "is read by")
        touched.writer = index
        touched.readers = []
        self._contents[action.rank][slot] = value

    def _report_race(self, action: Action, slot: int, other: int, does: str) -> None:
        name = self._layout.slot_name(action.rank, slot)
        self.say(
            f"{action.where}: {name} {does} {self._actions[other].where}, but neither "
            "waits for the other"
        )

    def _sum(self, action: Action, values: list[_Value | None]) -> _Value | None:
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            if len(values) > 1:
                self.say(f"{action.where}: adds an empty slot")
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
        """Compare the final state with the result that the collective requires."""
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
                        f"rank {rank} ends with part {found[0]} in {name}, but must "
                        f"have part {part}"
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
        return f"without the contribution of rank{plural} {ranks}{more}"
    extra = sorted(found - wanted)
    return f"with an extra contribution of rank {extra[0]}"


def carry_out(
    program: BufferProgram, *, name: str
) -> tuple[ListedAlgorithm | None, list[str]]:
    """Execute a program and return its messages, or its problems.

    Args:
        program: The program of all ranks.
        name: Name of the algorithm in plans and records.

    Returns:
        The transfer list and no problems, or None and some of the problems.
    """
    moves = sum(
        len(row) for each in program.actions for row in (*each.reads, *each.writes)
    )
    if moves > MAX_MOVES:
        return None, [
            f"it moves {moves} chunks in total, but at most {MAX_MOVES} can be checked"
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


# Buffer layouts of the collectives.


def layout_of(
    op: CollectiveOp,
    *,
    nranks: int,
    root: int,
    per_rank: int,
    in_place: bool,
    scratch: Sequence[int],
) -> Layout:
    """Return the locations of a collective's parts before and after it.

    The slots of a rank are its input, its output unless *in_place*, and its scratch, in
    this order. In place, the smaller of input and output lies inside the larger one at
    the rank's own part, as in NCCL.

    Args:
        op: The collective, except send_recv, gather, scatter and barrier.
        nranks: Number of ranks in the group.
        root: Position of the root.
        per_rank: Number of parts per rank if each rank has separate parts, or else the
            total number of parts.
        in_place: Whether input and output share their slots.
        scratch: Number of slots in each rank's scratch buffer.

    Raises:
        ScheduleError: If there are too many slots.
    """
    count = 2 * nranks * per_rank * (nranks if op in PARTED else 1) + sum(scratch)
    if count > MAX_SLOTS:
        raise ScheduleError(
            f"{op} of {nranks} ranks",
            f"its buffers have {count} chunks in total",
            f"use fewer chunks: at most {MAX_SLOTS} are supported",
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
    """Return the first slot and length of a rank's input, output and empty scratch."""
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
"""Collectives in which every rank has its own part."""

"""Programs on buffers, as users' algorithms are written, carried out symbolically.

MSCCL and its successors say what every rank does with *slots*: places in its input,
output and scratch buffers that hold a chunk each.  A ``BufferProgram`` is that in one
form for all of them: actions in an order of causes, each of which may receive one
message, read slots, add all of it up, write slots and send one message.

``carry_out`` executes it on values that say which chunk they are and whose
contributions they have, finds what is wrong, compares the end with what the collective
promises, and returns the messages as a ``ListedAlgorithm``: what each carries, and
which ones its source must have received.

Two actions on one slot, of which one writes, must be ordered by their causes: else
the outcome would depend on timing, and that is refused however it comes out here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chakram.core.algorithms.listed import (
    ListedAlgorithm,
    ListedTransfer,
    runs_of,
)
from chakram.core.collectives import CollectiveOp

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAX_ACTIONS",
    "Action",
    "BufferProgram",
    "Layout",
    "Message",
    "carry_out",
]

MAX_ACTIONS = 1 << 17
"""Actions of one program."""

_SHOWN = 8
"""Problems that are worth telling; more say the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What goes from one rank to another over a channel."""

    src: int
    dst: int
    channel: int


@dataclass(slots=True, kw_only=True)
class Action:
    """Something that one rank does.

    Attributes:
        rank: Who.
        where: Where it stands in the user's file, for people.
        after: Actions of the same rank that come before it.
        receives: Message whose content it takes up.
        reads: Rows of slots of its own rank; all rows are added up, slot by slot.
        writes: Rows of slots of its own rank that get the result.
        sends: Message that carries the result away.
    """

    rank: int
    where: str
    after: list[int] = field(default_factory=list)
    receives: int | None = None
    reads: list[Sequence[int]] = field(default_factory=list)
    writes: list[Sequence[int]] = field(default_factory=list)
    sends: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which slots of a rank hold its input before, and its output after.

    Attributes:
        nparts: Parts of the buffer, all ranks' together where everybody has his own.
        slots: Slots of every rank.
        before: By rank, the part in each slot that holds one.
        after: By rank, for each slot that the collective promises something of: the
            part, and the ranks whose contributions must be in it.
        names: By rank, what the user calls a slot, as (first slot, buffer).
    """

    nparts: int
    slots: tuple[int, ...]
    before: tuple[dict[int, int], ...]
    after: tuple[dict[int, tuple[int, frozenset[int]]], ...]
    names: tuple[tuple[tuple[int, str], ...], ...]

    def slot_name(self, rank: int, slot: int) -> str:
        """Return a slot as users write it, e.g. ``i[3]``."""
        first, buffer = next(
            each for each in reversed(self.names[rank]) if each[0] <= slot
        )
        return f"{buffer}[{slot - first}]"


@dataclass(slots=True, kw_only=True)
class BufferProgram:
    """What all ranks do; ``messages`` are named by their places."""

    op: CollectiveOp
    nranks: int
    root: int
    layout: Layout
    actions: list[Action]
    messages: list[Message]


_Value = tuple[int, frozenset[int]]
"""A part, and the ranks whose contributions are in it."""


@dataclass(slots=True)
class _Slot:
    """Who touched a slot last."""

    writer: int | None = None
    readers: list[int] = field(default_factory=list)


class _Run:
    """One execution."""

    def __init__(self, program: BufferProgram) -> None:
        self.program = program
        self.problems: list[str] = []
        layout = program.layout
        self.contents: list[list[_Value | None]] = [
            [None] * count for count in layout.slots
        ]
        for rank, before in enumerate(layout.before):
            for slot, part in before.items():
                self.contents[rank][slot] = (part, frozenset({rank}))
        self.touched: dict[tuple[int, int], _Slot] = {}
        self.loads: list[list[_Value | None] | None] = [None] * len(program.messages)
        # By action: bits of the actions that cause it, and by (source, channel) the
        # last message that its rank has received.
        self.causes: dict[int, int] = {}
        self.received: dict[int, dict[tuple[int, int], int]] = {}
        self.after: list[tuple[int, ...]] = [()] * len(program.messages)
        self.sender: list[int | None] = [None] * len(program.messages)
        self.receiver: list[int | None] = [None] * len(program.messages)
        self.order: list[int] = []

    def say(self, text: str) -> None:
        if len(self.problems) < _SHOWN:
            self.problems.append(text)

    def connect(self) -> None:
        for index, action in enumerate(self.program.actions):
            if action.sends is not None:
                self.sender[action.sends] = index
            if action.receives is not None:
                self.receiver[action.receives] = index

    def execute(self) -> None:
        actions = self.program.actions
        waits = [len(action.after) for action in actions]
        releases: list[list[int]] = [[] for _ in actions]
        for index, action in enumerate(actions):
            for before in action.after:
                releases[before].append(index)
            if action.receives is not None:
                sender = self.sender[action.receives]
                waits[index] += 1
                if sender is not None:
                    releases[sender].append(index)
        left = [len(each) for each in releases]
        ready = deque(index for index, count in enumerate(waits) if not count)
        while ready:
            index = ready.popleft()
            self.order.append(index)
            self._do(index)
            if not left[index]:
                del self.causes[index], self.received[index]
            causes: Sequence[int] = actions[index].after
            if actions[index].receives is not None:
                sender = self.sender[actions[index].receives or 0]
                causes = [*causes, *([] if sender is None else [sender])]
            for before in causes:
                left[before] -= 1
                if not left[before]:  # nobody asks for it any more
                    del self.causes[before], self.received[before]
            for following in releases[index]:
                waits[following] -= 1
                if not waits[following]:
                    ready.append(following)
        if len(self.order) < len(actions):
            self._tell_stuck(waits)

    def _tell_stuck(self, waits: list[int]) -> None:
        done = set(self.order)
        actions = self.program.actions
        for index, action in enumerate(actions):
            if index in done or any(before not in done for before in action.after):
                continue
            message = self.program.messages[action.receives or 0]
            self.say(
                f"{action.where} waits for ever for a message from rank {message.src} "
                f"on channel {message.channel}"
            )
        if not self.problems:
            stuck = next(each for at, each in enumerate(actions) if waits[at])
            self.say(f"{stuck.where} waits for itself")

    def _do(self, index: int) -> None:
        action = self.program.actions[index]
        causes, received = self._causes(index, action)
        rows = [self._read(index, action, row, causes) for row in action.reads]
        if action.receives is not None:
            rows.append(self.loads[action.receives] or [])
        length = max((len(row) for row in rows), default=0)
        if any(len(row) != length for row in rows) or any(
            len(row) != length for row in action.writes
        ):
            self.say(f"{action.where}: what it reads, gets and writes differs in size")
            length = min((len(row) for row in [*rows, *action.writes]), default=0)
        result = [
            self._sum(action, [row[place] for row in rows]) for place in range(length)
        ]
        for slots in action.writes:
            for slot, value in zip(slots, result, strict=False):
                self._write(index, action, slot, value, causes)
        if action.sends is not None:
            self.loads[action.sends] = result
            if any(value is None for value in result):
                self.say(f"{action.where}: sends a slot that nothing was written to")
            self.after[action.sends] = tuple(sorted(received.values()))
        self.causes[index] = causes | 1 << index
        self.received[index] = received

    def _causes(
        self, index: int, action: Action
    ) -> tuple[int, dict[tuple[int, int], int]]:
        causes = 0
        received: dict[tuple[int, int], int] = {}
        for before in action.after:
            causes |= self.causes[before]
            for link, message in self.received[before].items():
                received[link] = max(message, received.get(link, -1))
        if action.receives is not None:
            sender = self.sender[action.receives]
            if sender is not None:
                causes |= self.causes[sender]
            message_of = self.program.messages[action.receives]
            received[message_of.src, message_of.channel] = action.receives
        return causes, received

    def _read(
        self, index: int, action: Action, row: Sequence[int], causes: int
    ) -> list[_Value | None]:
        for slot in row:
            touched = self.touched.setdefault((action.rank, slot), _Slot())
            if touched.writer is not None and not causes >> touched.writer & 1:
                self._tell_race(action, slot, touched.writer, "is written by")
            touched.readers.append(index)
        return [self.contents[action.rank][slot] for slot in row]

    def _write(
        self, index: int, action: Action, slot: int, value: _Value | None, causes: int
    ) -> None:
        touched = self.touched.setdefault((action.rank, slot), _Slot())
        if touched.writer is not None and not causes >> touched.writer & 1:
            self._tell_race(action, slot, touched.writer, "is written by")
        for reader in touched.readers:
            if reader != index and not causes >> reader & 1:
                self._tell_race(action, slot, reader, "is read by")
        touched.writer = index
        touched.readers = []
        self.contents[action.rank][slot] = value

    def _tell_race(self, action: Action, slot: int, other: int, does: str) -> None:
        name = self.program.layout.slot_name(action.rank, slot)
        self.say(
            f"{action.where}: {name} {does} {self.program.actions[other].where}, and "
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
        layout = self.program.layout
        for rank, promised in enumerate(layout.after):
            for slot, (part, whose) in promised.items():
                found = self.contents[rank][slot]
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
        ranks = ", ".join(map(str, missing[:_SHOWN]))
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
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
    run = _Run(program)
    run.connect()
    run.execute()
    if not run.problems:
        run.compare()
    if run.problems:
        return None, run.problems
    return _listed(program, run, name), []


def _listed(program: BufferProgram, run: _Run, name: str) -> ListedAlgorithm:
    """Return the messages in steps: each after all that it waits for."""
    steps = [0] * len(program.messages)
    last: dict[tuple[int, int, int], int] = {}
    turns: list[tuple[int, int, int]] = []
    for turn, index in enumerate(run.order):
        message = program.actions[index].sends
        if message is None:
            continue
        of = program.messages[message]
        link = (of.src, of.dst, of.channel)
        # Messages of one queue pair are counted by step: it must not go back.
        steps[message] = max(
            (steps[other] + 1 for other in run.after[message]),
            default=0,
        )
        steps[message] = max(steps[message], last.get(link, 0))
        last[link] = steps[message]
        turns.append((steps[message], turn, message))
    turns.sort()
    places = {message: place for place, (_, _, message) in enumerate(turns)}
    return ListedAlgorithm(
        name=name,
        op=program.op,
        nranks=program.nranks,
        root=program.root,
        nparts=program.layout.nparts,
        transfers=tuple(
            ListedTransfer(
                step=step,
                src=program.messages[message].src,
                dst=program.messages[message].dst,
                channel=program.messages[message].channel,
                parts=runs_of(value[0] for value in run.loads[message] or () if value),
                reduce=bool(program.actions[run.receiver[message] or 0].reads),
                after=tuple(sorted(places[other] for other in run.after[message])),
            )
            for step, _, message in turns
        ),
    )


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
    """
    everyone = frozenset(range(nranks))
    everything = nranks * per_rank
    inputs, outputs = {
        CollectiveOp.ALL_GATHER: (per_rank, everything),
        CollectiveOp.REDUCE_SCATTER: (everything, per_rank),
        CollectiveOp.ALL_TO_ALL: (everything, everything),
    }.get(op, (per_rank, per_rank))
    before: list[dict[int, int]] = []
    after: list[dict[int, tuple[int, frozenset[int]]]] = []
    names: list[tuple[tuple[int, str], ...]] = []
    slots: list[int] = []
    for rank in range(nranks):
        own = range(rank * per_rank, (rank + 1) * per_rank)
        input_at, output_at, scratch_at = place_buffers(
            op, rank=rank, per_rank=per_rank, nranks=nranks, in_place=in_place
        )
        match op:
            case CollectiveOp.ALL_GATHER:
                has = list(own)
                gets = [
                    (part, frozenset({part // per_rank})) for part in range(everything)
                ]
            case CollectiveOp.REDUCE_SCATTER:
                has = list(range(everything))
                gets = [(part, everyone) for part in own]
            case CollectiveOp.ALL_TO_ALL:
                has = [rank * everything + part for part in range(everything)]
                gets = [
                    (source * everything + part, frozenset({source}))
                    for source in range(nranks)
                    for part in own
                ]
            case CollectiveOp.BROADCAST:
                has = list(range(per_rank)) if rank == root else []
                gets = [(part, frozenset({root})) for part in range(per_rank)]
            case CollectiveOp.REDUCE:
                has = list(range(per_rank))
                gets = [(part, everyone) for part in has] if rank == root else []
            case _:
                has = list(range(per_rank))
                gets = [(part, everyone) for part in has]
        before.append({input_at + place: part for place, part in enumerate(has)})
        after.append({output_at + place: value for place, value in enumerate(gets)})
        slots.append(scratch_at + scratch[rank])
        named = (
            [(min(input_at, output_at), "o" if inputs < outputs else "i")]
            if in_place
            else [(input_at, "i"), (output_at, "o")]
        )
        names.append((*named, (scratch_at, "s")))
    nparts = {
        CollectiveOp.ALL_GATHER: everything,
        CollectiveOp.REDUCE_SCATTER: everything,
        CollectiveOp.ALL_TO_ALL: nranks * everything,
    }.get(op, per_rank)
    return Layout(
        nparts=nparts,
        slots=tuple(slots),
        before=tuple(before),
        after=tuple(after),
        names=tuple(names),
    )


def place_buffers(
    op: CollectiveOp, *, rank: int, per_rank: int, nranks: int, in_place: bool
) -> tuple[int, int, int]:
    """Return the first slots of a rank's input, output and scratch."""
    everything = nranks * per_rank
    if not in_place:
        inputs = per_rank if op == CollectiveOp.ALL_GATHER else everything
        outputs = per_rank if op == CollectiveOp.REDUCE_SCATTER else everything
        if op not in _PARTED:
            inputs = outputs = per_rank
        return 0, inputs, inputs + outputs
    if op == CollectiveOp.ALL_GATHER:
        return rank * per_rank, 0, everything
    if op == CollectiveOp.REDUCE_SCATTER:
        return 0, rank * per_rank, everything
    return 0, 0, everything if op in _PARTED else per_rank


_PARTED = frozenset(
    {
        CollectiveOp.ALL_GATHER,
        CollectiveOp.REDUCE_SCATTER,
        CollectiveOp.ALL_TO_ALL,
    }
)
"""Collectives in which every rank has a part of its own."""

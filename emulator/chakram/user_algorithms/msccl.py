"""Conversion of MSCCL steps to actions on buffers, with matched messages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from chakram.collectives.algorithms.buffer_programs import (
    PARTED,
    BufferProgram,
    Layout,
    layout_of,
)
from chakram.collectives.algorithms.symbolic_execution import Action, Message
from chakram.foundation.errors import ScheduleError
from chakram.user_algorithms.msccl_xml import (
    READ,
    RECEIVE,
    SEND,
    WRITE,
    MscclAlgorithm,
    Step,
    ThreadBlock,
)
from chakram.user_algorithms.send_receive_matching import Links, refuse_unmatched


def program_of(how: MscclAlgorithm, *, root: int = 0) -> BufferProgram:
    """Return the actions of the GPUs, with their messages matched.

    Raises:
        ScheduleError: If steps refer to something that does not exist, a link has
            different numbers of sends and receives, or two thread blocks send or
            receive over the same link.
    """
    nranks = len(how.gpus)
    if how.op in PARTED and how.chunks % nranks:
        raise ScheduleError(
            how.source,
            f"its {how.chunks} chunks do not divide evenly among {nranks} ranks",
            "change nchunksperloop",
        )
    per_rank = how.chunks // nranks if how.op in PARTED else how.chunks
    layout = layout_of(
        how.op,
        nranks=nranks,
        root=root,
        per_rank=per_rank,
        in_place=how.in_place,
        scratch=[gpu.scratch for gpu in how.gpus],
    )
    builder = _Builder(how, layout)
    for rank in range(nranks):
        builder.add_rank(rank)
    refuse_unmatched(how.source, builder.links.counts())
    return BufferProgram(
        op=how.op,
        nranks=nranks,
        root=root,
        layout=layout,
        actions=builder.actions,
        messages=builder.links.messages,
    )


class _Builder:
    """Converter of steps to actions, rank by rank."""

    def __init__(self, how: MscclAlgorithm, layout: Layout) -> None:
        self._how = how
        self._layout = layout
        self.actions: list[Action] = []
        self.links = Links()
        self._blocks: dict[tuple[Message, bool], int] = {}
        # All sends must be known before receives are matched.
        self._sends = {
            (rank, block.number, number): self.links.send(
                self._link(rank, block, step, sends=True)
            )
            for rank, gpu in enumerate(how.gpus)
            for block in gpu.blocks
            for number, step in enumerate(block.steps)
            if step.kind in SEND
        }

    def add_rank(self, rank: int) -> None:
        how = self._how
        blocks = how.gpus[rank].blocks
        row = partial(self._layout.row, rank)
        first: dict[int, tuple[int, int]] = {}
        at = len(self.actions)
        for block in blocks:
            first[block.number] = (at, len(block.steps))
            at += len(block.steps)
        for block in blocks:
            for number, step in enumerate(block.steps):
                where = (
                    f"{how.source}:{step.line}: GPU {rank} tb {block.number} step "
                    f"{number}"
                )
                action = Action(rank=rank, where=where)
                if number:
                    action.after.append(first[block.number][0] + number - 1)
                if step.waits_for is not None:
                    action.after.append(_awaited(step, first, where))
                if step.kind in RECEIVE:
                    link = self._link(rank, block, step, sends=False)
                    action.receives = self.links.receive(link)
                source = (*step.source, step.count)
                destination = (*step.destination, step.count)
                if step.kind in READ:
                    action.reads.append(row(*source, where=where))
                if step.kind == "re":
                    action.reads.append(row(*destination, where=where))
                if step.kind in WRITE:
                    action.writes.append(row(*destination, where=where))
                action.sends = self._sends.get((rank, block.number, number))
                self.actions.append(action)

    def _link(
        self, rank: int, block: ThreadBlock, step: Step, *, sends: bool
    ) -> Message:
        """Return the link of a step.

        Raises:
            ScheduleError: If the peer does not exist, or another thread block uses the
                link in the same direction. The order of messages would be unknown.
        """
        where = f"{self._how.source}:{step.line}"
        peer = block.send if sends else block.receive
        does = "sends to" if sends else "receives from"
        if peer is None or peer == rank or peer >= len(self._how.gpus):
            whom = "no GPU" if peer is None else f"GPU {peer}"
            raise ScheduleError(
                where,
                f"GPU {rank} tb {block.number} {does} {whom}",
                "correct send and recv of the thread block",
            )
        src, dst = (rank, peer) if sends else (peer, rank)
        link = Message(src=src, dst=dst, channel=max(0, block.channel))
        first = self._blocks.setdefault((link, sends), block.number)
        if first != block.number:
            raise ScheduleError(
                where,
                f"GPU {rank} tb {block.number} {does} GPU {peer} on channel "
                f"{link.channel}, as tb {first} does, so the order of their messages "
                "is unknown",
                "move the steps to one thread block, or use another channel",
            )
        return link


def _awaited(step: Step, first: Mapping[int, tuple[int, int]], where: str) -> int:
    block, number = step.waits_for or (0, 0)
    begin, count = first.get(block, (0, 0))
    if number >= count:
        raise ScheduleError(
            where,
            f"waits for step {number} of thread block {block}, which does not exist",
            "correct depid and deps",
        )
    return begin + number

"""What an execution plan of MSCCL++ names: channels, remote buffers, thread blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from chakram.collectives.algorithms.buffers import PARTED
from chakram.collectives.ops import CollectiveOp
from chakram.user_algorithms.naming import MAX_CHUNKS

if TYPE_CHECKING:
    from chakram.user_algorithms.json_fields import Fields


_T = TypeVar("_T")

MAX_NUMBER = 1 << 16
"""Largest number of anything in a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One end of a channel: its rank's *ordinal*-th one of that type to *peer*."""

    rank: int
    peer: int
    kind: str
    ordinal: int

    def other_end(self) -> Channel:
        """Return the end of its peer."""
        return Channel(
            rank=self.peer, peer=self.rank, kind=self.kind, ordinal=self.ordinal
        )


@dataclass(slots=True, kw_only=True)
class Block:
    """A thread block: the channels and remote buffers that its operations name."""

    rank: int
    number: int
    channels: dict[str, list[Channel]]
    remotes: dict[str, list[tuple[int, str]]]
    operations: list[Fields]
    last: int | None = None
    """Its last action."""
    fresh_puts: dict[tuple[int, str], int] = field(default_factory=dict)
    """Landings that a signal may travel with, by peer and type of channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Chunks of a buffer of some rank."""

    rank: int
    buffer: str
    first: int
    count: int
    where: str


def chunks_per_rank(op: CollectiveOp, gpu: Fields, nranks: int) -> int:
    """Return the chunks of each rank's part, or of the whole buffer."""
    inputs = gpu.whole("input_chunks", most=MAX_CHUNKS)
    outputs = gpu.whole("output_chunks", most=MAX_CHUNKS, default=0)
    if op not in PARTED:
        chunks = inputs or outputs
    elif op == CollectiveOp.ALL_GATHER:
        chunks = inputs or outputs // nranks
    else:
        if inputs % nranks:
            gpu.fail(f"{inputs} input chunks are not the same number for each rank")
        chunks = inputs // nranks
    if not chunks:
        gpu.fail("has no chunks", "see input_chunks and output_chunks")
    return chunks


def read_channels(rank: int, gpu: Fields, *, nranks: int) -> dict[str, list[Channel]]:
    """Return the channels of a GPU, by type.

    Raises:
        ScheduleError: If one leads nowhere.
    """
    channels: dict[str, list[Channel]] = {"memory": [], "port": []}
    for each in gpu.objects("channels"):
        kind = channel_type(each)
        for peer in each.wholes("connected_to", most=nranks - 1):
            if peer == rank:
                each.fail("is connected to its own GPU")
            ordinal = sum(other.peer == peer for other in channels[kind])
            channels[kind].append(
                Channel(rank=rank, peer=peer, kind=kind, ordinal=ordinal)
            )
    return channels


def read_blocks(
    rank: int, gpu: Fields, channels: Mapping[str, Sequence[Channel]], *, nranks: int
) -> list[Block]:
    """Return the thread blocks of a GPU that has these *channels*.

    Raises:
        ScheduleError: If they name what is not there.
    """
    remotes = [
        (each.whole("rank", most=nranks - 1), _buffer(each))
        for each in gpu.objects("remote_buffers")
    ]
    blocks = []
    for number, each in enumerate(gpu.objects("threadblocks")):
        block = Block(
            rank=rank,
            number=number,
            channels={"memory": [], "port": []},
            remotes={"memory": [], "port": []},
            operations=list(each.objects("ops")),
        )
        for used in each.objects("channels"):
            kind = channel_type(used)
            for place in used.wholes("channel_ids", most=MAX_NUMBER):
                block.channels[kind].append(_at(used, channels[kind], place))
        for used in each.objects("remote_buffer_refs"):
            kind = channel_type(used, "access_channel_type")
            for place in used.wholes("remote_buffer_ids", most=MAX_NUMBER):
                block.remotes[kind].append(_at(used, remotes, place))
        blocks.append(block)
    return blocks


def channel_type(fields: Fields, name: str = "channel_type") -> str:
    """Return a type of channel, one that joins two ranks.

    Raises:
        ScheduleError: If it is another one.
    """
    kind = fields.text(name)
    if kind not in ("memory", "port"):
        fields.fail(
            f"{name} is {kind[:40]!r}",
            "memory and port channels are transfers between two ranks",
        )
    return kind


def named_channels(block: Block, operation: Fields) -> list[Channel]:
    """Return the channels that an operation names.

    Raises:
        ScheduleError: If its thread block has not so many.
    """
    kind = channel_type(operation)
    return [
        _at(operation, block.channels[kind], place)
        for place in operation.wholes("channel_ids", most=MAX_NUMBER)
    ]


def named_places(block: Block, operation: Fields, name: str) -> list[Place]:
    """Return the chunks that an operation has as its *name*, its own or remote ones.

    Raises:
        ScheduleError: If they are nowhere, or behind a switch.
    """
    places = []
    for each in operation.objects(name):
        if "switch_channel_id" in each:
            each.fail("is behind a switch channel", "multimem is no transfer")
        if "buffer_id" in each:
            number = each.whole("buffer_id", most=MAX_NUMBER)
            rank, buffer = _at(each, block.remotes[channel_type(operation)], number)
        else:
            rank, buffer = block.rank, _buffer(each)
        count = each.whole("size", most=MAX_CHUNKS)
        if not count:
            each.fail("size is 0", "at least 1 chunk")
        places.append(
            Place(
                rank=rank,
                buffer=buffer,
                first=each.whole("index", most=MAX_CHUNKS),
                count=count,
                where=each.where,
            )
        )
    return places


def _buffer(fields: Fields) -> str:
    buffer = fields.text("type")
    if buffer not in ("i", "o", "s"):
        fields.fail(f"type is {buffer[:40]!r}", "i, o or s")
    return buffer


def _at(fields: Fields, items: Sequence[_T], place: int) -> _T:
    if place >= len(items):
        fields.fail(f"names number {place} of {len(items)}")
    return items[place]

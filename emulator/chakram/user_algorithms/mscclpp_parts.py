"""Parts of MSCCL++ execution plans: channels, buffers, blocks, synchronization.

An action's causes are known only once the whole plan is read. The k-th wait is for the
k-th signal, packets are read after they are written, thread blocks meet at barriers,
and semaphores count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from chakram.collectives.algorithms.buffer_programs import PARTED
from chakram.collectives.algorithms.symbolic_execution import Action
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ScheduleError
from chakram.user_algorithms.json_fields import MAX_CHUNKS, Fields

_T = TypeVar("_T")

MAX_NUMBER = 1 << 16
"""Largest identifier in a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One end of a channel: the *ordinal*-th of type *kind* from *rank* to *peer*."""

    rank: int
    peer: int
    kind: str
    ordinal: int

    def other_end(self) -> Channel:
        """Return the end of this channel at the peer."""
        return Channel(
            rank=self.peer, peer=self.rank, kind=self.kind, ordinal=self.ordinal
        )


@dataclass(slots=True, kw_only=True)
class Block:
    """A thread block, with the channels and remote buffers that its operations use."""

    rank: int
    number: int
    channels: dict[str, list[Channel]]
    remotes: dict[str, list[tuple[int, str]]]
    operations: list[Fields]
    last: int | None = None
    """Index of its last action."""
    fresh_puts: dict[tuple[int, str], int] = field(default_factory=dict)
    """Arrivals of puts that may also carry the next signal, by peer and channel
    type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Chunks of a buffer of one rank."""

    rank: int
    buffer: str
    first: int
    count: int
    where: str


def chunks_per_rank(op: CollectiveOp, gpu: Fields, nranks: int) -> int:
    """Return the number of chunks of each rank's part, or of the whole buffer."""
    inputs = gpu.whole("input_chunks", most=MAX_CHUNKS)
    outputs = gpu.whole("output_chunks", most=MAX_CHUNKS, default=0)
    if op not in PARTED:
        chunks = inputs or outputs
    elif op == CollectiveOp.ALL_GATHER:
        chunks = inputs or outputs // nranks
    else:
        if inputs % nranks:
            gpu.fail(f"{inputs} input chunks do not divide evenly among the ranks")
        chunks = inputs // nranks
    if not chunks:
        gpu.fail("has no chunks", "set input_chunks or output_chunks")
    return chunks


def read_channels(rank: int, gpu: Fields, *, nranks: int) -> dict[str, list[Channel]]:
    """Return the channels of a GPU, by type.

    Raises:
        ScheduleError: If a channel does not connect to another GPU.
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
        ScheduleError: If a thread block refers to something that does not exist.
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
    """Return the type of a channel, which must connect two ranks.

    Raises:
        ScheduleError: If channels of this type do not connect two ranks.
    """
    kind = fields.text(name)
    if kind not in ("memory", "port"):
        fields.fail(
            f"{name} is {kind[:40]!r}",
            "use memory and port channels, which are transfers between two ranks",
        )
    return kind


def named_channels(block: Block, operation: Fields) -> list[Channel]:
    """Return the channels to which an operation refers.

    Raises:
        ScheduleError: If the operation's thread block has no such channel.
    """
    kind = channel_type(operation)
    return [
        _at(operation, block.channels[kind], place)
        for place in operation.wholes("channel_ids", most=MAX_NUMBER)
    ]


def named_places(block: Block, operation: Fields, name: str) -> list[Place]:
    """Return the chunks, local or remote, in the field *name* of an operation.

    Raises:
        ScheduleError: If the chunks do not exist or are behind a switch channel.
    """
    places = []
    for each in operation.objects(name):
        if "switch_channel_id" in each:
            each.fail(
                "uses a switch channel",
                "use memory or port channels: multimem is not supported",
            )
        if "buffer_id" in each:
            number = each.whole("buffer_id", most=MAX_NUMBER)
            rank, buffer = _at(each, block.remotes[channel_type(operation)], number)
        else:
            rank, buffer = block.rank, _buffer(each)
        count = each.whole("size", most=MAX_CHUNKS)
        if not count:
            each.fail("size is 0", "use a size of at least 1 chunk")
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
        fields.fail(f"type is {buffer[:40]!r}", "use i, o or s")
    return buffer


def _at(fields: Fields, items: Sequence[_T], place: int) -> _T:
    if place >= len(items):
        fields.fail(f"refers to number {place}, but there are only {len(items)}")
    return items[place]


class Notices:
    """Signals, packets, barriers and semaphores of all GPUs.

    Args:
        gpus: GPUs of the plan, with the initial values of semaphores.
        actions: Actions of all ranks. The methods take indices in this list.
    """

    def __init__(self, gpus: Sequence[Fields], actions: list[Action]) -> None:
        self._actions = actions
        self._signals: dict[Channel, list[int]] = {}
        self._waits: dict[Channel, list[int]] = {}
        self._packets: dict[tuple[int, int], int] = {}
        self._packet_reads: list[tuple[int, int, Sequence[int]]] = []
        self._barriers: dict[tuple[int, int], dict[int, list[tuple[int, int | None]]]]
        self._barriers = {}
        self._releases: dict[tuple[int, int], list[int]] = {}
        self._acquires: dict[tuple[int, int], list[int]] = {}
        self._initial = {
            (rank, number): semaphore.whole("init_value", most=MAX_NUMBER)
            for rank, gpu in enumerate(gpus)
            for number, semaphore in enumerate(gpu.objects("semaphores"))
        }

    def signal(self, channel: Channel, landing: int) -> None:
        """Record that the action *landing* receives a signal on *channel*."""
        self._signals.setdefault(channel, []).append(landing)

    def wait(self, channel: Channel, index: int) -> None:
        """Record that an action waits for the other end of its *channel*."""
        self._waits.setdefault(channel.other_end(), []).append(index)

    def meet(self, block: Block, barrier: int, index: int, before: int | None) -> None:
        """Record that a thread block reaches a barrier after the action *before*."""
        by_block = self._barriers.setdefault((block.rank, barrier), {})
        by_block.setdefault(block.number, []).append((index, before))

    def semaphore(self, block: Block, number: int, index: int, *, gives: bool) -> None:
        """Record that an action releases or acquires a semaphore."""
        table = self._releases if gives else self._acquires
        table.setdefault((block.rank, number), []).append(index)

    def packets_read(self, index: int, rank: int, row: Sequence[int]) -> None:
        """Record that an action reads packets in a row of slots."""
        self._packet_reads.append((index, rank, row))

    def packets_written(
        self, operation: Fields, rank: int, row: Sequence[int], index: int
    ) -> None:
        """Record that an action writes packets to a row of slots.

        Raises:
            ScheduleError: If a slot already has packets.
        """
        for slot in row:
            if self._packets.setdefault((rank, slot), index) != index:
                operation.fail("writes packets where packets already exist")

    def connect(self) -> None:
        """Make every waiting action follow the actions that it waits for.

        Raises:
            ScheduleError: If an action waits for something that never happens.
        """
        self._connect_waits()
        self._connect_packets()
        self._connect_barriers()
        self._connect_semaphores()

    def _connect_waits(self) -> None:
        for channel, waits in self._waits.items():
            signals = self._signals.get(channel, [])
            if len(waits) > len(signals):
                raise ScheduleError(
                    self._actions[waits[len(signals)]].where,
                    f"waits for signal {len(signals)} of GPU {channel.rank} on a "
                    f"{channel.kind} channel, which is never sent",
                    "add the signal at the other end, or remove the wait",
                )
            for wait, signal in zip(waits, signals, strict=False):
                self._actions[wait].after.append(signal)

    def _connect_packets(self) -> None:
        for index, rank, row in self._packet_reads:
            action = self._actions[index]
            for slot in row:
                writer = self._packets.get((rank, slot))
                if writer is None:
                    raise ScheduleError(
                        action.where,
                        "reads packets that are never written",
                        "add an operation that writes them, e.g. ppkt",
                    )
                if writer not in action.after:
                    action.after.append(writer)

    def _connect_barriers(self) -> None:
        for (_, barrier), by_block in self._barriers.items():
            least = min(by_block.values(), key=len)
            most = max(by_block.values(), key=len)
            if len(least) < len(most):
                raise ScheduleError(
                    self._actions[most[len(least)][0]].where,
                    f"its thread block reaches barrier {barrier} {len(most)} times, "
                    f"but another one reaches it {len(least)} times",
                    "let all thread blocks of a barrier reach it equally often",
                )
            for meeting in zip(*by_block.values(), strict=True):
                before = [index for _, index in meeting if index is not None]
                for index, _ in meeting:
                    after = self._actions[index].after
                    after += [each for each in before if each not in after]

    def _connect_semaphores(self) -> None:
        for key, acquires in self._acquires.items():
            releases = self._releases.get(key, [])
            for turn, acquire in enumerate(acquires):
                release = turn - self._initial.get(key, 0)
                if release >= len(releases):
                    raise ScheduleError(
                        self._actions[acquire].where,
                        f"waits for semaphore {key[1]}, which is never released",
                        "add a sem_release, or increase the init_value",
                    )
                if release >= 0:
                    self._actions[acquire].after.append(releases[release])

"""MSCCL++'s execution plans: what the thread blocks of every GPU do, one-sided.

A thread block carries out its operations in order.  What maps to transfers:

    put, pws, pwsf       write to a remote buffer (and signal, and flush)
    signal, rlxsignal    tell the other end of a channel; wait, rlxwait: be told
    get, rre, rres       read from a remote buffer (and add, and put)
    copy, re, res        within the GPU: copy, add (and put)
    ppkt, rppkt          write packets to a remote scratch buffer
    cpkt, upkt, repkt, respkt, recpkt, recspkt
                         the same with packets, which carry their own signal
    barrier              all thread blocks that name it meet
    sem_release, sem_acquire, nop, flush

A put is a message.  The signal after it travels with it; one that follows no put is an
empty message.  A remote read is an empty message that asks and one that answers.
Channels of two GPUs pair up in their order; the k-th wait is for the k-th signal.

Loops over sizes (``pipeline``), thread block groups, and switch channels (multimem) are
refused by name: they are not transfers between two ranks.

Source: microsoft/mscclpp, ``docs/design/mscclpp-dsl-json-file.md`` and the reader
``src/core/executor/execution_plan.cc`` (the keys of 2025: ``channel_type``,
``connected_to``, ``remote_buffers``, ``buffer_id``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from chakram.core.algorithms.buffers import BufferProgram, Layout, layout_of
from chakram.core.algorithms.execution import MAX_ACTIONS, Action, Message
from chakram.core.collectives import CollectiveOp
from chakram.errors import ScheduleError
from chakram.user_algorithms.json_fields import Fields, parse_object
from chakram.user_algorithms.naming import (
    COLLECTIVES,
    MAX_CHUNKS,
    MAX_RANKS,
    PARTED,
    Buffers,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["parse_mscclpp"]

_T = TypeVar("_T")

_MAX_NUMBER = 1 << 16
_PUTS = frozenset({"put", "pws", "pwsf", "ppkt", "rppkt"})
_PAIRS = _PUTS | {"copy", "get", "cpkt", "upkt"}
_SUMS = frozenset({"re", "res", "rre", "rres", "repkt", "respkt", "recpkt", "recspkt"})
_WRITES_PACKETS = frozenset({"ppkt", "rppkt", "cpkt", "respkt", "recpkt", "recspkt"})
_READS_PACKETS = frozenset({"rppkt", "upkt", "repkt", "respkt", "recpkt", "recspkt"})
_SIGNALS = frozenset({"signal", "rlxsignal"})
_WAITS = frozenset({"wait", "rlxwait"})
_IDLE = frozenset({"nop", "flush"})
_OTHERS = frozenset({"barrier", "sem_acquire", "sem_release"})
_KNOWN = _PAIRS | _SUMS | _SIGNALS | _WAITS | _IDLE | _OTHERS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Channel:
    """One end of a channel: its rank's *ordinal*-th one of that type to *peer*."""

    rank: int
    peer: int
    kind: str
    ordinal: int

    def other_end(self) -> _Channel:
        return _Channel(
            rank=self.peer, peer=self.rank, kind=self.kind, ordinal=self.ordinal
        )


@dataclass(slots=True, kw_only=True)
class _Block:
    """A thread block: the channels and remote buffers that its operations name."""

    rank: int
    number: int
    channels: dict[str, list[_Channel]]
    remotes: dict[str, list[tuple[int, str]]]
    operations: list[Fields]
    last: int | None = None
    """Its last action."""
    fresh_puts: dict[tuple[int, str], int] = field(default_factory=dict)
    """Landings that a signal may travel with, by peer and type of channel."""


def parse_mscclpp(text: bytes, *, source: str) -> BufferProgram:
    """Return what the ranks of an execution plan do.

    Raises:
        ScheduleError: If *text* is no execution plan, or has what is no transfer.
    """
    plan = parse_object(text, source=source)
    name = plan.text("collective")
    op = COLLECTIVES.get(name)
    if op is None:
        plan.fail(
            f"is for the collective {name[:40]!r}", f"known: {', '.join(COLLECTIVES)}"
        )
    gpus = list(plan.objects("gpus"))
    if not 2 <= len(gpus) <= MAX_RANKS:
        plan.fail(f"has {len(gpus)} GPUs", f"from 2 to {MAX_RANKS}")
    for rank, gpu in enumerate(gpus):
        if gpu.whole("id", most=MAX_RANKS) != rank:
            gpu.fail(f"is not GPU {rank}", "GPUs stand in the order of their ids")
    return _Builder(op, gpus, in_place=plan.flag("inplace")).build()


def _per_rank(op: CollectiveOp, gpu: Fields, nranks: int) -> int:
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


class _Builder:
    """Turns operations into actions: first what gives notice, then what awaits it."""

    def __init__(
        self, op: CollectiveOp, gpus: Sequence[Fields], *, in_place: bool
    ) -> None:
        self._op = op
        self._nranks = len(gpus)
        self._in_place = in_place
        self._chunks = _per_rank(op, gpus[0], self._nranks)
        self._scratch = [gpu.whole("scratch_chunks", most=MAX_CHUNKS) for gpu in gpus]
        self._temporary = [0] * self._nranks
        self._actions: list[Action] = []
        self._messages: list[Message] = []
        self._last_landing: dict[Message, int] = {}
        self._layout = self._make_layout()
        self._buffers = [self._buffers_of(rank) for rank in range(self._nranks)]
        self._memory_channels: dict[frozenset[int], int] = {}
        self._blocks = [
            block for rank, gpu in enumerate(gpus) for block in self._read(rank, gpu)
        ]
        # What waits finds its cause only when all of it is known.
        self._signals: dict[_Channel, list[int]] = {}
        self._waits: dict[_Channel, list[int]] = {}
        self._packets: dict[tuple[int, int], int] = {}
        self._packet_reads: list[tuple[int, int, Sequence[int]]] = []
        self._barriers: dict[tuple[int, int], dict[int, list[tuple[int, int | None]]]]
        self._barriers = {}
        self._releases: dict[tuple[int, int], list[int]] = {}
        self._acquires: dict[tuple[int, int], list[int]] = {}
        self._initial = {
            (rank, number): semaphore.whole("init_value", most=_MAX_NUMBER)
            for rank, gpu in enumerate(gpus)
            for number, semaphore in enumerate(gpu.objects("semaphores"))
        }

    def build(self) -> BufferProgram:
        for block in self._blocks:
            for operation in block.operations:
                self._add(block, operation)
        self._connect_waits()
        self._connect_packets()
        self._connect_barriers()
        self._connect_semaphores()
        return BufferProgram(
            op=self._op,
            nranks=self._nranks,
            root=0,
            layout=self._make_layout(),
            actions=self._actions,
            messages=self._messages,
        )

    # Reading.

    def _make_layout(self) -> Layout:
        """Return the slots; what remote reads bring lies behind the scratch."""
        scratch = zip(self._scratch, self._temporary, strict=True)
        return layout_of(
            self._op,
            nranks=self._nranks,
            root=0,
            per_rank=self._chunks,
            in_place=self._in_place,
            scratch=[own + temporary for own, temporary in scratch],
        )

    def _buffers_of(self, rank: int) -> Buffers:
        return Buffers(
            self._op,
            self._layout,
            rank=rank,
            per_rank=self._chunks,
            nranks=self._nranks,
            in_place=self._in_place,
        )

    def _read(self, rank: int, gpu: Fields) -> list[_Block]:
        channels: dict[str, list[_Channel]] = {"memory": [], "port": []}
        for each in gpu.objects("channels"):
            kind = self._kind(each, "channel_type")
            for peer in each.wholes("connected_to", most=self._nranks - 1):
                if peer == rank:
                    each.fail("is connected to its own GPU")
                ordinal = sum(other.peer == peer for other in channels[kind])
                channels[kind].append(
                    _Channel(rank=rank, peer=peer, kind=kind, ordinal=ordinal)
                )
                if kind == "memory":
                    pair = frozenset({rank, peer})
                    self._memory_channels[pair] = max(
                        ordinal + 1, self._memory_channels.get(pair, 0)
                    )
        remotes: list[tuple[int, str]] = []
        for each in gpu.objects("remote_buffers"):
            buffer = each.text("type")
            if buffer not in ("i", "o", "s"):
                each.fail(f"type is {buffer[:40]!r}", "i, o or s")
            remotes.append((each.whole("rank", most=self._nranks - 1), buffer))
        blocks = []
        for number, each in enumerate(gpu.objects("threadblocks")):
            block = _Block(
                rank=rank,
                number=number,
                channels={"memory": [], "port": []},
                remotes={"memory": [], "port": []},
                operations=list(each.objects("ops")),
            )
            for used in each.objects("channels"):
                kind = self._kind(used, "channel_type")
                for place in used.wholes("channel_ids", most=_MAX_NUMBER):
                    block.channels[kind].append(_at(used, channels[kind], place))
            for used in each.objects("remote_buffer_refs"):
                kind = self._kind(used, "access_channel_type")
                for place in used.wholes("remote_buffer_ids", most=_MAX_NUMBER):
                    block.remotes[kind].append(_at(used, remotes, place))
            blocks.append(block)
        return blocks

    def _kind(self, fields: Fields, name: str) -> str:
        kind = fields.text(name)
        if kind not in ("memory", "port"):
            fields.fail(
                f"{name} is {kind[:40]!r}",
                "memory and port channels are transfers between two ranks",
            )
        return kind

    # Operations.

    def _add(self, block: _Block, operation: Fields) -> None:
        name = operation.text("name")
        if name not in _KNOWN:
            operation.fail(
                f"operation {name[:40]!r} is no transfer between two ranks",
                "it is left to hardware, or depends on sizes",
            )
        if "tbg_info" in operation:
            operation.fail(
                f"{name} is done by a group of thread blocks",
                "write the algorithm without thread block groups",
            )
        if len(self._actions) > MAX_ACTIONS:
            operation.fail(f"is beyond {MAX_ACTIONS} actions")
        if name in _IDLE:
            return
        if name in _SIGNALS:
            for channel in self._channels(block, operation):
                self._signal(block, operation, channel)
        elif name in _WAITS:
            for channel in self._channels(block, operation):
                index = self._act(block, operation)
                self._waits.setdefault(channel.other_end(), []).append(index)
        elif name == "barrier":
            key = (block.rank, operation.whole("barrier_id", most=_MAX_NUMBER))
            before = block.last
            meeting = self._barriers.setdefault(key, {}).setdefault(block.number, [])
            meeting.append((self._act(block, operation), before))
        elif name in ("sem_acquire", "sem_release"):
            table = self._acquires if name == "sem_acquire" else self._releases
            for number in operation.wholes("semaphore_ids", most=_MAX_NUMBER):
                index = self._act(block, operation)
                table.setdefault((block.rank, number), []).append(index)
        else:
            self._move(block, operation, name)
            return
        if name not in _SIGNALS:
            block.fresh_puts.clear()

    def _move(self, block: _Block, operation: Fields, name: str) -> None:
        sources = self._places(block, operation, "src_buff")
        targets = self._places(block, operation, "dst_buff")
        if not sources or not targets:
            operation.fail(f"{name} has no src_buff, or no dst_buff")
        if name not in _PUTS:
            block.fresh_puts.clear()
        if name in _SUMS:
            self._one(block, operation, name, sources, targets)
            return
        if len(sources) != len(targets):
            if len(sources) > 1:
                operation.fail(
                    f"{name} has {len(sources)} sources and {len(targets)} targets"
                )
            sources = sources * len(targets)
        channels = (
            self._channels(block, operation)
            if "channel_ids" in operation and name in _PUTS
            else []
        )
        for turn, (source, target) in enumerate(zip(sources, targets, strict=True)):
            self._one(block, operation, name, [source], [target])
            if name in ("pws", "pwsf"):
                if turn >= len(channels):
                    operation.fail(f"{name} names no channel to signal on")
                self._signal(block, operation, channels[turn])

    def _one(
        self,
        block: _Block,
        operation: Fields,
        name: str,
        sources: Sequence[_Place],
        targets: Sequence[_Place],
    ) -> None:
        """Add one operation: read, add up, write, put."""
        rank = block.rank
        rows: list[Sequence[int]] = []
        for source in sources:
            if source.rank == rank:
                rows.append(self._row(source))
            else:
                rows.append(self._fetch(block, operation, source))
        index = self._act(block, operation)
        action = self._actions[index]
        action.reads = rows
        if name in _READS_PACKETS:
            for source, row in zip(sources, rows, strict=True):
                if source.buffer == "s":
                    self._packet_reads.append((index, rank, row))
        packets = name in _WRITES_PACKETS
        for target in targets:
            if target.rank == rank:
                row = self._row(target)
                action.writes.append(row)
                if packets and target.buffer == "s":
                    self._note_packets(operation, rank, row, index)
        remote = [target for target in targets if target.rank != rank]
        for turn, target in enumerate(remote):
            if turn:  # an action sends one message only
                index = self._act(block, operation)
                self._actions[index].reads = rows
            link = self._link(block, operation, target)
            landing = self._send(index, operation, link)
            row = self._row(target)
            self._actions[landing].writes.append(row)
            if packets:
                self._note_packets(operation, target.rank, row, landing)
            block.fresh_puts[target.rank, self._kind(operation, "channel_type")] = (
                landing
            )

    def _fetch(self, block: _Block, operation: Fields, source: _Place) -> range:
        """Add the question and the answer of a remote read; return where it lands."""
        link = self._link(block, operation, source)
        served = self._send(self._act(block, operation), operation, link)
        self._actions[served].reads.append(self._row(source))
        back = Message(
            src=link.dst,
            dst=link.src,
            channel=link.channel,
            stream=-1 - link.stream,  # not what a thread block of that rank sends
        )
        landing = self._send(served, operation, back)
        first = self._layout.slots[block.rank] + self._temporary[block.rank]
        row = range(first, first + source.count)
        self._temporary[block.rank] += source.count
        self._actions[landing].writes.append(row)
        # The thread block goes on when the answer is there.
        self._actions[self._act(block, operation)].after.append(landing)
        return row

    def _signal(self, block: _Block, operation: Fields, channel: _Channel) -> None:
        landing = block.fresh_puts.pop((channel.peer, channel.kind), None)
        if landing is None:
            link = self._message(block, channel.peer, self._number(channel))
            landing = self._send(self._act(block, operation), operation, link)
        self._signals.setdefault(channel, []).append(landing)

    def _act(self, block: _Block, operation: Fields) -> int:
        """Add the next action of a thread block."""
        self._actions.append(
            Action(
                rank=block.rank,
                where=operation.where,
                after=[] if block.last is None else [block.last],
            )
        )
        block.last = len(self._actions) - 1
        return block.last

    def _send(self, index: int, operation: Fields, link: Message) -> int:
        """Let an action send a message; return the action of its landing."""
        self._actions[index].sends = len(self._messages)
        self._actions.append(
            Action(
                rank=link.dst,
                where=f"{operation.where} (arrival)",
                receives=len(self._messages),
            )
        )
        self._messages.append(link)
        landing = len(self._actions) - 1
        # A queue pair delivers a thread block's messages in order.
        before = self._last_landing.get(link)
        if before is not None:
            self._actions[landing].after.append(before)
        self._last_landing[link] = landing
        return landing

    # What waits.

    def _connect_waits(self) -> None:
        for channel, waits in self._waits.items():
            signals = self._signals.get(channel, [])
            if len(waits) > len(signals):
                raise ScheduleError(
                    self._actions[waits[len(signals)]].where,
                    f"waits for signal {len(signals)} of GPU {channel.rank} on a "
                    f"{channel.kind} channel, which is never given",
                )
            for wait, signal in zip(waits, signals, strict=False):
                self._actions[wait].after.append(signal)

    def _note_packets(
        self, operation: Fields, rank: int, row: Sequence[int], index: int
    ) -> None:
        for slot in row:
            if self._packets.setdefault((rank, slot), index) != index:
                operation.fail("writes packets where there are some already")

    def _connect_packets(self) -> None:
        for index, rank, row in self._packet_reads:
            action = self._actions[index]
            for slot in row:
                writer = self._packets.get((rank, slot))
                if writer is None:
                    raise ScheduleError(
                        action.where, "reads packets that nobody writes"
                    )
                if writer not in action.after:
                    action.after.append(writer)

    def _connect_barriers(self) -> None:
        for by_block in self._barriers.values():
            for meeting in zip(*by_block.values(), strict=False):
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
                    )
                if release >= 0:
                    self._actions[acquire].after.append(releases[release])

    # Names.

    def _channels(self, block: _Block, operation: Fields) -> list[_Channel]:
        kind = self._kind(operation, "channel_type")
        return [
            _at(operation, block.channels[kind], place)
            for place in operation.wholes("channel_ids", most=_MAX_NUMBER)
        ]

    def _places(self, block: _Block, operation: Fields, name: str) -> list[_Place]:
        places = []
        for each in operation.objects(name):
            if "switch_channel_id" in each:
                each.fail("is behind a switch channel", "multimem is no transfer")
            if "buffer_id" in each:
                kind = self._kind(operation, "channel_type")
                number = each.whole("buffer_id", most=_MAX_NUMBER)
                rank, buffer = _at(each, block.remotes[kind], number)
            else:
                rank, buffer = block.rank, each.text("type")
                if buffer not in ("i", "o", "s"):
                    each.fail(f"type is {buffer[:40]!r}", "i, o or s")
            count = each.whole("size", most=MAX_CHUNKS)
            if not count:
                each.fail("size is 0", "at least 1 chunk")
            places.append(
                _Place(
                    rank=rank,
                    buffer=buffer,
                    first=each.whole("index", most=MAX_CHUNKS),
                    count=count,
                    where=each.where,
                )
            )
        return places

    def _row(self, place: _Place) -> range:
        return self._buffers[place.rank].row(
            (place.buffer, place.first, place.count), place.where
        )

    def _link(self, block: _Block, operation: Fields, place: _Place) -> Message:
        """Return the way to a remote place: the first channel that leads there."""
        kind = self._kind(operation, "channel_type")
        if place.rank == block.rank:
            operation.fail("names a remote buffer of its own GPU")
        named = self._channels(block, operation) if "channel_ids" in operation else []
        for channel in [*named, *block.channels[kind]]:
            if channel.peer == place.rank:
                return self._message(block, place.rank, self._number(channel))
        return self._message(block, place.rank, 0)

    def _message(self, block: _Block, peer: int, channel: int) -> Message:
        """Return the way over which the messages of a thread block go in order."""
        return Message(src=block.rank, dst=peer, channel=channel, stream=block.number)

    def _number(self, channel: _Channel) -> int:
        if channel.kind == "memory":
            return channel.ordinal
        pair = frozenset({channel.rank, channel.peer})
        return self._memory_channels.get(pair, 0) + channel.ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Chunks of a buffer of some rank."""

    rank: int
    buffer: str
    first: int
    count: int
    where: str


def _at(fields: Fields, items: Sequence[_T], place: int) -> _T:
    if place >= len(items):
        fields.fail(f"names number {place} of {len(items)}")
    return items[place]

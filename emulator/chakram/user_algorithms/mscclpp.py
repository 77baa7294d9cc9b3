"""Parser of MSCCL++ execution plans: one-sided operations of thread blocks.

A thread block executes its operations in order. These operations map to transfers:

    put, pws, pwsf       write to a remote buffer (and signal, and flush)
    signal, rlxsignal    signal to the other end of a channel
    wait, rlxwait        wait for a signal from the other end of a channel
    get, rre, rres       read from a remote buffer (and add, and put)
    copy, re, res        within the GPU: copy, add (and put)
    ppkt, rppkt          write packets to a remote scratch buffer
    cpkt, upkt, repkt, respkt, recpkt, recspkt
                         the same with packets, which carry their own signal
    barrier              synchronize all thread blocks that name it
    sem_release, sem_acquire, nop, flush

A put is a message. A signal that follows a put is part of its message. Any other signal
is an empty message. A remote read is an empty request message and a response. Channels
between two GPUs are paired in their order, and the k-th wait is for the k-th signal.

Loops over sizes (``pipeline``), thread block groups, and switch channels (multimem) are
not transfers between two ranks. The parser rejects them.

Source: microsoft/mscclpp, ``docs/design/mscclpp-dsl-json-file.md`` and the reader
``src/core/executor/execution_plan.cc`` (the keys of 2025: ``channel_type``,
``connected_to``, ``remote_buffers``, ``buffer_id``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chakram.collectives.algorithms.buffer_programs import (
    BufferProgram,
    Layout,
    layout_of,
)
from chakram.collectives.algorithms.symbolic_execution import (
    MAX_ACTIONS,
    Action,
    Message,
)
from chakram.collectives.ops import CollectiveOp
from chakram.user_algorithms.json_fields import (
    COLLECTIVES,
    MAX_CHUNKS,
    MAX_RANKS,
    Fields,
    parse_object,
)
from chakram.user_algorithms.mscclpp_parts import (
    MAX_NUMBER,
    Block,
    Channel,
    Notices,
    Place,
    channel_type,
    chunks_per_rank,
    named_channels,
    named_places,
    read_blocks,
    read_channels,
)

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


def parse_mscclpp(text: bytes, *, source: str) -> BufferProgram:
    """Return the actions of the ranks of an execution plan.

    Raises:
        ScheduleError: If *text* is not an execution plan, or has operations that are
            not transfers.
    """
    plan = parse_object(text, source=source)
    name = plan.text("collective")
    op = COLLECTIVES.get(name)
    if op is None:
        plan.fail(
            f"is for the collective {name[:40]!r}",
            f"choose from {', '.join(COLLECTIVES)}",
        )
    gpus = list(plan.objects("gpus"))
    if not 2 <= len(gpus) <= MAX_RANKS:
        plan.fail(f"has {len(gpus)} GPUs", f"use 2 to {MAX_RANKS} GPUs")
    for rank, gpu in enumerate(gpus):
        if gpu.whole("id", most=MAX_RANKS) != rank:
            gpu.fail(f"is not GPU {rank}", "list the GPUs in the order of their ids")
    return _Builder(op, gpus, in_place=plan.flag("inplace")).build()


class _Builder:
    """Converter of operations to actions. It connects waits to the awaited actions."""

    def __init__(
        self, op: CollectiveOp, gpus: Sequence[Fields], *, in_place: bool
    ) -> None:
        self._op = op
        self._nranks = len(gpus)
        self._in_place = in_place
        self._chunks = chunks_per_rank(op, gpus[0], self._nranks)
        self._scratch = [gpu.whole("scratch_chunks", most=MAX_CHUNKS) for gpu in gpus]
        self._temporary = [0] * self._nranks
        self._actions: list[Action] = []
        self._messages: list[Message] = []
        self._last_landing: dict[Message, int] = {}
        self._layout = self._make_layout()
        channels = [
            read_channels(rank, gpu, nranks=self._nranks)
            for rank, gpu in enumerate(gpus)
        ]
        self._memory_channels = _memory_channels(channels)
        self._blocks = [
            block
            for rank, gpu in enumerate(gpus)
            for block in read_blocks(rank, gpu, channels[rank], nranks=self._nranks)
        ]
        self._notices = Notices(gpus, self._actions)

    def build(self) -> BufferProgram:
        for block in self._blocks:
            for operation in block.operations:
                self._add(block, operation)
        self._notices.connect()
        return BufferProgram(
            op=self._op,
            nranks=self._nranks,
            root=0,
            layout=self._make_layout(),
            actions=self._actions,
            messages=self._messages,
        )

    # Layout.

    def _make_layout(self) -> Layout:
        """Return the slots. The data of remote reads follows the scratch buffer."""
        scratch = zip(self._scratch, self._temporary, strict=True)
        return layout_of(
            self._op,
            nranks=self._nranks,
            root=0,
            per_rank=self._chunks,
            in_place=self._in_place,
            scratch=[own + temporary for own, temporary in scratch],
        )

    # Operations.

    def _add(self, block: Block, operation: Fields) -> None:
        name = operation.text("name")
        if name not in _KNOWN:
            operation.fail(
                f"operation {name[:40]!r} is not a transfer between two ranks",
                "use only such transfers; operations in hardware or that depend on "
                "sizes are not supported",
            )
        if "tbg_info" in operation:
            operation.fail(
                f"{name} uses a group of thread blocks",
                "write the algorithm without thread block groups",
            )
        if len(self._actions) > MAX_ACTIONS:
            operation.fail(f"exceeds {MAX_ACTIONS} actions")
        if name in _IDLE:
            return
        if name in _SIGNALS:
            for channel in named_channels(block, operation):
                self._signal(block, operation, channel)
        elif name in _WAITS:
            for channel in named_channels(block, operation):
                index = self._act(block, operation)
                self._notices.wait(channel, index)
        elif name == "barrier":
            barrier = operation.whole("barrier_id", most=MAX_NUMBER)
            before = block.last
            index = self._act(block, operation)
            self._notices.meet(block, barrier, index, before)
        elif name in ("sem_acquire", "sem_release"):
            for number in operation.wholes("semaphore_ids", most=MAX_NUMBER):
                index = self._act(block, operation)
                self._notices.semaphore(
                    block, number, index, gives=name == "sem_release"
                )
        else:
            self._move(block, operation, name)
            return
        if name not in _SIGNALS:
            block.fresh_puts.clear()

    def _move(self, block: Block, operation: Fields, name: str) -> None:
        sources = named_places(block, operation, "src_buff")
        targets = named_places(block, operation, "dst_buff")
        if not sources or not targets:
            operation.fail(f"{name} has no src_buff or no dst_buff")
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
            named_channels(block, operation)
            if "channel_ids" in operation and name in _PUTS
            else []
        )
        for turn, (source, target) in enumerate(zip(sources, targets, strict=True)):
            self._one(block, operation, name, [source], [target])
            if name in ("pws", "pwsf"):
                if turn >= len(channels):
                    operation.fail(f"{name} has no channel to signal on")
                self._signal(block, operation, channels[turn])

    def _one(
        self,
        block: Block,
        operation: Fields,
        name: str,
        sources: Sequence[Place],
        targets: Sequence[Place],
    ) -> None:
        """Add one operation: read, add, write, put."""
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
                    self._notices.packets_read(index, rank, row)
        packets = name in _WRITES_PACKETS
        for target in targets:
            if target.rank == rank:
                row = self._row(target)
                action.writes.append(row)
                if packets and target.buffer == "s":
                    self._notices.packets_written(operation, rank, row, index)
        remote = [target for target in targets if target.rank != rank]
        for turn, target in enumerate(remote):
            if turn:  # an action sends only one message
                index = self._act(block, operation)
                self._actions[index].reads = rows
            link = self._link(block, operation, target)
            landing = self._send(index, operation, link)
            row = self._row(target)
            self._actions[landing].writes.append(row)
            if packets:
                self._notices.packets_written(operation, target.rank, row, landing)
            block.fresh_puts[target.rank, channel_type(operation)] = landing

    def _fetch(self, block: Block, operation: Fields, source: Place) -> range:
        """Add request and response of a remote read, and return the row of the data."""
        link = self._link(block, operation, source)
        served = self._send(self._act(block, operation), operation, link)
        self._actions[served].reads.append(self._row(source))
        back = Message(
            src=link.dst,
            dst=link.src,
            channel=link.channel,
            stream=-1 - link.stream,  # not a stream of that rank's thread blocks
        )
        landing = self._send(served, operation, back)
        first = self._layout.slots(block.rank) + self._temporary[block.rank]
        row = range(first, first + source.count)
        self._temporary[block.rank] += source.count
        self._actions[landing].writes.append(row)
        # The thread block continues when the response has arrived.
        self._actions[self._act(block, operation)].after.append(landing)
        return row

    def _signal(self, block: Block, operation: Fields, channel: Channel) -> None:
        landing = block.fresh_puts.pop((channel.peer, channel.kind), None)
        if landing is None:
            link = self._message(block, channel.peer, self._number(channel))
            landing = self._send(self._act(block, operation), operation, link)
        self._notices.signal(channel, landing)

    def _act(self, block: Block, operation: Fields) -> int:
        """Append the next action of a thread block."""
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
        """Make an action send a message, and return the action that receives it."""
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
        # A queue pair delivers the messages of a thread block in order.
        before = self._last_landing.get(link)
        if before is not None:
            self._actions[landing].after.append(before)
        self._last_landing[link] = landing
        return landing

    # Rows and links.

    def _row(self, place: Place) -> range:
        return self._layout.row(
            place.rank, place.buffer, place.first, place.count, where=place.where
        )

    def _link(self, block: Block, operation: Fields, place: Place) -> Message:
        """Return the link to a remote place: the first channel that leads there."""
        kind = channel_type(operation)
        if place.rank == block.rank:
            operation.fail("names a buffer of the same GPU as remote")
        named = named_channels(block, operation) if "channel_ids" in operation else []
        for channel in [*named, *block.channels[kind]]:
            if channel.peer == place.rank:
                return self._message(block, place.rank, self._number(channel))
        return self._message(block, place.rank, 0)

    def _message(self, block: Block, peer: int, channel: int) -> Message:
        """Return the link that keeps the messages of a thread block in order."""
        return Message(src=block.rank, dst=peer, channel=channel, stream=block.number)

    def _number(self, channel: Channel) -> int:
        if channel.kind == "memory":
            return channel.ordinal
        pair = frozenset({channel.rank, channel.peer})
        return self._memory_channels.get(pair, 0) + channel.ordinal


def _memory_channels(
    channels: Sequence[Mapping[str, Sequence[Channel]]],
) -> dict[frozenset[int], int]:
    """Return the number of memory channels between each pair of GPUs."""
    counts: dict[frozenset[int], int] = {}
    for of_rank in channels:
        for channel in of_rank["memory"]:
            pair = frozenset({channel.rank, channel.peer})
            counts[pair] = max(channel.ordinal + 1, counts.get(pair, 0))
    return counts

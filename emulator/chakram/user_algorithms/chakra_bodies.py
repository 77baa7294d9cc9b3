"""Bodies of collectives as Chakra traces: one file per position of the group.

ASTRA-sim calls these custom collectives. A file has sends, receives and computation
with dependencies. Peers are positions, and the tag is the channel. For each (source,
destination, tag), the k-th send matches the k-th receive, in the order of dependencies.

There are two formats. Newer files state which chunks a message carries
(``msg_chunk_idx``, ``msg_chunk_cnt``, ``total_chunk_cnt``) and whether the receiver
adds them (``is_rrc``). These are executed chunk by chunk. Older files have no chunks.
They state bytes (``comm_size``), which are the same for collectives of any size.
``chakram.user_algorithms.chakra_bodies`` checks such files as far as possible.

Checks of algorithms whose messages have sizes but no known content.

The buffer size for which such an algorithm was written is unknown. The bytes that it
moves give an upper bound on that size (``chakram.program.least_bytes``). An algorithm
that fails these checks at the bound is wrong for every size:

* Data must be able to reach every rank that must get it.
* Every rank that must send or receive data does so.
* No message has more bytes than its source can have when it sends. A source has its own
  input and the bytes that it received before. In a reduction, it has at most one
  buffer.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from pathlib import Path

from chakram.chakra.et_codec import (
    AttributeValue,
    NodeType,
    attribute_values,
    decode_metadata,
    decode_node,
)
from chakram.chakra.read.framing import read_records
from chakram.collectives.algorithms.buffer_programs import (
    PARTED,
    BufferProgram,
    layout_of,
)
from chakram.collectives.algorithms.symbolic_execution import (
    MAX_ACTIONS,
    Action,
    Execution,
    Message,
)
from chakram.collectives.algorithms.transfer_lists import (
    ListedAlgorithm,
    ListedTransfer,
)
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import ScheduleError
from chakram.program.least_bytes import (
    largest_input_bytes,
    least_shares,
    moved_bytes,
)
from chakram.trace.graph_index import topological_order
from chakram.user_algorithms.file_errors import (
    Links,
    read_algorithm_file,
    refuse_problems,
    refuse_unmatched,
)
from chakram.user_algorithms.json_fields import (
    COLLECTIVES,
    MAX_CHANNELS,
    MAX_CHUNKS,
    MAX_RANKS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraBodies:
    """The files of one algorithm.

    Attributes:
        source: Name of the files, for errors.
        op: Collective that the files state; None if they state none.
        nodes: Nodes by position; dependencies are indices in the same list.
        nchunks: Chunks of the buffer; None if messages have bytes.
    """

    source: str
    op: CollectiveOp | None
    nodes: tuple[tuple[BodyNode, ...], ...]
    nchunks: int | None

    @property
    def nranks(self) -> int:
        """Number of ranks that a group must have."""
        return len(self.nodes)

    def program(self, op: CollectiveOp) -> BufferProgram:
        """Return the actions of all ranks on chunks, as the collective *op*.

        Raises:
            ScheduleError: If the chunks do not divide evenly, or the files do not fit
                together.
        """
        nchunks = self.nchunks or 0
        if op in PARTED and nchunks % self.nranks:
            raise ScheduleError(
                self.source,
                f"its {nchunks} chunks do not divide evenly among {self.nranks} ranks",
            )
        actions, messages = self._actions()
        return BufferProgram(
            op=op,
            nranks=self.nranks,
            root=0,
            layout=layout_of(
                op,
                nranks=self.nranks,
                root=0,
                per_rank=nchunks // self.nranks if op in PARTED else nchunks,
                in_place=True,
                scratch=[0] * self.nranks,
            ),
            actions=actions,
            messages=messages,
        )

    def listed_bytes(
        self, op: CollectiveOp, *, name: str, root: int, size_scale: Fraction
    ) -> ListedAlgorithm:
        """Return the list of messages, with their bytes.

        Raises:
            ScheduleError: If the messages cannot implement the collective *op*.
        """
        actions, messages = self._actions()
        sizes = self._sizes(messages)
        flow = ByteFlow(
            nranks=self.nranks, actions=actions, messages=messages, sizes=sizes
        )
        flow.execute()
        if not flow.problems:
            flow.compare(op, root)
        refuse_problems(f"{name} as {op}", flow.problems)
        return flow.listed(
            [
                ListedTransfer(
                    step=0,
                    src=message.src,
                    dst=message.dst,
                    nbytes=-(
                        -sizes[number] * size_scale.numerator // size_scale.denominator
                    ),
                )
                for number, message in enumerate(messages)
            ],
            name=name,
            op=op,
            root=root,
            nparts=self.nranks,
        )

    def _actions(self) -> tuple[list[Action], list[Message]]:
        """Return the actions of the nodes, with sends and receives matched."""
        links = Links()
        orders = [_dependency_order(self.source, nodes) for nodes in self.nodes]
        sends: dict[tuple[int, int], int] = {}
        for rank, order in enumerate(orders):
            for place in order:
                node = self.nodes[rank][place]
                if node.sends and node.peer is not None:
                    link = Message(src=rank, dst=node.peer, channel=node.channel)
                    sends[rank, place] = links.send(link)
        actions: list[Action] = []
        for rank, order in enumerate(orders):
            index_of = {place: len(actions) + at for at, place in enumerate(order)}
            for place in order:
                node = self.nodes[rank][place]
                action = Action(
                    rank=rank,
                    where=node.where,
                    after=[index_of[each] for each in node.after],
                    sends=sends.get((rank, place)),
                )
                row = [node.chunks] if node.chunks is not None else []
                if node.sends:
                    action.reads += row
                elif node.peer is not None:
                    link = Message(src=node.peer, dst=rank, channel=node.channel)
                    action.receives = links.receive(link)
                    action.reads += row if node.adds else []
                    action.writes += row
                actions.append(action)
        refuse_unmatched(self.source, links.counts())
        return actions, links.messages

    def _sizes(self, messages: Sequence[Message]) -> list[int]:
        """Return the bytes of every message; both ends must agree on them."""
        sizes: list[list[int]] = []
        for sending in (True, False):
            by_link: dict[Message, list[int]] = {}
            for rank, nodes in enumerate(self.nodes):
                for place in _dependency_order(self.source, nodes):
                    node = nodes[place]
                    if node.peer is None or node.sends != sending:
                        continue
                    src, dst = (rank, node.peer) if sending else (node.peer, rank)
                    link = Message(src=src, dst=dst, channel=node.channel)
                    by_link.setdefault(link, []).append(node.nbytes or 0)
            turns = {link: iter(found) for link, found in by_link.items()}
            sizes.append([next(turns[message]) for message in messages])
        for message, sent, received in zip(messages, *sizes, strict=True):
            if sent != received:
                raise ScheduleError(
                    self.source,
                    f"a message from {message.src} to {message.dst} has {sent} bytes "
                    f"at its source and {received} at its destination",
                )
        return sizes[0]


def _dependency_order(source: str, nodes: Sequence[BodyNode]) -> Sequence[int]:
    """Return the indices of nodes in the order of dependencies."""
    after = [each for node in nodes for each in node.after]
    ends = accumulate((len(node.after) for node in nodes), initial=0)
    order, _ = topological_order(
        array("Q", range(len(nodes))), array("i", after), array("q", ends)
    )
    if len(order) < len(nodes):
        raise ScheduleError(source, "its dependencies form a cycle")
    return order


def read_bodies(path: Path) -> ChakraBodies:
    """Return the algorithm in files in the folder *path*, or with the prefix *path*.

    Raises:
        ScheduleError: If there are no such files, or they are not the body of a
            collective.
        TraceError: If a file is not a Chakra trace.
    """
    files = body_files(path)
    ops: set[CollectiveOp] = set()
    nodes: list[tuple[BodyNode, ...]] = []
    for file in files:
        op, found = read_body(file, len(files))
        if op is not None:
            ops.add(op)
        nodes.append(found)
    if len(ops) > 1:
        raise ScheduleError(
            str(path),
            f"its files are for {' and '.join(sorted(ops))}",
            "use the files of one set",
        )
    counts = Counter(
        node.nchunks for of_rank in nodes for node in of_rank if node.peer is not None
    )
    if len(counts) > 1:
        raise ScheduleError(
            str(path),
            "its messages are parts of "
            + " and of ".join(str(count or "no") for count in sorted(counts))
            + " chunks",
            "use the same total_chunk_cnt for all",
        )
    nchunks = next(iter(counts), 0)
    return ChakraBodies(
        source=path.name,
        op=next(iter(ops), None),
        nodes=tuple(nodes),
        nchunks=nchunks or None,
    )


_SUMS = (CollectiveOp.ALL_REDUCE, CollectiveOp.REDUCE, CollectiveOp.REDUCE_SCATTER)
_FROM_ROOT = (CollectiveOp.BROADCAST, CollectiveOp.SCATTER)
_TO_ROOT = (CollectiveOp.REDUCE, CollectiveOp.GATHER)


class ByteFlow(Execution):
    """Executes actions whose messages may carry any data of their source.

    Args:
        nranks: Number of ranks of the group.
        actions: Actions of the ranks.
        messages: Messages between the ranks.
        sizes: Bytes of every message.
    """

    def __init__(
        self,
        *,
        nranks: int,
        actions: Sequence[Action],
        messages: Sequence[Message],
        sizes: Sequence[int],
    ) -> None:
        super().__init__(nranks=nranks, actions=actions, messages=messages)
        self._sizes = sizes
        self._known: dict[int, int] = {}
        self._loads = [0] * len(messages)
        self._heard = [1 << rank for rank in range(nranks)]
        # By action: the messages that its rank has received before, as a bit set of
        # their numbers at the rank, and their total bytes.
        self._got: dict[int, tuple[int, int]] = {}
        self._numbers: dict[int, int] = {}
        self._sizes_at: list[list[int]] = [[] for _ in range(nranks)]
        self._had_bytes = [0] * len(messages)

    def act(self, index: int, action: Action, causes: int) -> None:
        """Record whose data, and how many bytes, the rank may have after the action."""
        known = 1 << action.rank
        for earlier in action.after:
            known |= self._known[earlier]
        got, nbytes = self._got_before(action)
        if action.receives is not None:
            known |= self._loads[action.receives]
            at_rank = self._sizes_at[action.rank]
            got |= 1 << len(at_rank)
            at_rank.append(self._sizes[action.receives])
            nbytes += at_rank[-1]
        if action.sends is not None:
            self._loads[action.sends] = known
            self._had_bytes[action.sends] = nbytes
        self._known[index] = known
        self._got[index] = (got, nbytes)
        self._heard[action.rank] |= known

    def _got_before(self, action: Action) -> tuple[int, int]:
        """Return the messages received before this action, and their bytes."""
        before = sorted(
            (self._got[earlier] for earlier in action.after),
            key=lambda each: each[1],
            reverse=True,
        )
        got, nbytes = before[0] if before else (0, 0)
        for other, _ in before[1:]:
            new = other & ~got
            got |= other
            while new:
                last = new & -new
                nbytes += self._sizes_at[action.rank][last.bit_length() - 1]
                new ^= last
        return got, nbytes

    def compare(self, op: CollectiveOp, root: int) -> None:
        """Compare possible data flow and bytes with the requirements of *op*."""
        for rank, heard in enumerate(self._heard):
            if op in _FROM_ROOT:
                wanted = [root]
            elif op in _TO_ROOT and rank != root:
                wanted = []
            elif op == CollectiveOp.SEND_RECV:
                wanted = [(rank - 1) % self._nranks]
            else:
                wanted = list(range(self._nranks))
            missing = [other for other in wanted if not heard >> other & 1]
            if missing:
                self.say(f"no data of rank {missing[0]} can reach rank {rank}")
        if not self.problems:
            self._compare_bytes(op, root)

    def _compare_bytes(self, op: CollectiveOp, root: int) -> None:
        ends = ((message.src, message.dst) for message in self._messages)
        sent, received = moved_bytes(ends, self._sizes, nranks=self._nranks)
        for rank in range(self._nranks):
            shares = least_shares(op, position=rank, nranks=self._nranks, root=root)
            moved = (("sends", sent[rank]), ("receives", received[rank]))
            for share, (does, nbytes) in zip(shares, moved, strict=True):
                if share and not nbytes:
                    self.say(
                        f"rank {rank} {does} no bytes, but must "
                        f"{'send' if does == 'sends' else 'receive'} some"
                    )
        if self.problems:
            return
        largest = largest_input_bytes(op, root=root, sent=sent, received=received)
        if largest is not None:
            self._compare_messages(op, root, largest)

    def _compare_messages(self, op: CollectiveOp, root: int, largest: int) -> None:
        """Find messages with more bytes than their source can have."""
        for number, message in enumerate(self._messages):
            own = 0 if op in _FROM_ROOT and message.src != root else largest
            had = 0 if op in _SUMS else self._had_bytes[number]
            if self._sizes[number] <= own + had:
                continue
            sender = self._sender[number]
            where = "" if sender is None else f"{self._actions[sender].where}: "
            can = (
                f"its messages allow a buffer of at most {largest} bytes"
                if own
                else "it starts without data"
            )
            self.say(
                f"{where}rank {message.src} sends {self._sizes[number]} bytes, but can "
                f"have only {own + had} at that point: {can}"
                + (f"; it has received {had} bytes" if op not in _SUMS else "")
            )


_FILE = re.compile(r"(.*)\.([0-9]{1,6})\.et")
_MAX_BYTES = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyNode:
    """One node of a file; *peer* is None if it neither sends nor receives."""

    where: str
    after: tuple[int, ...]
    sends: bool = False
    peer: int | None = None
    channel: int = 0
    nbytes: int | None = None
    chunks: range | None = None
    nchunks: int = 0
    adds: bool = False


def body_files(path: Path) -> list[Path]:
    """Return the files of all positions, in the folder *path* or with that prefix.

    Raises:
        ScheduleError: If there is not exactly one complete set of files.
    """
    folder, prefix = (path, None) if path.is_dir() else (path.parent, path.name)
    found: dict[str, dict[int, Path]] = {}
    try:
        for file in folder.iterdir():
            named = _FILE.fullmatch(file.name)
            if named and prefix in (None, named[1]):
                found.setdefault(named[1], {})[int(named[2])] = file
    except OSError as error:
        raise ScheduleError(
            str(path),
            f"cannot be read: {error.strerror}",
            "give a path relative to the folder of the experiment file",
        ) from error
    if len(found) != 1:
        raise ScheduleError(
            str(path),
            f"contains {len(found) or 'no'} sets of files PREFIX.POSITION.et",
            "name a folder with one set, or folder/PREFIX",
        )
    (by_position,) = found.values()
    count = len(by_position)
    if not 2 <= count <= MAX_RANKS or sorted(by_position) != list(range(count)):
        raise ScheduleError(
            str(path),
            f"has files for {count} positions, but not for each of 0 to {count - 1}",
            f"add one file per position of the group, 2 to {MAX_RANKS} in total",
        )
    return [by_position[position] for position in range(count)]


def read_body(
    file: Path, nranks: int
) -> tuple[CollectiveOp | None, tuple[BodyNode, ...]]:
    """Return the nodes of a file, and the collective that it states, if any.

    Raises:
        ScheduleError: If it is not the body of a collective of *nranks* ranks.
        TraceError: If it is not a Chakra trace.
    """
    raw = []
    op = None
    records = read_records([read_algorithm_file(file)], source=file.name)
    for place, (offset, body) in enumerate(records):
        where = f"{file.name}: offset {offset}"
        if place == 0:
            name = decode_metadata(body, where).attributes.get("collective")
            op = COLLECTIVES.get(str(name))
            if name is not None and op is None:
                raise ScheduleError(
                    where,
                    f"is for the collective {str(name)[:40]!r}",
                    f"choose from {', '.join(COLLECTIVES)}",
                )
            continue
        if place > MAX_ACTIONS:
            raise ScheduleError(where, f"has more than {MAX_ACTIONS} nodes")
        raw.append(decode_node(body, where))
    places = {node.id: place for place, node in enumerate(raw)}
    nodes = []
    for node in raw:
        where = f"{file.name}: node {node.id}"
        edges = [*node.data_deps, *node.ctrl_deps]
        missing = [each for each in edges if each not in places]
        if missing:
            raise ScheduleError(
                where, f"depends on node {missing[0]}, which does not exist"
            )
        after = tuple(dict.fromkeys(places[each] for each in edges))
        values = attribute_values(node.attr, where)
        kind = int(node.type)  # the stub's type for it is opaque
        if kind in (NodeType.COMM_SEND, NodeType.COMM_RECV):
            sends = kind == NodeType.COMM_SEND
            nodes.append(_message(where, after, values, sends=sends, nranks=nranks))
        elif kind == NodeType.COMM_COLL:
            raise ScheduleError(
                where,
                "is a collective",
                "use only sends, receives and computation in the body of a collective",
            )
        else:
            nodes.append(BodyNode(where=where, after=after))
    return op, tuple(nodes)


def _message(
    where: str,
    after: tuple[int, ...],
    values: Mapping[str, AttributeValue],
    *,
    sends: bool,
    nranks: int,
) -> BodyNode:
    def number(name: str, most: int, default: int | None = None) -> int:
        value = values.get(name, default)
        if not isinstance(value, int) or not 0 <= value <= most:
            raise ScheduleError(
                where, f"{name} is {value!r}", f"use a number from 0 to {most}"
            )
        return value

    peer = number("comm_dst" if sends else "comm_src", nranks - 1)
    node = BodyNode(
        where=where,
        after=after,
        sends=sends,
        peer=peer,
        channel=number("comm_tag", MAX_CHANNELS - 1, 0),
    )
    if "total_chunk_cnt" not in values:
        return replace(node, nbytes=number("comm_size", _MAX_BYTES))
    total = number("total_chunk_cnt", MAX_CHUNKS)
    first = number("msg_chunk_idx", MAX_CHUNKS)
    count = number("msg_chunk_cnt", MAX_CHUNKS)
    if first + count > total or not count:
        raise ScheduleError(
            where,
            f"carries chunks {first} to {first + count - 1}, but there are {total}",
        )
    return replace(
        node,
        chunks=range(first, first + count),
        nchunks=total,
        adds=bool(values.get("is_rrc", False)),
    )

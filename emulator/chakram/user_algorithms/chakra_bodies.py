"""Bodies of collectives as Chakra traces: one file per position of the group.

ASTRA-sim calls them custom collectives.  A file has sends, receives and computation
with dependencies; peers are positions, the tag is the channel, and of equal (source,
destination, tag) the k-th send is the k-th receive, in the order of dependencies.

Two forms are met.  Newer files say which chunks of how many a message carries
(``msg_chunk_idx``, ``msg_chunk_cnt``, ``total_chunk_cnt``) and whether the receiver
adds them (``is_rrc``): these are carried out chunk by chunk.  Older ones say bytes
(``comm_size``), which are the same for collectives of any size, and not which chunk.
Of these can be checked only that they come to an end, and that everybody may have heard
of those whose data he must get.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from chakram.chakra.framing import read_records
from chakram.chakra.messages import (
    NodeType,
    attribute_values,
    decode_metadata,
    decode_node,
)
from chakram.core.algorithms.buffers import BufferProgram, layout_of
from chakram.core.algorithms.execution import (
    MAX_ACTIONS,
    Action,
    Execution,
    Message,
)
from chakram.core.algorithms.listed import ListedTransfer
from chakram.core.collectives import CollectiveOp
from chakram.errors import ScheduleError
from chakram.user_algorithms.bounded import read_bounded
from chakram.user_algorithms.links import Links, refuse_unmatched
from chakram.user_algorithms.naming import (
    COLLECTIVES,
    MAX_CHANNELS,
    MAX_CHUNKS,
    MAX_RANKS,
    PARTED,
)
from chakram.user_algorithms.refusal import refuse_problems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction
    from pathlib import Path

    from chakram.chakra.messages import AttributeValue
    from chakram.core.algorithms.listed import ListedAlgorithm

__all__ = ["ChakraBodies", "read_bodies"]

_FILE = re.compile(r"(.*)\.([0-9]{1,6})\.et")
_MAX_BYTES = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """One node of a file; *peer* is None where it neither sends nor receives."""

    where: str
    after: tuple[int, ...]
    sends: bool = False
    peer: int | None = None
    channel: int = 0
    nbytes: int | None = None
    chunks: range | None = None
    nchunks: int = 0
    adds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraBodies:
    """The files of one algorithm.

    Attributes:
        source: What they are called.
        op: The collective that they say they are; None if they do not say.
        nodes: By position, its nodes; dependencies are places in the list.
        nchunks: Chunks of the buffer; None where messages have bytes.
    """

    source: str
    op: CollectiveOp | None
    nodes: tuple[tuple[_Node, ...], ...]
    nchunks: int | None

    @property
    def nranks(self) -> int:
        """How many ranks a group must have."""
        return len(self.nodes)

    def program(self, op: CollectiveOp) -> BufferProgram:
        """Return what all ranks do with the chunks, as the collective *op*.

        Raises:
            ScheduleError: If they have bytes instead, or do not fit together.
        """
        nchunks = self.nchunks or 0
        if op in PARTED and nchunks % self.nranks:
            raise ScheduleError(
                self.source,
                f"its {nchunks} chunks are not the same number for each of "
                f"{self.nranks} ranks",
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
        """Return the list of messages that have bytes.

        Raises:
            ScheduleError: If they cannot be the collective *op*.
        """
        actions, messages = self._actions()
        flow = _FlowExecution(actions=actions, messages=messages, nranks=self.nranks)
        flow.execute()
        if not flow.problems:
            flow.compare(op, root)
        refuse_problems(f"{name} as {op}", flow.problems)
        sizes = self._sizes(messages)
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
        """Return what the nodes do, with sends and receives matched."""
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
        """Return the bytes of every message, of which both ends must agree."""
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


class _FlowExecution(Execution):
    """Executes messages that may carry anything that their source has."""

    def __init__(
        self, *, nranks: int, actions: Sequence[Action], messages: Sequence[Message]
    ) -> None:
        super().__init__(nranks=nranks, actions=actions, messages=messages)
        self._known: dict[int, int] = {}
        self._loads = [0] * len(messages)
        self._heard = [1 << rank for rank in range(nranks)]

    def act(self, index: int, action: Action, causes: int) -> None:
        """Take note of whose data the action's rank may have by then."""
        known = 1 << action.rank
        for earlier in action.after:
            known |= self._known[earlier]
        if action.receives is not None:
            known |= self._loads[action.receives]
        if action.sends is not None:
            self._loads[action.sends] = known
        self._known[index] = known
        self._heard[action.rank] |= known

    def compare(self, op: CollectiveOp, root: int) -> None:
        """Compare who may have heard of whom with what the collective promises."""
        for rank, heard in enumerate(self._heard):
            if op in (CollectiveOp.BROADCAST, CollectiveOp.SCATTER):
                wanted = [root]
            elif op in (CollectiveOp.REDUCE, CollectiveOp.GATHER) and rank != root:
                wanted = []
            else:
                wanted = list(range(self._nranks))
            missing = [other for other in wanted if not heard >> other & 1]
            if missing:
                self.say(f"nothing of rank {missing[0]} can have reached rank {rank}")


def _dependency_order(source: str, nodes: Sequence[_Node]) -> list[int]:
    """Return the places of nodes, each after those that it depends on."""
    waits = [len(node.after) for node in nodes]
    followers: list[list[int]] = [[] for _ in nodes]
    for place, node in enumerate(nodes):
        for earlier in node.after:
            followers[earlier].append(place)
    ready = [place for place, count in enumerate(waits) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        place = heappop(ready)
        order.append(place)
        for follower in followers[place]:
            waits[follower] -= 1
            if not waits[follower]:
                heappush(ready, follower)
    if len(order) < len(nodes):
        raise ScheduleError(source, "its dependencies form a cycle")
    return order


def read_bodies(path: Path) -> ChakraBodies:
    """Return the algorithm whose files are in the folder *path*, or begin with it.

    Raises:
        ScheduleError: If there are none, or they are not the body of a collective.
        TraceError: If one is no Chakra trace.
    """
    files = _files(path)
    ops: set[CollectiveOp] = set()
    nodes: list[tuple[_Node, ...]] = []
    for file in files:
        op, found = _read_file(file, len(files))
        if op is not None:
            ops.add(op)
        nodes.append(found)
    if len(ops) > 1:
        raise ScheduleError(
            str(path), f"its files are of {' and '.join(sorted(ops))}", "take one set"
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
            "all must have the same total_chunk_cnt",
        )
    nchunks = next(iter(counts), 0)
    return ChakraBodies(
        source=path.name,
        op=next(iter(ops), None),
        nodes=tuple(nodes),
        nchunks=nchunks or None,
    )


def _files(path: Path) -> list[Path]:
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
            "the path starts at the folder of the experiment file",
        ) from error
    if len(found) != 1:
        raise ScheduleError(
            str(path),
            f"holds {len(found) or 'no'} sets of files PREFIX.POSITION.et",
            "name a folder with one set, or folder/PREFIX",
        )
    (by_position,) = found.values()
    count = len(by_position)
    if not 2 <= count <= MAX_RANKS or sorted(by_position) != list(range(count)):
        raise ScheduleError(
            str(path),
            f"has files for {count} positions, not all from 0 to {count - 1}",
            f"every position of the group needs one, 2 to {MAX_RANKS} in all",
        )
    return [by_position[position] for position in range(count)]


def _read_file(
    file: Path, nranks: int
) -> tuple[CollectiveOp | None, tuple[_Node, ...]]:
    raw = []
    op = None
    records = read_records([read_bounded(file)], source=file.name)
    for place, (offset, body) in enumerate(records):
        where = f"{file.name}: offset {offset}"
        if place == 0:
            name = decode_metadata(body, where).attributes.get("collective")
            op = COLLECTIVES.get(str(name))
            if name is not None and op is None:
                raise ScheduleError(
                    where,
                    f"is for the collective {str(name)[:40]!r}",
                    f"known: {', '.join(COLLECTIVES)}",
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
                where, f"depends on node {missing[0]}, which is not there"
            )
        after = tuple(dict.fromkeys(places[each] for each in edges))
        values = attribute_values(node.attr)
        kind = int(node.type)  # the stub's type for it is opaque
        if kind in (NodeType.COMM_SEND, NodeType.COMM_RECV):
            sends = kind == NodeType.COMM_SEND
            nodes.append(_message(where, after, values, sends=sends, nranks=nranks))
        elif kind == NodeType.COMM_COLL:
            raise ScheduleError(
                where,
                "is a collective",
                "the body of one has sends, receives and computation",
            )
        else:
            nodes.append(_Node(where=where, after=after))
    return op, tuple(nodes)


def _message(
    where: str,
    after: tuple[int, ...],
    values: Mapping[str, AttributeValue],
    *,
    sends: bool,
    nranks: int,
) -> _Node:
    def number(name: str, most: int, default: int | None = None) -> int:
        value = values.get(name, default)
        if not isinstance(value, int) or not 0 <= value <= most:
            raise ScheduleError(where, f"{name} is {value!r}", f"from 0 to {most}")
        return value

    peer = number("comm_dst" if sends else "comm_src", nranks - 1)
    channel = number("comm_tag", MAX_CHANNELS - 1, 0)
    if "total_chunk_cnt" not in values:
        return _Node(
            where=where,
            after=after,
            sends=sends,
            peer=peer,
            channel=channel,
            nbytes=number("comm_size", _MAX_BYTES),
        )
    total = number("total_chunk_cnt", MAX_CHUNKS)
    first = number("msg_chunk_idx", MAX_CHUNKS)
    count = number("msg_chunk_cnt", MAX_CHUNKS)
    if first + count > total or not count:
        raise ScheduleError(
            where, f"carries chunks {first} to {first + count - 1} of {total}"
        )
    return _Node(
        where=where,
        after=after,
        sends=sends,
        peer=peer,
        channel=channel,
        chunks=range(first, first + count),
        nchunks=total,
        adds=bool(values.get("is_rrc", False)),
    )

"""Bodies of collectives as Chakra traces: one file per position of the group.

ASTRA-sim calls these custom collectives. A file has sends, receives and computation
with dependencies. Peers are positions, and the tag is the channel. For each (source,
destination, tag), the k-th send matches the k-th receive, in the order of dependencies.

There are two formats. Newer files state which chunks a message carries
(``msg_chunk_idx``, ``msg_chunk_cnt``, ``total_chunk_cnt``) and whether the receiver
adds them (``is_rrc``). Chakram executes these files chunk by chunk. Older files have no
chunks. They state bytes (``comm_size``), which are the same for collectives of any
size. ``chakram.user_algorithms.byte_count_checks`` checks such files as far as
possible.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.collectives.algorithms.buffer_programs import (
    PARTED,
    BufferProgram,
    layout_of,
)
from chakram.collectives.algorithms.symbolic_execution import Action, Message
from chakram.collectives.algorithms.transfer_lists import (
    ListedAlgorithm,
    ListedTransfer,
)
from chakram.foundation.errors import ScheduleError
from chakram.trace.graph_index import topological_order
from chakram.user_algorithms.byte_count_checks import ByteFlow
from chakram.user_algorithms.chakra_body_reader import BodyNode, body_files, read_body
from chakram.user_algorithms.json_fields import COLLECTIVES
from chakram.user_algorithms.send_receive_matching import (
    Links,
    refuse_problems,
    refuse_unmatched,
)

if TYPE_CHECKING:
    from chakram.collectives.ops import CollectiveOp


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraBodies:
    """The files of one algorithm.

    Attributes:
        source: Name of the files, for error messages.
        op: Collective that the files state, or None if no file states one.
        nodes: Nodes by position. Their dependencies are indices in the list of that
            position.
        nchunks: Number of chunks in the buffer, or None if the files state bytes
            instead.
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
        """Return the actions on chunks that implement the collective *op* on all ranks.

        Raises:
            ScheduleError: If chunks have no meaning in this collective, do not divide
                evenly, or the files do not fit together.
        """
        if op not in COLLECTIVES.values():
            raise ScheduleError(
                self.source,
                f"states chunks (total_chunk_cnt), which have no meaning for a {op}",
                "state the bytes of every message instead (comm_size)",
            )
        nchunks = self.nchunks or 0
        if op in PARTED and nchunks % self.nranks:
            raise ScheduleError(
                self.source,
                f"its {nchunks} chunks do not divide evenly among {self.nranks} ranks",
                f"use a multiple of {self.nranks} as total_chunk_cnt",
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
        """Return the transfer list, for files that state bytes instead of chunks.

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
        orders = [
            _dependency_order(self.source, rank, nodes)
            for rank, nodes in enumerate(self.nodes)
        ]
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
        """Return the size of every message, on which both of its ends must agree."""
        sizes: list[list[int]] = []
        for sending in (True, False):
            by_link: dict[Message, list[int]] = {}
            for rank, nodes in enumerate(self.nodes):
                for place in _dependency_order(self.source, rank, nodes):
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
                    "state the same comm_size at both ends",
                )
        return sizes[0]


def _dependency_order(
    source: str, position: int, nodes: Sequence[BodyNode]
) -> Sequence[int]:
    """Return the indices of a position's nodes in the order of dependencies."""
    after = [each for node in nodes for each in node.after]
    ends = accumulate((len(node.after) for node in nodes), initial=0)
    order, _ = topological_order(
        array("Q", range(len(nodes))), array("i", after), array("q", ends)
    )
    if len(order) < len(nodes):
        raise ScheduleError(
            f"{source}: position {position}",
            "its dependencies form a cycle",
            "remove one of the dependencies of the cycle",
        )
    return order


def read_bodies(path: Path) -> ChakraBodies:
    """Return the algorithm in the files of folder *path*, or with the prefix *path*.

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

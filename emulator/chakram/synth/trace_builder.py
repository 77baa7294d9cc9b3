"""One rank's nodes as they are made up, and the set that all ranks make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from chakram.collectives.ops import ROOTED, CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.node import NodeKind

if TYPE_CHECKING:
    from chakram.collectives.groups import ProcessGroup
    from chakram.trace.graph import TraceGraph

After: TypeAlias = tuple[int, ...]
"""Ids of nodes that something waits for."""

MAX_NODES = 20_000_000
"""Nodes of a set, of all ranks: more would not fit a controller."""


class GroupDescription(NamedTuple):
    """A process group and what it is for."""

    group: ProcessGroup
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """A trace set that can be made, rank by rank.

    Attributes:
        kind: What kind of trace it is; its files begin with that.
        nranks: Number of ranks.
        groups: The groups that nodes name.
        purposes: What a group is for, by its name.
        graph_of: Makes the trace of one rank; the same each time.
    """

    kind: str
    nranks: int
    groups: tuple[ProcessGroup, ...]
    purposes: Mapping[str, str] = field(default_factory=dict)
    graph_of: Callable[[int], TraceGraph]
    _groups_of: dict[int, list[ProcessGroup]] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        for group in self.groups:
            for rank in group.ranks:
                self._groups_of.setdefault(rank, []).append(group)

    def descriptions_of(self, rank: int) -> list[GroupDescription]:
        """Return the groups that *rank* is in, and what they are for."""
        return [
            GroupDescription(group, self.purposes.get(group.name, ""))
            for group in self._groups_of.get(rank, ())
        ]

    @property
    def producer(self) -> str:
        """What the metadata of its files says of their origin."""
        return f"chakram synth {self.kind}"

    def graphs(self) -> Iterator[TraceGraph]:
        """Make the traces of all ranks, one at a time."""
        return map(self.graph_of, range(self.nranks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """How long operations take: as long as the slower of computing and memory.

    Attributes:
        peak_flops: Operations per second.
        memory_bytes_per_s: Bytes per second; None: memory is never slower.
    """

    peak_flops: int
    memory_bytes_per_s: int | None = None

    def duration_ns(self, *, ops: int, touched_bytes: int) -> int:
        """Return the time in whole microseconds, at least one.

        A trace file stores microseconds.
        """
        micros = ops * 10**6 / self.peak_flops
        if self.memory_bytes_per_s is not None:
            micros = max(micros, touched_bytes * 10**6 / self.memory_bytes_per_s)
        return max(1, round(micros)) * 1_000


class RankSynthesizer:
    """Adds the nodes of one rank; every method returns what the next waits for.

    Args:
        kind: Kind of the trace set.
        rank: The rank.
        roofline: How long computation takes.
    """

    def __init__(self, kind: str, rank: int, roofline: Roofline) -> None:
        self.rank = rank
        self._roofline = roofline
        self._builder = TraceGraphBuilder(rank=rank, source=f"synth:{kind}.{rank}")

    def compute(
        self,
        name: str,
        after: After,
        *,
        ops: int = 0,
        touched_bytes: int = 0,
        duration_ns: int | None = None,
        stream: int | None = None,
    ) -> After:
        """Add a computation; *duration_ns* replaces what the roofline gives."""
        if duration_ns is None:
            duration_ns = self._roofline.duration_ns(
                ops=ops, touched_bytes=touched_bytes
            )
        return self._add(
            NodeKind.COMPUTE,
            name,
            after,
            duration_ns=duration_ns,
            num_ops=ops,
            tensor_bytes=touched_bytes,
            stream=stream,
        )

    def collective(
        self,
        name: str,
        after: After,
        op: CollectiveOp,
        *,
        group: str | None,
        input_bytes: int,
        root: int = 0,
    ) -> After:
        """Add a collective of *group*; none if there is no group or nothing to send.

        The *root* is a place in the group; the first rank, if not said, as readers
        take it that know no roots.
        """
        if group is None or not (input_bytes or op is CollectiveOp.BARRIER):
            return after
        return self._add(
            NodeKind.COLLECTIVE,
            name,
            after,
            op=op,
            comm_bytes=input_bytes,
            group=group,
            root=root if op in ROOTED else None,
        )

    def uneven_all_to_all(
        self,
        name: str,
        after: After,
        *,
        group: str | None,
        sent: tuple[int, ...],
        received: tuple[int, ...],
    ) -> After:
        """Add an all-to-all with bytes to, and from, every position of *group*."""
        if group is None:
            return after
        return self._add(
            NodeKind.COLLECTIVE,
            name,
            after,
            op=CollectiveOp.ALL_TO_ALL,
            comm_bytes=sum(sent),
            group=group,
            splits=Splits(sent, received),
        )

    def send(
        self, name: str, after: After, *, to: int, size_bytes: int, tag: int = 0
    ) -> After:
        """Add a message to rank *to*."""
        return self._add(
            NodeKind.SEND, name, after, peer=to, comm_bytes=size_bytes, tag=tag
        )

    def receive(
        self, name: str, after: After, *, source: int, size_bytes: int, tag: int = 0
    ) -> After:
        """Add a message from rank *source*."""
        return self._add(
            NodeKind.RECEIVE, name, after, peer=source, comm_bytes=size_bytes, tag=tag
        )

    def _add(self, kind: NodeKind, name: str, after: After, **columns: Any) -> After:
        node_id = len(self._builder)
        self._builder.add(
            node_id=node_id, kind=kind, name=name, dependencies=after, **columns
        )
        return (node_id,)

    def graph(self) -> TraceGraph:
        """Return what was added; an empty file would look like a broken one."""
        if not len(self._builder):
            self.compute("idle", (), duration_ns=0)
        return self._builder.build()


def both(*waits: Sequence[int]) -> After:
    """Return all of several waits, each node once."""
    return tuple(dict.fromkeys(node for wait in waits for node in wait))

"""Builder of the nodes of one rank, and the trace set of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from chakram.collectives.groups import GroupDescription, ProcessGroup
from chakram.collectives.ops import ROOTED, CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.foundation.errors import ConfigError
from chakram.foundation.units import LONGEST_TIME_NS, exact_time, format_time
from chakram.trace.alike_ranks import AlikeRanks
from chakram.trace.builder import TraceGraphBuilder
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind

After: TypeAlias = tuple[int, ...]
"""IDs of nodes for which another node waits."""

MAX_NODES = 20_000_000
"""Maximum number of nodes in a set, so that it fits in the memory of a controller.

Ranks that do the same work count once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """A trace set that can be generated rank by rank.

    Attributes:
        kind: Kind of trace. The names of its files begin with this text.
        nranks: Number of ranks.
        groups: The process groups of the collectives.
        purposes: Purpose of each group, by name.
        graph_of: Function that returns the trace of one rank, always the same one.
        alike: Classes of ranks with the same work, if they are known.
    """

    kind: str
    nranks: int
    groups: tuple[ProcessGroup, ...]
    purposes: Mapping[str, str] = field(default_factory=dict)
    graph_of: Callable[[int], TraceGraph]
    alike: AlikeRanks | None = None
    _groups_of: dict[int, list[ProcessGroup]] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        for group in self.groups:
            for rank in group.ranks:
                self._groups_of.setdefault(rank, []).append(group)

    def descriptions_of(self, rank: int) -> list[GroupDescription]:
        """Return the groups of *rank*, with their purposes."""
        return [
            GroupDescription(group, self.purposes.get(group.name, ""))
            for group in self._groups_of.get(rank, ())
        ]

    @property
    def producer(self) -> str:
        """Name of the producer in the metadata of the trace files."""
        return f"chakram synth {self.kind}"

    def graphs(self) -> Iterator[TraceGraph]:
        """Yield the traces of all ranks, one at a time."""
        return map(self.graph_of, range(self.nranks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Durations of operations: the longer of compute time and memory time.

    Attributes:
        peak_flops: Operations per second.
        memory_bytes_per_s: Bytes per second. None means that memory is never the limit.
    """

    peak_flops: int
    memory_bytes_per_s: int | None = None

    def duration_ns(self, *, ops: int, touched_bytes: int) -> int:
        """Return the duration, rounded to whole microseconds and at least 1 us.

        Trace files store microseconds.
        """
        micros = ops * 10**6 / self.peak_flops
        if self.memory_bytes_per_s is not None:
            micros = max(micros, touched_bytes * 10**6 / self.memory_bytes_per_s)
        return max(1, round(micros)) * 1_000


class RankSynthesizer:
    """Builder of one rank's nodes.

    The methods return the node IDs for which the next node waits.

    Args:
        kind: Kind of the trace set.
        rank: The rank.
        roofline: Durations of computation.
    """

    def __init__(self, kind: str, rank: int, roofline: Roofline) -> None:
        self.rank = rank
        self._kind = kind
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
        """Add a computation. *duration_ns* overrides the roofline.

        Raises:
            ConfigError: If it takes longer than a trace allows.
        """
        if duration_ns is None:
            duration_ns = self._roofline.duration_ns(
                ops=ops, touched_bytes=touched_bytes
            )
            if duration_ns > LONGEST_TIME_NS:
                raise ConfigError(
                    f"{self._kind}: peak",
                    f"{name} would take {format_time(duration_ns)}",
                    "raise peak and memory, or reduce the model: a computation takes "
                    f"at most {exact_time(LONGEST_TIME_NS)}",
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
        """Add a collective, if there is a *group* and something to send.

        *root* is a position in the group. The default is the first rank, which readers
        without support for roots assume.
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

    def barrier(self, name: str, after: After, group: str) -> After:
        """Add a barrier of a group."""
        op = CollectiveOp.BARRIER
        return self.collective(name, after, op, group=group, input_bytes=0)

    def uneven_all_to_all(
        self,
        name: str,
        after: After,
        *,
        group: str | None,
        sent: tuple[int, ...],
        received: tuple[int, ...],
    ) -> After:
        """Add an all-to-all with given bytes to and from every position of *group*."""
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
        """Add a send to rank *to*."""
        return self._add(
            NodeKind.SEND, name, after, peer=to, comm_bytes=size_bytes, tag=tag
        )

    def receive(
        self, name: str, after: After, *, source: int, size_bytes: int, tag: int = 0
    ) -> After:
        """Add a receive from rank *source*."""
        return self._add(
            NodeKind.RECEIVE, name, after, peer=source, comm_bytes=size_bytes, tag=tag
        )

    def _add(self, kind: NodeKind, name: str, after: After, **columns: Any) -> After:
        node_id = len(self._builder)
        try:
            self._builder.add(
                node_id=node_id, kind=kind, name=name, dependencies=after, **columns
            )
        except OverflowError:
            raise ConfigError(
                self._kind,
                f"{name} has 2^63 operations or bytes, or more",
                "reduce the model, or its tokens",
            ) from None
        return (node_id,)

    def graph(self) -> TraceGraph:
        """Return the trace. An idle rank gets one node without duration.

        A file without nodes would look broken.
        """
        if not len(self._builder):
            self.compute("idle", (), duration_ns=0)
        return self._builder.build()


def both(*waits: Sequence[int]) -> After:
    """Return the union of several sets of nodes to wait for."""
    return tuple(dict.fromkeys(node for wait in waits for node in wait))

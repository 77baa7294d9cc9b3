"""Column storage for the operations of a rank, used from lowering to replay.

Most columns have one number of fixed width per row. Ranks with the same work can differ
in process groups, peers and splits. Columns refer to these by place: the index in a
list that belongs to the rank. Therefore, many ranks can share the same columns.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from chakram.collectives.ops import CollectiveOp
from chakram.trace.nullable_columns import NO_VALUE

if TYPE_CHECKING:
    Column: TypeAlias = array[int]


COMPUTE, COLLECTIVE, SEND, RECEIVE = range(4)
"""Values of ``kinds``."""

NO_SPLITS = 2**32 - 1
"""Value of the column ``splits`` for a collective without splits."""


class CollectiveUse(NamedTuple):
    """Network use of a collective. ``group`` and ``splits`` are places.

    ``number`` is set only for a collective with splits, because no two collectives
    share splits. For all other collectives, ``number`` is None.
    """

    group: int
    op: CollectiveOp
    algorithm: str
    root: int
    input_bytes: int
    trace_bytes: int
    splits: int | None
    number: int | None


class MessageUse(NamedTuple):
    """A sent point-to-point message. ``peer`` is a place."""

    peer: int
    size_bytes: int
    trace_bytes: int


@dataclass(frozen=True, kw_only=True)
class OperationColumns:
    """The operations of a program, which are read-only and shared between ranks.

    Attributes:
        kinds: ``COMPUTE``, ``COLLECTIVE``, ``SEND`` or ``RECEIVE``.
        node_ids: Node IDs of the trace, unsigned 64-bit. They are meaningless for rows
            in ``without_node``.
        without_node: Rows without a node.
        names: All names in UTF-8, concatenated.
        name_ends: End of each row's name in *names*.
        dependencies: Dependencies of all rows, concatenated, as row numbers.
        dependency_ends: End of each row's dependencies in *dependencies*.
        amounts: Duration of a computation in nanoseconds, or the size of a collective
            or message in this run, in bytes.
        trace_bytes: The size before ``size_scale``, or 0 for computations.
        targets: Place of a collective's group or of a message's peer.
        numbers: Number of a collective in its group, or of a message between two ranks.
        details: Stream of a computation (``NO_VALUE``: the rank's default stream), root
            of a collective, or tag of a message.
        algorithms: Algorithms of collectives, as places in *all_algorithms*.
        starts_ns: Recorded start times, or ``NO_VALUE``. Empty if no row has a start
            time.
        splits: Splits of collectives, as places, or ``NO_SPLITS``. Empty if no row has
            splits.
        all_algorithms: Pairs of operation and algorithm.
    """

    kinds: bytes
    node_ids: Column
    names: bytes
    name_ends: Column
    dependencies: Column
    dependency_ends: Column
    amounts: Column
    trace_bytes: Column
    targets: Column
    numbers: Column
    details: Column
    algorithms: Column
    all_algorithms: tuple[tuple[CollectiveOp, str], ...]
    starts_ns: Column = field(default_factory=lambda: array("q"))
    splits: Column = field(default_factory=lambda: array("I"))
    without_node: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.kinds)

    def dependencies_of(self, row: int) -> Sequence[int]:
        """Return the rows that a row depends on."""
        begin = self.dependency_ends[row - 1] if row else 0
        return self.dependencies[begin : self.dependency_ends[row]]

    def name(self, row: int) -> str:
        """Return the name of a row."""
        begin = self.name_ends[row - 1] if row else 0
        return self.names[begin : self.name_ends[row]].decode("utf-8", "surrogatepass")

    def node_id(self, row: int) -> int | None:
        """Return the node ID of a row, or None."""
        return None if row in self.without_node else self.node_ids[row]

    def start_ns(self, row: int) -> int | None:
        """Return the recorded start time of a row, or None."""
        start_ns = self.starts_ns[row] if self.starts_ns else NO_VALUE
        return None if start_ns == NO_VALUE else start_ns

    def split(self, row: int) -> int | None:
        """Return the place of the splits of a collective, or None."""
        place = self.splits[row] if self.splits else NO_SPLITS
        return None if place == NO_SPLITS else place

    def rows_of(self, *kinds: int) -> list[int]:
        """Return the rows of the given kinds, ascending."""
        return [row for row, kind in enumerate(self.kinds) if kind in kinds]

    @cached_property
    def collective_uses(self) -> Mapping[CollectiveUse, int]:
        """Network uses of collectives with their counts, in order of appearance."""
        uses: Counter[CollectiveUse] = Counter()
        for row in self.rows_of(COLLECTIVE):
            op, algorithm = self.all_algorithms[self.algorithms[row]]
            splits = self.split(row)
            uses[
                CollectiveUse(
                    self.targets[row],
                    op,
                    algorithm,
                    self.details[row],
                    self.amounts[row],
                    self.trace_bytes[row],
                    splits,
                    None if splits is None else self.numbers[row],
                )
            ] += 1
        return uses

    @cached_property
    def message_uses(self) -> Mapping[MessageUse, int]:
        """Sent messages with their counts, in order of appearance."""
        return Counter(
            MessageUse(self.targets[row], self.amounts[row], self.trace_bytes[row])
            for row in self.rows_of(SEND)
        )

    @cached_property
    def compute_ns(self) -> int:
        """Total duration of all computations."""
        return sum(self.amounts[row] for row in self.rows_of(COMPUTE))

    @property
    def is_idle(self) -> bool:
        """Whether there is no communication, and no computation that takes time."""
        return set(self.kinds) <= {COMPUTE} and not self.compute_ns


_MOST = 2**63 - 1
"""Value stored for larger numbers. It exceeds every limit, so a check reports it."""


class ColumnWriter:
    """Builder of columns: call ``begin`` for a row, then ``row`` or ``collective``.

    Attributes:
        kinds: As in ``OperationColumns``.
        dependencies: As in ``OperationColumns``.
    """

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.dependencies = array("I")
        self._node_ids = array("Q")
        self._without_node: list[int] = []
        self._names = bytearray()
        self._name_ends = array("I")
        self._dependency_ends = array("I")
        self._starts_ns = array("q")
        self._amounts = array("q")
        self._trace_bytes = array("q")
        self._targets = array("I")
        self._numbers = array("I")
        self._details = array("q")
        self._algorithms = array("I")
        self._splits = array("I")
        self._all_algorithms: dict[tuple[CollectiveOp, str], int] = {}
        self._has_starts = self._has_splits = False

    def begin(
        self,
        node_id: int | None,
        name: bytes,
        dependencies: Sequence[int],
        start_ns: int | None,
    ) -> None:
        """Begin a row, with the properties that all operations have."""
        if node_id is None:
            self._without_node.append(len(self.kinds))
        self._node_ids.append(node_id or 0)
        self._names += name
        self._name_ends.append(len(self._names))
        self.dependencies.extend(dependencies)
        self._dependency_ends.append(len(self.dependencies))
        self._has_starts = self._has_starts or start_ns is not None
        self._starts_ns.append(NO_VALUE if start_ns is None else min(start_ns, _MOST))

    def collective(
        self,
        place: int,
        number: int,
        how: tuple[CollectiveOp, str],
        input_bytes: int,
        trace_bytes: int,
        root: int,
        splits: int,
    ) -> None:
        """Complete the row of a collective."""
        self.row(COLLECTIVE, input_bytes, trace_bytes, place, number, root)
        known = self._all_algorithms
        self._algorithms[-1] = known.setdefault(how, len(known))
        self._splits[-1] = splits
        self._has_splits = self._has_splits or splits != NO_SPLITS

    def row(
        self,
        kind: int,
        amount: int,
        trace_bytes: int,
        target: int,
        number: int,
        detail: int,
    ) -> None:
        """Complete a row of any other kind, with values as in ``OperationColumns``."""
        self.kinds.append(kind)
        self._amounts.append(min(amount, _MOST))
        self._trace_bytes.append(min(trace_bytes, _MOST))
        self._targets.append(target)
        self._numbers.append(number)
        self._details.append(detail)
        self._algorithms.append(0)
        self._splits.append(NO_SPLITS)

    def columns(self) -> OperationColumns:
        """Return the written columns."""
        return OperationColumns(
            kinds=bytes(self.kinds),
            node_ids=self._node_ids,
            without_node=frozenset(self._without_node),
            names=bytes(self._names),
            name_ends=self._name_ends,
            dependencies=self.dependencies,
            dependency_ends=self._dependency_ends,
            amounts=self._amounts,
            trace_bytes=self._trace_bytes,
            targets=self._targets,
            numbers=self._numbers,
            details=self._details,
            algorithms=self._algorithms,
            all_algorithms=tuple(self._all_algorithms),
            starts_ns=self._starts_ns if self._has_starts else array("q"),
            splits=self._splits if self._has_splits else array("I"),
        )

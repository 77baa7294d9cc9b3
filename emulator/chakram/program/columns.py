"""What a rank does, in columns: the form of a program from lowering to replay.

One entry a row, in numbers of a fixed width.  What differs between ranks that do the
same (which process groups, which peers, which splits) stands in columns as a place in a
list of the rank, so that many ranks share the very same columns.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from chakram.trace.open_ended_columns import NO_VALUE

if TYPE_CHECKING:
    from chakram.collectives.ops import CollectiveOp

    Column: TypeAlias = array[int]


COMPUTE, COLLECTIVE, SEND, RECEIVE = range(4)
"""What an entry of ``kinds`` means."""

NO_SPLITS = 2**32 - 1
"""Place of the splits of a collective that has none."""


class CollectiveUse(NamedTuple):
    """What a collective asks of the network; ``group`` and ``splits`` are places.

    ``number`` is that of a collective with splits, for no other one need have the same;
    None for all without.
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
    """A point-to-point message that is sent; ``peer`` is a place."""

    peer: int
    size_bytes: int
    trace_bytes: int


def _no_column() -> Column:
    return array("q")


@dataclass(frozen=True, kw_only=True)
class OperationColumns:
    """The operations of a program; read only, and shared.

    Attributes:
        kinds: ``COMPUTE``, ``COLLECTIVE``, ``SEND`` or ``RECEIVE``.
        node_ids: Of the trace, unsigned 64-bit; of no meaning at ``without_node``.
        without_node: Rows without a node.
        names: All names in UTF-8, one after the other.
        name_ends: Where in *names* that of each ends.
        dependencies: Those of all, one after the other: rows.
        dependency_ends: Where those of each end.
        amounts: Nanoseconds of a computation; bytes of anything else, as this run moves
            them.
        trace_bytes: The same bytes before ``size_scale``; 0 of computations.
        targets: Places: of the group of a collective, of the peer of a message.
        numbers: Of a collective in its group, of a message between two ranks.
        details: Stream of a computation (``NO_VALUE``: the rank's own), root of a
            collective, tag of a message.
        algorithms: Of collectives, places in *all_algorithms*.
        starts_ns: Recorded starts, ``NO_VALUE`` where there is none; empty: nowhere.
        splits: Of collectives, places, or ``NO_SPLITS``; empty: none has any.
        all_algorithms: Operation and algorithm.
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
    starts_ns: Column = field(default_factory=_no_column)
    splits: Column = field(default_factory=lambda: array("I"))
    without_node: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.kinds)

    def dependencies_of(self, row: int) -> Sequence[int]:
        """Return the rows that one waits for."""
        begin = self.dependency_ends[row - 1] if row else 0
        return self.dependencies[begin : self.dependency_ends[row]]

    def name(self, row: int) -> str:
        """Return the name of a row."""
        begin = self.name_ends[row - 1] if row else 0
        return self.names[begin : self.name_ends[row]].decode("utf-8", "surrogatepass")

    def node_id(self, row: int) -> int | None:
        """Return the node of a row, None if it has none."""
        return None if row in self.without_node else self.node_ids[row]

    def start_ns(self, row: int) -> int | None:
        """Return the recorded start of a row, None if it has none."""
        start_ns = self.starts_ns[row] if self.starts_ns else NO_VALUE
        return None if start_ns == NO_VALUE else start_ns

    def split(self, row: int) -> int | None:
        """Return the place of the splits of a collective, None if it has none."""
        place = self.splits[row] if self.splits else NO_SPLITS
        return None if place == NO_SPLITS else place

    def rows_of(self, *kinds: int) -> list[int]:
        """Return the rows of some kinds, ascending."""
        return [row for row, kind in enumerate(self.kinds) if kind in kinds]

    @cached_property
    def collective_uses(self) -> Mapping[CollectiveUse, int]:
        """What the collectives ask for, in the order of their first, and how often."""
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
        """The messages that are sent, in the order of their first, and how often."""
        return Counter(
            MessageUse(self.targets[row], self.amounts[row], self.trace_bytes[row])
            for row in self.rows_of(SEND)
        )

    @cached_property
    def compute_ns(self) -> int:
        """The sum of all computations."""
        return sum(self.amounts[row] for row in self.rows_of(COMPUTE))


_MOST = 2**63 - 1
"""What stands for anything larger: it is more than any bound, so a check tells it."""


class ColumnWriter:
    """Columns that grow: ``begin`` a row, then end it by ``row`` or ``collective``.

    Attributes:
        kinds: As in ``OperationColumns``.
        dependencies: Likewise.
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
        """Begin a row: what all operations have."""
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
        """End the row of a collective."""
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
        """End a row; see ``OperationColumns``."""
        self.kinds.append(kind)
        self._amounts.append(min(amount, _MOST))
        self._trace_bytes.append(min(trace_bytes, _MOST))
        self._targets.append(target)
        self._numbers.append(number)
        self._details.append(detail)
        self._algorithms.append(0)
        self._splits.append(NO_SPLITS)

    def columns(self) -> OperationColumns:
        """Return what was written."""
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

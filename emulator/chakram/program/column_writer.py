"""Writes the columns of a program row by row."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chakram.program.columns import COLLECTIVE, NO_SPLITS, OperationColumns
from chakram.trace.short_columns import NO_VALUE

if TYPE_CHECKING:
    from chakram.collectives.ops import CollectiveOp


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

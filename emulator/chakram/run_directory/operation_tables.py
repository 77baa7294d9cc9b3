"""The table of operations: when each became ready, started and ended, and why."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from chakram.plan.plan import Plan
from chakram.program.columns import COMPUTE, OperationColumns
from chakram.records.named_rows import OperationTable
from chakram.records.row_layout import COMPUTATION_FIELDS, SHARE_FIELDS, RecordRows
from chakram.run_directory import schemas
from chakram.trace.nullable_columns import NO_VALUE

_NUMBERS = ("iteration", "rank", "operation", "ready_ns", "start_ns", "end_ns")


class OperationTables:
    """Converter from rows of shares and computations to the table of operations.

    Args:
        plan: Plan of the run.
        operations: Operations of the plan.
        warmup: Number of iterations that are not measured.
    """

    def __init__(
        self,
        plan: Plan,
        operations: OperationTable,
        *,
        warmup: int,
    ) -> None:
        self._warmup = warmup
        self._jobs = schemas.names_of([job for job, _ in operations.ranks])
        self._ranks = pa.array([rank for _, rank in operations.ranks], pa.int32())
        self._first = schemas.int64(operations.first)
        identity_of = schemas.int64(operations.identity_of)
        known = pc.greater_equal(identity_of, 0)
        self._identity_of = pc.if_else(known, identity_of, None)
        found = operations.identities
        self._groups = schemas.names_of([identity.key.group for identity in found])
        self._ks = pa.array([identity.key.k for identity in found], pa.int32())
        self._end_causes = schemas.names_of(schemas.END_CAUSES)
        # Ranks with equal programs share their columns, so the values are stored once.
        programs = [rank.program for rank in plan.ranks()]
        keys = [(each.job, id(each.columns)) for each in programs]
        weights = Counter(keys)
        distinct = dict(zip(keys, (each.columns for each in programs), strict=True))
        of_all = list(distinct.values())
        ends = accumulate(map(len, of_all), initial=0)
        place_of = dict(zip(distinct, ends, strict=False))
        self._place = pa.array([place_of[key] for key in keys], pa.int64())
        self._lengths = pa.array([len(each.columns) for each in programs], pa.int64())
        kinds = [kind for each in of_all for kind in each.kinds]
        self._kind = pc.take(
            schemas.names_of(schemas.KINDS), pa.array(kinds, pa.int32())
        )
        self._name = schemas.names_of(
            [each.name(row) for each in of_all for row in _rows(each)]
        )
        self._stream = pa.array(
            [
                None
                if each.kinds[row] != COMPUTE or each.details[row] == NO_VALUE
                else each.details[row]
                for each in of_all
                for row in _rows(each)
            ],
            pa.int64(),
        )
        weighted = [(key[0], each, weights[key]) for key, each in distinct.items()]
        self._nominal = pa.array(nominal_times(weighted), pa.int64())

    def table(self, rows: RecordRows) -> pa.Table:
        """Return the operations in rows of shares and computations.

        ``CollectiveJoiner`` must have checked the shares.

        Raises:
            ValueError: If a row does not match the plan.
        """
        computations = self._table(rows.computations, COMPUTATION_FIELDS)
        return pa.concat_tables([computations, self._table(rows.shares, SHARE_FIELDS)])

    def _table(self, rows: array[int], fields: Sequence[str]) -> pa.Table:
        raw = schemas.arrays(rows, fields)
        made = {name: raw[name] for name in _NUMBERS}
        rank, operation = raw["rank"], raw["operation"]
        inside = pc.and_(
            pc.greater_equal(operation, 0),
            pc.less(operation, pc.take(self._lengths, rank)),
        )
        if not pc.all(inside).as_py() and len(rank):
            raise ValueError("a row names an operation that its rank does not have")
        place = pc.add(pc.take(self._place, rank), operation)
        identity = pc.take(
            self._identity_of, pc.add(pc.take(self._first, rank), operation)
        )
        nothing = pa.nulls(len(rank), pa.int64())
        known = schemas.known_numbers(raw, set(fields) - set(_NUMBERS))
        return schemas.in_order(
            made
            | {
                "measured": pc.greater_equal(raw["iteration"], self._warmup),
                "job": pc.take(self._jobs, rank),
                "rank": pc.take(self._ranks, rank),
                "kind": pc.take(self._kind, place),
                "name": pc.take(self._name, place),
                "group": pc.take(self._groups, identity),
                "k": pc.take(self._ks, identity),
                "stream": pc.take(self._stream, place),
                "nominal_ns": pc.take(self._nominal, place),
                "cause_number": known["released_by"],
                "held_by": known.get("held_by", nothing),
                "end_cause": pc.take(self._end_causes, known.get("end_kind", nothing)),
                "end_rank": pc.take(self._ranks, known.get("end_rank", nothing)),
                "end_number": known.get("end_number", nothing),
            },
            schemas.OPERATIONS,
        )


def _rows(each: OperationColumns) -> range:
    return range(len(each))


def nominal_times(
    programs: Iterable[tuple[str, OperationColumns, int]],
) -> list[int | None]:
    """Return the nominal times of operations, as on a rank that is not slow.

    The nominal time of a computation is its duration or, if smaller, a median over
    ranks of the job. The median covers the ranks that have a computation of the same
    name at the same index. Communication has no nominal time (None).

    Args:
        programs: Job, operations, and number of ranks with these operations.
    """
    own = list(programs)
    durations: dict[tuple[str, int, str], list[tuple[int, int]]] = {}
    for job, each, weight in own:
        for row in each.rows_of(COMPUTE):
            key = (job, row, each.name(row))
            durations.setdefault(key, []).append((each.amounts[row], weight))
    medians = {key: _low_median(found) for key, found in durations.items()}
    times: list[int | None] = []
    for job, each, _ in own:
        times += [
            min(each.amounts[row], medians[job, row, each.name(row)])
            if kind == COMPUTE
            else None
            for row, kind in enumerate(each.kinds)
        ]
    return times


def _low_median(found: list[tuple[int, int]]) -> int:
    """Return the weighted median, or the lower of two medians."""
    half = sum(weight for _, weight in found)
    passed = 0
    for value, weight in sorted(found):
        passed += weight
        if 2 * passed >= half:
            return value
    return 0

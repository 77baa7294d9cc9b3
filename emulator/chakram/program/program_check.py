# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Checks of individual programs.

Columns that several programs share are checked once. ``chakram.program.job_check``
checks the programs of a job against each other.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, TypeAlias

from chakram.collectives.ops import CollectiveOp
from chakram.collectives.uneven_messages import passed_pairs
from chakram.foundation.units import LARGEST_SIZE_BYTES, LONGEST_TIME_NS
from chakram.program.columns import COLLECTIVE, COMPUTE, SEND
from chakram.trace.graph_index import grouped, topological_order
from chakram.trace.nullable_columns import NO_VALUE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chakram.collectives.groups import ProcessGroup
    from chakram.program.columns import Column, OperationColumns
    from chakram.program.operations import RankProgram, RankSplits

    _Agreed: TypeAlias = tuple[int, CollectiveOp, str, int, int, int]

__all__ = [
    "ColumnsCheck",
    "ProgramChecks",
    "are_ends",
    "fill_edges",
    "fill_nodes",
    "largest",
    "never_ending",
]

_NOTHING = -1
_COMPUTE, _COLLECTIVE, _SEND = COMPUTE, COLLECTIVE, SEND
_NO_VALUE = NO_VALUE
_MOST_BYTES = LARGEST_SIZE_BYTES
_MOST_NS = LONGEST_TIME_NS


def largest(column: Column) -> int:
    """Return the largest value in an unsigned 32-bit column, or -1 if it is empty."""
    found = _NOTHING
    for at in range(len(column)):
        if column[at] > found:
            found = column[at]
    return found


def are_ends(column: Column, total: int, longest: int) -> bool:
    """Return whether a 32-bit column has valid end offsets of consecutive parts.

    The parts must have *total* entries overall, and at most *longest* entries each.
    """
    begin = 0
    for at in range(len(column)):
        end = column[at]
        if end < begin or end - begin > longest:
            return False
        begin = end
    return begin == total


class ColumnsCheck:
    """Properties and problems of columns, independent of the ranks that use them.

    Attributes:
        problems: Row and sentence of each problem.
        has_cycle: Whether dependencies form a cycle.
        collectives: Rows of collectives, by place of the group.
        sends: Rows of sent messages, by place of the peer.
        receives: Rows of received messages, by place of the peer.
        roots: Smallest and largest root, by place of the group.
        unnumbered: Places of groups whose collectives are not numbered 0, 1, 2 ...
        uneven: Rows of collectives that have splits or need them.
    """

    __slots__ = (
        "_agreed",
        "_columns",
        "collectives",
        "has_cycle",
        "problems",
        "receives",
        "roots",
        "sends",
        "uneven",
        "unnumbered",
    )

    def __init__(self, columns: OperationColumns) -> None:
        self._columns = columns
        self._agreed: dict[int, list[_Agreed]] = {}
        self.problems: list[tuple[int, str]] = []
        self.collectives: dict[int, list[int]] = {}
        self.sends: dict[int, list[int]] = {}
        self.receives: dict[int, list[int]] = {}
        self._look(
            columns.kinds,
            columns.amounts,
            columns.targets,
            columns.starts_ns,
            columns.dependencies,
            columns.dependency_ends,
        )
        self.roots: dict[int, tuple[int, int]] = {}
        self.unnumbered: list[int] = []
        for place, rows in self.collectives.items():
            agreed = self.agreed(place)
            roots = [each[5] for each in agreed]
            self.roots[place] = min(roots), max(roots)
            if [each[0] for each in agreed] != list(range(len(rows))):
                self.unnumbered.append(place)
        are_uneven = [
            op == CollectiveOp.ALL_TO_ALL_V for op, _ in columns.all_algorithms
        ]
        self.uneven = [
            row
            for row in (
                columns.rows_of(_COLLECTIVE)
                if columns.splits or any(are_uneven)
                else ()
            )
            if columns.split(row) is not None or are_uneven[columns.algorithms[row]]
        ]
        self.has_cycle = not self.problems and _has_cycle(
            columns.dependencies, columns.dependency_ends
        )

    def _look(
        self,
        kinds: bytes,
        amounts: Column,
        targets: Column,
        starts_ns: Column,
        dependencies: Column,
        dependency_ends: Column,
    ) -> None:
        """Check every row in one pass."""
        count = len(kinds)
        has_starts = len(starts_ns) > 0
        begin = 0
        for row in range(count):
            for edge in range(begin, dependency_ends[row]):
                if dependencies[edge] >= count:
                    self.problems.append(
                        (row, f"depends on {dependencies[edge]}, which does not exist")
                    )
            begin = dependency_ends[row]
            kind, amount = kinds[row], amounts[row]
            if kind == _COMPUTE:
                if amount < 0 or amount > _MOST_NS:
                    self.problems.append((row, _wrong_time("duration", amount)))
            else:
                if amount < 0 or amount > _MOST_BYTES:
                    self.problems.append((row, _wrong_size(amount)))
                if kind == _COLLECTIVE:
                    self.collectives.setdefault(targets[row], []).append(row)
                elif kind == _SEND:
                    self.sends.setdefault(targets[row], []).append(row)
                else:
                    self.receives.setdefault(targets[row], []).append(row)
            if has_starts and starts_ns[row] != _NO_VALUE:
                start_ns = starts_ns[row]
                if start_ns < 0 or start_ns > _MOST_NS:
                    self.problems.append((row, _wrong_time("start", start_ns)))

    def agreed(self, place: int) -> list[_Agreed]:
        """Return the properties that members of a group agree on, by collective number.

        Each entry is (number, operation, algorithm, size, size in the trace, root).
        """
        known = self._agreed.get(place)
        if known is None:
            columns = self._columns
            known = self._agreed[place] = sorted(
                (
                    columns.numbers[row],
                    *columns.all_algorithms[columns.algorithms[row]],
                    columns.amounts[row],
                    columns.trace_bytes[row],
                    columns.details[row],
                )
                for row in self.collectives.get(place, ())
            )
        return known

    def ends(self, rows: Sequence[int]) -> list[tuple[int, int, int, int]]:
        """Return the properties that both ends of messages agree on, sorted by number.

        Each entry is (number, tag, size, size in the trace).
        """
        columns = self._columns
        return sorted(
            (
                columns.numbers[row],
                columns.details[row],
                columns.amounts[row],
                columns.trace_bytes[row],
            )
            for row in rows
        )

    def by_number(self, rows: Sequence[int]) -> list[int]:
        """Return rows sorted by their numbers."""
        return sorted(rows, key=self._columns.numbers.__getitem__)


def _wrong_size(size_bytes: int) -> str:
    if size_bytes < 0:
        return f"negative size {size_bytes}"
    return (
        f"a size of {size_bytes} bytes exceeds {LARGEST_SIZE_BYTES}: lower size_scale, "
        "or the sizes in the trace"
    )


def _wrong_time(what: str, time_ns: int) -> str:
    if time_ns < 0:
        return f"negative {what} {time_ns}"
    return (
        f"a {what} of {time_ns} ns exceeds {LONGEST_TIME_NS}: lower compute.scale, or "
        "the times in the trace"
    )


def _has_cycle(dependencies: Column, ends: Column) -> bool:
    """Return whether dependencies form a cycle.

    One pass suffices if no row depends on a later one. Every dependency must exist.
    """
    if _looks_back(dependencies, ends):
        return False
    after = array("i", bytes(4 * len(dependencies)))
    before = array("i", bytes(4 * len(dependencies)))
    fill_edges(dependencies, ends, array("i", range(len(ends))), before, after, 0)
    return any(never_ending(before, after, len(ends)))


def _looks_back(dependencies: Column, ends: Column) -> bool:
    begin = 0
    for row in range(len(ends)):
        for edge in range(begin, ends[row]):
            if dependencies[edge] >= row:
                return False
        begin = ends[row]
    return True


def fill_edges(
    dependencies: Column,
    ends: Column,
    nodes: Column,
    before: Column,
    after: Column,
    at: int,
) -> None:
    """Write the edges to *before* and *after*, starting at index *at*.

    *nodes* has the graph node of each row.
    """
    begin = 0
    for row in range(len(ends)):
        for edge in range(begin, ends[row]):
            before[at] = nodes[dependencies[edge]]
            after[at] = nodes[row]
            at += 1
        begin = ends[row]


def fill_nodes(
    kinds: bytes,
    targets: Column,
    numbers: Column,
    bases: Column,
    nodes: Column,
    first: int,
) -> None:
    """Assign a graph node to every row.

    Collectives get the node that members share. Row r of another kind gets *first* + r.
    """
    for row in range(len(kinds)):
        if kinds[row] == _COLLECTIVE:
            nodes[row] = bases[targets[row]] + numbers[row]
        else:
            nodes[row] = first + row


def never_ending(before: Column, after: Column, count: int) -> Column:
    """Return, for each node, how many of its dependencies never end."""
    nodes = array("Q", range(count))
    return topological_order(nodes, *grouped(after, before, count))[1]


class ProgramChecks:
    """Checker for individual programs. Shared columns are checked only once."""

    def __init__(self) -> None:
        # Keeping a reference to the columns prevents reuse of their ``id()``.
        self._known: dict[int, tuple[OperationColumns, ColumnsCheck]] = {}

    def of(self, columns: OperationColumns) -> ColumnsCheck:
        """Return the check of *columns*, from the cache if possible."""
        known = self._known.get(id(columns))
        if known is None:
            known = self._known[id(columns)] = columns, ColumnsCheck(columns)
        return known[1]

    def problems(self, program: RankProgram) -> list[str]:
        """Return the problems of a program, or an empty list."""
        check = self.of(program.columns)
        whose = f"job {program.job} rank {program.rank}"
        found = [*check.problems, *_wrong_groups(program, check)]
        for rows in (check.sends, check.receives):
            for place, of_peer in rows.items():
                if place >= len(program.peers):
                    text = f"peer {place} of {len(program.peers)}"
                    found.append((of_peer[0], text))
                elif program.peers[place] == program.rank:
                    found.append((of_peer[0], "sends to itself"))
        if not found:
            found += _wrong_splits(program, check)
        problems = [f"{whose} operation {row}: {text}" for row, text in sorted(found)]
        problems += [
            f"{whose}: the collectives of {program.groups[place].name!r} are not "
            f"numbered 0..{len(check.collectives[place]) - 1}"
            for place in check.unnumbered
            if place < len(program.groups)
        ]
        if check.has_cycle:
            problems.append(f"{whose}: dependencies form a cycle")
        return problems


def _wrong_groups(
    program: RankProgram, check: ColumnsCheck
) -> Iterable[tuple[int, str]]:
    """Yield the row and the problem of each collective that does not fit its group."""
    details = program.columns.details
    for place, rows in check.collectives.items():
        if place >= len(program.groups):
            text = f"unknown process group: {place} of {len(program.groups)}"
            yield rows[0], text
            continue
        group = program.groups[place]
        if program.rank not in group:
            yield rows[0], f"not a member of {group.name!r}"
            continue
        least, most = check.roots[place]
        if least < 0 or most >= len(group.ranks):
            for row in rows:
                if not 0 <= details[row] < len(group.ranks):
                    yield row, f"root {details[row]} is not in the group"


def _wrong_splits(
    program: RankProgram, check: ColumnsCheck
) -> Iterable[tuple[int, str]]:
    """Yield the row and the problem of each collective with wrong splits."""
    columns = program.columns
    count = 0
    for row in check.uneven:
        op, algorithm = columns.all_algorithms[columns.algorithms[row]]
        place = columns.split(row)
        text = None
        if (op == CollectiveOp.ALL_TO_ALL_V) != (place is not None):
            text = f"{op} {'with' if place is not None else 'without'} splits"
        elif place != count or place >= len(program.splits):
            # Rows must use the splits in order, so each entry is checked only once.
            text = (
                f"refers to splits {place}, but the next ones are {count} of "
                f"{len(program.splits)}"
            )
        else:
            count += 1
            group = program.groups[columns.targets[row]]
            own = program.splits[place]
            text = _wrong_split(program, group, op, algorithm, own)
        if text is not None:
            yield row, text


def _wrong_split(
    program: RankProgram,
    group: ProcessGroup,
    op: CollectiveOp,
    algorithm: str,
    own: RankSplits,
) -> str | None:
    nranks, position = len(group.ranks), group.position(program.rank)
    sent, received = own.splits
    if {len(sent), len(received)} != {nranks}:
        return f"splits for a number of ranks other than {nranks}"
    if min(*sent, *received, *own.passed_bytes) < 0:
        return "a negative split"
    if sent[position] != received[position]:
        return "its two splits for itself differ"
    passed = sum(
        len(passed_pairs(how, position))
        for how in program.algorithms
        if (how.op, how.name, how.nranks) == (op, algorithm, nranks)
    )
    if len(own.passed_bytes) != passed:
        return (
            f"has sizes of {len(own.passed_bytes)} parts to forward, but its algorithm "
            f"forwards {passed}"
        )
    return None

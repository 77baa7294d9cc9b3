# cython: language_level=3, annotation_typing=False
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Checks programs: each by itself, and those of one job against one another.

Those of a job are executed with time left out: a compute operation or a send ends when
what it depends on has ended, a receive also waits for its send, and a collective ends
on all members once all have come to it.  Nothing that may end is ever prevented by
something else, so if one order of execution reaches the end, every one does: no timing
of a real run can make these programs wait for ever.

What programs have alike, their columns, is looked at once.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.splits import mismatch
from chakram.collectives.uneven import matrix_bytes, passed_bytes, passed_pairs
from chakram.program.columns import COLLECTIVE, COMPUTE, SEND
from chakram.trace.column_index import grouped, topological_order
from chakram.trace.short_columns import NO_VALUE
from chakram.units import LARGEST_SIZE_BYTES, LONGEST_TIME_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chakram.collectives.groups import ProcessGroup
    from chakram.program.columns import Column, OperationColumns
    from chakram.program.operations import RankProgram, RankSplits

    _Agreed: TypeAlias = tuple[int, CollectiveOp, str, int, int, int]
    _Member: TypeAlias = "tuple[RankProgram, ColumnsCheck, int]"

__all__ = [
    "ColumnsCheck",
    "ProgramChecks",
    "are_ends",
    "check_job",
    "largest",
]

_NOTHING = -1
_COMPUTE, _COLLECTIVE, _SEND = COMPUTE, COLLECTIVE, SEND
_NO_VALUE = NO_VALUE
_MOST_BYTES = LARGEST_SIZE_BYTES
_MOST_NS = LONGEST_TIME_NS


def largest(column: Column) -> int:
    """Return the largest of unsigned 32-bit numbers, -1 if there are none."""
    found = _NOTHING
    for at in range(len(column)):
        if column[at] > found:
            found = column[at]
    return found


def are_ends(column: Column, total: int, longest: int) -> bool:
    """Say whether 32-bit numbers are ends of parts that have *total* entries in all.

    No part may have more than *longest* of them.
    """
    begin = 0
    for at in range(len(column)):
        end = column[at]
        if end < begin or end - begin > longest:
            return False
        begin = end
    return begin == total


class ColumnsCheck:
    """What is to be known of columns, whichever ranks have them.

    Attributes:
        problems: What is wrong: row and sentence.
        has_cycle: Whether dependencies form one.
        collectives: By place of a group, the rows of its collectives.
        sends: By place of a peer, the rows of the messages to it.
        receives: By place of a peer, the rows of the messages from it.
        roots: By place of a group, the least and the largest root.
        unnumbered: Places of groups whose collectives are not 0, 1, 2 ...
        uneven: Rows with splits, or that need some.
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
        """Look at every row once."""
        count = len(kinds)
        has_starts = len(starts_ns) > 0
        begin = 0
        for row in range(count):
            for edge in range(begin, dependency_ends[row]):
                if dependencies[edge] >= count:
                    self.problems.append(
                        (row, f"depends on {dependencies[edge]}, which is not there")
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
        """Return what members of a group agree on, by number of a collective.

        Number, operation, algorithm, sizes, root.
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
        """Return what both ends of messages agree on: number, tag, sizes; ascending."""
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
        """Return rows in the order of their numbers."""
        return sorted(rows, key=self._columns.numbers.__getitem__)


def _wrong_size(size_bytes: int) -> str:
    if size_bytes < 0:
        return f"negative size {size_bytes}"
    return (
        f"a size of {size_bytes} bytes is more than {LARGEST_SIZE_BYTES}: "
        "lower size_scale, or the sizes of the trace"
    )


def _wrong_time(what: str, time_ns: int) -> str:
    if time_ns < 0:
        return f"negative {what} {time_ns}"
    return (
        f"a {what} of {time_ns} ns is more than {LONGEST_TIME_NS}: lower "
        "compute.scale, or the times of the trace"
    )


def _has_cycle(dependencies: Column, ends: Column) -> bool:
    """Say whether rows wait for themselves; looks at once where none waits for later.

    Every dependency has to be there.
    """
    if _looks_back(dependencies, ends):
        return False
    after = array("i", bytes(4 * len(dependencies)))
    before = array("i", bytes(4 * len(dependencies)))
    _fill_edges(dependencies, ends, array("i", range(len(ends))), before, after, 0)
    return any(_missing(before, after, len(ends)))


def _looks_back(dependencies: Column, ends: Column) -> bool:
    begin = 0
    for row in range(len(ends)):
        for edge in range(begin, ends[row]):
            if dependencies[edge] >= row:
                return False
        begin = ends[row]
    return True


def _fill_edges(
    dependencies: Column,
    ends: Column,
    nodes: Column,
    before: Column,
    after: Column,
    at: int,
) -> None:
    """Put down from *at* on which nodes wait for which, given the node of each row."""
    begin = 0
    for row in range(len(ends)):
        for edge in range(begin, ends[row]):
            before[at] = nodes[dependencies[edge]]
            after[at] = nodes[row]
            at += 1
        begin = ends[row]


def _fill_nodes(
    kinds: bytes,
    targets: Column,
    numbers: Column,
    bases: Column,
    nodes: Column,
    first: int,
) -> None:
    """Give every row a node: that of its collective, or one from *first* on."""
    for row in range(len(kinds)):
        if kinds[row] == _COLLECTIVE:
            nodes[row] = bases[targets[row]] + numbers[row]
        else:
            nodes[row] = first + row


def _missing(before: Column, after: Column, count: int) -> Column:
    """Return by node how many of those that it waits for never end."""
    nodes = array("Q", range(count))
    return topological_order(nodes, *grouped(after, before, count))[1]


class ProgramChecks:
    """Checks programs one by one, and the columns that several have once."""

    def __init__(self) -> None:
        # With the columns, so that no others get their id.
        self._known: dict[int, tuple[OperationColumns, ColumnsCheck]] = {}

    def of(self, columns: OperationColumns) -> ColumnsCheck:
        """Return what is to be known of some columns."""
        known = self._known.get(id(columns))
        if known is None:
            known = self._known[id(columns)] = columns, ColumnsCheck(columns)
        return known[1]

    def problems(self, program: RankProgram) -> list[str]:
        """Return what is wrong with a program; an empty list if nothing is."""
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
    """Yield row and sentence of collectives that do not fit their group."""
    details = program.columns.details
    for place, rows in check.collectives.items():
        if place >= len(program.groups):
            text = f"unknown process group: {place} of {len(program.groups)}"
            yield rows[0], text
            continue
        group = program.groups[place]
        if program.rank not in group.ranks:
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
    """Yield row and sentence of collectives whose splits do not fit."""
    columns = program.columns
    count = 0
    for row in check.uneven:
        op, algorithm = columns.all_algorithms[columns.algorithms[row]]
        place = columns.split(row)
        text = None
        if (op == CollectiveOp.ALL_TO_ALL_V) != (place is not None):
            text = f"{op} {'with' if place is not None else 'without'} splits"
        elif place != count or place >= len(program.splits):
            # Each is looked at once, however many rows there are.
            text = f"splits {place}, not {count}, of {len(program.splits)}"
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
        return f"splits for other than {nranks} ranks"
    if min(*sent, *received, *own.passed_bytes) < 0:
        return "a negative split"
    if sent[position] != received[position]:
        return "keeps another part than it gets from itself"
    passed = sum(
        len(passed_pairs(how, position))
        for how in program.algorithms
        if (how.op, how.name, how.nranks) == (op, algorithm, nranks)
    )
    if len(own.passed_bytes) != passed:
        return (
            f"has sizes of {len(own.passed_bytes)} parts to pass on, "
            f"its algorithm passes on {passed}"
        )
    return None


def check_job(programs: Sequence[RankProgram]) -> list[str]:
    """Return what is wrong with the programs of one job; an empty list if nothing is.

    Checked are: every program by itself; members of a group agree on its ranks and on
    every collective; every message has its two ends; and no program waits for ever.
    """
    checks = ProgramChecks()
    problems = [text for program in programs for text in checks.problems(program)]
    problems += _check_groups(programs)
    if problems:
        return problems
    members: dict[str, list[_Member]] = {}
    for program in programs:
        check = checks.of(program.columns)
        for place, group in enumerate(program.groups):
            members.setdefault(group.name, []).append((program, check, place))
    problems = [
        text
        for name, of_group in members.items()
        for text in _check_collectives(name, of_group)
    ]
    sends, receives = _messages(programs, checks)
    problems += _check_messages(sends, receives)
    if problems:
        return problems
    return _check_end(programs, members, sends, receives)


def _check_groups(programs: Sequence[RankProgram]) -> list[str]:
    problems: list[str] = []
    seen: dict[str, tuple[int, ...]] = {}
    present = {program.rank for program in programs}
    for program in programs:
        for group in program.groups:
            if group.name not in seen:
                seen[group.name] = group.ranks
                problems += [
                    f"process group {group.name!r}: rank {rank} has no program"
                    for rank in group.ranks
                    if rank not in present
                ]
            elif seen[group.name] != group.ranks:
                problems.append(
                    f"rank {program.rank}: process group {group.name!r} has other "
                    "ranks than elsewhere"
                )
    return problems


def _check_collectives(name: str, members: Sequence[_Member]) -> Iterable[str]:
    """Yield what members of a group disagree about."""
    group = members[0][0].groups[members[0][2]]
    agreed = [check.agreed(place) for _, check, place in members]
    if not any(agreed):
        return
    first = agreed[0]
    if len(agreed) != len(group.ranks) or any(
        each is not first and each != first for each in agreed
    ):
        for number in range(max(map(len, agreed))):
            where = f"collective {number} of process group {name!r}"
            views = {each[number] for each in agreed if number < len(each)}
            have = sum(number < len(each) for each in agreed)
            if have != len(group.ranks):
                yield f"{where}: not every member has it once"
            elif len(views) > 1:
                yield f"{where}: its members disagree"
        return
    uneven: dict[int, dict[int, tuple[RankProgram, int]]] = {}
    for program, check, place in members:
        columns = program.columns
        for row in check.uneven:
            if columns.targets[row] == place:
                of_number = uneven.setdefault(columns.numbers[row], {})
                of_number[program.rank] = program, row
    for number, of_number in sorted(uneven.items()):
        text = _check_uneven([of_number[rank] for rank in group.ranks])
        if text is not None:
            yield f"collective {number} of process group {name!r}: {text}"


def _check_uneven(members: Sequence[tuple[RankProgram, int]]) -> str | None:
    """Return what is wrong with the splits of a collective, by position."""
    own = [program.splits[program.columns.splits[row]] for program, row in members]
    if mismatch([each.splits for each in own]) is not None:
        return "its members' splits disagree"
    pair_bytes = matrix_bytes(tuple(each.splits.sent_bytes for each in own))
    for position, (program, row) in enumerate(members):
        if not own[position].passed_bytes:
            continue  # that there are as many as needed is known
        columns = program.columns
        op, algorithm = columns.all_algorithms[columns.algorithms[row]]
        how = algorithm_of(
            op,
            algorithm,
            nranks=len(members),
            root=columns.details[row],
            listed=program.algorithms,
        )
        if own[position].passed_bytes != passed_bytes(
            how, pair_bytes, position=position
        ):
            return "a member passes on other parts than the splits have"
    return None


_Ends: TypeAlias = "dict[tuple[int, int], tuple[int, ColumnsCheck, list[int]]]"
"""By source and destination: index of the program, its columns, the rows there."""


def _messages(
    programs: Sequence[RankProgram], checks: ProgramChecks
) -> tuple[_Ends, _Ends]:
    """Return the sends and the receives of all programs."""
    sends: _Ends = {}
    receives: _Ends = {}
    for index, program in enumerate(programs):
        check = checks.of(program.columns)
        for place, rows in check.sends.items():
            sends[program.rank, program.peers[place]] = index, check, rows
        for place, rows in check.receives.items():
            receives[program.peers[place], program.rank] = index, check, rows
    return sends, receives


def _check_messages(sends: _Ends, receives: _Ends) -> Iterable[str]:
    """Yield the messages that do not have two ends which agree."""
    for pair in sorted(sends.keys() | receives.keys()):
        views = [
            ends[pair][1].ends(ends[pair][2]) if pair in ends else []
            for ends in (sends, receives)
        ]
        numbers = [[each[0] for each in of_end] for of_end in views]
        if views[0] == views[1] and len(set(numbers[0])) == len(numbers[0]):
            continue
        for number in sorted({*numbers[0], *numbers[1]}):
            where = f"message (source, destination, number) {(*pair, number)}"
            if [of_end.count(number) for of_end in numbers] != [1, 1]:
                yield f"{where}: does not have one send and one receive"
            elif (
                views[0][numbers[0].index(number)] != views[1][numbers[1].index(number)]
            ):
                yield f"{where}: its ends disagree"


def _check_end(
    programs: Sequence[RankProgram],
    members: Mapping[str, Sequence[_Member]],
    sends: _Ends,
    receives: _Ends,
) -> list[str]:
    """Execute the programs; return whoever does not come to the end."""
    lengths = [len(program.columns) for program in programs]
    firsts = list(accumulate(lengths, initial=0))
    # Behind the rows of all programs: the collectives, a node for all members.
    base_of: dict[str, int] = {}
    count = sum(lengths)
    for name, of_group in members.items():
        base_of[name] = count
        count += len(of_group[0][1].agreed(of_group[0][2]))
    edges = sum(len(program.columns.dependencies) for program in programs)
    before = array("i", bytes(4 * edges))
    after = array("i", bytes(4 * edges))
    nodes_of: list[Column] = []
    at = 0
    for first, program in zip(firsts, programs, strict=False):
        columns = program.columns
        nodes = array("i", bytes(4 * len(columns)))
        bases = array("i", (base_of[group.name] for group in program.groups))
        _fill_nodes(
            columns.kinds, columns.targets, columns.numbers, bases, nodes, first
        )
        _fill_edges(
            columns.dependencies, columns.dependency_ends, nodes, before, after, at
        )
        at += len(columns.dependencies)
        nodes_of.append(nodes)
    for pair, (source, check, rows) in sends.items():
        destination, other, received = receives[pair]
        for send, receive in zip(
            check.by_number(rows), other.by_number(received), strict=True
        ):
            before.append(nodes_of[source][send])
            after.append(nodes_of[destination][receive])
    missing = _missing(before, after, count)
    if not any(missing):
        return []
    return [
        f"rank {program.rank}: {program.columns.name(row)!r} (operation {row}) never "
        "ends"
        for program, nodes in zip(programs, nodes_of, strict=True)
        for row, node in enumerate(nodes)
        if missing[node]
    ]

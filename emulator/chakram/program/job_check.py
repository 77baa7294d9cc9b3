"""Checks of the programs of a job against each other.

The check executes the programs without timing. A compute operation or a send ends when
its dependencies have ended. A receive also waits for its send. A collective ends on all
members once all have reached it. No operation ever prevents another from ending.
Therefore, if one order of execution reaches the end, every order does. Such programs
cannot deadlock in a real run, whatever its timing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.split_sizes import mismatch
from chakram.collectives.uneven_messages import matrix_bytes, passed_bytes
from chakram.program.operations import RankProgram
from chakram.program.program_check import (
    ColumnsCheck,
    ProgramChecks,
    fill_edges,
    fill_nodes,
    never_ending,
)

if TYPE_CHECKING:
    from chakram.program.columns import Column


_Member: TypeAlias = "tuple[RankProgram, ColumnsCheck, int]"
"""A program, the check of its columns, and the place of a group in it."""

_Ends: TypeAlias = "dict[tuple[int, int], tuple[int, ColumnsCheck, list[int]]]"
"""By source and destination: index of the program, check of its columns, and rows."""


def check_job(programs: Sequence[RankProgram]) -> list[str]:
    """Return the problems of the programs of one job, or an empty list.

    The checks are:

    * Every program is valid.
    * Members of a group agree on its ranks and on every collective.
    * Every message has a sender and a receiver that agree.
    * No program waits forever.
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


def _check_groups(programs: Sequence[RankProgram]) -> Iterator[str]:
    seen: dict[str, tuple[int, ...]] = {}
    present = {program.rank for program in programs}
    for program in programs:
        for group in program.groups:
            if group.name not in seen:
                seen[group.name] = group.ranks
                yield from [
                    f"process group {group.name!r}: rank {rank} has no program"
                    for rank in group.ranks
                    if rank not in present
                ]
            elif group.ranks is not seen[group.name] != group.ranks:
                yield (
                    f"rank {program.rank}: process group {group.name!r} has different "
                    "ranks than in other programs"
                )


def _check_collectives(name: str, members: Sequence[_Member]) -> Iterable[str]:
    """Yield the disagreements between members of a group."""
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
                yield f"{where}: does not occur exactly once on every member"
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
    """Return a problem with the splits of a collective, or None.

    *members* has the program and row of each member, ordered by group position.
    """
    own = [program.splits[program.columns.splits[row]] for program, row in members]
    if mismatch([each.splits for each in own]) is not None:
        return "its members' splits disagree"
    pair_bytes = matrix_bytes(tuple(each.splits.sent_bytes for each in own))
    for position, (program, row) in enumerate(members):
        if not own[position].passed_bytes:
            continue  # the check of the program ensures that none are missing
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
            return "the parts that a member forwards do not match the splits"
    return None


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
    """Yield the messages that lack one end, or whose ends disagree."""
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
                yield f"{where}: its two ends disagree"


def _check_end(
    programs: Sequence[RankProgram],
    members: Mapping[str, Sequence[_Member]],
    sends: _Ends,
    receives: _Ends,
) -> list[str]:
    """Execute the programs and return the operations that never end."""
    lengths = [len(program.columns) for program in programs]
    firsts = list(accumulate(lengths, initial=0))
    # First come the rows of all programs, then one node per collective, which all
    # members share.
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
        fill_nodes(columns.kinds, columns.targets, columns.numbers, bases, nodes, first)
        fill_edges(
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
    missing = never_ending(before, after, count)
    if not any(missing):
        return []
    return [
        f"rank {program.rank}: {program.columns.name(row)!r} (operation {row}) never "
        "ends"
        for program, nodes in zip(programs, nodes_of, strict=True)
        for row, node in enumerate(nodes)
        if missing[node]
    ]

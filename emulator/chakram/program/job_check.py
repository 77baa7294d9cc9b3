"""Checks the programs of a job against one another.

They are executed with time left out: a compute operation or a send ends when what it
depends on has ended, a receive also waits for its send, and a collective ends on all
members once all have come to it.  Nothing that may end is ever prevented by something
else, so if one order of execution reaches the end, every one does: no timing of a real
run can make these programs wait for ever.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.splits import mismatch
from chakram.collectives.uneven import matrix_bytes, passed_bytes
from chakram.program.operations import (
    CollectiveOperation,
    ReceiveOperation,
    SendOperation,
    check_program,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from chakram.collectives.splits import Splits
    from chakram.program.operations import RankProgram

__all__ = ["check_job"]

_Place = tuple[int, int]
"""(index of the program, index of the operation)."""


def check_job(programs: Sequence[RankProgram]) -> list[str]:
    """Return what is wrong with the programs of one job; an empty list if nothing is.

    Checked are: every program by itself; members of a group agree on its ranks and on
    every collective; every message has its two ends; and no program waits for ever.
    """
    problems = [text for program in programs for text in check_program(program)]
    problems += _check_groups(programs)
    if problems:
        return problems
    shared = _shared_work(programs)
    problems = [
        problem
        for key, places in shared.items()
        if (problem := _check_shared(programs, key, places)) is not None
    ]
    return problems or _check_end(programs, shared)


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


def _shared_work(programs: Sequence[RankProgram]) -> dict[Hashable, list[_Place]]:
    """Return the operations that belong together: collectives and messages."""
    shared: dict[Hashable, list[_Place]] = {}
    for index, program in enumerate(programs):
        for number, operation in enumerate(program.operations):
            key: Hashable
            match operation:
                case CollectiveOperation():
                    key = (operation.group, operation.number)
                case SendOperation():
                    key = (program.rank, operation.peer, operation.number)
                case ReceiveOperation():
                    key = (operation.peer, program.rank, operation.number)
                case _:
                    continue
            shared.setdefault(key, []).append((index, number))
    return shared


def _check_shared(
    programs: Sequence[RankProgram], key: Hashable, places: list[_Place]
) -> str | None:
    operations = [programs[index].operations[number] for index, number in places]
    first = operations[0]
    if isinstance(first, CollectiveOperation):
        where = f"collective {first.number} of process group {first.group!r}"
        ranks = next(
            group.ranks
            for group in programs[places[0][0]].groups
            if group.name == first.group
        )
        if sorted(programs[index].rank for index, _ in places) != sorted(ranks):
            return f"{where}: not every member has it once"
        views = {
            (each.op, each.algorithm, each.input_bytes, each.trace_bytes, each.root)
            for each in operations
            if isinstance(each, CollectiveOperation)
        }
        if len(views) > 1:
            return f"{where}: its members disagree"
        rows = {
            programs[index].rank: operation.splits
            for (index, _), operation in zip(places, operations, strict=True)
            if isinstance(operation, CollectiveOperation)
        }
        matrix = [row for rank in ranks if (row := rows[rank]) is not None]
        if matrix and mismatch(matrix) is not None:
            return f"{where}: its members' splits disagree"
        if matrix and not all(
            _passes_on_rightly(programs[index], number, ranks, matrix)
            for index, number in places
        ):
            return f"{where}: a member passes on other parts than the splits have"
        return None
    where = f"message (source, destination, number) {key}"
    ends = [each for each in operations if isinstance(each, SendOperation)]
    if len(operations) != 2 or len(ends) != 1:
        return f"{where}: does not have one send and one receive"
    sizes = {
        (each.tag, each.size_bytes, each.trace_bytes)
        for each in operations
        if isinstance(each, SendOperation | ReceiveOperation)
    }
    return f"{where}: its ends disagree" if len(sizes) > 1 else None


def _passes_on_rightly(
    program: RankProgram, number: int, ranks: Sequence[int], matrix: Sequence[Splits]
) -> bool:
    operation = program.operations[number]
    if not isinstance(operation, CollectiveOperation) or not operation.passed_bytes:
        return True  # that there are as many as needed is known
    how = algorithm_of(
        operation.op,
        operation.algorithm,
        nranks=len(ranks),
        root=operation.root,
        listed=program.algorithms,
    )
    rows = tuple(row.sent_bytes for row in matrix)
    position = ranks.index(program.rank)
    return operation.passed_bytes == passed_bytes(
        how, matrix_bytes(rows), position=position
    )


def _check_end(
    programs: Sequence[RankProgram], shared: dict[Hashable, list[_Place]]
) -> list[str]:
    """Execute the programs; return whoever does not come to the end."""
    # All operations in one row of numbers: a large job has millions.
    first = list(itertools.accumulate((len(p.operations) for p in programs), initial=0))
    waits: list[int] = []
    releases: list[list[int]] = [[] for _ in range(first[-1])]
    for begin, program in zip(first, programs, strict=False):
        for operation in program.operations:
            for dependency in operation.dependencies:
                releases[begin + dependency].append(len(waits))
            waits.append(len(operation.dependencies))
    # By operation: those that end with it, the same list for all of them.
    together: dict[int, list[int]] = {}
    for places in shared.values():
        numbers = [first[index] + number for index, number in places]
        index, number = places[0]
        if isinstance(programs[index].operations[number], CollectiveOperation):
            together.update(dict.fromkeys(numbers, numbers))
            continue
        send, receive = numbers
        if _receives(programs, places[0]):
            send, receive = receive, send
        releases[send].append(receive)
        waits[receive] += 1
    absent = {id(members): len(members) for members in together.values()}
    ready = [place for place, count in enumerate(waits) if not count]
    ended = bytearray(len(waits))
    while ready:
        place = ready.pop()
        ending = together.get(place)
        if ending is None:
            ending = [place]
        else:
            absent[id(ending)] -= 1
            if absent[id(ending)]:
                continue
        for each in ending:
            ended[each] = True
            for released in releases[each]:
                waits[released] -= 1
                if not waits[released]:
                    ready.append(released)
    if all(ended):
        return []
    return [
        f"rank {program.rank}: {program.operations[number].name!r} (operation "
        f"{number}) never ends"
        for begin, program in zip(first, programs, strict=False)
        for number in range(len(program.operations))
        if not ended[begin + number]
    ]


def _receives(programs: Sequence[RankProgram], place: _Place) -> bool:
    index, number = place
    return isinstance(programs[index].operations[number], ReceiveOperation)

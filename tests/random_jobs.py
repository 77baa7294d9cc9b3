"""Random jobs with matching ranks, for Hypothesis tests of replay.

A job is drawn as one list of things that happen: a collective of some group, a message,
a computation.  Every rank takes part in the order of that list where dependencies say
so, and may do the rest in any order; so whatever is drawn, the job can end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from chakram.collectives.algorithms import algorithm_names
from chakram.collectives.groups import ProcessGroup, world_group
from chakram.collectives.ops import ROOTED, CollectiveOp
from tests.made_plans import (
    collective,
    compute,
    matrix_splits,
    program,
    receive,
    send,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from chakram.program.operations import Operation, RankProgram

__all__ = ["jobs"]

_SIZES = st.one_of(
    st.integers(0, 9), st.sampled_from([4095, 4096, 4097]), st.integers(0, 60_000)
)
_DURATIONS = st.one_of(st.just(0), st.integers(1, 40), st.integers(1, 50_000))
_OPS = tuple(op for op in CollectiveOp if op is not CollectiveOp.BARRIER)


@dataclass(slots=True)
class _Rank:
    """The rows of one rank so far, and what later rows have to know of them."""

    rows: list[Operation]
    last_of_group: dict[str, int]


@st.composite
def jobs(
    draw: st.DrawFn,
    *,
    job: str = "job",
    max_ranks: int = 6,
    max_items: int = 12,
    barrier: bool = True,
) -> list[RankProgram]:
    """Programs of 1 to *max_ranks* ranks; *barrier*: perhaps one at their end."""
    nranks = draw(st.integers(1, max_ranks))
    groups = [world_group(nranks)]
    for number in range(draw(st.integers(0, 3))):
        members = draw(st.lists(st.integers(0, nranks - 1), min_size=1, unique=True))
        groups.append(ProcessGroup(name=f"group{number}", ranks=tuple(members)))
    ranks = [_Rank(rows=[], last_of_group={}) for _ in range(nranks)]
    counts: dict[object, int] = {}
    is_serial = draw(st.booleans())
    for _ in range(draw(st.integers(0, max_items))):
        match draw(st.sampled_from(["collective", "message", "compute"])):
            case "collective":
                _draw_collective(
                    draw,
                    ranks,
                    draw(st.sampled_from(groups)),
                    counts,
                    is_serial=is_serial,
                )
            case "message" if nranks > 1:
                _draw_message(draw, ranks, counts)
            case _:
                each = ranks[draw(st.integers(0, nranks - 1))]
                stream = draw(st.sampled_from([None, 0, 1]))
                after = _draw_earlier(draw, each)
                each.rows.append(compute(draw(_DURATIONS), stream=stream, after=after))
    if barrier and draw(st.booleans()):
        number = counts.get(groups[0].name, 0)
        for each in ranks:
            everything = range(len(each.rows))
            each.rows.append(collective("barrier", number=number, after=everything))
    return [
        program(
            rank,
            [group for group in groups if rank in group.ranks],
            _shuffled(draw, each.rows),
            job=job,
        )
        for rank, each in enumerate(ranks)
    ]


def _draw_collective(
    draw: st.DrawFn,
    ranks: list[_Rank],
    group: ProcessGroup,
    counts: dict[object, int],
    *,
    is_serial: bool,
) -> None:
    op = draw(st.sampled_from(_OPS))
    size_bytes = draw(_SIZES)
    root = draw(st.integers(0, len(group.ranks) - 1)) if op in ROOTED else 0
    name = draw(st.sampled_from(algorithm_names(op)))
    number = counts.get(group.name, 0)
    counts[group.name] = number + 1
    matrix: list[list[int]] | None = None
    if op is CollectiveOp.ALL_TO_ALL_V:
        nranks = len(group.ranks)
        row = st.lists(_SIZES, min_size=nranks, max_size=nranks)
        matrix = [draw(row) for _ in range(nranks)]
        size_bytes = -(-sum(map(sum, matrix)) // nranks)
    for position, rank in enumerate(group.ranks):
        each = ranks[rank]
        after = set(_draw_earlier(draw, each))
        if is_serial and group.name in each.last_of_group:
            after.add(each.last_of_group[group.name])
        each.last_of_group[group.name] = len(each.rows)
        each.rows.append(
            collective(
                op,
                size_bytes,
                group=group.name,
                number=number,
                algorithm=name,
                root=root,
                after=sorted(after),
                splits=None if matrix is None else matrix_splits(matrix, position),
            )
        )


def _draw_message(
    draw: st.DrawFn, ranks: list[_Rank], counts: dict[object, int]
) -> None:
    numbers = st.integers(0, len(ranks) - 1)
    src, dst = draw(st.lists(numbers, min_size=2, max_size=2, unique=True))
    number = counts.get((src, dst), 0)
    counts[src, dst] = number + 1
    size_bytes = draw(_SIZES)
    builders: list[tuple[int, int, Callable[..., Operation]]] = [
        (src, dst, send),
        (dst, src, receive),
    ]
    for rank, peer, build in builders:
        after = _draw_earlier(draw, ranks[rank])
        ranks[rank].rows.append(build(peer, size_bytes, number=number, after=after))


def _draw_earlier(draw: st.DrawFn, rank: _Rank) -> list[int]:
    """Return some of the existing rows."""
    if not rank.rows:
        return []
    rows = st.integers(0, len(rank.rows) - 1)
    return sorted(draw(st.sets(rows, max_size=3)))


def _shuffled(draw: st.DrawFn, rows: list[Operation]) -> list[Operation]:
    """Return the rows in another order, with the dependencies they have."""
    order = draw(st.permutations(range(len(rows))))
    place = {old: new for new, old in enumerate(order)}
    return [
        replace(
            rows[old],
            dependencies=tuple(place[each] for each in rows[old].dependencies),
        )
        for old in order
    ]

"""Ranks that are slower or later than ranks with the same work, and uneven jobs.

Ranks have the same work if they communicate alike and most of them have only
computations with the same names.  Stages of a pipeline and instances of a service
communicate alike, but each computes its own layers or requests.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import fmean, median_high, median_low
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from chakram.analysis.cause_ranking import CauseClass, Suspect
from chakram.collectives.split_sizes import even_splits
from chakram.diagnosis.counterfactual import Case, Change
from chakram.foundation.grouping import grouped
from chakram.foundation.units import format_time
from chakram.program.columns import COMPUTE
from chakram.program.operations import RankSplits
from chakram.trace.nullable_columns import NO_VALUE

if TYPE_CHECKING:
    from chakram.diagnosis.counterfactual import Variant
    from chakram.program.operations import RankProgram

_LEAST_EXCESS = 0.01
"""A rank is a suspect if it is late by at least this share of the iteration time."""

_ALIKE = 0.8
"""Minimum share of the usual computing time that a rank with the same work has."""

_ADDED = 0.05
"""Maximum share of a rank's computing time in computations that its peers lack."""

_FEWEST = 3
"""Minimum number of ranks that are compared although the numbers in names differ."""

_UNEVEN = 1.03
"""Minimum ratio of a rank's computing time to the mean of ranks like it."""

_CLEAR = 3
"""Number of median deviations by which a suspected rank exceeds its peers."""

RANK_ADVICE = {
    "slow compute": "compare clocks, throttling and processes of this host with others",
    "late rank": "find out what this rank does before its peers begin",
}
"""Advice by cause."""

_Evened: TypeAlias = "Callable[[Sequence[RankProgram]], tuple[RankProgram, ...]]"

_Key: TypeAlias = tuple[str, int]
"""Name of a computation, and its index among the computations with this name."""


class _Rank(NamedTuple):
    program: RankProgram
    rows: Mapping[_Key, int]

    def amount_ns(self, key: _Key) -> int:
        return self.program.columns.amounts[self.rows[key]]


def odd_ranks(variant: Variant, time_ns: int) -> Iterator[Case]:
    """Yield suspected ranks of a simulated run.

    Args:
        variant: The unchanged run.
        time_ns: Mean time of an iteration.
    """
    for job in variant.jobs:
        if variant.alone not in (None, job.name):
            continue
        is_one = variant.alone is not None or len(variant.jobs) == 1
        named = "rank" if is_one else f"{job.name} rank"
        alike = grouped((_messages(program), program) for program in job.programs)
        for programs in alike.values():
            ranks = [_Rank(each, _computations(each)) for each in programs]
            for peers in _with_same_work(ranks):
                yield from _odd_among(
                    peers, job.name, named, time_ns, variant.experiment.dilation
                )


def _messages(program: RankProgram) -> frozenset[tuple[object, int]]:
    """Return a key that is equal for ranks with the same communication, in any order.

    The order may differ, because each pipeline stage starts to alternate between
    forward and backward messages at a different micro-batch.
    """
    columns = program.columns
    return frozenset(
        Counter(
            (kind, columns.algorithms[row], columns.trace_bytes[row])
            for row, kind in enumerate(columns.kinds)
            if kind != COMPUTE
        ).items()
    )


def _computations(program: RankProgram, pattern: str = "") -> dict[_Key, int]:
    """Return the row of each computation, by its name without *pattern*."""
    seen: Counter[str] = Counter()
    rows = {}
    for row in program.columns.rows_of(COMPUTE):
        name = program.columns.name(row)
        if pattern:
            name = re.sub(pattern, "", name)
        rows[name, seen[name]] = row
        seen[name] += 1
    return rows


def _with_same_work(ranks: Sequence[_Rank]) -> Iterator[Sequence[_Rank]]:
    """Yield groups of ranks with the same work, given ranks that communicate alike."""
    if len(ranks) == 1:
        return
    usual_ns = _usual_ns(ranks)
    common_ns = sum(usual_ns.values())
    alike = [
        rank
        for rank in ranks
        if sum(usual_ns[key] for key in rank.rows) >= _ALIKE * common_ns
    ]
    typical = [
        rank
        for rank in alike
        if sum(rank.amount_ns(key) for key in rank.rows if not usual_ns[key])
        <= _ADDED * rank.program.columns.compute_ns
    ]
    if 2 * len(typical) >= len(ranks):
        yield alike
        return
    similar = _similar(ranks, _after_start)
    yield from (each for each in similar if len(each) > 1)
    # Numbers in names identify layers, micro-batches or requests.
    single = [
        _Rank(each[0].program, _computations(each[0].program, r"\d+"))
        for each in similar
        if len(each) == 1
    ]
    yield from (each for each in _similar(single, _all_rows) if len(each) >= _FEWEST)


def _similar(
    ranks: Sequence[_Rank], rows_of: Callable[[_Rank], Collection[_Key]]
) -> list[list[_Rank]]:
    """Return groups of ranks whose computations mostly have the same names.

    *rows_of* returns the computations of a rank that its peers must have.
    """
    found: list[list[_Rank]] = []
    same = grouped((frozenset(rank.rows), rank) for rank in ranks)
    for each in sorted(same.values(), key=len, reverse=True):
        for known in found:
            pairs = ((known[0], each[0]), (each[0], known[0]))
            if all(_has_most(one, other, rows_of(other)) for one, other in pairs):
                known += each
                break
        else:
            found.append(each)
    return found


def _lead_ns(rank: _Rank) -> int:
    """Return the computing time of a rank before its first message."""
    first = _first_message(rank.program)
    return sum(rank.amount_ns(key) for key, row in rank.rows.items() if row < first)


def _after_start(rank: _Rank) -> Collection[_Key]:
    """Return the computations from the first message on.

    Peers need not have the earlier computations, because a rank may begin late.
    """
    first = _first_message(rank.program)
    return [key for key, row in rank.rows.items() if row >= first]


def _all_rows(rank: _Rank) -> Collection[_Key]:
    return rank.rows


def _has_most(rank: _Rank, other: _Rank, keys: Collection[_Key]) -> bool:
    """Return whether a rank has nearly all computations *keys* of another rank."""
    added_ns = sum(other.amount_ns(key) for key in keys if key not in rank.rows)
    return added_ns <= _ADDED * other.program.columns.compute_ns


def _usual_ns(ranks: Sequence[_Rank]) -> dict[_Key, int]:
    """Return the usual time of each computation, or 0 if most ranks lack it."""
    durations = grouped(
        (key, rank.amount_ns(key)) for rank in ranks for key in rank.rows
    )
    if len(ranks) == 2:
        return {
            key: min(found) if len(found) == 2 else 0
            for key, found in durations.items()
        }
    return {
        key: median_high(sorted(found)) if 2 * len(found) > len(ranks) else 0
        for key, found in durations.items()
    }


def _received_bytes(rank: _Rank) -> dict[_Key, int]:
    """Return the input of each computation between uneven all-to-alls, in bytes.

    The input is the larger of the data received in the previous all-to-all and the data
    sent in the next one.
    """
    columns = rank.program.columns
    received, sent = [], []
    for row in range(len(columns)):
        place = columns.split(row)
        splits = None if place is None else rank.program.splits[place].splits
        received.append(0 if splits is None else sum(splits.received_bytes))
        sent.append(0 if splits is None else sum(splits.sent_bytes))
    before = list(accumulate(received, _last))
    after = list(accumulate(reversed(sent), _last))[::-1]
    return {key: max(before[row], after[row]) for key, row in rank.rows.items()}


def _last(known: int, found: int) -> int:
    return found or known


def _expected_ns(ranks: Sequence[_Rank]) -> list[dict[_Key, int]]:
    """Return the expected time of each computation of each rank.

    The expected time is the usual time, or longer if the rank received more data than
    usual.
    """
    usual_ns = _usual_ns(ranks)
    if not any(rank.program.splits for rank in ranks):
        return [{key: usual_ns[key] for key in rank.rows} for rank in ranks]
    inputs = [_received_bytes(rank) for rank in ranks]
    found = grouped(pair for each in inputs for pair in each.items())
    usual_bytes = {
        key: max(1, median_high(sorted(each))) for key, each in found.items()
    }
    return [
        {
            key: usual_ns[key] * max(nbytes, usual_bytes[key]) // usual_bytes[key]
            for key, nbytes in each.items()
        }
        for each in inputs
    ]


def _least_excess_ns(
    ranks: Sequence[_Rank], expected: Sequence[Mapping[_Key, int]]
) -> int:
    """Return the minimum excess over the expected computing time of a suspect.

    If the computing times of all ranks in a recorded job vary widely, few ranks are
    suspects.
    """
    excess_ns = [
        sum(rank.amount_ns(key) - time_ns for key, time_ns in usual.items() if time_ns)
        for rank, usual in zip(ranks, expected, strict=True)
    ]
    middle_ns = median_low(excess_ns)
    return middle_ns + _CLEAR * median_low(abs(each - middle_ns) for each in excess_ns)


def _odd_among(
    ranks: Sequence[_Rank], job: str, named: str, time_ns: int, dilation: int
) -> Iterator[Case]:
    """Yield ranks that compute longer, or start later, than most of their peers.

    Texts contain undilated times.
    """
    starts = grouped(
        ((program.columns.kinds, row), start_ns)
        for program, _ in ranks
        for row, start_ns in enumerate(program.columns.starts_ns)
        if start_ns != NO_VALUE
    )
    expected = _expected_ns(ranks)
    clear_ns = _least_excess_ns(ranks, expected)
    least_ns = _LEAST_EXCESS * time_ns
    leads_ns = [_lead_ns(rank) for rank in ranks]
    usual_lead_ns = median_low(leads_ns)
    for rank, expected_ns, lead_ns in zip(ranks, expected, leads_ns, strict=True):
        program, rows = rank
        columns = program.columns
        place = f"{named} {program.rank}"
        extra_ns = {key: rank.amount_ns(key) - expected_ns[key] for key in rows}
        # A rank is late if it has extra computations before its first message.
        first = _first_message(program)
        own = {key for key in rows if not expected_ns[key]}
        before = {key for key in own if rows[key] < first}
        for cause, keys, bound_ns in (
            ("late rank", before, least_ns),
            ("slow compute", rows.keys() - own, max(least_ns, clear_ns)),
        ):
            longer = {key: extra_ns[key] for key in keys if extra_ns[key] > 0}
            # Measured times vary, so some are longer and others shorter.
            net_ns = sum(extra_ns[key] for key in keys)
            if cause == "late rank":
                # Peers may compute just as long before their first message.
                net_ns = min(net_ns, lead_ns - usual_lead_ns)
            if not longer or net_ns < bound_ns:
                continue
            most = max(longer, key=lambda key: (longer[key], key))
            yield _fault(
                cause,
                place,
                _with_columns(
                    job,
                    program,
                    amounts={rows[key]: expected_ns[key] for key in longer},
                ),
                f"computes {format_time(net_ns / dilation)} longer than its peers in "
                f"an iteration, most of it in {columns.name(rows[most])}",
                remedy="with the durations of its peers",
            )
        late_ns = {
            row: start_ns - median_high(sorted(starts[columns.kinds, row]))
            for row, start_ns in enumerate(columns.starts_ns)
            if start_ns != NO_VALUE
        }
        latest_ns = max(late_ns.values(), default=0)
        if latest_ns >= least_ns:
            usual = {
                row: columns.starts_ns[row] - max(0, lateness_ns)
                for row, lateness_ns in late_ns.items()
            }
            yield _fault(
                "late rank",
                place,
                _with_columns(job, program, starts_ns=usual),
                f"its recorded starts are up to {format_time(latest_ns / dilation)} "
                "later than those of its peers",
                remedy="with the starts of its peers",
            )


def uneven_computation(variant: Variant, odd: Sequence[Case]) -> Iterator[Case]:
    """Yield the uneven computation of each job as a limit of the design.

    The change makes ranks that communicate alike share their computations equally.

    Args:
        variant: The unchanged run.
        odd: Suspected ranks.  Their longer computations do not count as a limit.
    """
    usual = variant
    for case in odd:
        usual = case.change(usual)
    for job in usual.jobs:
        programs = tuple(job.programs)
        is_other = variant.alone not in (None, job.name)
        if is_other or any(each.splits for each in programs):
            continue
        alike = grouped((_messages(program), program) for program in programs)
        totals = [
            [program.columns.compute_ns for program in members]
            for members in alike.values()
        ]
        if all(max(each) <= _UNEVEN * fmean(each) for each in totals):
            continue
        yield _evened(
            job.name,
            "uneven computation",
            "with computations shared equally by ranks that communicate alike",
            _evenly_computed,
        )


def _evened(job: str, cause: str, what: str, evened: _Evened) -> Case:
    """Return a limit of a job, and the change that replaces all programs of the job."""

    def change(of: Variant) -> Variant:
        jobs = tuple(
            replace(each, programs=evened(tuple(each.programs)))
            if each.name == job
            else each
            for each in of.jobs
        )
        return replace(of, jobs=jobs)

    return Case(
        suspect=Suspect(
            cause=cause,
            place=f"job {job}",
            kind=CauseClass.LIMIT,
            advice=what,
            remedy=what,
        ),
        change=change,
    )


def _evenly_computed(programs: Sequence[RankProgram]) -> tuple[RankProgram, ...]:
    """Scale the computations of each rank to the mean time of ranks like it."""
    alike = grouped((_messages(program), program) for program in programs)
    changed = {}
    for members in alike.values():
        mean_ns = fmean(each.columns.compute_ns for each in members)
        for program in members:
            columns = program.columns
            scale = mean_ns / max(1, columns.compute_ns)
            amounts = array("q", columns.amounts)
            for row in columns.rows_of(COMPUTE):
                amounts[row] = round(amounts[row] * scale)
            columns = replace(columns, amounts=amounts)
            changed[program.rank] = replace(program, columns=columns)
    return tuple(changed[each.rank] for each in programs)


def uneven_routing(variant: Variant) -> Iterator[Case]:
    """Yield the uneven all-to-alls of each job as a limit of the design.

    The change gives each all-to-all equal parts.  It also makes ranks that communicate
    alike share the computations between all-to-alls equally.
    """
    for job in variant.jobs:
        programs = tuple(job.programs)
        is_other = variant.alone not in (None, job.name)
        # User-defined algorithms forward parts whose sizes would change, too.
        if is_other or not any(each.splits for each in programs):
            continue
        if any(each.algorithms for each in programs):
            continue
        yield _evened(
            job.name,
            "uneven routing",
            "with all-to-alls of equal parts, and equal computations between them",
            _evenly_routed,
        )


def _evenly_routed(programs: Sequence[RankProgram]) -> tuple[RankProgram, ...]:
    alike = grouped((_messages(program), program) for program in programs)
    changed = {}
    for members in alike.values():
        ranks = [_Rank(each, _computations(each)) for each in members]
        inputs = [_received_bytes(rank) for rank in ranks]
        found = grouped(pair for each in inputs for pair in each.items())
        uneven = {key for key, each in found.items() if min(each) < max(each)}
        times = grouped(
            (key, rank.amount_ns(key))
            for rank in ranks
            for key in uneven & {*rank.rows}
        )
        for program, rows in ranks:
            amounts = array("q", program.columns.amounts)
            for key in uneven & {*rows}:
                amounts[rows[key]] = round(fmean(times[key]))
            changed[program.rank] = replace(
                program,
                columns=replace(program.columns, amounts=amounts),
                splits=_even_splits(program),
            )
    return tuple(changed[each.rank] for each in programs)


def _even_splits(program: RankProgram) -> tuple[RankSplits, ...]:
    columns, splits = program.columns, list(program.splits)
    for row in range(len(columns)):
        place = columns.split(row)
        if place is not None:
            group = program.groups[columns.targets[row]]
            splits[place] = RankSplits(
                even_splits(
                    columns.amounts[row],
                    nranks=len(group.ranks),
                    position=group.position(program.rank),
                )
            )
    return tuple(splits)


def _fault(cause: str, place: str, change: Change, evidence: str, remedy: str) -> Case:
    return Case(
        suspect=Suspect(
            cause=cause,
            place=place,
            evidence=evidence,
            advice=RANK_ADVICE[cause],
            remedy=remedy,
        ),
        change=change,
    )


def _first_message(program: RankProgram) -> int:
    kinds = program.columns.kinds
    return next((row for row, kind in enumerate(kinds) if kind != COMPUTE), len(kinds))


def _with_columns(
    job: str, program: RankProgram, **changes: Mapping[int, int]
) -> Change:
    """Return a change that sets some rows in the columns of a program."""

    def changed(each: RankProgram) -> RankProgram:
        if each.rank != program.rank:
            return each
        columns: dict[str, Any] = {}
        for name, rows in changes.items():
            columns[name] = array("q", getattr(each.columns, name))
            for row, value in rows.items():
                columns[name][row] = value
        return replace(each, columns=replace(each.columns, **columns))

    return lambda of: replace(
        of,
        jobs=tuple(
            replace(each, programs=tuple(map(changed, each.programs)))
            if each.name == job
            else each
            for each in of.jobs
        ),
    )

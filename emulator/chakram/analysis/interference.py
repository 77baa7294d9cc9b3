"""Interference factor: slowdown of a job because other jobs share its fabric.

A job runs alone (times a) and together with other jobs (times t), on the same ports
and paths.  Over the measured iterations::

    factor      = mean(t) / mean(a)
    spread      = factor * sqrt(cv(t)**2 / n(t) + cv(a)**2 / n(a))
    p99 factor  = p99(t) / p99(a)

Here n is the number of samples and cv their coefficient of variation.  The spread is
the standard error of a ratio of two means, to first order.  Each kind of collective of
the job (operation, algorithm, number of ranks, size) has the same three values.

The *overlap* is the share of the job's time in which another job was running. The job's
time lasts from the start of its first measured iteration to the end of its last
measured iteration. With a low overlap, the factor does not describe a shared fabric.

A delay caused by the traffic generator distorts the factor, because the network did not
cause it.  ``bound`` counts the collectives with such a delay in both runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.grouping import spans
from chakram.records.run_records import (
    CollectiveRecord,
    RankRecord,
    generator_wait_share,
)
from chakram.summary.bandwidth import coefficient_of_variation, percentile
from chakram.summary.run_summary import Measurements

_NEVER = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """Ratio of times with other jobs to times alone, with undilated means in ns."""

    alone_ns: float
    together_ns: float
    factor: float
    spread: float
    p99_factor: float
    alone_samples: int
    together_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveFactor:
    """The factor of one kind of collective in a job."""

    op: CollectiveOp
    algorithm: str
    nranks: int
    size_bytes: int
    factor: Factor
    bound: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInterference:
    """The factors of a job's iterations and of its collectives.

    Attributes:
        job: Name of the job.
        factor: Factor of the iterations.
        overlap: Share of the job's time in which another job was running, 0 to 1.
        bound: Number of generator-bound collectives in both runs, out of ``verdicts``.
        verdicts: Number of measured collectives in both runs, without barriers.
        wait_share: Largest share of time that any kind of collective spent waiting for
            the generator, in either run.
        collectives: Factors by kind of collective, ordered by operation, algorithm,
            number of ranks and size.
    """

    job: str
    factor: Factor
    overlap: float
    bound: int
    verdicts: int
    wait_share: float
    collectives: tuple[CollectiveFactor, ...]


def interference(
    together: Measurements,
    alone: Mapping[str, Measurements],
    *,
    endless: Collection[str] = (),
) -> list[JobInterference]:
    """Return the factors of all jobs that were measured both alone and with others.

    Args:
        together: Measurements of all jobs running at once.
        alone: Measurements of a run of each job alone, by job.
        endless: Jobs that repeat until the others end.  Their unrecorded last iteration
            counts as running time.
    """
    found = []
    for job, apart in alone.items():
        before, after = (
            _iterations([r for r in each.ranks if r.job == job and r.measured])
            for each in (apart, together)
        )
        if not before or not after:
            continue
        kinds = _by_kind(apart.collectives, job), _by_kind(together.collectives, job)
        judged = [
            record
            for by_kind in kinds
            for records in by_kind.values()
            for record in records
        ]
        others = _iterations([r for r in together.ranks if r.job != job])
        others += [
            (max(r.end_ns for r in together.ranks if r.job == other), _NEVER)
            for other in {r.job for r in together.ranks} & set(endless) - {job}
        ]
        found.append(
            JobInterference(
                job=job,
                factor=_factor(
                    [end_ns - start_ns for start_ns, end_ns in before],
                    [end_ns - start_ns for start_ns, end_ns in after],
                    apart,
                    together,
                ),
                overlap=_overlap(after, others),
                bound=sum(record.generator_bound for record in judged),
                verdicts=len(judged),
                wait_share=max(
                    (
                        generator_wait_share(records)
                        for by_kind in kinds
                        for records in by_kind.values()
                    ),
                    default=0.0,
                ),
                collectives=_collectives(kinds[0], kinds[1], apart, together),
            )
        )
    return found


def _factor(
    before_ns: Sequence[int],
    after_ns: Sequence[int],
    apart: Measurements,
    together: Measurements,
) -> Factor:
    alone_ns = sum(before_ns) / len(before_ns) / apart.facts.dilation
    together_ns = sum(after_ns) / len(after_ns) / together.facts.dilation
    # A simulated fabric without rates or delays has times of 0 ns.
    factor = together_ns / alone_ns if alone_ns else 1.0
    variances = [
        coefficient_of_variation(times_ns) ** 2 / len(times_ns)
        for times_ns in (before_ns, after_ns)
    ]
    tails = [
        percentile(times_ns, 99) / each.facts.dilation
        for times_ns, each in ((before_ns, apart), (after_ns, together))
    ]
    return Factor(
        alone_ns=alone_ns,
        together_ns=together_ns,
        factor=factor,
        spread=factor * sqrt(sum(variances)),
        p99_factor=tails[1] / tails[0] if tails[0] else 1.0,
        alone_samples=len(before_ns),
        together_samples=len(after_ns),
    )


def _iterations(records: Sequence[RankRecord]) -> list[tuple[int, int]]:
    """Return the first start and the last end of each iteration over its ranks."""
    times = (((r.job, r.iteration), r.start_ns, r.end_ns) for r in records)
    return list(spans(times).values())


def _overlap(
    own: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]
) -> float:
    """Return the share of a job's time in which another job was running."""
    reached_ns = first_ns = min(start_ns for start_ns, _ in own)
    last_ns = max(end_ns for _, end_ns in own)
    covered_ns = 0
    for begin_ns, end_ns in sorted(others):
        begin_ns, end_ns = max(begin_ns, reached_ns), min(end_ns, last_ns)
        if end_ns > begin_ns:
            covered_ns += end_ns - begin_ns
            reached_ns = end_ns
    return covered_ns / (last_ns - first_ns) if last_ns > first_ns else 0.0


_Kind = tuple[int, str, int, int]


def _by_kind(
    records: Sequence[CollectiveRecord], job: str
) -> dict[_Kind, list[CollectiveRecord]]:
    """Return the measured collectives of a job by kind, without barriers."""
    found: dict[_Kind, list[CollectiveRecord]] = {}
    for record in records:
        identity = record.identity
        if identity.key.job == job and record.is_judged:
            number = list(CollectiveOp).index(identity.op)
            kind = (number, identity.algorithm, identity.nranks, identity.size_bytes)
            found.setdefault(kind, []).append(record)
    return found


def _collectives(
    before: Mapping[_Kind, Sequence[CollectiveRecord]],
    after: Mapping[_Kind, Sequence[CollectiveRecord]],
    apart: Measurements,
    together: Measurements,
) -> tuple[CollectiveFactor, ...]:
    return tuple(
        CollectiveFactor(
            op=list(CollectiveOp)[kind[0]],
            algorithm=kind[1],
            nranks=kind[2],
            size_bytes=kind[3],
            factor=_factor(
                [record.duration_ns for record in before[kind]],
                [record.duration_ns for record in after[kind]],
                apart,
                together,
            ),
            bound=sum(
                record.generator_bound for record in (*before[kind], *after[kind])
            ),
        )
        for kind in sorted(before.keys() & after.keys())
    )

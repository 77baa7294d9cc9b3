"""Bandwidths of collectives and statistics of samples, defined as in nccl-tests.

**algbw** is S / t: S the size column of nccl-tests (``nccl_size_bytes``), t the time of
the collective.  How large it can get depends on the collective and the number of
ranks.

**busbw** is algbw times a factor, chosen so that the bound of a network of n ports of
rate B is B whatever the collective and n.  An all_reduce must move 2(n - 1)S bytes in
all and n ports move nB in unit time, so t >= S/B x 2(n - 1)/n, hence the factor
2(n - 1)/n.  For all_gather, reduce_scatter, all_to_all, gather and scatter each (or the
busiest) port carries at least (n - 1)/n of S: factor (n - 1)/n.  For broadcast, reduce
and send_recv all of S crosses the root's port: factor 1.

all_to_all_v has the factor of all_to_all, as in rccl-tests.  Its splits may keep more
than 1/n of the bytes at home, or less, so there busbw is no bound of a port.

Source: nccl-tests, doc/PERFORMANCE.md and the ``*GetBw`` functions of its sources
(factors of gather, scatter and sendrecv, which the document does not have).

Percentiles are nearest rank: the smallest sample that at least p percent of the samples
do not exceed, index ceil(n p / 100) - 1; always a value that was measured.  That is
nccl-tests' p95 and p99; its p50 is ``sorted[n / 2]``, one sample later where n is even.
The coefficient of variation uses the population's standard deviation, as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import sqrt

from chakram.collectives.ops import CollectiveOp

_WHOLE = frozenset(
    {CollectiveOp.BROADCAST, CollectiveOp.REDUCE, CollectiveOp.SEND_RECV}
)


def bus_factor(op: CollectiveOp, *, nranks: int) -> Fraction:
    """Return busbw / algbw of *op*; 0 for a barrier, which has no bandwidth.

    Raises:
        ValueError: If *nranks* is not positive.
    """
    if nranks <= 0:
        raise ValueError(f"{op} of {nranks} ranks has no bandwidth")
    if op == CollectiveOp.BARRIER:
        return Fraction(0)
    if op in _WHOLE:
        return Fraction(1)
    factor = Fraction(nranks - 1, nranks)
    return 2 * factor if op == CollectiveOp.ALL_REDUCE else factor


def algorithm_bandwidth(*, size_bytes: int, elapsed_ns: int) -> float:
    """Return the algorithm bandwidth of one collective, in bytes per second.

    Args:
        size_bytes: nccl-tests' S: the whole buffer of one rank, for all_gather and
            gather the concatenation of all shards.
        elapsed_ns: First start to last end over the ranks.

    Raises:
        ValueError: If *elapsed_ns* is not positive.
    """
    if elapsed_ns <= 0:
        raise ValueError(f"a collective cannot take {elapsed_ns} ns")
    return size_bytes * 1e9 / elapsed_ns


def percentile(samples: Sequence[int], percent: float | Fraction) -> int:
    """Return the nearest-rank percentile of *samples*, which need not be sorted.

    Raises:
        ValueError: If there are no samples, or *percent* is not in (0, 100].
    """
    if not samples:
        raise ValueError("there is no percentile of no samples")
    # 99.9 is no binary fraction: as one it would name the last of 1,000 samples.
    exact = percent if isinstance(percent, Fraction) else Fraction(str(percent))
    if not 0 < exact <= 100:
        raise ValueError(f"{percent} is not a percentage above 0")
    return sorted(samples)[-(-len(samples) * exact // 100) - 1]


def coefficient_of_variation(samples: Sequence[float]) -> float:
    """Return standard deviation over mean, of the population; 0 if all are 0.

    Raises:
        ValueError: If there are no samples.
    """
    if not samples:
        raise ValueError("no samples do not vary")
    mean = sum(samples) / len(samples)
    if not mean:
        return 0.0
    return sqrt(sum((x - mean) ** 2 for x in samples) / len(samples)) / mean


def jain_index(loads: Sequence[float]) -> float | None:
    """Return (sum x)^2 / (n sum x^2): 1 is even, 1/n all on one; None if all are 0.

    Source: Jain, Chiu and Hawe, A quantitative measure of fairness, DEC-TR-301 (1984).
    """
    squares = sum(load**2 for load in loads)
    return sum(loads) ** 2 / (len(loads) * squares) if squares else None

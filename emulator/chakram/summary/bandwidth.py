"""Bandwidths of collectives and statistics of samples, defined as in nccl-tests.

**algbw** is S / t.  S is the size column of nccl-tests (``nccl_size_bytes``), and t is
the time of the collective.  Its maximum depends on the collective and on the number of
ranks.

**busbw** is algbw times a factor.  With this factor, a network of n ports of rate B
limits busbw to B, for every collective and every n.  An all_reduce moves at least
2(n - 1)S bytes, and n ports move nB per unit of time.  So t >= S/B x 2(n - 1)/n, and
the factor is 2(n - 1)/n.  For all_gather, reduce_scatter, all_to_all, gather and
scatter, the busiest port carries at least (n - 1)/n of S, so the factor is (n - 1)/n.
For broadcast, reduce and send_recv, all of S crosses the root's port, so the factor is
1.

all_to_all_v has the factor of all_to_all, as in rccl-tests.  Its splits may keep more
or less than 1/n of the bytes on the rank itself.  So the port rate does not limit its
busbw.

Source: nccl-tests, doc/PERFORMANCE.md.  The factors of gather, scatter and sendrecv are
missing in this document, and come from the ``*GetBw`` functions in the source code.

Percentiles are nearest rank: the smallest sample that at least p percent of the samples
do not exceed, at index ceil(n p / 100) - 1.  A percentile is always a measured value.
nccl-tests computes p95 and p99 in the same way.  Its p50 is ``sorted[n / 2]``, which is
one sample later if n is even.  The coefficient of variation uses the population's
standard deviation, as in nccl-tests.
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
    """Return busbw / algbw of *op*, or 0 for a barrier, which has no bandwidth.

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
        size_bytes: nccl-tests' S, which is the whole buffer of one rank.  For
            all_gather and gather, it is the concatenation of all shards.
        elapsed_ns: Time from the first start to the last end over the ranks.

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
        raise ValueError("a percentile needs at least one sample")
    # 99.9 has no exact binary form, so a float would select the last of 1,000 samples.
    exact = percent if isinstance(percent, Fraction) else Fraction(str(percent))
    if not 0 < exact <= 100:
        raise ValueError(f"{percent} is not a percentage above 0")
    return sorted(samples)[-(-len(samples) * exact // 100) - 1]


def coefficient_of_variation(samples: Sequence[float]) -> float:
    """Return the population standard deviation divided by the mean, or 0 for mean 0.

    Raises:
        ValueError: If there are no samples.
    """
    if not samples:
        raise ValueError("a coefficient of variation needs at least one sample")
    mean = sum(samples) / len(samples)
    if not mean:
        return 0.0
    return sqrt(sum((x - mean) ** 2 for x in samples) / len(samples)) / mean


def jain_index(loads: Sequence[float]) -> float | None:
    """Return Jain's fairness index (sum x)^2 / (n sum x^2), or None if all are 0.

    1 means equal loads, and 1/n means that one member has the whole load.

    Source: Jain, Chiu and Hawe, A quantitative measure of fairness, DEC-TR-301 (1984).
    """
    squares = sum(load**2 for load in loads)
    return sum(loads) ** 2 / (len(loads) * squares) if squares else None

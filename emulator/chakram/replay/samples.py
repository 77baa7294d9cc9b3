"""What queue pairs have done, as the rows that a run records of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.results.records import SHARE_UNIT
from chakram.results.statistics import row_of

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan
    from chakram.results.statistics import QueuePairStatistics

__all__ = ["queue_pair_owners", "queue_pair_row"]


def queue_pair_owners(plan: AgentPlan) -> dict[tuple[int, int], tuple[int, int]]:
    """Return by (port, QPN) the numbers of the rank and its peer in the plan."""
    numbers = plan.numbers()
    return {
        (rank.port, pair.qpn): (rank.number, numbers[rank.program.job, pair.peer_rank])
        for rank in plan.ranks
        for pair in rank.queue_pairs
    }


def queue_pair_row(
    time_ns: int, rank: int, peer: int, qpn: int, counters: QueuePairStatistics
) -> tuple[int, ...]:
    """Return the values of ``QUEUE_PAIR_FIELDS``."""
    alpha = counters.alpha
    return (
        time_ns,
        rank,
        peer,
        qpn,
        counters.rate_bps or 0,
        counters.target_bps or 0,
        -1 if alpha is None else round(alpha * SHARE_UNIT),
        *row_of(counters),
    )

"""Do messages leave their port at all?

Ranks that share a port share its address: the kernel brings what they tell one another
from one socket to the next, and the fabric under test never sees a packet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.errors import PlanError

if TYPE_CHECKING:
    from chakram.plan.plan import Plan

__all__ = ["refuse_neighbours_on_one_port"]


def refuse_neighbours_on_one_port(plan: Plan) -> None:
    """Refuse a plan in which ranks of one port send to one another.

    Raises:
        PlanError: With the first two of them.
    """
    for rank in plan.ranks():
        for pair in rank.queue_pairs:
            if pair.remote_port == rank.port and pair.local_rate_bps is None:
                job = rank.program.job
                raise PlanError(
                    f"job {job}: placement",
                    f"ranks {rank.program.rank} and {pair.peer_rank} share port "
                    f"{rank.port}, and what they send to each other (group "
                    f"{pair.group!r}) would never reach the fabric",
                    "give each a port of its own (ranks_per_port: 1), leave what they "
                    "exchange off the fabric (placement.same_host: skip), or use "
                    "fabric kind loopback",
                )

"""Times of single collectives on an idle network, at level message or flow."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import partial
from typing import TYPE_CHECKING

from chakram.foundation.errors import RunFailed
from chakram.foundation.units import LAST_INSTANT_NS
from chakram.predict.levels.collective_messages import uneven_columns
from chakram.predict.levels.cost_models import Division
from chakram.predict.levels.row_offsets import NONE
from chakram.predict.levels.run_plan import LocalPlace
from chakram.preparation.predictions import AloneTimes, smallest_first
from chakram.preparation.schedule_bounds import CollectiveKind, collective_kinds

if TYPE_CHECKING:
    from chakram.plan.plan import Plan, RankPlan
    from chakram.predict.levels.collective_messages import MessageColumns
    from chakram.predict.levels.pending_messages import Traffic


class IsolatedCollectives:
    """Simulates the collectives of a plan one by one.

    Args:
        plan: The plan, whose queue pairs need not be planned.
        traffic: Traffic model of the level, without faults. Nothing else may use it.
        host_of: For each port, the number of its host.
        places: For each rank number, the handling of its messages within its server.
    """

    def __init__(
        self,
        plan: Plan,
        traffic: Traffic,
        *,
        host_of: Mapping[int, int],
        places: Mapping[int, LocalPlace],
    ) -> None:
        self._plan = plan
        self._traffic = traffic
        traffic.is_alone = True
        self._host_of = host_of
        self._places = places
        self._rank_of: dict[tuple[str, int], RankPlan] = {
            (rank.program.job, rank.program.rank): rank for rank in plan.ranks()
        }

    def times(self, recorded: Container[int] | None, most_messages: int) -> AloneTimes:
        """Simulate one collective of each kind, the smallest ones first.

        Args:
            recorded: Numbers of the ranks whose collectives are wanted. None means all
                ranks.
            most_messages: Maximum number of messages in all simulations together.
        """
        path_mtu = self._plan.agents[0].transport.path_mtu
        kinds = []
        for kind, keys in collective_kinds(self._plan, recorded).items():
            messages = kind.traffic(path_mtu).messages
            if self._traffic.is_folded:
                messages //= len(kind.members)
            kinds.append((messages, keys, partial(self.time_ns, kind)))
        return smallest_first(kinds, most_messages)

    def time_ns(self, kind: CollectiveKind) -> int:
        """Return the time from the common start of all ranks to the last end.

        Raises:
            RunFailed: If the collective does not end.
        """
        traffic = self._traffic
        nranks = len(kind.members)

        def columns() -> MessageColumns:
            if kind.matrix is not None:
                return uneven_columns(kind.how, kind.matrix)
            return Division().columns(
                kind.how, nranks=nranks, root=kind.root, input_bytes=kind.input_bytes
            )

        key = kind.how, nranks, kind.root, kind.input_bytes, kind.matrix
        first = traffic.open(traffic.shape(key, columns))
        begin_ns = traffic.now_ns
        members = kind.members[:1] if traffic.is_folded else kind.members
        for share, member in enumerate(members, first):
            rank = self._rank_of[kind.job, member]
            local = self._places.get(rank.number, LocalPlace())
            traffic.place(
                share, self._host_of[rank.port], rank.number, local.server, local.line
            )
        waiting = len(members)
        for share in range(first, first + waiting):
            traffic.begin(share, 0, 0, NONE)
        while waiting:
            if not traffic.done and not traffic.run(LAST_INSTANT_NS):
                raise RunFailed(
                    "simulation",
                    f"a collective of {nranks} ranks of job {kind.job} does not end "
                    "by itself",
                    "check its algorithm: chakram algorithms check",
                )
            waiting -= len(traffic.done)
            traffic.done = []
        traffic.close(first)
        return traffic.now_ns - begin_ns

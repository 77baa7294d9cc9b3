"""What never changes of a rank's program, in the form in which replay reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import PlanError
from chakram.program.columns import COLLECTIVE, COMPUTE, RECEIVE, SEND
from chakram.program.operations import POINT_TO_POINT
from chakram.replay.queue_pair_roles import Pair
from chakram.trace.open_ended_columns import NO_VALUE

if TYPE_CHECKING:
    from chakram.plan.plan import RankPlan


MOST_RANKS = 1 << 29
"""Ranks of one job; a peer, a message's number and two more bits have to fit 64."""


class ProgramTables:
    """Lists over the operations of a program, and numbers for its groups.

    Args:
        plan: The rank with its program, which is sound, and queue pairs.
        first_place: Of its first queue pair, see ``Pair``.

    Attributes:
        kinds: By operation, what it is; see ``chakram.program.columns``.
        durations_ns: By operation, how long it computes, 0 if it communicates.
        streams: By operation, the stream that it computes on.
        targets: By operation, number of the group, or rank of the peer.
        numbers: By operation, its number in the group, or between the two ranks.
        are_barriers: By operation, whether it is one.
        groups: Number of each process group, by name.
        point_to_point: Stands for a group of a pair: no group, but messages from rank
            to rank.
        pairs: The queue pairs by QPN, in the order of the plan.
        collectives: By number of a group, its collectives in one iteration.
        sends: By rank, the messages to it in one iteration.
        receives: By rank, the messages from it in one iteration.

    Raises:
        PlanError: If messages are not counted from 0 on, or a queue pair belongs to a
            group that the program does not have.
    """

    __slots__ = (
        "are_barriers",
        "collectives",
        "durations_ns",
        "groups",
        "kinds",
        "numbers",
        "pairs",
        "point_to_point",
        "receives",
        "sends",
        "streams",
        "targets",
    )

    def __init__(self, plan: RankPlan, first_place: int = 0) -> None:
        program = plan.program
        where = f"job {program.job} rank {program.rank}"
        columns = program.columns
        self.kinds = columns.kinds
        computes = [kind == COMPUTE for kind in columns.kinds]
        self.durations_ns = [
            amount if is_compute else 0
            for amount, is_compute in zip(columns.amounts, computes, strict=True)
        ]
        self.streams = [
            detail if is_compute and detail != NO_VALUE else None
            for detail, is_compute in zip(columns.details, computes, strict=True)
        ]
        self.numbers = list(columns.numbers)
        self.targets = [
            program.peers[target] if kind in (SEND, RECEIVE) else target
            for kind, target in zip(columns.kinds, columns.targets, strict=True)
        ]
        barriers = {
            place
            for place, (op, _) in enumerate(columns.all_algorithms)
            if op == CollectiveOp.BARRIER
        }
        self.are_barriers = bytes(
            kind == COLLECTIVE and place in barriers
            for kind, place in zip(columns.kinds, columns.algorithms, strict=True)
        )
        self.groups = {
            group.name: number for number, group in enumerate(program.groups)
        }
        if POINT_TO_POINT in self.groups:
            raise PlanError(
                where,
                f"a process group is called {POINT_TO_POINT!r}, as the queue pairs of "
                "point-to-point messages are",
                "rename the group",
            )
        self.point_to_point = len(self.groups)
        self.pairs: dict[int, Pair] = {}
        for pair in plan.queue_pairs:
            group = (
                self.point_to_point
                if pair.group == POINT_TO_POINT
                else self.groups.get(pair.group)
            )
            if group is None:
                raise PlanError(
                    where,
                    f"queue pair {pair.qpn} is for process group {pair.group!r}, which "
                    "the program does not have",
                    "the plan does not belong to this program",
                )
            if not 0 <= pair.peer_rank < MOST_RANKS:
                raise PlanError(
                    where,
                    f"queue pair {pair.qpn} leads to rank {pair.peer_rank}",
                    f"ranks are 0 to {MOST_RANKS - 1}",
                )
            place = first_place + len(self.pairs)
            self.pairs[pair.qpn] = Pair(pair.qpn, group, pair.peer_rank, place)
        self.collectives = [0] * len(self.groups)
        for row in columns.rows_of(COLLECTIVE):
            self.collectives[self.targets[row]] += 1
        self.sends = self._counted(columns.rows_of(SEND), f"{where}: messages to")
        self.receives = self._counted(
            columns.rows_of(RECEIVE), f"{where}: messages from"
        )

    def _counted(self, rows: list[int], where: str) -> dict[int, int]:
        """Return how many there are by rank; they have to be 0, 1, 2, ... somehow."""
        numbers: dict[int, list[int]] = {}
        for row in rows:
            numbers.setdefault(self.targets[row], []).append(self.numbers[row])
        for peer, found in numbers.items():
            if sorted(found) != list(range(len(found))):
                raise PlanError(
                    f"{where} rank {peer}",
                    f"they are not numbered 0..{len(found) - 1}",
                    "lower the trace again",
                )
        return {peer: len(found) for peer, found in numbers.items()}

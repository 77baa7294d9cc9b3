"""Constant tables of a rank's program, laid out for the replay."""

from __future__ import annotations

from chakram.collectives.groups import POINT_TO_POINT
from chakram.collectives.ops import CollectiveOp
from chakram.foundation.errors import PlanError
from chakram.plan.plan import RankPlan
from chakram.program.columns import COLLECTIVE, COMPUTE, RECEIVE, SEND
from chakram.replay.rank_queue_pair import Pair
from chakram.trace.nullable_columns import NO_VALUE

MOST_RANKS = 1 << 29
"""Maximum number of ranks per job.

A peer, a message number and two bits must fit into 64 bits.
"""


class ProgramTables:
    """Lists by operation for one program, and the numbers of its process groups.

    Args:
        plan: The rank with its queue pairs and its program, which must be valid.
        first_place: Place of the rank's first queue pair: see ``Pair``.

    Attributes:
        kinds: Kind of each operation: see ``chakram.program.columns``.
        durations_ns: Compute time of each operation; 0 for communication.
        streams: Compute stream of each operation, or None.
        targets: Group number of each collective, or peer rank of each send or receive.
        numbers: Number of each collective in its group, or of each send or receive
            between its two ranks.
        are_barriers: Whether each operation is a barrier.
        groups: Number of each process group, by name.
        point_to_point: Group number of queue pairs for point-to-point messages.
        pairs: The queue pairs by QPN, in the order of the plan.
        collectives: Number of collectives in one iteration, by group number.
        sends: Number of messages sent in one iteration, by peer rank.
        receives: Number of messages received in one iteration, by peer rank.

    Raises:
        PlanError: If message numbers do not start at 0 or have gaps, or if a queue pair
            belongs to a group that the program lacks.
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
                f"a process group is called {POINT_TO_POINT!r}, which is reserved for "
                "queue pairs of point-to-point messages",
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
                    "is not in the program",
                    "use the plan of this program",
                )
            if not 0 <= pair.peer_rank < MOST_RANKS:
                raise PlanError(
                    where,
                    f"queue pair {pair.qpn} leads to rank {pair.peer_rank}",
                    f"use ranks 0 to {MOST_RANKS - 1}",
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
        """Return the number of messages by peer, after a check of their numbers."""
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

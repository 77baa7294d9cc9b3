"""What never changes of a rank's program, in the form in which replay reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.errors import PlanError
from chakram.program.operations import (
    POINT_TO_POINT,
    CollectiveOperation,
    ComputeOperation,
    ReceiveOperation,
    SendOperation,
    check_program,
)

if TYPE_CHECKING:
    from chakram.plan.plan import RankPlan

__all__ = ["MOST_RANKS", "ProgramTables"]

MOST_RANKS = 1 << 29
"""Ranks of one job; a peer, a message's number and two more bits have to fit 64."""


class ProgramTables:
    """Lists over the operations of a program, and numbers for its groups.

    Args:
        plan: The rank with its program and queue pairs.

    Attributes:
        durations_ns: By operation, how long it computes, 0 if it communicates.
        streams: By operation, the stream that it computes on.
        groups: Number of each process group, by name.
        point_to_point: Stands for a group in ``group_of_qpn``: no group, but messages
            from rank to rank.
        group_of_qpn: What the messages of a queue pair belong to.
        peer_of_qpn: The rank at the other end.
        collectives: By number of a group, its collectives in one iteration.
        sends: By rank, the messages to it in one iteration.
        receives: By rank, the messages from it in one iteration.

    Raises:
        PlanError: If the program contradicts itself, or a queue pair belongs to a group
            that the program does not have.
    """

    __slots__ = (
        "collectives",
        "durations_ns",
        "group_of_qpn",
        "groups",
        "peer_of_qpn",
        "point_to_point",
        "receives",
        "sends",
        "streams",
    )

    def __init__(self, plan: RankPlan) -> None:
        program = plan.program
        where = f"job {program.job} rank {program.rank}"
        problems = check_program(program)
        if problems:
            raise PlanError("plan", problems[0], "lower the trace again")
        operations = program.operations
        self.durations_ns = [
            operation.duration_ns if isinstance(operation, ComputeOperation) else 0
            for operation in operations
        ]
        self.streams = [
            operation.stream if isinstance(operation, ComputeOperation) else None
            for operation in operations
        ]
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
        self.group_of_qpn: dict[int, int] = {}
        self.peer_of_qpn: dict[int, int] = {}
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
            self.group_of_qpn[pair.qpn] = group
            self.peer_of_qpn[pair.qpn] = pair.peer_rank
        self.collectives = [0] * len(self.groups)
        sends: dict[int, list[int]] = {}
        receives: dict[int, list[int]] = {}
        for operation in operations:
            if isinstance(operation, CollectiveOperation):
                self.collectives[self.groups[operation.group]] += 1
            elif isinstance(operation, SendOperation):
                sends.setdefault(operation.peer, []).append(operation.number)
            elif isinstance(operation, ReceiveOperation):
                receives.setdefault(operation.peer, []).append(operation.number)
        self.sends = _counted(sends, f"{where}: messages to")
        self.receives = _counted(receives, f"{where}: messages from")


def _counted(numbers: dict[int, list[int]], where: str) -> dict[int, int]:
    """Return how many there are by rank; they have to be 0, 1, 2, ... in any order."""
    for peer, found in numbers.items():
        if sorted(found) != list(range(len(found))):
            raise PlanError(
                f"{where} rank {peer}",
                f"they are not numbered 0..{len(found) - 1}",
                "lower the trace again",
            )
    return {peer: len(found) for peer, found in numbers.items()}

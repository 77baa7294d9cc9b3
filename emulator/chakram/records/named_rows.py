"""Conversion of rows of numbers to named records.

Rows identify ranks and operations by number (``chakram.records.row_layout``).  The plan
maps these numbers to names.  Flows remain columns of numbers, because a run may have
millions of them.  Collectives become objects, because each collective joins the shares
of several ranks.
"""

from __future__ import annotations

from array import array
from collections.abc import Container
from dataclasses import replace

from chakram.collectives.groups import POINT_TO_POINT
from chakram.collectives.ops import ROOTED, CollectiveOp
from chakram.foundation.errors import PlanError
from chakram.plan.plan import Plan
from chakram.program.columns import COLLECTIVE, COMPUTE, RECEIVE, SEND
from chakram.program.operations import RankProgram
from chakram.records.row_layout import IterationRow, rows_of
from chakram.records.run_records import (
    CollectiveIdentity,
    CollectiveKey,
    RankRecord,
)


class OperationTable:
    """Lookup of ranks, collectives and messages by their numbers in record rows.

    The operations of all ranks are numbered consecutively, as ``first[rank] +
    operation``.

    Args:
        plan: Plan of the run.
        recorded: Numbers of the ranks whose operations have rows. A collective consists
            of the shares of these ranks only. None means all ranks.

    Attributes:
        identities: All collectives and point-to-point messages of an iteration.
        first: Number of each rank's first operation, by rank number.
        identity_of: Index in ``identities`` by operation number, or -1 for
            computations.
        ranks: Job and rank in the job, by rank number.
    """

    def __init__(self, plan: Plan, recorded: Container[int] | None = None) -> None:
        """Number the operations of *plan*.

        Raises:
            PlanError: If the numbers of the ranks are not 0, 1, 2 ...
        """
        ranks = plan.ranks()
        if [rank.number for rank in ranks] != list(range(len(ranks))):
            raise PlanError(f"plan {plan.run_id}", "ranks are not numbered 0, 1, 2 ...")
        self.ranks = [(rank.program.job, rank.program.rank) for rank in ranks]
        self.first = array("q")
        self.identity_of = array("q")
        self._receives = bytearray()
        index_of: dict[CollectiveKey, int] = {}
        found: list[CollectiveIdentity] = []
        shares: list[int] = []
        for rank in ranks:
            program = rank.program
            self.first.append(len(self.identity_of))
            if recorded is not None and rank.number not in recorded:
                continue
            for row, kind in enumerate(program.columns.kinds):
                self._receives.append(kind == RECEIVE)
                if kind == COMPUTE:
                    self.identity_of.append(-1)
                    continue
                key = _key(program, row)
                index = index_of.setdefault(key, len(found))
                if index == len(found):
                    found.append(_identity(program, row, key))
                    shares.append(0)
                elif kind != COLLECTIVE:
                    other = _identity(program, row, key)
                    found[index] = (
                        replace(
                            found[index],
                            name=other.name,
                            send_node_id=other.send_node_id,
                        )
                        if kind == SEND
                        else replace(
                            found[index],
                            receive_name=other.receive_name,
                            receive_node_id=other.receive_node_id,
                        )
                    )
                shares[index] += 1
                self.identity_of.append(index)
        self.identities = [
            replace(identity, shares=count)
            for identity, count in zip(found, shares, strict=True)
        ]

    def operation_number(self, rank: int, operation: int) -> int:
        """Return the number of an operation among the operations of all ranks.

        Raises:
            ValueError: If there is no such rank or no such operation.
        """
        if 0 <= rank < len(self.first) and operation >= 0:
            end = (
                self.first[rank + 1]
                if rank + 1 < len(self.first)
                else len(self.identity_of)
            )
            if self.first[rank] + operation < end:
                return self.first[rank] + operation
        raise ValueError(f"the plan has no operation {operation} of rank {rank}")

    def rank(self, number: int) -> tuple[str, int]:
        """Return the job of rank *number*, and its rank in the job.

        Raises:
            ValueError: If there is no such rank.
        """
        if not 0 <= number < len(self.ranks):
            raise ValueError(f"the plan has no rank number {number}")
        return self.ranks[number]

    def is_receive(self, number: int) -> bool:
        """Return whether an operation is the receiving side of a message."""
        return bool(self._receives[number])


def _key(program: RankProgram, row: int) -> CollectiveKey:
    """Return the key of the collective or message to which an operation belongs."""
    columns = program.columns
    target, number = columns.targets[row], columns.numbers[row]
    if columns.kinds[row] == COLLECTIVE:
        return CollectiveKey(program.job, program.groups[target].name, number)
    ends = program.rank, program.peers[target]
    source, destination = ends if columns.kinds[row] == SEND else ends[::-1]
    pair = f"{POINT_TO_POINT}:{source}>{destination}"
    return CollectiveKey(program.job, pair, number)


def _identity(program: RankProgram, row: int, key: CollectiveKey) -> CollectiveIdentity:
    """Return the collective or message of an operation, from one rank's program."""
    columns = program.columns
    kind, name = columns.kinds[row], columns.name(row)
    if kind == COLLECTIVE:
        op, algorithm = columns.all_algorithms[columns.algorithms[row]]
        return CollectiveIdentity(
            key=key,
            name=name,
            op=op,
            algorithm=algorithm,
            nranks=len(program.groups[columns.targets[row]].ranks),
            root=columns.details[row] if op in ROOTED else None,
            input_bytes=columns.amounts[row],
            trace_bytes=columns.trace_bytes[row],
            shares=0,
        )
    node_id = columns.node_id(row)
    return CollectiveIdentity(
        key=key,
        name=name,
        op=CollectiveOp.SEND_RECV,
        algorithm="send",
        nranks=2,
        root=None,
        input_bytes=columns.amounts[row],
        trace_bytes=columns.trace_bytes[row],
        shares=0,
        send_node_id=node_id if kind == SEND else None,
        receive_node_id=node_id if kind == RECEIVE else None,
        receive_name=name if kind == RECEIVE else None,
    )


def rank_records(
    rows: array[int],
    operations: OperationTable,
    *,
    warmup: int,
) -> list[RankRecord]:
    """Return the records of rank iterations in *rows* (of ``ITERATION_FIELDS``).

    Raises:
        ValueError: If a row does not belong to the plan.
    """
    records = []
    for row in rows_of(IterationRow, rows):
        job, rank = operations.rank(row.rank)
        values = row._asdict() | {
            "number": row.rank,
            "job": job,
            "rank": rank,
            "measured": row.iteration >= warmup,
        }
        records.append(RankRecord(**values))
    return records

"""From rows of numbers to named records: what the rows of a run mean.

Rows name ranks and operations by number (``chakram.results.records``); the plan says
what the numbers stand for.  Flows stay columns, because there are millions of them;
collectives become objects, because a collective is the work of several ranks and its
record exists only when their shares have been joined.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

from chakram.collectives.ops import ROOTED, CollectiveOp
from chakram.errors import PlanError
from chakram.program.operations import (
    POINT_TO_POINT,
    CollectiveOperation,
    ReceiveOperation,
    SendOperation,
)
from chakram.results.records import FLOW_FIELDS, ITERATION_FIELDS
from chakram.results.run_records import (
    CollectiveIdentity,
    CollectiveKey,
    RankRecord,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.plan.plan import Plan


class OperationTable:
    """Looks up what the numbers in rows stand for.

    Operations of all ranks have one number each: ``first[rank] + operation``.

    Attributes:
        identities: All collectives and point-to-point messages of an iteration.
        first: By rank number, the number of its first operation.
        identity_of: By operation number, index into ``identities``; -1 for compute.
        ranks: By rank number: job, and rank in the job.
    """

    def __init__(self, plan: Plan) -> None:
        """Number the operations of *plan*.

        Raises:
            PlanError: If the numbers of its ranks are not 0, 1, 2 ...
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
            sizes = {group.name: len(group.ranks) for group in program.groups}
            for operation in program.operations:
                self._receives.append(isinstance(operation, ReceiveOperation))
                identity = _identity(program.job, program.rank, operation, sizes)
                if identity is None:
                    self.identity_of.append(-1)
                    continue
                index = index_of.setdefault(identity.key, len(found))
                if index == len(found):
                    found.append(identity)
                    shares.append(0)
                elif isinstance(operation, SendOperation):
                    found[index] = replace(
                        found[index],
                        name=identity.name,
                        send_node_id=identity.send_node_id,
                    )
                elif isinstance(operation, ReceiveOperation):
                    found[index] = replace(
                        found[index],
                        receive_name=identity.receive_name,
                        receive_node_id=identity.receive_node_id,
                    )
                shares[index] += 1
                self.identity_of.append(index)
        self.identities = [
            replace(identity, shares=count)
            for identity, count in zip(found, shares, strict=True)
        ]

    def operation_number(self, rank: int, operation: int) -> int:
        """Return the number of an operation among those of all ranks.

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
        """Return job and rank in the job of the rank *number*.

        Raises:
            ValueError: If there is none.
        """
        if not 0 <= number < len(self.ranks):
            raise ValueError(f"the plan has no rank number {number}")
        return self.ranks[number]

    def is_receive(self, number: int) -> bool:
        """Tell whether an operation is the receiving side of a message."""
        return bool(self._receives[number])


def _identity(
    job: str, rank: int, operation: object, group_sizes: dict[str, int]
) -> CollectiveIdentity | None:
    """Return what an operation is a share of, None if it is compute."""
    if isinstance(operation, CollectiveOperation):
        return CollectiveIdentity(
            key=CollectiveKey(job, operation.group, operation.number),
            name=operation.name,
            op=operation.op,
            algorithm=operation.algorithm,
            nranks=group_sizes[operation.group],
            root=operation.root if operation.op in ROOTED else None,
            input_bytes=operation.input_bytes,
            trace_bytes=operation.trace_bytes,
            shares=0,
        )
    send_node_id = receive_node_id = receive_name = None
    if isinstance(operation, SendOperation):
        pair = f"{rank}>{operation.peer}"
        send_node_id = operation.node_id
    elif isinstance(operation, ReceiveOperation):
        pair = f"{operation.peer}>{rank}"
        receive_node_id = operation.node_id
        receive_name = operation.name
    else:
        return None
    return CollectiveIdentity(
        key=CollectiveKey(job, f"{POINT_TO_POINT}:{pair}", operation.number),
        name=operation.name,
        op=CollectiveOp.SEND_RECV,
        algorithm="send",
        nranks=2,
        root=None,
        input_bytes=operation.size_bytes,
        trace_bytes=operation.trace_bytes,
        shares=0,
        send_node_id=send_node_id,
        receive_node_id=receive_node_id,
        receive_name=receive_name,
    )


def columns(rows: array[int], fields: Sequence[str]) -> dict[str, array[int]]:
    """Return the columns of a flat table by name.

    Raises:
        ValueError: If *rows* does not hold whole rows.
    """
    width = len(fields)
    if len(rows) % width:
        raise ValueError(f"{len(rows)} numbers are not rows of {width}")
    return {name: rows[index::width] for index, name in enumerate(fields)}


def rank_records(
    rows: array[int],
    operations: OperationTable,
    *,
    warmup: int,
    offsets_ns: Sequence[int] = (),
) -> list[RankRecord]:
    """Return the iterations of ranks in *rows* (of ``ITERATION_FIELDS``).

    Raises:
        ValueError: If a row does not belong to the plan.
    """
    table = columns(rows, ITERATION_FIELDS)
    records = []
    for index, number in enumerate(table["rank"]):
        job, rank = operations.rank(number)
        offset_ns = offsets_ns[number] if offsets_ns else 0
        iteration = table["iteration"][index]
        records.append(
            RankRecord(
                number=number,
                job=job,
                rank=rank,
                iteration=iteration,
                measured=iteration >= warmup,
                start_ns=table["start_ns"][index] + offset_ns,
                end_ns=table["end_ns"][index] + offset_ns,
                compute_ns=table["compute_ns"][index],
                communication_ns=table["communication_ns"][index],
                exposed_ns=table["exposed_ns"][index],
                idle_ns=table["idle_ns"][index],
            )
        )
    return records


def completion_times(
    rows: array[int], operations: OperationTable, *, warmup: int
) -> dict[CollectiveKey, array[int]]:
    """Return the completion times, in ns, of the flows of measured iterations.

    They are grouped by collective, in the order in which the flows completed.
    """
    table = columns(rows, FLOW_FIELDS)
    times: dict[CollectiveKey, array[int]] = {}
    for iteration, rank, operation, posted_ns, acked_ns in zip(
        table["iteration"],
        table["rank"],
        table["operation"],
        table["posted_ns"],
        table["last_acked_ns"],
        strict=True,
    ):
        if iteration >= warmup:
            number = operations.operation_number(rank, operation)
            key = operations.identities[operations.identity_of[number]].key
            times.setdefault(key, array("q")).append(acked_ns - posted_ns)
    return times

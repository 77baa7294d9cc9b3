"""A small plan and the rows of a run, with hand-computed numbers.

Four ranks of one job do, in every iteration: an all-reduce of 1 MiB of all of them, an
all-to-all of 256 KiB in each of two groups of two, and one message of 64 KiB from rank
0 to rank 1.  All flows of an operation take the same time.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.collectives.groups import WORLD, ProcessGroup
from chakram.collectives.ops import CollectiveOp
from chakram.plan.plan import (
    AgentPlan,
    Plan,
    RankPlan,
    RunSettings,
)
from chakram.plan.transport import TransportPlan
from chakram.program.operations import (
    CollectiveOperation,
    ComputeOperation,
    Operation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
    program_of,
)
from chakram.records.named_rows import OperationTable
from chakram.records.row_layout import (
    CAUSE_MESSAGE,
    CAUSE_OPERATION,
    CAUSE_START,
    FLOW_FIELDS,
    SHARE_FIELDS,
    UNKNOWN,
    RecordRows,
    columns,
)
from chakram.records.run_records import CollectiveKey
from tests.port_plans import port_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

JOB = "moe"
RANKS = 4
ALL_REDUCE_NS = 400_000
ALL_TO_ALL_NS = 100_000
MESSAGE_NS = 50_000
COMPUTE_NS = 200_000
ITERATION_NS = 1_000_000
MARKED_PER_SHARE = 2

_GROUPS = (
    ProcessGroup(name=WORLD, ranks=(0, 1, 2, 3)),
    ProcessGroup(name="ep0", ranks=(0, 1)),
    ProcessGroup(name="ep1", ranks=(2, 3)),
)


def _collective(
    group: str, op: CollectiveOp, algorithm: str, size_bytes: int, after: int
) -> CollectiveOperation:
    return CollectiveOperation(
        node_id=None,
        name=f"{op} of {group}",
        dependencies=(after,),
        group=group,
        number=0,
        op=op,
        algorithm=algorithm,
        input_bytes=size_bytes,
        trace_bytes=size_bytes * 16,
    )


def small_program(rank: int) -> RankProgram:
    """Return the program of one rank: compute, all-reduce, all-to-all, message."""
    expert = "ep0" if rank < 2 else "ep1"
    operations: list[Operation] = [
        ComputeOperation(
            node_id=None, name="forward", dependencies=(), duration_ns=COMPUTE_NS
        ),
        _collective(WORLD, CollectiveOp.ALL_REDUCE, "ring", 2**20, 0),
        _collective(expert, CollectiveOp.ALL_TO_ALL, "direct", 2**18, 1),
    ]
    if rank in (0, 1):
        kind = SendOperation if rank == 0 else ReceiveOperation
        operations.append(
            kind(
                node_id=20 + rank,
                name="activations" if rank == 0 else "activations, received",
                dependencies=(2,),
                peer=1 - rank,
                number=0,
                tag=0,
                size_bytes=2**16,
                trace_bytes=2**20,
            )
        )
    return program_of(
        operations,
        job=JOB,
        rank=rank,
        groups=tuple(group for group in _GROUPS if rank in group.ranks),
    )


def small_plan(*, warmup: int = 1, measured: int = 3) -> Plan:
    """Return a plan of four ranks on four ports of one agent."""
    ports = tuple(port_plan(rank, agent="local") for rank in range(RANKS))
    ranks = tuple(
        RankPlan(
            number=rank,
            port=rank,
            shard=0,
            program=small_program(rank),
            queue_pairs=(),
        )
        for rank in range(RANKS)
    )
    agent = AgentPlan(
        run_id="r1",
        agent="local",
        shards=1,
        ports=ports,
        ranks=ranks,
        transport=TransportPlan(),
        settings=RunSettings(warmup=warmup, measured=measured),
    )
    return Plan(run_id="r1", agents=(agent,))


def small_rows(
    iteration: int,
    *,
    ranks: Sequence[int] = range(RANKS),
    slower_ns: int = 0,
    generator_wait_ns: int = 0,
    retransmitted: int = 0,
) -> RecordRows:
    """Return the records of *ranks* in one iteration of ``small_plan``.

    Args:
        iteration: It starts at ``ITERATION_NS`` times its number.
        ranks: The ranks whose rows are wanted.
        slower_ns: How much longer the last step of rank 3's all-reduce takes.
        generator_wait_ns: Wait of each flow of the all-reduce.
        retransmitted: Packets that each flow of the all-to-all sent again.
    """
    rows = RecordRows()
    base_ns = iteration * ITERATION_NS + COMPUTE_NS
    for rank in ranks:
        ends_ns = []
        step_ns = ALL_REDUCE_NS // 6
        for step in range(6):
            late_ns = slower_ns if rank == 3 and step == 5 else 0
            start_ns = base_ns + step * step_ns
            end_ns = base_ns + (ALL_REDUCE_NS if step == 5 else (step + 1) * step_ns)
            _flow(
                rows,
                iteration,
                rank,
                operation=1,
                step=step,
                peer=(rank + 1) % RANKS,
                size_bytes=2**18,
                times_ns=(start_ns, end_ns + late_ns),
                wait_ns=generator_wait_ns,
                cause=CAUSE_MESSAGE if step else CAUSE_OPERATION,
            )
            ends_ns.append(end_ns + late_ns)
        _share(rows, iteration, rank, 1, (base_ns, max(ends_ns)), 6 * 2**18, 0)
        start_ns = base_ns + ALL_REDUCE_NS
        times_ns = (start_ns, start_ns + ALL_TO_ALL_NS)
        _flow(
            rows,
            iteration,
            rank,
            operation=2,
            step=0,
            peer=rank ^ 1,
            size_bytes=2**17,
            times_ns=times_ns,
            retransmitted=retransmitted,
        )
        _share(rows, iteration, rank, 2, times_ns, 2**17, retransmitted)
        start_ns += ALL_TO_ALL_NS
        if rank == 0:
            times_ns = (start_ns, start_ns + MESSAGE_NS)
            _flow(
                rows,
                iteration,
                rank,
                operation=3,
                step=0,
                peer=1,
                size_bytes=2**16,
                times_ns=times_ns,
            )
            _share(rows, iteration, rank, 3, times_ns, 2**16, 0)
        elif rank == 1:
            # The receiver has been waiting since before the sender started.
            times_ns = (start_ns - 10_000, start_ns + MESSAGE_NS)
            _share(rows, iteration, rank, 3, times_ns, 0, 0)
        busy_ns = ALL_REDUCE_NS + ALL_TO_ALL_NS + (MESSAGE_NS if rank < 2 else 0)
        rows.iterations.extend(
            (
                iteration,
                rank,
                iteration * ITERATION_NS,
                base_ns + busy_ns,
                COMPUTE_NS,
                busy_ns,
                busy_ns,
                0,
            )
        )
    return rows


def row_of(fields: Sequence[str], **values: int) -> list[int]:
    """Return one row of a table with these values; all others are 0."""
    return [values.get(name, 0) for name in fields]


def _flow(
    rows: RecordRows,
    iteration: int,
    rank: int,
    *,
    operation: int,
    step: int,
    peer: int,
    size_bytes: int,
    times_ns: tuple[int, int],
    wait_ns: int = 0,
    retransmitted: int = 0,
    cause: int = CAUSE_START,
) -> None:
    posted_ns, acked_ns = times_ns
    values = {
        "iteration": iteration,
        "rank": rank,
        "operation": operation,
        "step": step,
        "channel": 0,
        "peer": peer,
        "qpn": 0x100 + rank,
        "size_bytes": size_bytes,
        "ready_ns": posted_ns - wait_ns,
        "posted_ns": posted_ns,
        "first_sent_ns": posted_ns + 500,
        "last_acked_ns": acked_ns,
        "rate_at_start_bps": 0,
        "packets": -(-size_bytes // 4096),
        "retransmitted": retransmitted,
        "cnp": 0,
        "generator_wait_ns": wait_ns,
        "cause_kind": cause,
        "cause_rank": 0,
        "cause_number": 0,
    }
    rows.flows.extend(values.get(name, UNKNOWN) for name in FLOW_FIELDS)


def _share(
    rows: RecordRows,
    iteration: int,
    rank: int,
    operation: int,
    times_ns: tuple[int, int],
    sent_bytes: int,
    retransmitted: int,
) -> None:
    start_ns, end_ns = times_ns
    values = {
        "iteration": iteration,
        "rank": rank,
        "operation": operation,
        "ready_ns": start_ns,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "sent_bytes": sent_bytes,
        "received_bytes": sent_bytes,
        "generator_wait_ns": 0,
        "retransmitted": retransmitted,
        "ce": MARKED_PER_SHARE,
        "slip_ns": 0,
        "wrong": 0,
    }
    rows.shares.extend(values.get(name, UNKNOWN) for name in SHARE_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRecord:
    """One message between two ranks of a job; times on the controller's clock."""

    key: CollectiveKey
    op: CollectiveOp
    iteration: int
    src: int
    dst: int
    step: int
    channel: int
    qpn: int
    size_bytes: int
    ready_ns: int
    posted_ns: int
    first_sent_ns: int
    last_acked_ns: int
    packets: int
    retransmitted: int
    generator_wait_ns: int

    @property
    def fct_ns(self) -> int:
        """Completion time: posted to last byte acknowledged."""
        return self.last_acked_ns - self.posted_ns


def flow_records(rows: array[int], operations: OperationTable) -> Iterator[FlowRecord]:
    """Yield the flows of *rows* as objects.

    Args:
        rows: Rows of ``FLOW_FIELDS``.
        operations: Of the plan that the rows were recorded under.

    Raises:
        ValueError: If a row does not belong to the plan.
    """
    table = columns(rows, FLOW_FIELDS)
    for index, src in enumerate(table["rank"]):
        number = operations.operation_number(src, table["operation"][index])
        identity = operations.identities[operations.identity_of[number]]
        yield FlowRecord(
            key=identity.key,
            op=identity.op,
            iteration=table["iteration"][index],
            src=operations.rank(src)[1],
            dst=operations.rank(table["peer"][index])[1],
            step=table["step"][index],
            channel=table["channel"][index],
            qpn=table["qpn"][index],
            size_bytes=table["size_bytes"][index],
            ready_ns=table["ready_ns"][index],
            posted_ns=table["posted_ns"][index],
            first_sent_ns=table["first_sent_ns"][index],
            last_acked_ns=table["last_acked_ns"][index],
            packets=table["packets"][index],
            retransmitted=table["retransmitted"][index],
            generator_wait_ns=table["generator_wait_ns"][index],
        )


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

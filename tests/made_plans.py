"""Builders of programs and plans, and a view of what a run of them recorded.

A program is a list of rows that name rows before or after them by index::

    rows = [collective("all_reduce", 4096), compute(1_000, after=[0])]
    program(0, world_group(2), rows)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chakram.collectives.groups import WORLD, ProcessGroup, world_group
from chakram.collectives.ops import CollectiveOp
from chakram.collectives.split_sizes import Splits
from chakram.plan.placement import PlacementOptions, place
from chakram.plan.plan import RunSettings
from chakram.plan.port_plan import PortPlan
from chakram.plan.transport import TransportPlan
from chakram.program.operations import (
    CollectiveOperation,
    ComputeOperation,
    RankProgram,
    ReceiveOperation,
    SendOperation,
    program_of,
)
from chakram.records.row_layout import FlowRow, IterationRow, ShareRow, rows_of
from chakram.topology.addressing import plan_addresses
from chakram.topology.topology_helpers import single_switch
from tests.port_plans import port_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from chakram.plan.plan import Plan
    from chakram.plan.queue_pairs import QueuePairLayout
    from chakram.program.operations import Operation
    from chakram.records.row_layout import RecordRows
    from chakram.topology.topology import Topology

__all__ = [
    "FlowRow",
    "IterationRow",
    "ShareRow",
    "collective",
    "compute",
    "fabric_ports",
    "flow_rows",
    "iteration_rows",
    "make_plan",
    "matrix_splits",
    "program",
    "receive",
    "send",
    "share_rows",
    "world_plan",
]


def collective(
    op: str,
    input_bytes: int = 0,
    *,
    group: str = WORLD,
    number: int = 0,
    algorithm: str = "auto",
    root: int = 0,
    after: Iterable[int] = (),
    splits: Splits | None = None,
    start_ns: int | None = None,
) -> CollectiveOperation:
    """Return one collective of a group."""
    return CollectiveOperation(
        node_id=None,
        name=op,
        dependencies=tuple(after),
        group=group,
        number=number,
        op=CollectiveOp(op),
        algorithm=algorithm,
        input_bytes=input_bytes,
        trace_bytes=input_bytes,
        root=root,
        splits=splits,
        start_ns=start_ns,
    )


def matrix_splits(matrix: Sequence[Sequence[int]], position: int) -> Splits:
    """Return the splits of one position: its row and its column of *matrix*."""
    return Splits(tuple(matrix[position]), tuple(row[position] for row in matrix))


def compute(
    duration_ns: int,
    *,
    stream: int | None = None,
    after: Iterable[int] = (),
    start_ns: int | None = None,
) -> ComputeOperation:
    """Return a delay."""
    return ComputeOperation(
        node_id=None,
        name="compute",
        dependencies=tuple(after),
        duration_ns=duration_ns,
        stream=stream,
        start_ns=start_ns,
    )


def send(
    peer: int, size_bytes: int, *, number: int = 0, after: Iterable[int] = ()
) -> SendOperation:
    """Return one message to rank *peer*."""
    return SendOperation(
        node_id=None,
        name="send",
        dependencies=tuple(after),
        peer=peer,
        number=number,
        tag=0,
        size_bytes=size_bytes,
        trace_bytes=size_bytes,
    )


def receive(
    peer: int, size_bytes: int, *, number: int = 0, after: Iterable[int] = ()
) -> ReceiveOperation:
    """Return the wait for one message of rank *peer*."""
    return ReceiveOperation(
        node_id=None,
        name="receive",
        dependencies=tuple(after),
        peer=peer,
        number=number,
        tag=0,
        size_bytes=size_bytes,
        trace_bytes=size_bytes,
    )


def program(
    rank: int,
    groups: ProcessGroup | Sequence[ProcessGroup],
    operations: Iterable[Operation],
    *,
    job: str = "job",
) -> RankProgram:
    """Return the program of one rank."""
    return program_of(
        tuple(operations),
        job=job,
        rank=rank,
        groups=(groups,) if isinstance(groups, ProcessGroup) else tuple(groups),
    )


def fabric_ports(topology: Topology, *, agents: int = 1) -> list[PortPlan]:
    """Return one port per host, at the rate of the host's link.

    The hosts are dealt out to *agents*, ``agent0`` and so on, one after the other.
    """
    addresses = plan_addresses(topology)
    return [
        port_plan(
            number,
            agent=f"agent{number % agents}",
            host=host,
            address=addresses.host(host).address,
            rate_bps=topology.host_link(host).rate_bps,
        )
        for number, host in enumerate(topology.hosts)
    ]


def make_plan(
    programs: Iterable[RankProgram],
    topology: Topology,
    *,
    ranks_per_port: int = 1,
    local_rate_bps: int | None = None,
    host_of: Callable[[PortPlan], str] = lambda port: str(port.number),
    first_ports: Mapping[str, int] | None = None,
    agents: int = 1,
    transport: TransportPlan | None = None,
    settings: RunSettings | None = None,
    layout: QueuePairLayout | None = None,
) -> Plan:
    """Return a plan: ranks on hosts in order, queue pairs as needed.

    Args:
        programs: Of all ranks of all jobs.
        topology: The fabric.
        ranks_per_port: Ranks that share a host.
        local_rate_bps: Rate of messages within a host, 0: no time; None: they go
            through the ports.
        host_of: Which host a port belongs to.
        first_ports: By job, the host that its first rank is on; else the jobs come one
            after the other.
        agents: Among how many the hosts are dealt out.
        transport: The usual one if None.
        settings: One measured iteration if None.
        layout: Queue pairs between two ranks; the usual if None.
    """
    by_job: dict[str, list[RankProgram]] = {}
    for each in programs:
        by_job.setdefault(each.job, []).append(each)
    usual = PlacementOptions(
        ranks_per_port=ranks_per_port, local_rate_bps=local_rate_bps
    )
    return place(
        by_job,
        fabric_ports(topology, agents=agents),
        {
            job: replace(usual, first_port=(first_ports or {}).get(job))
            for job in by_job
        },
        transport or TransportPlan(),
        settings or RunSettings(warmup=0, measured=1),
        shards={},
        run_id="run",
        host_of=host_of,
        layout=layout,
    )


def world_plan(
    operations: Sequence[Operation],
    *,
    nranks: int,
    rate_bps: int | None = 10**9,
    transport: TransportPlan | None = None,
    settings: RunSettings | None = None,
) -> tuple[Plan, Topology]:
    """Return a plan in which all ranks do the same on one switch, and its topology."""
    topology = single_switch(nranks, rate_bps)
    world = world_group(nranks)
    programs = [program(rank, world, operations) for rank in range(nranks)]
    plan = make_plan(programs, topology, transport=transport, settings=settings)
    return plan, topology


def flow_rows(records: RecordRows) -> list[FlowRow]:
    """Return the flows of *records*, in the order in which they were written."""
    return list(rows_of(FlowRow, records.flows))


def share_rows(records: RecordRows) -> list[ShareRow]:
    """Return the shares of *records*, in the order in which they were written."""
    return list(rows_of(ShareRow, records.shares))


def iteration_rows(records: RecordRows) -> list[IterationRow]:
    """Return the iterations of *records*, in the order in which they were written."""
    return list(rows_of(IterationRow, records.iterations))

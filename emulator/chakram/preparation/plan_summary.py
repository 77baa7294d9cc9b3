"""Summary of a plan in numbers, for inspection before a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chakram.collectives.ops import nccl_size_bytes
from chakram.plan.wire_cost import overhead_bytes_of
from chakram.predict.simulator.burst_size import algorithm_used, messages_of_splits
from chakram.preparation.job_loading import LoadedJob, job_warnings
from chakram.preparation.plan_traffic import Share, Shares, within_host_bytes
from chakram.program.operations import split_matrices

if TYPE_CHECKING:
    from chakram.collectives.split_sizes import Matrix
    from chakram.plan.plan import Plan, RankPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """A job, with its trace and ranks."""

    name: str
    trace: str
    producer: str
    digest: str
    ranks: int
    nodes: int
    operations: int
    groups: int
    size_scale: str
    compute_ns: int
    """Largest sum of compute delays of any rank in an iteration, in ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveLine:
    """Collectives that differ only in their group, with counts per iteration.

    ``op`` is ``send`` for point-to-point messages. ``size_bytes`` is the size as
    nccl-tests defines it. ``trace_bytes`` is that size before the size scale.
    """

    job: str
    op: str
    algorithm: str | None
    group_ranks: int
    size_bytes: int
    trace_bytes: int
    count: int
    messages: int
    bytes_per_rank: int
    """Payload that the busiest member sends in one of these collectives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """A plan in numbers, with traffic per iteration and dilated times.

    Attributes:
        jobs: Summaries of the jobs.
        collectives: Collectives and messages of the jobs, largest first.
        ports: Ports that carry ranks.
        agents: Agents, with their numbers of data-plane processes (shards).
        divided: For each port whose ranks are in several shards, its host and the
            number of shards.
        queue_pairs: Number of queue pairs, where both ends count as one.
        messages: Number of messages of all ranks.
        payload_bytes: Payload bytes of all ranks.
        busiest_port_bytes: Bytes on the wire that the busiest port sends.
        least_iteration_ns: Longest serialization delay of the traffic of a port. It is
            a lower bound on the iteration time. None if no port has a rate.
        iterations: Number of iterations, including warm-up.
        path_mtu: Payload bytes of a full packet.
        family: ``ipv4`` or ``ipv6``.
        max_burst_packets: Maximum number of packets that are sent as one burst.
        dilation: Factor by which time is stretched.
        warnings: Warnings to show with the summary.
    """

    jobs: tuple[JobLine, ...]
    collectives: tuple[CollectiveLine, ...]
    ports: int
    agents: tuple[tuple[str, int], ...]
    divided: tuple[tuple[str, int], ...]
    queue_pairs: int
    messages: int
    payload_bytes: int
    busiest_port_bytes: int
    least_iteration_ns: int | None
    iterations: int
    path_mtu: int
    family: str
    max_burst_packets: int
    dilation: int
    warnings: tuple[str, ...]


def summarize_plan(
    plan: Plan,
    jobs: Sequence[LoadedJob],
    *,
    dilation: int = 1,
    warnings: Sequence[str] = (),
) -> PlanSummary:
    """Return the summary of *plan*, with *warnings* before the warnings of jobs."""
    transport = plan.agents[0].transport
    shares = Shares(
        path_mtu=transport.path_mtu,
        verb=transport.verb,
        overhead_bytes=overhead_bytes_of(plan.family()),
    )
    lines: dict[tuple[object, ...], CollectiveLine] = {}
    port_bytes: Counter[int] = Counter()
    messages = payload = 0
    matrices = split_matrices(rank.program for rank in plan.ranks())
    for rank in plan.ranks():
        for share in _count(rank, shares, lines, matrices):
            messages += share.messages
            payload += share.payload_bytes
            port_bytes[rank.port] += share.wire_bytes
        port_bytes[rank.port] -= within_host_bytes(rank, shares)
    return PlanSummary(
        jobs=tuple(_job_line(job) for job in jobs),
        collectives=tuple(
            sorted(
                lines.values(),
                key=lambda line: (line.job, -line.bytes_per_rank * line.count, line.op),
            )
        ),
        ports=len(plan.ports()),
        agents=tuple((agent.agent, agent.shards) for agent in plan.agents),
        divided=_divided(plan),
        queue_pairs=sum(len(rank.queue_pairs) for rank in plan.ranks()) // 2,
        messages=messages,
        payload_bytes=payload,
        busiest_port_bytes=max(port_bytes.values(), default=0),
        least_iteration_ns=_least_iteration_ns(plan, port_bytes),
        iterations=plan.agents[0].settings.iterations,
        path_mtu=transport.path_mtu,
        family=plan.family(),
        max_burst_packets=transport.max_burst_packets,
        dilation=dilation,
        warnings=(*warnings, *job_warnings(jobs)),
    )


def _divided(plan: Plan) -> tuple[tuple[str, int], ...]:
    shards_of = {
        number: len(shards)
        for agent in plan.agents
        for number, shards in agent.shards_of_ports().items()
    }
    return tuple(
        (port.host, shards_of[port.number])
        for port in plan.ports()
        if shards_of.get(port.number, 1) > 1
    )


def _count(
    rank: RankPlan,
    shares: Shares,
    lines: dict[tuple[object, ...], CollectiveLine],
    matrices: Mapping[tuple[str, str, int], Matrix],
) -> Iterator[Share]:
    """Yield a rank's shares, and record in *lines* each collective that it leads."""
    program = rank.program
    for use, count in program.columns.collective_uses.items():
        group = program.groups[use.group]
        nranks, position = len(group.ranks), group.position(program.rank)
        how = algorithm_used(program, use)
        if use.splits is not None and position:
            messages = messages_of_splits(program, use, how, position)
            yield shares.of_messages(size for _, size in messages)
            continue
        of_all = shares.of_collective(
            how,
            use,
            nranks=nranks,
            matrix=None
            if use.number is None
            else matrices[program.job, group.name, use.number],
        )
        yield _times(of_all[position], count)
        if position:
            continue  # the first member counts for the whole group
        _add(
            lines,
            CollectiveLine(
                job=program.job,
                op=use.op.value,
                algorithm=use.algorithm,
                group_ranks=nranks,
                size_bytes=nccl_size_bytes(
                    use.op, input_bytes=use.input_bytes, nranks=nranks
                ),
                trace_bytes=nccl_size_bytes(
                    use.op, input_bytes=use.trace_bytes, nranks=nranks
                ),
                count=count,
                messages=count * sum(share.messages for share in of_all),
                bytes_per_rank=max(share.payload_bytes for share in of_all),
            ),
        )
    for message, count in program.columns.message_uses.items():
        yield _times(shares.of_messages([message.size_bytes]), count)
        _add(
            lines,
            CollectiveLine(
                job=program.job,
                op="send",
                algorithm=None,
                group_ranks=2,
                size_bytes=message.size_bytes,
                trace_bytes=message.trace_bytes,
                count=count,
                messages=count,
                bytes_per_rank=message.size_bytes,
            ),
        )


def _times(share: Share, count: int) -> Share:
    return Share(*(count * number for number in share))


def _add(lines: dict[tuple[object, ...], CollectiveLine], line: CollectiveLine) -> None:
    key = (line.job, line.op, line.algorithm, line.group_ranks, line.size_bytes)
    known = lines.get(key)
    if known is None:
        lines[key] = line
        return
    lines[key] = replace(
        line,
        count=known.count + line.count,
        messages=known.messages + line.messages,
        bytes_per_rank=max(known.bytes_per_rank, line.bytes_per_rank),
    )


def _job_line(job: LoadedJob) -> JobLine:
    return JobLine(
        name=job.name,
        trace=job.trace,
        producer=job.producer,
        digest=job.digest,
        ranks=job.nranks,
        nodes=job.nodes,
        operations=sum(len(program.columns) for program in job.programs),
        groups=len({group.name for each in job.programs for group in each.groups}),
        size_scale=job.size_scale,
        compute_ns=max(program.columns.compute_ns for program in job.programs),
    )


def _least_iteration_ns(plan: Plan, port_bytes: Counter[int]) -> int | None:
    times = [
        port_bytes[port.number] * 8 * 10**9 // port.rate_bps
        for port in plan.ports()
        if port.rate_bps is not None
    ]
    return max(times, default=None)

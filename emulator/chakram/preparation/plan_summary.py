"""Summary of a plan in numbers, for inspection before a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.ops import nccl_size_bytes
from chakram.collectives.schedule import Algorithm, transfer_bytes
from chakram.collectives.split_sizes import Matrix
from chakram.collectives.uneven_messages import (
    matrix_bytes,
    splits_bytes,
    uneven_messages,
)
from chakram.plan.plan import Plan, RankPlan
from chakram.plan.wire_cost import overhead_bytes_of, wire_bytes
from chakram.preparation.job_loading import LoadedJob, job_warnings
from chakram.program.columns import CollectiveUse
from chakram.program.operations import RankProgram, split_matrices


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
    """Compute delays per iteration of the rank that has most of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveLine:
    """Collectives that differ only in their group; counts are per iteration.

    ``op`` is ``send`` for point-to-point messages. ``size_bytes`` is the size as
    nccl-tests defines it; ``trace_bytes`` is that size before the size scale.
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
    """A plan in numbers; traffic is per iteration, and times include dilation.

    Attributes:
        jobs: The jobs.
        collectives: Their collectives and messages, largest first.
        ports: Ports that carry ranks.
        agents: Agents, with their shards.
        divided: Hosts of ports whose ranks are in several shards, with the number of
            shards.
        queue_pairs: Queue pairs; both ends count as one.
        messages: Messages of all ranks.
        payload_bytes: Payload of all ranks.
        busiest_port_bytes: Bytes on the wire that the busiest port sends.
        least_iteration_ns: Longest serialization delay of the traffic of a port, a
            lower bound on the iteration time; None if no port has a rate.
        iterations: All iterations, including warm-up.
        path_mtu: Payload of a full packet.
        family: ``ipv4`` or ``ipv6``.
        max_burst_packets: Packets sent as one burst.
        dilation: Factor by which time is stretched.
        warnings: Warnings for the reader.
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
    """Return the summary of *plan*; *warnings* precede the warnings of the jobs."""
    transport = plan.agents[0].transport
    shares = Shares(
        path_mtu=transport.path_mtu,
        verb=transport.verb,
        overhead_bytes=overhead_bytes_of(plan.family()),
    )
    lines: dict[tuple[object, ...], CollectiveLine] = {}
    port_bytes: dict[int, int] = {}
    messages = payload = 0
    matrices = split_matrices(rank.program for rank in plan.ranks())
    for rank in plan.ranks():
        for share in _count(rank, shares, lines, matrices):
            messages += share.messages
            payload += share.payload_bytes
            port_bytes[rank.port] = port_bytes.get(rank.port, 0) + share.wire_bytes
        port_bytes[rank.port] = port_bytes.get(rank.port, 0) - within_host_bytes(
            rank, shares
        )
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
    """Yield a rank's shares; record in *lines* each collective that it leads."""
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


def _least_iteration_ns(plan: Plan, port_bytes: dict[int, int]) -> int | None:
    times = [
        port_bytes.get(port.number, 0) * 8 * 10**9 // port.rate_bps
        for port in plan.ports()
        if port.rate_bps is not None
    ]
    return max(times, default=None)


class Share(NamedTuple):
    """Traffic that one member sends in one collective."""

    messages: int
    payload_bytes: int
    wire_bytes: int


_KNOWN_SIZES = 1 << 16
"""Number of message sizes whose size on the wire is cached."""


class Shares:
    """Computes and caches shares; most collectives of a job are alike.

    Args:
        path_mtu: Payload of a full packet.
        verb: The verb that posts messages.
        overhead_bytes: Bytes of each packet in addition to its payload.
    """

    def __init__(self, *, path_mtu: int, verb: str, overhead_bytes: int) -> None:
        self.on_wire = lru_cache(maxsize=_KNOWN_SIZES)(
            partial(
                wire_bytes, path_mtu=path_mtu, verb=verb, overhead_bytes=overhead_bytes
            )
        )
        self._known: dict[tuple[object, ...], tuple[Share, ...]] = {}

    def of_collective(
        self,
        how: Algorithm,
        use: CollectiveUse,
        *,
        nranks: int,
        matrix: Matrix | None,
    ) -> tuple[Share, ...]:
        """Return the share of every position of the group."""
        if matrix is not None:
            pair_bytes = matrix_bytes(matrix)
            return tuple(
                self.of_messages(
                    size
                    for _, size in uneven_messages(
                        how, position=position, nranks=nranks, pair_bytes=pair_bytes
                    )
                )
                for position in range(nranks)
            )
        key = (how, nranks, use.root, use.input_bytes)
        shares = self._known.get(key)
        if shares is None:
            shares = self._known[key] = tuple(
                self._share(
                    how.sent_sizes(
                        position,
                        nranks=nranks,
                        root=use.root,
                        input_bytes=use.input_bytes,
                    )
                )
                for position in range(nranks)
            )
        return shares

    def of_messages(self, sizes_bytes: Iterable[int]) -> Share:
        """Return the share of a member that sends messages of these sizes."""
        return self._share(Counter(sizes_bytes))

    def _share(self, counts: Mapping[int, int]) -> Share:
        """Return the share of a member from its number of messages by size."""
        return Share(
            messages=sum(counts.values()),
            payload_bytes=sum(size * count for size, count in counts.items()),
            wire_bytes=sum(
                self.on_wire(size) * count for size, count in counts.items()
            ),
        )


def algorithm_used(program: RankProgram, use: CollectiveUse) -> Algorithm:
    """Return the algorithm of a collective."""
    return algorithm_of(
        use.op,
        use.algorithm,
        nranks=len(program.groups[use.group].ranks),
        root=use.root,
        listed=program.algorithms,
    )


def within_host_bytes(rank: RankPlan, shares: Shares) -> int:
    """Return the bytes of a rank's messages that do not pass through its port."""
    local = {
        pair.peer_rank for pair in rank.queue_pairs if pair.local_rate_bps is not None
    }
    if not local:
        return 0
    program = rank.program
    columns = program.columns
    total = sum(
        count * shares.on_wire(use.size_bytes)
        for use, count in columns.message_uses.items()
        if program.peers[use.peer] in local
    )
    for use, count in columns.collective_uses.items():
        members = program.groups[use.group].ranks
        how = algorithm_used(program, use)
        position = members.index(program.rank)
        if use.splits is None:
            nranks = len(members)
            messages: Iterator[tuple[int, int]] = (
                (
                    send.dst,
                    transfer_bytes(
                        how, send, nranks=nranks, input_bytes=use.input_bytes
                    ),
                )
                for send in how.sends(position, nranks=nranks, root=use.root)
                if members[send.dst] in local
            )
        else:
            messages = messages_of_splits(program, use, how, position)
        total += count * sum(
            shares.on_wire(size) for peer, size in messages if members[peer] in local
        )
    return total


def messages_of_splits(
    program: RankProgram, use: CollectiveUse, how: Algorithm, position: int
) -> Iterator[tuple[int, int]]:
    """Yield (destination, size) of the messages of a member in an all_to_all_v."""
    assert use.splits is not None  # an all_to_all_v has splits
    own = program.splits[use.splits]
    return uneven_messages(
        how,
        position=position,
        nranks=len(own.splits.sent_bytes),
        pair_bytes=splits_bytes(how, own.splits, own.passed_bytes, position=position),
    )

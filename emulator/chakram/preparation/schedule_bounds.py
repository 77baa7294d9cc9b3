"""Bounds of the schedules of a plan, and models of its fabric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.groups import POINT_TO_POINT
from chakram.collectives.schedule import Algorithm
from chakram.collectives.split_sizes import Matrix
from chakram.foundation.grouping import grouped
from chakram.plan.plan import Plan, RankPlan
from chakram.plan.wire_cost import overhead_bytes_of
from chakram.predict.any_algorithm_bound import ceiling_ns
from chakram.predict.bound import ScheduleBounds
from chakram.predict.fabric_model import FabricModel
from chakram.predict.fair_sharing import FairTimes
from chakram.predict.simulator.burst_size import Traffic, schedule_traffic
from chakram.predict.topology_to_fabric_model import fabric_model
from chakram.program.columns import COLLECTIVE, SEND
from chakram.program.operations import split_matrices
from chakram.records.run_records import CollectiveKey
from chakram.roce.constants import MAX_MESSAGE_BYTES
from chakram.topology.topology import Topology

if TYPE_CHECKING:
    from chakram.run_directory.added_flow_columns import FairTimesOf

FlowBound = Callable[[str, int, int, int], int]
"""Lower bound in ns of one message, given job, sender, receiver and size in bytes."""


MOST_TRANSFERS = 250_000
"""Maximum number of transfers of a schedule whose bound ``level_bounds`` computes."""


class HostRates(Mapping[tuple[int, int], int]):
    """Rates of messages within hosts, by sender and receiver.

    Args:
        host_of: Host of each rank.
        rate_bps: Rate of all messages between two ranks of one host.
    """

    def __init__(self, host_of: Mapping[int, str], rate_bps: int) -> None:
        self._host_of = host_of
        self._rate_bps = rate_bps

    def __getitem__(self, pair: tuple[int, int]) -> int:
        src, dst = pair
        if self._host_of[src] != self._host_of[dst]:
            raise KeyError(pair)
        return self._rate_bps

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return (
            (src, dst)
            for src, dst in product(self._host_of, repeat=2)
            if (src, dst) in self
        )

    def __len__(self) -> int:
        return sum(count * count for count in Counter(self._host_of.values()).values())


_NO_HOSTS: Mapping[str, HostRates] = {}


class Bounds(NamedTuple):
    """Lower bounds on the times of collectives and messages, in ns.

    Attributes:
        times_ns: Bounds of this schedule, by collective or point-to-point message.
        ceilings_ns: Bounds for any algorithm, by collective.
        of_message: Function that returns the bound of any message.
    """

    times_ns: dict[CollectiveKey, int]
    ceilings_ns: dict[CollectiveKey, int]
    of_message: FlowBound


def bounds(plan: Plan, topology: Topology) -> Bounds:
    """Return the bounds of all collectives and messages of a plan."""
    times: dict[CollectiveKey, int] = {}
    ceilings: dict[CollectiveKey, int] = {}
    transport = plan.agents[0].transport
    models = _models(plan, topology)
    schedules = _schedule_bounds(plan, models)
    for kind, keys in collective_kinds(plan).items():
        ceiling = ceiling_ns(
            kind.how.op,
            ranks=kind.members,
            root=kind.root,
            input_bytes=kind.input_bytes,
            fabric=models[kind.job],
            path_mtu=transport.path_mtu,
            verb=transport.verb,
            matrix=kind.matrix,
        )
        times |= dict.fromkeys(keys, kind.bound_ns(schedules))
        if ceiling is not None:
            ceilings |= dict.fromkeys(keys, ceiling)
    times |= _of_sends(plan.ranks(), schedules)
    return Bounds(times, ceilings, _message_bound(schedules))


def _message_bound(schedules: Mapping[str, ScheduleBounds]) -> FlowBound:
    return lambda job, src, dst, size_bytes: schedules[job].message_ns(
        src=src, dst=dst, size_bytes=size_bytes
    )


def _of_sends(
    ranks: Iterable[RankPlan], schedules: Mapping[str, ScheduleBounds]
) -> dict[CollectiveKey, int]:
    """Return the bounds of the point-to-point messages that some ranks send."""
    times: dict[CollectiveKey, int] = {}
    for rank in ranks:
        program = rank.program
        columns = program.columns
        for row in columns.rows_of(SEND):
            peer = program.peers[columns.targets[row]]
            pair = f"{POINT_TO_POINT}:{program.rank}>{peer}"
            times[CollectiveKey(program.job, pair, columns.numbers[row])] = schedules[
                program.job
            ].message_ns(src=program.rank, dst=peer, size_bytes=columns.amounts[row])
    return times


def level_bounds(
    plan: Plan,
    topology: Topology,
    hosts: Mapping[str, HostRates],
    recorded: Container[int] | None,
) -> tuple[dict[CollectiveKey, int], FlowBound]:
    """Return the bounds of collectives and messages in a large plan.

    Args:
        plan: The plan, whose queue pairs need not be planned.
        topology: Topology of the fabric.
        hosts: Rates within hosts, by job.
        recorded: Numbers of the ranks whose collectives are wanted. None means all
            ranks.

    Returns:
        Bounds by collective, and a function for messages.  Collectives with more than
        ``MOST_TRANSFERS`` have none.
    """
    path_mtu = plan.agents[0].transport.path_mtu
    # Messages of these levels end on arrival.
    schedules = _schedule_bounds(plan, _models(plan, topology, hosts), has_acks=False)
    times: dict[CollectiveKey, int] = {}
    for kind, keys in collective_kinds(plan, recorded).items():
        if kind.traffic(path_mtu).messages > MOST_TRANSFERS:
            continue
        times |= dict.fromkeys(keys, kind.bound_ns(schedules))

    chosen = [
        rank for rank in plan.ranks() if recorded is None or rank.number in recorded
    ]
    times |= _of_sends(chosen, schedules)
    return times, _message_bound(schedules)


class CollectiveKind(NamedTuple):
    """The properties shared by collectives that take the same time alone."""

    job: str
    how: Algorithm
    members: tuple[int, ...]
    root: int
    input_bytes: int
    matrix: Matrix | None

    def bound_ns(self, schedules: Mapping[str, ScheduleBounds]) -> int:
        """Return the bound of one collective, given the schedules by job."""
        return schedules[self.job].collective_ns(
            self.how,
            ranks=self.members,
            root=self.root,
            input_bytes=self.input_bytes,
            matrix=self.matrix,
        )

    def traffic(self, path_mtu: int) -> Traffic:
        """Return the approximate traffic of one collective."""
        return schedule_traffic(
            self.how,
            nranks=len(self.members),
            root=self.root,
            input_bytes=self.input_bytes,
            matrix=self.matrix,
            path_mtu=path_mtu,
        )


def collective_kinds(
    plan: Plan, recorded: Container[int] | None = None
) -> dict[CollectiveKind, list[CollectiveKey]]:
    """Return the collectives of a plan by kind, in order of first occurrence.

    Args:
        plan: The plan.
        recorded: Numbers of ranks.  Collectives of other ranks are omitted.
    """
    found: dict[CollectiveKind, list[CollectiveKey]] = {}
    for job, ranks in _by_job(plan).items():
        matrices = split_matrices(rank.program for rank in ranks)
        chosen = [rank for rank in ranks if recorded is None or rank.number in recorded]
        known = {rank.program.rank for rank in chosen}
        for rank in chosen:
            program = rank.program
            columns = program.columns
            leads = [
                next(filter(known.__contains__, group.ranks)) == program.rank
                for group in program.groups
            ]
            for row in columns.rows_of(COLLECTIVE):
                place = columns.targets[row]
                if not leads[place]:
                    continue
                group = program.groups[place]
                op, name = columns.all_algorithms[columns.algorithms[row]]
                root = columns.details[row]
                key = CollectiveKey(job, group.name, columns.numbers[row])
                how = algorithm_of(
                    op,
                    name,
                    nranks=len(group.ranks),
                    root=root,
                    listed=program.algorithms,
                )
                kind = CollectiveKind(
                    job,
                    how,
                    group.ranks,
                    root,
                    columns.amounts[row],
                    matrices.get(key),
                )
                found.setdefault(kind, []).append(key)
    return found


def _schedule_bounds(
    plan: Plan, models: Mapping[str, FabricModel], *, has_acks: bool = True
) -> dict[str, ScheduleBounds]:
    """Return the bounds of schedules, by job."""
    transport = plan.agents[0].transport
    parts = 1
    if transport.reordering_packets > 0:
        # Each packet may take a separate path.
        parts = MAX_MESSAGE_BYTES
    elif transport.split == "even":
        parts = 1 + max(
            (pair.index for rank in plan.ranks() for pair in rank.queue_pairs),
            default=0,
        )
    return {
        job: ScheduleBounds(
            model,
            path_mtu=transport.path_mtu,
            verb=transport.verb,
            parts=parts,
            message_bytes=transport.message_bytes,
            has_acks=has_acks,
        )
        for job, model in models.items()
    }


def fair_times(plan: Plan, topology: Topology) -> FairTimesOf:
    """Return a function that estimates message times under fair sharing of ports."""
    transport = plan.agents[0].transport
    of_job = {
        job: FairTimes(model, path_mtu=transport.path_mtu, verb=transport.verb)
        for job, model in _models(plan, topology).items()
    }
    return lambda job, messages: of_job[job].times_ns(messages)


def _models(
    plan: Plan, topology: Topology, hosts: Mapping[str, HostRates] = _NO_HOSTS
) -> dict[str, FabricModel]:
    """Return models of the fabric that connects the ranks of each job, by job.

    Args:
        plan: The plan.
        topology: Topology of the fabric.
        hosts: By job, the rates within hosts, if its queue pairs are not planned.
    """
    host_of_port = {port.number: port.host for port in plan.ports()}
    overhead_bytes = overhead_bytes_of(plan.family())
    transport = plan.agents[0].transport
    burst_bytes = transport.max_burst_packets * (transport.path_mtu + overhead_bytes)
    return {
        job: replace(
            fabric_model(
                topology,
                {rank.program.rank: host_of_port[rank.port] for rank in ranks},
                overhead_bytes=overhead_bytes,
                burst_bytes=burst_bytes,
            ),
            local_bps=hosts[job]
            if job in hosts
            else {
                (rank.program.rank, pair.peer_rank): pair.local_rate_bps
                for rank in ranks
                for pair in rank.queue_pairs
                if pair.local_rate_bps is not None
            },
        )
        for job, ranks in _by_job(plan).items()
    }


def _by_job(plan: Plan) -> dict[str, list[RankPlan]]:
    return grouped((rank.program.job, rank) for rank in plan.ranks())

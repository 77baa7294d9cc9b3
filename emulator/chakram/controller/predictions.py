"""What the collectives of a plan should take: ideal, ceiling, simulation."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import TYPE_CHECKING

from chakram.collectives.algorithms import algorithm_of
from chakram.collectives.ops import CollectiveOp
from chakram.errors import RunFailed
from chakram.fabric.model import fabric_model
from chakram.plan.wire_cost import overhead_bytes_of
from chakram.predict.ceiling import ceiling_ns
from chakram.predict.fair_time import FairTimes
from chakram.predict.ideal import Ideals
from chakram.predict.simulator.job import SimulationResult, simulate_plan
from chakram.program.columns import COLLECTIVE, SEND
from chakram.program.operations import POINT_TO_POINT, split_matrices
from chakram.results.joining import CollectiveJoiner
from chakram.results.resolve import OperationTable
from chakram.results.run_records import CollectiveKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chakram.fabric.topology import Topology
    from chakram.observe.message_columns import FairTimesOf
    from chakram.plan.plan import Plan, RankPlan
    from chakram.predict.network_model import FabricModel
    from chakram.switch.ecmp import EcmpHash

__all__ = [
    "Bounds",
    "FlowIdeal",
    "bounds",
    "durations",
    "fair_times",
    "flow_ideal",
    "simulate",
    "simulate_apart",
]

FlowIdeal = Callable[[str, int, int, int], int]
"""Ideal time in ns of one message: of job, sender, receiver and size in bytes."""

Bounds = tuple[dict[CollectiveKey, int], dict[CollectiveKey, int]]
"""Ideal and ceiling times in ns, by collective."""


def bounds(plan: Plan, topology: Topology) -> Bounds:
    """Return ideal and ceiling of every collective and message of a plan."""
    times: dict[CollectiveKey, int] = {}
    ceilings: dict[CollectiveKey, int] = {}
    transport = plan.agents[0].transport
    credits = plan.agents[0].settings.credits
    models = _models(plan, topology)
    for job, ranks in _by_job(plan).items():
        model = models[job]
        ideals = Ideals(
            model,
            path_mtu=transport.path_mtu,
            verb=transport.verb,
            credits=credits,
        )
        # Most collectives of a job are the same but for their number.
        known: dict[tuple[object, ...], tuple[int, int | None]] = {}
        matrices = split_matrices(rank.program for rank in ranks)
        for rank in ranks:
            program = rank.program
            columns = program.columns
            leads = [group.ranks[0] == program.rank for group in program.groups]
            for row in columns.rows_of(COLLECTIVE):
                place = columns.targets[row]
                if not leads[place]:
                    continue
                members = program.groups[place].ranks
                op, name = columns.all_algorithms[columns.algorithms[row]]
                root, input_bytes = columns.details[row], columns.amounts[row]
                key = CollectiveKey(
                    job, program.groups[place].name, columns.numbers[row]
                )
                how = algorithm_of(
                    op,
                    name,
                    nranks=len(members),
                    root=root,
                    listed=program.algorithms,
                )
                kind = (how, members, root, input_bytes, matrix := matrices.get(key))
                if kind not in known:
                    ideal_ns = ideals.collective_ns(
                        how,
                        ranks=members,
                        root=root,
                        input_bytes=input_bytes,
                        matrix=matrix,
                    )
                    known[kind] = (
                        ideal_ns,
                        None
                        if op is CollectiveOp.BARRIER
                        else ceiling_ns(
                            op,
                            ranks=members,
                            root=root,
                            input_bytes=input_bytes,
                            fabric=model,
                            path_mtu=transport.path_mtu,
                            verb=transport.verb,
                            matrix=matrix,
                        ),
                    )
                times[key], ceiling = known[kind]
                if ceiling is not None:
                    ceilings[key] = ceiling
            for row in columns.rows_of(SEND):
                peer = program.peers[columns.targets[row]]
                pair = f"{POINT_TO_POINT}:{program.rank}>{peer}"
                times[CollectiveKey(job, pair, columns.numbers[row])] = (
                    ideals.message_ns(
                        src=program.rank, dst=peer, size_bytes=columns.amounts[row]
                    )
                )
    return times, ceilings


def flow_ideal(plan: Plan, topology: Topology) -> FlowIdeal:
    """Return what says how long each message would take alone on the fabric."""
    transport = plan.agents[0].transport
    ideals = {
        job: Ideals(model, path_mtu=transport.path_mtu, verb=transport.verb)
        for job, model in _models(plan, topology).items()
    }

    def ideal(job: str, src: int, dst: int, size_bytes: int) -> int:
        return ideals[job].message_ns(src=src, dst=dst, size_bytes=size_bytes)

    return ideal


def fair_times(plan: Plan, topology: Topology) -> FairTimesOf:
    """Return what says how long the messages of a job take that share ports fairly."""
    transport = plan.agents[0].transport
    of_job = {
        job: FairTimes(model, path_mtu=transport.path_mtu, verb=transport.verb)
        for job, model in _models(plan, topology).items()
    }

    def times_ns(
        job: str, messages: Sequence[tuple[int, int, int, int]]
    ) -> Sequence[int]:
        return of_job[job].times_ns(messages)

    return times_ns


def _by_job(plan: Plan) -> dict[str, list[RankPlan]]:
    by_job: dict[str, list[RankPlan]] = {}
    for rank in plan.ranks():
        by_job.setdefault(rank.program.job, []).append(rank)
    return by_job


def _models(plan: Plan, topology: Topology) -> dict[str, FabricModel]:
    """Return by job what is known of the fabric under its ranks."""
    host_of_port = {port.number: port.host for port in plan.ports()}
    overhead_bytes = overhead_bytes_of(plan.family())
    return {
        job: replace(
            fabric_model(
                topology,
                {rank.program.rank: host_of_port[rank.port] for rank in ranks},
                overhead_bytes=overhead_bytes,
            ),
            local_bps={
                (rank.program.rank, pair.peer_rank): pair.local_rate_bps
                for rank in ranks
                for pair in rank.queue_pairs
                if pair.local_rate_bps is not None
            },
        )
        for job, ranks in _by_job(plan).items()
    }


def simulate(
    plan: Plan, topology: Topology, seed: int, ecmp: EcmpHash
) -> dict[CollectiveKey, int]:
    """Return the time of every collective in one simulated iteration.

    Raises:
        RunFailed: If the simulated job does not end.
    """
    result = simulate_plan(
        plan, topology, rng=random.Random(seed), warmup=0, measured=1, ecmp=ecmp
    )
    return durations(plan, result)


def durations(plan: Plan, result: SimulationResult) -> dict[CollectiveKey, int]:
    """Return the mean duration of every collective over the iterations of a result."""
    joiner = CollectiveJoiner(OperationTable(plan), warmup=0)
    times: dict[CollectiveKey, list[int]] = {}
    for record in joiner.add(result.records):
        times.setdefault(record.identity.key, []).append(record.duration_ns)
    return {key: round(sum(values) / len(values)) for key, values in times.items()}


async def simulate_apart(
    plan: Plan, topology: Topology, seed: int, ecmp: EcmpHash
) -> Mapping[CollectiveKey, int]:
    """Do ``simulate`` in a process of its own, so that the event loop stays free.

    Raises:
        RunFailed: If the simulated job does not end, or the process is killed.
    """
    loop = asyncio.get_running_loop()
    # Spawned, not forked: gRPC does not survive a fork.
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    try:
        return await loop.run_in_executor(pool, simulate, plan, topology, seed, ecmp)
    except BrokenProcessPool:
        raise RunFailed("simulation", "its process was killed") from None
    finally:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)

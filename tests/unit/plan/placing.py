"""Jobs placed on ports, for tests of plans and of their queue pairs."""

from __future__ import annotations

from chakram.collectives.groups import ProcessGroup, world_group
from chakram.plan.placement import PlacementOptions, place
from chakram.plan.plan import Plan, RunSettings
from chakram.plan.port_plan import PortPlan
from chakram.plan.queue_pairs import QueuePairLayout
from chakram.plan.transport import TransportPlan
from chakram.program.operations import Operation, RankProgram
from tests.made_plans import collective, program
from tests.port_plans import port_plan


def make_port(number: int, *, agent: str = "a0") -> PortPlan:
    return port_plan(number, agent=agent)


def make_ports(count: int) -> list[PortPlan]:
    return [make_port(number) for number in range(count)]


def make_job(
    nranks: int,
    *operations: Operation,
    job: str = "job",
    groups: tuple[ProcessGroup, ...] | None = None,
) -> list[RankProgram]:
    members = (world_group(nranks),) if groups is None else groups
    return [program(rank, members, operations, job=job) for rank in range(nranks)]


def make_plan(
    jobs: dict[str, list[RankProgram]],
    ports: list[PortPlan],
    options: dict[str, PlacementOptions] | None = None,
    *,
    shards: int = 1,
    seed: int = 1,
    layout: QueuePairLayout | None = None,
    psn_seed: int | None = None,
) -> Plan:
    return place(
        jobs,
        ports,
        options or {},
        TransportPlan(),
        RunSettings(seed=seed),
        shards={port.agent: shards for port in ports},
        run_id="r",
        layout=layout,
        psn_seed=psn_seed,
    )


ALL_TO_ALL = collective("all_to_all", 1024)
RING = collective("all_reduce", 1024, algorithm="ring")

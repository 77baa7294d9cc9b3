"""What a simulated event and a replayed message cost, in each form of the code.

The limits are generous, several times what a 2.5 GHz core of 2020 needs: they are there
to notice when something that grows with the ranks or the program creeps into events.
"""

from __future__ import annotations

import time

from chakram._compiled import status
from chakram.collectives.groups import ProcessGroup, world_group
from chakram.plan.plan import Plan
from chakram.predict.simulator.run_plan import SimulationResult, simulate_plan
from chakram.program.operations import Operation
from chakram.records.row_layout import FLOW_FIELDS
from chakram.topology.topology import Topology
from tests.bench.extent import at_most, sized
from tests.leaf_spines import clos
from tests.made_plans import collective, compute, make_plan, program, world_plan


def measured(plan: Plan, topology: Topology) -> tuple[SimulationResult, float]:
    """Return what a simulation gives, and the processor time that it takes, in us."""
    before_ns = time.process_time_ns()
    result = simulate_plan(plan, topology, seed=1, burst_packets=1)
    return result, (time.process_time_ns() - before_ns) / 1e3


def limit_us(compiled: float, plain: float) -> float:
    return at_most(compiled if status().is_compiled() else plain)


def test_packet_of_a_large_message_is_simulated_quickly() -> None:
    result, spent_us = measured(
        *world_plan([collective("all_reduce", sized(8 << 20, 8 << 10))], nranks=8)
    )
    assert spent_us / result.events < limit_us(compiled=4, plain=40)


def test_message_of_a_long_program_is_simulated_quickly() -> None:
    # 32 ranks, 1,000 operations each, in groups of 4 and in the world.
    nranks, operations = 32, sized(500, 16)
    world = world_group(nranks)
    programs = []
    for rank in range(nranks):
        first = rank // 4 * 4
        group = ProcessGroup(
            name=f"expert{first}", ranks=tuple(range(first, first + 4))
        )
        rows: list[Operation] = []
        counts = {"world": 0, group.name: 0}
        for index in range(operations):
            rows.append(
                compute(1_000 + index % 7, after=[len(rows) - 1] if rows else [])
            )
            name, op = (
                (group.name, "all_to_all") if index % 8 else ("world", "all_reduce")
            )
            rows.append(
                collective(
                    op, 4_096, group=name, number=counts[name], after=[len(rows) - 1]
                )
            )
            counts[name] += 1
        programs.append(program(rank, [world, group], rows))
    topology = clos(4, 4, 8, 10**10, 10**10)
    result, spent_us = measured(make_plan(programs, topology), topology)
    wide = -(-operations // 8)
    messages = len(result.records.flows) // len(FLOW_FIELDS)
    assert messages == nranks * (wide * 62 + (operations - wide) * 3)
    assert spent_us / messages < limit_us(compiled=60, plain=600)

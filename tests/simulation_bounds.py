"""Compares simulations of tests with their bounds.

``install`` puts a check behind ``simulate_plan``, wherever it has been imported: no
collective and no message of a simulation may end before its bound. A search for faults
simulates hundreds of times; one in ten of its later simulations is checked.
"""

from __future__ import annotations

import functools
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chakram.plan.plan import Plan
    from chakram.predict.simulator.run_plan import SimulationResult
    from chakram.topology.topology import Topology

MOST_MESSAGES = 5_000
"""Limit on checked messages; bounds of more would take longer than the simulation."""
FIRST = 10
"""Number of the first simulations of a test that are all checked."""


def check_bounds(plan: Plan, topology: Topology, result: SimulationResult) -> None:
    """Fail if anything in a simulation was faster than its bound."""
    from chakram.preparation.schedule_bounds import (
        bounds,
    )
    from chakram.records.collective_assembly import CollectiveJoiner
    from chakram.records.named_rows import OperationTable
    from chakram.records.row_layout import FlowRow, rows_of

    flows = list(rows_of(FlowRow, result.records.flows))
    if len(flows) > MOST_MESSAGES:
        return
    place_of = {
        rank.number: (rank.program.job, rank.program.rank) for rank in plan.ranks()
    }
    least = bounds(plan, topology)
    for flow in flows:
        (job, src), (_, dst) = place_of[flow.rank], place_of[flow.peer]
        least_ns = least.of_message(job, src, dst, flow.size_bytes)
        took_ns = flow.last_acked_ns - flow.posted_ns
        assert took_ns >= least_ns, f"{flow} took {took_ns} ns, its bound is {least_ns}"
    joiner = CollectiveJoiner(OperationTable(plan), warmup=0)
    for record in joiner.add(result.records):
        least_ns = least.times_ns.get(record.identity.key, 0)
        # From the first start on: the time of a barrier counts from the last, when some
        # of its messages may have arrived.
        took_ns = record.end_ns - record.start_ns
        assert took_ns >= least_ns, f"{record}: its bound is {least_ns} ns"


def install() -> None:
    """Check all simulations of this process."""
    from chakram.predict.simulator import run_plan as job

    plain = job.simulate_plan
    if getattr(plain, "is_checked", False):
        return

    simulations = Counter[str]()

    @functools.wraps(plain)
    def checked(plan: Plan, topology: Topology, **more: Any) -> SimulationResult:
        result = plain(plan, topology, **more)
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        simulations[test] += 1
        if simulations[test] <= FIRST or simulations[test] % FIRST == 0:
            check_bounds(plan, topology, result)
        return result

    checked.is_checked = True  # type: ignore[attr-defined] # of a function
    for module in list(sys.modules.values()):
        if getattr(module, "simulate_plan", None) is plain:
            module.simulate_plan = checked  # type: ignore[attr-defined] # it has it

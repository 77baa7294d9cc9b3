"""Background ranks on two agents: their last records arrive."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chakram.collectives.groups import world_group
from chakram.control.client import AgentClient
from chakram.control.clock_track import ClockTrack
from chakram.execution.session import Session
from chakram.plan.placement import PlacementOptions, place
from chakram.plan.plan import JobSettings, RunSettings
from chakram.records.counter_slots import fct_histograms, slot
from chakram.records.row_layout import FLOW_FIELDS, ITERATION_FIELDS, RecordRows
from tests.agents import TIMEOUT_S, serving
from tests.made_plans import collective, program
from tests.plans import ring_plan

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.control.events import CountersSnapshot, HostCounters, NicCounters
    from chakram.execution.state import Phase
    from chakram.plan.plan import Plan

_RANK = ITERATION_FIELDS.index("rank")


class Collector:
    """Keeps the rows of a run, and the last counters of each agent."""

    def __init__(self) -> None:
        self.rows = RecordRows()
        self.counters: dict[str, CountersSnapshot] = {}
        self.said: list[str] = []

    def phase_changed(self, phase: Phase) -> None: ...

    def iterations_done(self, iterations: int) -> None: ...

    def rows_arrived(self, rows: RecordRows) -> None:
        self.rows.extend(rows)

    def counters_arrived(self, agent: str, snapshot: CountersSnapshot) -> None:
        self.counters[agent] = snapshot

    def agent_lost(self, agent: str) -> None:
        self.said.append(f"{agent} is lost")

    def records_missing(self, agent: str, reason: str) -> None:
        self.said.append(f"records of {agent} are missing: {reason}")

    def agent_said(self, agent: str, level: str, text: str) -> None:
        self.said.append(text)

    def nic_counted(self, nic: NicCounters) -> None:
        self.said.append(f"NIC of port {nic.port}")

    def host_counted(self, agent: str, host: HostCounters) -> None:
        del agent, host


def two_jobs() -> Plan:
    """Return a plan whose second agent has but a rank in the background."""
    world = world_group(2)
    operations = [collective("all_reduce", 20_000, algorithm="ring")]
    programs = [program(rank, world, operations) for rank in range(2)]
    base = ring_plan(nranks=4)
    *first, last = base.ports
    return place(
        {
            job: [replace(each, job=job) for each in programs]
            for job in ("front", "back")
        },
        [*first, replace(last, agent="b")],
        {job: PlacementOptions() for job in ("front", "back")},
        base.transport,
        RunSettings(
            warmup=0,
            measured=100,
            jobs=(
                JobSettings(job="front"),
                JobSettings(job="back", is_background=True),
            ),
        ),
        shards={},
        run_id="r",
    )


@pytest.mark.asyncio
async def test_run_includes_all_counters_of_its_agents(tmp_path: Path) -> None:
    plan = two_jobs()
    assert [len(agent.ranks) for agent in plan.agents] == [3, 1]
    collector = Collector()
    async with (
        serving(f"unix:{tmp_path}/a") as here,
        serving(f"unix:{tmp_path}/b") as there,
        await AgentClient.connect(here, name="a") as first,
        await AgentClient.connect(there, name="b") as second,
    ):
        clients = {client.name: client for client in (first, second)}
        await Session(
            plans={agent.agent: agent for agent in plan.agents},
            clients=clients,
            clocks=dict.fromkeys(clients, ClockTrack()),
            observer=collector,
            hang_timeout_ns=int(TIMEOUT_S * 1e9),
            iterations_of=plan.iterations_of(),
        ).run()
        for client in clients.values():
            assert (await client.describe()).phase == "IDLE"
    assert collector.said == []
    ranks = collector.rows.iterations[_RANK :: len(ITERATION_FIELDS)]
    iterations = Counter(plan.ranks()[number].program.job for number in ranks)
    assert len(set(ranks)) == 4
    assert iterations["front"] == 2 * 100
    assert iterations["back"] > 0
    counted = [snapshot.values for snapshot in collector.counters.values()]
    flows = len(collector.rows.flows) // len(FLOW_FIELDS)
    assert flows == sum(values[slot("flows_completed")] for values in counted)
    assert flows == sum(
        histogram.total for values in counted for histogram in fct_histograms(values)
    )

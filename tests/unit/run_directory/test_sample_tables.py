"""Samples of ports in plans with unused ports."""

from __future__ import annotations

from array import array

from chakram.collectives.groups import world_group
from chakram.plan.isolated_collective import job_alone
from chakram.records.row_layout import PORT_FIELDS
from chakram.run_directory.schemas import SampleTables
from chakram.topology.topology_helpers import single_switch
from tests.made_plans import collective, make_plan, program


def test_samples_of_one_job_alone_name_its_own_hosts() -> None:
    world = world_group(2)
    plan = make_plan(
        [
            program(rank, world, [collective("all_reduce", 1024)], job=job)
            for job in ("first", "second")
            for rank in range(2)
        ],
        single_switch(4, 10**9),
    )
    alone = job_alone(plan, "second")
    rows = array("q")
    for port in alone.ports():
        values = dict.fromkeys(PORT_FIELDS, 0) | {"port": port.number}
        rows.extend(values.values())
    table = SampleTables(alone).ports(rows)
    assert table["host"].to_pylist() == ["h2", "h3"]

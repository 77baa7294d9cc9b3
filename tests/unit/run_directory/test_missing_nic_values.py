"""Columns of runs on RDMA NICs, and what their agents report of them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from chakram.control.events import NicCounters
from chakram.plan.plan import AgentPlan, Plan, RunSettings
from chakram.run_directory.added_flow_columns import paths_of_sockets
from chakram.run_directory.missing_nic_values import (
    blank_of,
    blanked,
    nic_ends,
    nic_ranks,
    nics_of,
    with_counters,
)
from chakram.run_directory.schemas import SCHEMAS
from tests.plans import JOB, ring_plan


def run_of(plan: AgentPlan) -> Plan:
    return Plan(run_id=plan.run_id, agents=(plan,))


def mixed() -> Plan:
    """Return a plan whose first port is on a NIC, and the second one has sockets."""
    plan = ring_plan(open_spec="verbs:mlx5_0")
    first, second = plan.ports
    return run_of(replace(plan, ports=(first, replace(second, open="udp:lo"))))


def test_only_ranks_of_nics_lack_values() -> None:
    assert nic_ranks(mixed()) == [True, False]
    assert nic_ends(mixed()) == {(JOB, 0)}
    assert nics_of(mixed()) == {"h0": {"device": "mlx5_0", "port": 0}}


@pytest.mark.parametrize(
    ("settings", "has_wrong"),
    [(RunSettings(credits=2), True), (RunSettings(), False)],
    ids=["credits", "none"],
)
def test_wrong_payload_is_known_where_it_is_verified(
    settings: RunSettings, has_wrong: bool
) -> None:
    plan = run_of(ring_plan(open_spec="verbs:mlx5_0", settings=settings))
    assert ("wrong" not in blank_of(plan)["collectives"]) == has_wrong
    assert "wrong" in blank_of(mixed())["collectives"]


def test_blank_columns_exist() -> None:
    for table, names in blank_of(mixed()).items():
        # The path is added when a run ends.
        assert set(names) - {"path"} <= set(SCHEMAS[table].names)


def test_blanking_keeps_the_schema() -> None:
    table = pa.table({"a": pa.array([1, 2], pa.int32()), "b": ["x", "y"]})
    found = blanked(table, ["a"])
    assert found.schema == table.schema
    assert found.to_pydict() == {"a": [None, None], "b": ["x", "y"]}


def test_paths_of_nics_are_unknown() -> None:
    paths = paths_of_sockets(lambda job, rank, qpn: [[f"{job}{rank}{qpn}"]], {("j", 0)})
    assert paths is not None
    assert paths("j", 0, 5) is None
    assert paths("j", 1, 5) == [["j15"]]
    assert paths_of_sockets(None, set()) is None


def test_reports_are_added_to_their_ports() -> None:
    nics = {"h0": {"device": "mlx5_0", "port": 0}, "h1": {"device": "rxe0", "port": 1}}
    reported = NicCounters(
        time_ns=1, port=1, counts=(("cnp_rx", 3),), settings=(("mtu", "4200"),)
    )
    assert with_counters(nics, {1: reported}) == {
        "h0": {"device": "mlx5_0", "port": 0},
        "h1": {
            "device": "rxe0",
            "port": 1,
            "settings": {"mtu": "4200"},
            "counters": {"cnp_rx": 3},
        },
    }

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chakram.collectives.groups import world_group
from chakram.errors import RunFailed
from chakram.fabric.shapes import single_switch
from chakram.plan.plan import RunSettings
from chakram.predict.simulator.engine import VirtualFabric, Wire
from chakram.program.operations import Operation
from chakram.replay.endpoint import Endpoint
from chakram.testing.ends import endpoints_of
from chakram.testing.plans import (
    collective,
    compute,
    make_plan,
    program,
    receive,
)
from chakram.units import LAST_INSTANT_NS


def wire(rate_bps: int | None, delay_ns: int = 0) -> Wire:
    return Wire(name="w", rate_bps=rate_bps, delay_ns=delay_ns)


def test_a_burst_arrives_after_its_last_bit_and_the_propagation() -> None:
    assert wire(10**9, 500).enter(1_000, 100) == 100 + 8_000 + 500


def test_bursts_queue_for_the_wire() -> None:
    link = wire(10**9, 500)
    link.enter(1_000, 0)
    assert link.enter(500, 3_000) == 8_000 + 4_000 + 500
    assert link.enter(500, 20_000) == 20_000 + 4_000 + 500


def test_a_wire_without_rate_has_no_queue() -> None:
    link = wire(None, 7)
    assert link.enter(10**6, 100) == link.enter(10**6, 100) == 107


def test_a_wire_counts_what_enters_it() -> None:
    link = wire(10**9)
    link.enter(100, 0)
    link.enter(50, 0)
    assert (link.sent_bytes, link.bursts) == (150, 2)


def test_a_wire_never_carries_more_than_its_rate_nor_much_less() -> None:
    # 1.24 ns each, so a thousand of them in 1,240 ns.
    link = wire(400 * 10**9)
    arrivals = [link.enter(62, 0) for _ in range(1_000)]
    assert arrivals[:4] == [2, 3, 4, 5]
    assert arrivals[-1] == 1_240


def test_virtual_time_ends_before_its_numbers_do() -> None:
    slow = wire(1_000)
    assert slow.enter(1, LAST_INSTANT_NS - 8 * 10**6) == LAST_INSTANT_NS
    with pytest.raises(RunFailed, match="more than 126 years of virtual time"):
        slow.enter(1, 0)


def test_an_idle_wire_saves_no_fractions_up() -> None:
    link = wire(3 * 10**9)
    assert link.enter(1, 0) == 3  # 2 2/3
    assert link.enter(1, 10) == 13


def two_endpoints(
    rows: Sequence[Operation],
    others: Sequence[Operation] | None = None,
    *,
    rate_bps: int | None = 10**9,
    measured: int = 2,
    drop_ratio: float = 0.0,
) -> list[Endpoint]:
    """Two endpoints with a rank each; the second rank does *others*, or the same."""
    world = world_group(2)
    plan = make_plan(
        [
            program(0, world, rows),
            program(1, world, rows if others is None else others),
        ],
        single_switch(2, rate_bps),
        settings=RunSettings(warmup=0, measured=measured, drop_ratio=drop_ratio),
    )
    return endpoints_of(plan)


def joined(endpoints: list[Endpoint], wires: list[Wire] | None = None) -> VirtualFabric:
    """Two endpoints that reach each other over the same wires."""
    path = [wire(10**9)] if wires is None else wires
    return VirtualFabric(
        endpoints=endpoints, route=lambda source, *_: (path, 1 - source)
    )


def run(fabric: VirtualFabric) -> bool:
    return fabric.run(start_ns=5)


def test_it_runs_until_every_endpoint_has_finished() -> None:
    rows = [compute(1_000), collective("barrier", after=[0])]
    endpoints = two_endpoints(rows, rate_bps=None)
    fabric = joined(endpoints, [])
    assert run(fabric)
    assert all(endpoint.finished() for endpoint in endpoints)
    assert fabric.now_ns == 5 + 2 * 1_000


def test_a_start_that_has_passed_is_made_up_for() -> None:
    endpoints = two_endpoints([compute(1_000)])
    fabric = joined(endpoints)
    assert fabric.run(start_ns=-600)
    assert fabric.now_ns == 2 * 1_000 - 600


def test_a_fabric_without_endpoints_is_done() -> None:
    assert run(VirtualFabric(endpoints=[], route=lambda *_: ([], 0)))


def test_it_stops_when_an_endpoint_fails() -> None:
    endpoints = two_endpoints([collective("all_gather", 8)], drop_ratio=1.0)
    assert not run(joined(endpoints))
    assert any(endpoint.failed() for endpoint in endpoints)


def test_it_stops_when_nothing_is_left_to_happen() -> None:
    endpoints = two_endpoints([receive(1, 8)], [])
    assert not run(joined(endpoints))
    assert endpoints[0].failed() is None
    assert not endpoints[0].finished()


def test_it_reports_the_iterations_that_all_have_done() -> None:
    endpoints = two_endpoints([collective("barrier")], rate_bps=None, measured=11_000)
    reports: list[int] = []
    fabric = joined(endpoints)
    assert fabric.run(start_ns=0, report=reports.append)
    assert len(reports) == fabric.events // 20_000 > 0
    assert reports == sorted(reports)
    assert 0 < reports[0] < reports[-1] < 11_000


@pytest.mark.parametrize("nwires", [1, 2, 3])
def test_a_path_of_some_wires_takes_the_sum_of_their_times(nwires: int) -> None:
    endpoints = two_endpoints([collective("all_gather", 4_000)])
    paths = [[wire(10**9, 100) for _ in range(nwires)] for _ in range(2)]
    fabric = VirtualFabric(
        endpoints=endpoints, route=lambda source, *_: (paths[source], 1 - source)
    )
    assert run(fabric)
    data_bytes, ack_bytes = 4_000 + 58 + 16 + 4, 62
    # The line of a port is taken by its own message before the answer.
    once_ns = nwires * (8 * (data_bytes + ack_bytes) + 200)
    assert fabric.now_ns == 5 + 2 * once_ns

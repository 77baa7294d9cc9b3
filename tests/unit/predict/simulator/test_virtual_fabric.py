"""The virtual fabric: events, links, bursts, pauses and faults of small fabrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakram.collectives.groups import world_group
from chakram.foundation.errors import RunFailed
from chakram.plan.plan import Plan, RunSettings
from chakram.predict.routing import Router, ports_of
from chakram.predict.simulator.event_queue import NO_EVENT, Events
from chakram.predict.simulator.flow_routes import FlowRoutes
from chakram.predict.simulator.switch_fabric import SwitchFabric
from chakram.predict.simulator.virtual_fabric import VirtualFabric
from chakram.program.operations import Operation
from chakram.replay.endpoint import Endpoint
from chakram.switch.ecmp import DrawnPaths
from chakram.switch.profiles import Profile
from chakram.topology.topology import Topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.made_plans import collective, compute, make_plan, program, receive
from tests.port_plans import endpoints_of

RUNS = 8
"""Of an event queue."""


@given(
    steps=st.lists(
        st.one_of(st.none(), st.tuples(st.integers(0, 50), st.booleans())),
        min_size=1,
        max_size=300,
    )
)
def test_events_and_timers_are_ordered_by_time_and_creation(
    steps: list[tuple[int, bool] | None],
) -> None:
    events = Events()
    expected: list[tuple[int, int]] = []
    for number, step in enumerate(steps):
        if step is not None:
            time_ns, is_timer = step
            (events.add_timer if is_timer else events.add)(time_ns, number)
            expected.append((time_ns, number))
            continue
        heapify(expected)
        assert events.first_ns() == (expected[0][0] if expected else NO_EVENT)
        if expected:
            assert events.take() == heappop(expected)[1]
    assert events.count == len(expected)
    assert [events.take() for _ in expected] == [what for _, what in sorted(expected)]


@given(
    steps=st.lists(
        st.one_of(st.none(), st.tuples(st.integers(-3, 50), st.booleans())),
        min_size=1,
        max_size=300,
    ),
    room=st.sampled_from((0, 100, 500)),
)
def test_events_of_a_time_may_have_older_numbers(
    steps: list[tuple[int, bool] | None], room: int
) -> None:
    events = Events()
    # Runs and the heap have room for 64; what comes first makes them grow.
    expected = [(number % 7, events.next_order()) for number in range(room)]
    for entry in expected:
        events.add_at(*entry, entry[1])
    kept: list[int] = []
    for step in steps:
        if step is None:
            heapify(expected)
            if expected:
                assert events.first_ns() == expected[0][0]
                assert events.take() == heappop(expected)[1]
            continue
        time_ns, is_now = step
        kept.append(events.next_order())
        order = kept.pop() if is_now else kept.pop(0)
        events.add_at(time_ns, order, order)
        expected.append((time_ns, order))
    assert [events.take() for _ in expected] == [what for _, what in sorted(expected)]
    assert (events.count, events.first_ns()) == (0, NO_EVENT)


def no_run_takes(events: Events) -> None:
    """Let all runs end with what happens late: what is earlier fits behind none."""
    for number in range(RUNS):
        events.add(10_000 - number, 10_000 - number)


def test_events_scheduled_ever_earlier_stay_in_order() -> None:
    events = Events()
    no_run_takes(events)
    for time_ns in range(300, 0, -1):
        events.add(time_ns, time_ns)
    taken = [events.take() for _ in range(100)]
    for time_ns in range(200, 100, -1):
        events.add(time_ns, 1000 + time_ns)
    taken += [events.take() for _ in range(events.count)]
    late = [what for time_ns in range(101, 201) for what in (time_ns, 1000 + time_ns)]
    last = range(10_001 - RUNS, 10_001)
    assert taken == [*range(1, 101), *late, *range(201, 301), *last]


def test_timer_keeps_no_event_out_of_a_run() -> None:
    events = Events()
    for number in range(100):
        events.add_timer(10_000 + number, 10_000 + number)
    for number in range(100):
        events.add(number, number)
    assert events.take() == 0
    # Only runs know so many events.
    assert events.ahead(90) == 91


@pytest.mark.parametrize("is_heap", [False, True])
def test_next_event_times_of_one_source_are_known(
    is_heap: bool,
) -> None:
    events = Events()
    if is_heap:
        no_run_takes(events)
    for number in range(40):
        events.add(10 + number, number)
    for number in range(40):
        assert events.take() == number
        # Of those behind the window of the heap nothing is known.
        assert events.ahead(0) == (number + 1 if number < 39 else -1)
        assert events.ahead(14) == (number + 15 if number < 25 else -1)


def planned(
    rows: Sequence[Operation],
    others: Sequence[Operation] | None = None,
    *,
    rate_bps: int | None = 10**9,
    delay_ns: int = 0,
    measured: int = 2,
    drop_ratio: float = 0.0,
) -> tuple[Plan, Topology]:
    """Two ranks on a switch; the second rank does *others*, or the same."""
    world = world_group(2)
    topology = single_switch(2, rate_bps, host_delay_ns=delay_ns)
    plan = make_plan(
        [
            program(0, world, rows),
            program(1, world, rows if others is None else others),
        ],
        topology,
        settings=RunSettings(warmup=0, measured=measured, drop_ratio=drop_ratio),
    )
    return plan, topology


def joined(plan: Plan, topology: Topology) -> tuple[VirtualFabric, list[Endpoint]]:
    endpoints = endpoints_of(plan)
    switches = SwitchFabric(topology, Profile(), ecn=False, seed=1)
    ports = ports_of(plan)
    paths = DrawnPaths(seed=1)
    router = Router(ports=ports, topology=topology, ecmp=paths)
    fabric = VirtualFabric(
        endpoints=endpoints,
        model=switches.model,
        hosts=[switches.host_port(port.host) for port in ports],
        delays_ns=switches.delays_ns,
        routes=FlowRoutes(router, endpoints, ports, switches, paths),
        dscps=(26, 26, 48),
    )
    return fabric, endpoints


def test_fabric_runs_until_every_endpoint_has_finished() -> None:
    rows = [compute(1_000), collective("barrier", after=[0])]
    fabric, endpoints = joined(*planned(rows, rate_bps=None))
    assert fabric.run(start_ns=5)
    assert all(endpoint.finished() for endpoint in endpoints)
    assert fabric.now_ns == 5 + 2 * 1_000


def test_asking_for_memory_ahead_makes_no_difference() -> None:
    topology = clos(2, 2, 4, 10**9, 10**9, host_delay_ns=500, uplink_delay_ns=500)
    world = world_group(8)
    rows = [
        collective("all_to_all", 1 << 16),
        collective("all_reduce", 1 << 16, number=1),
    ]
    plan = make_plan([program(rank, world, rows) for rank in range(8)], topology)
    found = []
    for looks_ahead in (False, True):
        fabric, endpoints = joined(plan, topology)
        fabric.looks_ahead = looks_ahead
        assert fabric.run(start_ns=0)
        flows = [each.records.flows.tolist() for each in endpoints]
        found.append((fabric.events, fabric.hops, flows))
    assert found[0] == found[1]


def test_past_start_time_is_accepted() -> None:
    fabric, _ = joined(*planned([compute(1_000)]))
    assert fabric.run(start_ns=-600)
    assert fabric.now_ns == 2 * 1_000 - 600


def test_fabric_stops_when_an_endpoint_fails() -> None:
    fabric, endpoints = joined(*planned([collective("all_gather", 8)], drop_ratio=1.0))
    assert not fabric.run(start_ns=5)
    assert any(endpoint.failed() for endpoint in endpoints)


def test_fabric_stops_without_further_events() -> None:
    fabric, endpoints = joined(*planned([receive(1, 8)], []))
    assert not fabric.run(start_ns=5)
    assert endpoints[0].failed() is None
    assert not endpoints[0].finished()


def test_fabric_reports_iterations_completed_by_all_ranks() -> None:
    plan, topology = planned([collective("barrier")], rate_bps=None, measured=11_000)
    fabric, _ = joined(plan, topology)
    reports: list[int] = []
    assert fabric.run(start_ns=0, report=reports.append)
    assert len(reports) == fabric.events // 20_000 > 0
    assert reports == sorted(reports)
    assert 0 < reports[0] < reports[-1] < 11_000


@pytest.mark.parametrize("delay_ns", [0, 100])
def test_message_takes_the_time_of_both_links_and_its_answer(
    delay_ns: int,
) -> None:
    plan, topology = planned([collective("all_gather", 4_000)], delay_ns=delay_ns)
    fabric, _ = joined(plan, topology)
    assert fabric.run(start_ns=5)
    data_bytes, ack_bytes = 4_000 + 58 + 16 + 4, 62
    # The line of a port is taken by its own message before the answer.
    once_ns = 2 * (8 * (data_bytes + ack_bytes) + 2 * delay_ns)
    assert fabric.now_ns == 5 + 2 * once_ns


def test_virtual_time_ends_before_its_numbers_do() -> None:
    plan, topology = planned([collective("all_gather", 1 << 20)], rate_bps=10**9)
    link = topology.links[0]
    slow = replace(topology, links=(replace(link, delay_ns=1 << 62), topology.links[1]))
    fabric, _ = joined(plan, slow)
    with pytest.raises(RunFailed, match="more than 126 years of virtual time"):
        fabric.run(start_ns=0)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from chakram.collectives.groups import world_group
from chakram.foundation.errors import PlanError
from chakram.foundation.ip_addresses import address_halves
from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.plan.plan import JobSettings, RunSettings
from chakram.plan.queue_pairs import QueuePairLayout
from chakram.plan.transport import TransportPlan
from chakram.program.operations import Operation
from chakram.replay.endpoint import Endpoint
from chakram.roce.constants import NEVER
from chakram.topology.topology_helpers import single_switch
from tests.forged_packets import FORGERIES, Way, sealed
from tests.made_plans import (
    collective,
    compute,
    flow_rows,
    iteration_rows,
    make_plan,
    program,
    receive,
    send,
    share_rows,
    world_plan,
)
from tests.port_plans import endpoints_of


def pair_of(
    rows: Sequence[Operation],
    *,
    transport: TransportPlan | None = None,
    settings: RunSettings | None = None,
) -> tuple[Endpoint, Endpoint]:
    plan, _ = world_plan(
        rows, nranks=2, rate_bps=None, transport=transport, settings=settings
    )
    left, right = endpoints_of(plan)
    return left, right


def test_collectives_of_a_group_are_sent_in_one_order_messages_in_none() -> None:
    plan, _ = world_plan([collective("all_gather", 8)], nranks=3, rate_bps=None)
    shared = []
    for endpoint in endpoints_of(plan):
        first, *others = [each.send_order for each in endpoint.engine.queue_pairs()]
        assert first is not None
        assert all(each is first for each in others)
        shared.append(first)
    assert len({*map(id, shared)}) == 3

    world = world_group(2)
    programs = [program(0, world, [send(1, 8)]), program(1, world, [receive(0, 8)])]
    for endpoint in endpoints_of(make_plan(programs, single_switch(2, None))):
        assert {each.send_order for each in endpoint.engine.queue_pairs()} == {None}


def test_endpoint_does_not_wait_for_background_ranks() -> None:
    settings = RunSettings(
        warmup=0, measured=1, jobs=(JobSettings(job="b", is_background=True),)
    )
    rows = [compute(10)]
    programs = [program(0, world_group(1), rows, job=job) for job in ("a", "b")]
    plan = make_plan(
        programs,
        single_switch(1, None),
        first_ports={"a": 0, "b": 0},
        settings=settings,
    )
    (endpoint,) = endpoints_of(plan)
    endpoint.arm(0)
    endpoint.advance(0)
    assert not endpoint.finished()
    endpoint.advance(10)
    assert endpoint.finished()
    before = endpoint.progress_counter()
    endpoint.advance(50)
    assert [replay.iteration for replay in endpoint.replays] == [1, 5]
    # What goes on without being waited for must not hide that others hang.
    assert endpoint.progress_counter() == before
    assert endpoint.waiting_for() == []


def carry(source: Endpoint, sink: Endpoint, now_ns: int) -> int:
    """Deliver the packets of *source* at *now_ns* to *sink*; return the bursts."""
    bursts = 0
    while (burst := source.engine.next_burst(now_ns)) is not None:
        sink.engine.receive_burst(burst, now_ns)
        bursts += 1
    return bursts


def run(endpoints: Sequence[Endpoint], *, limit_ns: int = 10**12) -> int:
    """Drive endpoints of a mesh without delay; return when nothing is left to do."""
    by_address = {each.port.address: each for each in endpoints}
    now_ns = 0
    for each in endpoints:
        each.arm(0)
    while now_ns < limit_ns:
        busy = False
        for each in endpoints:
            each.advance(now_ns)
            while (burst := each.engine.next_burst(now_ns)) is not None:
                address, _ = each.destinations[burst.destination]
                by_address[address].engine.receive_burst(burst, now_ns)
                busy = True
        if busy:
            continue
        wakeup_ns = min(each.next_wakeup_ns() for each in endpoints)
        if wakeup_ns == NEVER:
            break
        now_ns = max(now_ns + 1, wakeup_ns)
    return now_ns


def test_nothing_happens_before_the_start() -> None:
    left, _ = pair_of([collective("all_gather", 8)])
    assert left.next_wakeup_ns() == NEVER
    left.arm(500)
    assert left.next_wakeup_ns() == left.next_timer_ns() == 500
    left.advance(499)
    assert left.engine.next_burst(499) is None
    left.advance(500)
    assert left.next_timer_ns() == NEVER
    assert left.engine.next_burst(500) is not None


def test_a_completion_releases_a_message_within_one_advance() -> None:
    left, right = pair_of([collective("all_reduce", 8)])
    for each in (left, right):
        each.arm(0)
        each.advance(0)
    assert carry(left, right, 0) == 1
    right.advance(10)
    # The message, the answer to that of the left, and what that one released.
    bursts = list(iter(lambda: right.engine.next_burst(10), None))
    immediates = [burst.message_id for burst in bursts if burst.message_bytes]
    assert immediates == [0, 1]


def test_an_acknowledgement_releases_a_message_within_one_advance() -> None:
    world = world_group(2)
    plan = make_plan(
        [
            program(0, world, [send(1, 8), send(1, 9, number=1, after=[0])]),
            program(1, world, [receive(0, 8), receive(0, 9, number=1)]),
        ],
        single_switch(2, None),
    )
    left, right = endpoints_of(plan)
    left.arm(0)
    right.arm(0)
    left.advance(0)
    right.advance(0)
    carry(left, right, 0)
    right.advance(5)
    carry(right, left, 5)
    left.advance(5)
    burst = left.engine.next_burst(5)
    assert burst is not None
    assert (burst.message_id, burst.message_bytes) == (1, 9)


def test_ranks_run_their_iterations_and_then_nothing_is_left() -> None:
    rows = [compute(100), collective("all_reduce", 9_000, after=[0])]
    left, right = pair_of(rows, settings=RunSettings(warmup=1, measured=2))
    assert run([left, right]) == 300
    for each in (left, right):
        assert each.finished()
        assert each.failed() is None
        assert each.iterations_done() == 3
        assert each.next_wakeup_ns() == NEVER
        assert each.waiting_for() == []
        assert [row.end_ns for row in iteration_rows(each.records)] == [100, 200, 300]


def test_jobs_start_and_stop_while_another_one_sends() -> None:
    world = world_group(2)
    rows = [[send(1, 9_000)], [receive(0, 9_000)]]
    plan = make_plan(
        [
            program(rank, world, rows[rank], job=job)
            for job in ("a", "b")
            for rank in range(2)
        ],
        single_switch(2, 1_000_000_000),
        first_ports={"a": 0, "b": 0},
        settings=RunSettings(warmup=0, measured=10**6, sync="free"),
    )
    left, right = endpoints = endpoints_of(plan)

    def iterations() -> list[int]:
        return [replay.iteration for replay in left.replays]

    now_ns = 0

    def run_on(until_ns: int) -> None:
        nonlocal now_ns
        while now_ns < until_ns:
            for each, other in ((left, right), (right, left)):
                each.advance(now_ns)
                carry(each, other, now_ns)
            now_ns += 1_000

    for each in endpoints:
        each.arm(0)
        each.choose(["a"], 0)
    run_on(1_000_000)
    first, none = iterations()
    assert first > 5
    assert none == 0
    assert [each.rests() for each in left.replays] == [False, True]

    for each in endpoints:
        each.choose(["a", "b"], now_ns)
    run_on(2_000_000)
    assert min(iterations()) > 5
    assert not any(each.rests() for each in left.replays)

    # The receiver hears of it late, and then waits for an iteration that never begins.
    left.choose(["b"], now_ns)
    run_on(2_500_000)
    right.choose(["b"], now_ns)
    stopped, before = iterations()
    assert [each.rests() for each in left.replays] == [True, False]
    assert [each.rests() for each in right.replays] == [True, False]
    run_on(3_000_000)
    assert iterations()[0] == stopped
    assert iterations()[1] > before
    (sender, *_), (receiver, *_) = (each.engine.queue_pairs() for each in endpoints)
    assert sender.requester.messages_posted == stopped
    assert receiver.responder.messages_received == stopped

    for each in (right, left):
        each.choose([], now_ns)
        run_on(now_ns + 100_000)
    run_on(4_000_000)
    assert iterations()[0] > stopped
    assert all(each.early_messages() == 0 for each in right.replays)
    assert all(each.stray_messages() == 0 for each in right.replays)


def test_records_can_be_read_during_the_run() -> None:
    left, right = pair_of([collective("all_gather", 8)])
    run([left, right])
    taken = left.records.take()
    assert len(share_rows(taken)) == len(flow_rows(taken)) == 1
    assert len(left.records) == 0


def test_ranks_on_one_port_have_one_engine_and_share_addresses() -> None:
    world = world_group(6)
    rows = [collective("all_to_all", 600)]
    plan = make_plan(
        [program(rank, world, rows) for rank in range(6)],
        single_switch(3, None),
        ranks_per_port=2,
    )
    endpoints = endpoints_of(plan)
    for each in endpoints:
        assert len(each.replays) == 2
        # Its own address too: the two ranks send to each other.
        assert len(each.destinations) == len(set(each.destinations)) == 3
    run(endpoints)
    assert all(each.finished() for each in endpoints)


def test_an_endpoint_has_finished_when_all_its_ranks_have() -> None:
    world = world_group(2)
    plan = make_plan(
        [program(0, world, [compute(200)]), program(1, world, [compute(100)])],
        single_switch(1, None),
        ranks_per_port=2,
    )
    (endpoint,) = endpoints_of(plan)
    endpoint.arm(0)
    endpoint.advance(0)
    assert endpoint.next_wakeup_ns() == 100
    endpoint.advance(100)
    assert not endpoint.finished()
    assert endpoint.iterations_done() == 0
    assert endpoint.waiting_for() == [
        "job job rank 0: computes, or waits for its start time"
    ]
    endpoint.advance(200)
    assert endpoint.finished()
    assert endpoint.iterations_done() == 1


def test_a_port_without_ranks_has_finished() -> None:
    (agent,) = world_plan([compute(1)], nranks=1)[0].agents
    endpoint = Endpoint(
        port=agent.ports[0],
        ranks=[],
        transport=agent.transport,
        settings=agent.settings,
        rank_numbers={},
    )
    endpoint.arm(0)
    endpoint.advance(0)
    assert endpoint.finished()
    assert endpoint.iterations_done() == 0
    assert endpoint.next_wakeup_ns() == NEVER


def test_progress_grows_with_payload_messages_and_operations() -> None:
    left, right = pair_of([collective("all_gather", 8)])
    before = left.progress_counter()
    assert left.progress_counter() == before
    run([left, right])
    # 8 bytes arrived; a message and an operation ended.
    assert left.progress_counter() == before + 8 + 1 + 1
    assert left.progress_counter() == before + 8 + 1 + 1


def test_computing_rank_makes_progress() -> None:
    left, _ = pair_of([compute(10**12), collective("all_gather", 8, after=[0])])
    left.arm(0)
    left.advance(0)
    before = left.progress_counter()
    assert left.progress_counter() > before


def test_waiting_rank_makes_no_progress() -> None:
    left, right = pair_of([collective("all_gather", 8)])
    left.arm(0)
    left.advance(0)
    carry(left, right, 0)
    before = left.progress_counter()
    left.advance(10**6)
    assert left.progress_counter() == before


def test_useless_packets_are_no_progress() -> None:
    left, right = pair_of([collective("all_gather", 8)])
    for endpoint in (left, right):
        endpoint.arm(0)
        endpoint.advance(0)
    carry(left, right, 0)
    before = right.progress_counter()
    # Its acknowledgment is lost, so it is sent again.
    later_ns = left.next_wakeup_ns()
    left.advance(later_ns)
    assert carry(left, right, later_ns) == 1
    assert right.progress_counter() == before


def test_rank_waiting_for_a_silent_peer_names_the_message() -> None:
    left, right = pair_of([collective("all_gather", 8)])
    left.arm(0)
    left.advance(0)
    carry(left, right, 0)
    carry(right, left, 0)
    left.advance(1)
    assert left.waiting_for() == [
        "job job rank 0: all_gather 0 of group 'world' in iteration 0 waits for "
        "the message of step 0 from rank 1"
    ]


def test_queue_pair_with_only_foreign_packets_names_both_addresses() -> None:
    left, right = pair_of([collective("all_gather", 8)])
    (pair,) = left.engine.queue_pairs()
    stranger = "198.51.100.7"
    data = sealed(FORGERIES["cnp"](pair.qpn, 0), Way(stranger, left.port.address))

    def arrive(source: str) -> None:
        left.engine.receive_datagrams(
            data, len(data), 0, 0, False, 0xC000, *address_halves(source)
        )

    assert left.foreign() == []
    arrive(stranger)
    (sentence,) = left.foreign()
    assert sentence.startswith(
        f"job job rank 0: no packets came from {right.port.address}, the address of "
        f"rank 1; 1 packet(s) for its queue pair came from {stranger} and were dropped"
    )
    arrive(right.port.address)
    assert left.foreign() == []


def test_a_queue_pair_that_gives_up_fails_its_endpoint() -> None:
    left, right = pair_of(
        [collective("all_gather", 8)],
        transport=TransportPlan(retransmit_timeout_ns=1_000, retry_limit=3),
        settings=RunSettings(warmup=0, measured=1, drop_ratio=1.0),
    )
    run([left, right])
    assert not left.finished()
    assert str(left.failed()).startswith(
        "job job rank 0: the queue pair to rank 1 is in error: gave up after 3 "
        "retries: no ACK for PSN "
    )
    assert "transport.retransmit_timeout, which may be below the" in str(left.failed())
    assert left.next_wakeup_ns() == NEVER


def test_the_first_queue_pair_that_gives_up_is_the_reason() -> None:
    plan, _ = world_plan(
        [collective("all_to_all", 8)],
        nranks=3,
        rate_bps=None,
        transport=TransportPlan(retransmit_timeout_ns=1_000, retry_limit=0),
        settings=RunSettings(warmup=0, measured=1, drop_ratio=1.0),
    )
    left, *_ = endpoints_of(plan)
    left.arm(0)
    left.advance(0)
    while left.engine.next_burst(0) is not None:
        pass
    left.advance(1_000)
    assert "queue pair to rank 1 is in error" in str(left.failed())


def test_unknown_messages_are_harmless() -> None:
    left, right = pair_of([collective("all_gather", 8)])
    left.arm(0)
    left.advance(0)
    (pair,) = right.engine.queue_pairs()
    for immediate in (7, 0xFFFFFFFF):
        right.engine.post_send(pair.qpn, immediate, 3, 0)
    carry(right, left, 0)
    left.advance(0)
    assert left.replays[0].stray_messages() == 1
    assert left.replays[0].early_messages() == 1
    assert not left.finished()


@pytest.mark.parametrize(
    ("transport", "problem"),
    [
        ({"congestion_control": "hope"}, "there is no congestion control 'hope'"),
        ({"congestion_parameters": (("luck", 1),)}, "luck"),
    ],
)
def test_transport_settings_that_are_impossible_are_refused(
    transport: dict[str, object], problem: str
) -> None:
    plan, _ = world_plan([collective("all_gather", 8)], nranks=2)
    (agent,) = plan.agents
    changed = replace(agent, transport=replace(agent.transport, **transport))
    with pytest.raises(PlanError, match=f"plan: port 0: .*{problem}"):
        endpoints_of(replace(plan, agents=(changed,)))


def test_impossible_faults_are_refused() -> None:
    with pytest.raises(PlanError, match=r"probability: 1\.5"):
        pair_of([compute(1)], settings=RunSettings(drop_ratio=1.5))


def test_duplicate_queue_pair_number_is_refused() -> None:
    plan, _ = world_plan([collective("all_to_all", 8)], nranks=3)
    (agent,) = plan.agents
    rank = agent.ranks[0]
    first, second = rank.queue_pairs
    doubled = replace(rank, queue_pairs=(first, replace(second, qpn=first.qpn)))
    changed = replace(agent, ranks=(doubled, *agent.ranks[1:]))
    with pytest.raises(PlanError, match=f"plan: port 0: .*{first.qpn}"):
        endpoints_of(replace(plan, agents=(changed,)))


@pytest.mark.parametrize(
    ("named", "dropped"),
    [
        ({}, (1, 1)),
        ({"source": 0}, (0, 1)),
        ({"destination": 0}, (1, 0)),
        ({"source": 0, "destination": 1}, (0, 1)),
        ({"source": 0, "at_send": True}, (1, 0)),
        ({"job": "another"}, (0, 0)),
        ({"group": "world"}, (1, 1)),
        ({"group": "another"}, (0, 0)),
        ({"channel": 0, "source": 1}, (1, 0)),
        ({"channel": 1}, (0, 0)),
        ({"queue_pair": 0, "destination": 1}, (0, 1)),
        ({"queue_pair": 1}, (0, 0)),
    ],
)
def test_faults_are_about_the_flows_they_name(
    named: dict[str, Any], dropped: tuple[int, int]
) -> None:
    fault = PacketFault(action=FaultAction.DROP, nth=1, **named)
    endpoints = pair_of(
        [collective("all_gather", 8)],
        settings=RunSettings(warmup=0, measured=2, faults=(fault,)),
    )
    run(endpoints)

    assert all(each.finished() for each in endpoints)
    found = tuple(each.engine.statistics().faults_dropped for each in endpoints)
    assert found == dropped


@pytest.mark.parametrize(
    ("split", "named"), [("round_robin", [0, 1, 2, 0]), ("even", [0] * 4)]
)
def test_a_flow_names_the_queue_pair_that_carried_it(
    split: str, named: list[int]
) -> None:
    world = world_group(2)
    plan = make_plan(
        [
            program(0, world, [send(1, 1000, number=each) for each in range(4)]),
            program(1, world, [receive(0, 1000, number=each) for each in range(4)]),
        ],
        single_switch(2, 10**9),
        transport=TransportPlan(split=split),
        layout=QueuePairLayout(count=3),
    )
    endpoints = endpoints_of(plan)
    run(endpoints)
    index_of = {pair.qpn: pair.index for pair in plan.ranks()[0].queue_pairs}
    flows = flow_rows(endpoints[0].records)
    found = {flow.operation: index_of[flow.qpn] for flow in flows}
    assert found == dict(enumerate(named))

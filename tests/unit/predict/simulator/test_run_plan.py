from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from chakram.collectives.groups import world_group
from chakram.collectives.schedule import part_bytes
from chakram.foundation.errors import FabricError, PlanError, RunFailed
from chakram.plan.packet_faults import FaultAction, PacketFault
from chakram.plan.plan import JobSettings, Plan, RunSettings
from chakram.plan.transport import TransportPlan
from chakram.predict.simulator import burst_size
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.records.row_layout import QUEUE_PAIR_FIELDS
from chakram.switch.faults import LinkFault
from chakram.topology.topology import EcnThresholds
from chakram.topology.topology_builders import leaf_spine
from chakram.topology.topology_helpers import LinkKind, single_switch
from tests.made_plans import (
    collective,
    compute,
    iteration_rows,
    make_plan,
    program,
    receive,
    share_rows,
    world_plan,
)
from tests.plans import dcqcn_arguments
from tests.support import fewer
from tests.unit.predict.simulator.simulating import SIZE, simulate

# Bytes: with S the buffer and p(c) the size of part c, modulo n.


def ring_all_reduce(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return 2 * size - part(rank + 1) - part(rank + 2) if n > 1 else 0


def ring_all_gather(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return n * size - part(rank + 1)


def ring_reduce_scatter(
    size: int, n: int, rank: int, part: Callable[[int], int]
) -> int:
    return size - part(rank)


def to_all_others(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return size - part(rank)


def own_to_all_others(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return (n - 1) * part(rank)


def to_the_root(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return 0 if rank == 0 else part(rank)


def from_the_root(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return size - part(0) if rank == 0 else 0


def nothing(size: int, n: int, rank: int, part: Callable[[int], int]) -> int:
    return 0


@pytest.mark.parametrize("size", [0, 1, 4096, 9_999, 70_001])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8])
@pytest.mark.parametrize(
    ("op", "algorithm", "closed_form"),
    [
        ("all_reduce", "ring", ring_all_reduce),
        ("all_gather", "ring", ring_all_gather),
        ("all_gather", "direct", own_to_all_others),
        ("reduce_scatter", "ring", ring_reduce_scatter),
        ("reduce_scatter", "direct", to_all_others),
        ("all_to_all", "direct", to_all_others),
        ("gather", "direct", to_the_root),
        ("scatter", "direct", from_the_root),
        ("barrier", "dissemination", nothing),
    ],
)
def test_every_rank_sends_the_bytes_of_the_closed_form(
    op: str,
    algorithm: str,
    closed_form: Callable[[int, int, int, Callable[[int], int]], int],
    n: int,
    size: int,
) -> None:
    plan, topology = world_plan([collective(op, size, algorithm=algorithm)], nranks=n)
    buffer_bytes = n * size if op in ("all_gather", "gather") else size

    def part(index: int) -> int:
        return part_bytes(buffer_bytes, nparts=n, part=index % n)

    shares = share_rows(simulate(plan, topology).records)
    assert {share.rank: share.sent_bytes for share in shares} == {
        rank: closed_form(size, n, rank, part) for rank in range(n)
    }
    sent, got = (
        sum(share.sent_bytes for share in shares),
        sum(share.received_bytes for share in shares),
    )
    assert sent == got


@pytest.mark.parametrize(
    ("op", "times"), [("broadcast", 1), ("reduce", 1), ("all_reduce", 2)]
)
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_a_tree_moves_the_buffer_once_per_edge(op: str, times: int, n: int) -> None:
    plan, topology = world_plan([collective(op, 10_001, algorithm="tree")], nranks=n)
    shares = share_rows(simulate(plan, topology).records)
    total_bytes = sum(share.sent_bytes for share in shares)
    assert total_bytes == times * (n - 1) * 10_001


# Runs.


def test_agents_share_the_work_of_a_plan() -> None:
    world = world_group(4)
    rows = [
        collective("all_reduce", 50_000),
        collective("barrier", number=1, after=[0]),
    ]
    topology = single_switch(4, 10**9)
    programs = [program(rank, world, rows) for rank in range(4)]
    one = simulate(make_plan(programs, topology), topology)
    two = simulate(make_plan(programs, topology, agents=2), topology)
    assert two.end_ns == one.end_ns
    assert sorted(share_rows(two.records)) == sorted(share_rows(one.records))


def test_iterations_can_be_chosen_for_the_simulation_alone() -> None:
    plan, topology = world_plan(
        [compute(10)], nranks=2, settings=RunSettings(warmup=3, measured=7)
    )
    usual = simulate_plan(plan, topology, seed=1)
    assert len(iteration_rows(usual.records)) == 2 * 10
    short = simulate_plan(plan, topology, seed=1, warmup=0, measured=1)
    assert len(iteration_rows(short.records)) == 2
    assert short.end_ns == 10


def test_jobs_above_the_target_are_simulated_in_bursts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, topology = world_plan([collective("all_reduce", SIZE // 4)], nranks=4)
    exact = simulate(plan, topology)
    assert exact.burst_packets == 1
    # 256 packets in each of 24 messages.
    monkeypatch.setattr(burst_size, "BURSTS_TARGET", 24 * 256 // 3)
    coarse = simulate(plan, topology)
    assert coarse.burst_packets == 3
    assert 0.95 * exact.end_ns < coarse.end_ns < 1.05 * exact.end_ns


@pytest.mark.parametrize("ack_interval", fewer([1, 15, 30]))
def test_bursts_fit_into_the_window_beside_packets_that_await_acknowledgment(
    monkeypatch: pytest.MonkeyPatch, ack_interval: int
) -> None:
    transport = TransportPlan(
        window_bytes=60 * 4096, ack_interval_packets=ack_interval, path_mtu=4096
    )
    link = LinkKind(rate_bps=100 * 10**9, delay_ns=500)
    topology = leaf_spine(4, 4, 1, uplinks=4, host=link, uplink=link)
    world = world_group(4)
    operations = [collective("all_reduce", SIZE)]
    plan = make_plan(
        [program(rank, world, operations) for rank in range(4)],
        topology,
        transport=transport,
    )
    exact = simulate(plan, topology)
    monkeypatch.setattr(burst_size, "BURSTS_TARGET", 1)
    coarse = simulate(plan, topology)
    assert coarse.burst_packets > 1
    assert coarse.end_ns < 1.05 * exact.end_ns


def test_hanging_job_is_ended_with_its_waiting_ranks() -> None:
    world = world_group(3)
    topology = single_switch(3, None)
    plan = make_plan(
        [
            program(0, world, [receive(1, 8), receive(2, 8), receive(1, 8, number=1)]),
            program(1, world, [receive(0, 8)]),
            program(2, world, []),
        ],
        topology,
    )
    with pytest.raises(RunFailed) as caught:
        simulate(plan, topology)
    assert str(caught.value) == (
        "simulation: no operation can proceed, but the job is not done: "
        "job job rank 0: receive 0 from rank 1 in iteration 0 waits for the message of "
        "step 0 from rank 1; "
        "job job rank 0: receive 0 from rank 2 in iteration 0 waits for the message of "
        "step 0 from rank 2; "
        "job job rank 0: receive 1 from rank 1 in iteration 0 waits for the message of "
        "step 0 from rank 1; and 1 more (check that the "
        "programs of the ranks belong together)"
    )


def test_all_waiting_ranks_are_named_if_few() -> None:
    world = world_group(2)
    topology = single_switch(2, None)
    plan = make_plan(
        [program(0, world, [receive(1, 8)]), program(1, world, [])], topology
    )
    told = r"from rank 1 \(check that the programs of the ranks belong together\)"
    with pytest.raises(RunFailed, match=told):
        simulate(plan, topology)


def test_a_fabric_that_loses_everything_ends_the_run() -> None:
    plan, topology = world_plan(
        [collective("all_gather", 8)],
        nranks=2,
        settings=RunSettings(warmup=0, measured=1, drop_ratio=1.0),
    )
    with pytest.raises(RunFailed, match="is in error: gave up after 7 retries"):
        simulate(plan, topology)


def test_ports_that_dropped_packets_are_named_if_a_run_fails() -> None:
    plan, topology = world_plan(
        [collective("all_gather", 8)],
        nranks=2,
        settings=RunSettings(warmup=0, measured=1),
    )
    lossy = LinkFault(kind="loss", port=0, at_ns=0, until_ns=10**12, probability=1.0)
    told = r"; egress ports that dropped most packets: \w+:\w+ \(\d+\)$"
    with pytest.raises(RunFailed, match=told):
        simulate_plan(plan, topology, faults=[lossy])


def test_a_plan_without_agents_is_refused() -> None:
    with pytest.raises(PlanError, match="it has no agent"):
        simulate(Plan(run_id="x", agents=()), single_switch(1, None))


def test_rank_on_an_unknown_port_is_refused() -> None:
    plan, topology = world_plan([collective("all_gather", 8)], nranks=2)
    (agent,) = plan.agents
    fewer = replace(plan, agents=(replace(agent, ports=agent.ports[:1]),))
    with pytest.raises(PlanError, match="rank 1: agent agent0 has no port 1"):
        simulate(fewer, topology)


def test_a_host_that_is_not_in_the_topology_is_refused() -> None:
    plan, _ = world_plan([collective("all_gather", 8)], nranks=3)
    with pytest.raises(FabricError, match="h2"):
        simulate(plan, single_switch(2, None))


# Several jobs.


def test_chosen_iterations_override_those_of_jobs() -> None:
    settings = RunSettings(
        warmup=1, measured=3, jobs=(JobSettings(job="job", iterations=9),)
    )
    plan, topology = world_plan([compute(10)], nranks=1, settings=settings)
    assert len(iteration_rows(simulate_plan(plan, topology, seed=1).records)) == 9
    short = simulate_plan(plan, topology, seed=1, warmup=0, measured=2)
    assert len(iteration_rows(short.records)) == 2


def test_background_job_continues_until_the_others_end() -> None:
    topology = single_switch(2, 10**9)
    world = world_group(2)
    programs = [
        program(rank, world, [collective("all_to_all", size)], job=job)
        for job, size in (("front", 1 << 20), ("back", 1 << 14))
        for rank in range(2)
    ]
    plan = make_plan(
        programs,
        topology,
        first_ports={"front": 0, "back": 0},
        settings=RunSettings(
            warmup=0,
            measured=2,
            jobs=(
                JobSettings(job="back", is_background=True),
                JobSettings(job="front", offset_ns=1_000_000),
            ),
        ),
    )
    rows = iteration_rows(simulate(plan, topology).records)
    front = [row for row in rows if row.rank < 2]
    back = [row for row in rows if row.rank >= 2]
    assert len(front) == 4
    assert front[0].start_ns == 1_000_000
    assert len(back) > 20
    assert max(row.start_ns for row in back) > max(row.start_ns for row in front)


def test_a_job_that_hangs_ends_despite_jobs_in_the_background() -> None:
    topology = single_switch(4, 10**9)
    world = world_group(2)
    programs = [
        program(rank, world, [collective("all_to_all", 1 << 14)], job=job)
        for job in ("front", "back")
        for rank in range(2)
    ]
    plan = make_plan(
        programs,
        topology,
        transport=TransportPlan(retransmit_timeout_ns=0),
        settings=RunSettings(
            warmup=0,
            measured=1,
            hang_timeout_ns=10**7,
            jobs=(JobSettings(job="back", is_background=True),),
            faults=(
                PacketFault(
                    action=FaultAction.DROP, packets="last", job="front", nth=1
                ),
            ),
        ),
    )
    with pytest.raises(RunFailed, match=r"no operation can proceed.*job front rank"):
        simulate(plan, topology)


def test_injected_faults_are_counted_and_all_data_arrives() -> None:
    faults = (
        PacketFault(action=FaultAction.DROP, nth=2, source=0),
        PacketFault(action=FaultAction.DUPLICATE, nth=1, destination=0, at_send=True),
        PacketFault(action=FaultAction.MARK, nth=10**6),
    )
    plan, topology = world_plan(
        [collective("all_gather", 50_000)],
        nranks=2,
        settings=RunSettings(warmup=0, measured=1, faults=faults),
    )
    result = simulate_plan(plan, topology, seed=1)

    found = {name: count for name, count in result.injected.items() if count}
    assert found == {"drops": 1, "duplicates": 1}
    assert result.disturbed == (1, 1, 0)
    assert [row.received_bytes for row in share_rows(result.records)] == [50_000] * 2


def test_polling_all_ports_equals_polling_ports_with_news() -> None:
    marks = EcnThresholds(kmin_bytes=4_000, kmax_bytes=16_000, probability=0.5)
    topology = single_switch(
        4, 10**10, host_delay_ns=500, host_queue_bytes=20_000, host_ecn=marks
    )
    rows = [
        collective("gather", 400_000),
        collective("all_to_all", 400_000, number=1, after=[0]),
    ]
    # A port with faults is always looked at; this one never comes.
    found = []
    for faults in (), (PacketFault(action=FaultAction.DROP, nth=10**9),):
        plan = make_plan(
            [program(rank, world_group(4), rows) for rank in range(4)],
            topology,
            transport=TransportPlan(
                window_bytes=1 << 16,
                retransmit_timeout_ns=10**6,
                retry_limit=100,
                max_burst_packets=4,
                congestion_control="dcqcn",
                congestion_parameters=dcqcn_arguments(),
            ),
            settings=RunSettings(warmup=0, measured=3, faults=faults),
        )
        found.append(simulate_plan(plan, topology, seed=1))
    alike, other = found
    assert sum(alike.drops.values()) > 0
    assert sum(alike.marked_packets.values()) > 0
    assert alike.records == other.records
    assert (alike.end_ns, alike.hops) == (other.end_ns, other.hops)


@pytest.mark.parametrize(
    ("lost", "timeout_ns", "is_repaired"),
    [
        ("middle", 0, True),  # what follows shows the gap
        ("last", 0, False),
        ("ack", 0, False),
        ("last", 10_000_000, True),
        ("ack", 10_000_000, True),
    ],
)
def test_only_gaps_are_repaired_without_a_timeout(
    lost: str, timeout_ns: int, is_repaired: bool
) -> None:
    fault = PacketFault(action=FaultAction.DROP, packets=lost, nth=1, destination=0)
    plan, topology = world_plan(
        [collective("all_gather", 50_000)],
        nranks=2,
        settings=RunSettings(warmup=0, measured=1, faults=(fault,)),
        # So that the one acknowledgment is that of the end.
        transport=TransportPlan(
            retransmit_timeout_ns=timeout_ns, ack_interval_packets=64
        ),
    )
    if is_repaired:
        result = simulate_plan(plan, topology, seed=1)
        assert result.disturbed == (1,)
        assert len(share_rows(result.records)) == 2
        # A gap is repaired long before a timeout would be over.
        assert (result.end_ns > 10_000_000) == (timeout_ns > 0)
    else:
        with pytest.raises(RunFailed, match="without a timeout"):
            simulate_plan(plan, topology, seed=1)


def test_queue_pairs_report_their_losses() -> None:
    fault = PacketFault(action=FaultAction.DROP, packets="data", nth=3, count=1)
    plan, topology = world_plan(
        [collective("all_gather", SIZE)],
        nranks=2,
        settings=RunSettings(warmup=0, measured=1, faults=(fault,)),
    )

    rows = simulate(plan, topology, burst_packets=1).records.queue_pairs

    pairs = {
        row["rank"]: row
        for row in (
            dict(zip(QUEUE_PAIR_FIELDS, values, strict=True))
            for values in zip(*[iter(rows)] * len(QUEUE_PAIR_FIELDS), strict=True)
        )
    }
    assert {rank: row["peer"] for rank, row in pairs.items()} == {0: 1, 1: 0}
    for row in pairs.values():
        assert row["nak_sequence_tx"] == row["nak_rx"] == 1
        assert row["retransmitted_nak"] == row["data_frames_retransmitted"] > 0
        assert row["nak_reordered_tx"] == row["nak_reordered_rx"] == 0


def test_a_short_job_is_sent_in_the_bursts_of_its_transport() -> None:
    def end_ns(max_burst_packets: int) -> int:
        transport = TransportPlan(
            path_mtu=1024, window_bytes=1 << 20, max_burst_packets=max_burst_packets
        )
        plan, topology = world_plan(
            [collective("all_gather", 20_000)],
            nranks=3,
            rate_bps=10**9,
            transport=transport,
        )
        return simulate_plan(plan, topology, seed=1).end_ns

    assert end_ns(4) < end_ns(1)

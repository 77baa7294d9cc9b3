"""Agents, shards and sockets on loopback, with the test as controller."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from chakram.collectives.algorithms import algorithm
from chakram.collectives.algorithms.transfer_lists import listed_from
from chakram.collectives.groups import world_group
from chakram.collectives.ops import CollectiveOp
from chakram.control.client import AgentClient
from chakram.control.events import (
    AgentEvent,
    CountersSnapshot,
    Failed,
    Finished,
    LogLine,
    PhaseChanged,
    Progress,
    RecordBatch,
)
from chakram.execution.clock_watch import clock_of
from chakram.foundation.errors import (
    AgentError,
    FabricError,
    PlanError,
    PlugInError,
    PortInUse,
    UnexpectedEvent,
)
from chakram.plan.placement import PlacementOptions, place
from chakram.plan.plan import PlugInUse, RunSettings
from chakram.plan.transport import TransportPlan
from chakram.records.counter_slots import fct_histograms, slot
from chakram.records.row_layout import (
    CAUSE_MESSAGE,
    FLOW_FIELDS,
    ITERATION_FIELDS,
    SHARE_FIELDS,
    RecordRows,
)
from chakram_agent.send_limits import Policy
from tests.agents import (
    SOON_NS,
    TIMEOUT_S,
    agent_in,
    endless_plan,
    serving,
    shards_of,
    socket_in,
    start,
    until_the_end,
    wait_for_traffic,
)
from tests.made_plans import collective, flow_rows, program
from tests.plans import UDP_PORT, ring_plan
from tests.waiting import seconds_of

pytestmark = pytest.mark.asyncio


async def test_plan_that_needs_a_missing_plug_in_is_refused(tmp_path: Path) -> None:
    needs = PlugInUse(noun="congestion control", name="acme", package="acme 1.0")
    async with agent_in(tmp_path) as client:
        with pytest.raises(PlugInError) as caught:
            await client.prepare(replace(ring_plan(), plug_ins=(needs,)))
        # Nothing was begun: the agent is free for another plan.
        await start(client, ring_plan())
        await until_the_end(client)
    assert "there is no congestion control 'acme' here" in str(caught.value)
    assert "install acme 1.0 on the agent's host, too" in str(caught.value)


async def test_a_run_from_plan_to_records(tmp_path: Path) -> None:
    plan = ring_plan(nranks=3, iterations=4, collectives=2)
    async with agent_in(tmp_path) as client:
        await start(client, plan)
        events = await until_the_end(client)
        assert isinstance(events[-1], Finished)
        await client.reset()
        assert (await client.describe()).phase == "IDLE"

    phases = [event.phase for event in events if isinstance(event, PhaseChanged)]
    # An agent that is kept from noticing the start may hear of the end first.
    assert [phase for phase in phases if phase != "RUNNING"] == [
        *("IDLE", "PREPARING", "PREPARED", "ARMED", "DONE")
    ]
    progress = [event for event in events if isinstance(event, Progress)]
    assert dict(progress[-1].iterations) == {0: 4, 1: 4, 2: 4}
    rows = RecordRows()
    for event in events:
        if isinstance(event, RecordBatch):
            rows.extend(event.rows)
    flows = 3 * 4 * 2 * 4  # ranks, messages of a ring, collectives, iterations
    assert len(rows.flows) == flows * len(FLOW_FIELDS)
    assert len(rows.shares) == 3 * 2 * 4 * len(SHARE_FIELDS)
    assert len(rows.iterations) == 3 * 4 * len(ITERATION_FIELDS)
    (*_, last) = (event for event in events if isinstance(event, CountersSnapshot))
    assert last.values[slot("flows_completed")] == flows
    assert last.values[slot("tx_packets")] == last.values[slot("rx_packets")] > flows
    assert last.values[slot("tx_bytes")] == last.values[slot("rx_bytes")]
    assert sum(histogram.total for histogram in fct_histograms(last.values)) == flows


async def test_two_shards_work_on_one_plan(tmp_path: Path) -> None:
    async with agent_in(tmp_path) as client:
        await start(client, ring_plan(nranks=4, shards=2))
        events = await until_the_end(client)
        assert isinstance(events[-1], Finished)
        (*_, last) = (event for event in events if isinstance(event, CountersSnapshot))
        assert [load.shard for load in last.loads] == [0, 1]


async def test_agents_need_nothing_but_the_plan_for_a_users_algorithm(
    tmp_path: Path,
) -> None:
    """With channels, credits, and two ranks on each port that talk past it."""
    ring = algorithm(CollectiveOp.ALL_REDUCE, "ring(channels=2,chunks=2)")
    listed = listed_from(ring, name="user:ring", nranks=4)
    world = world_group(4)
    rows = [collective("all_reduce", 40_000, algorithm="user:ring")]
    base = ring_plan(nranks=2)
    plan = place(
        {
            "job": [
                replace(program(rank, world, rows), algorithms=(listed,))
                for rank in range(4)
            ]
        },
        base.ports,
        {"job": PlacementOptions(ranks_per_port=2, local_rate_bps=10**9)},
        base.transport,
        RunSettings(warmup=0, measured=3, credits=1),
        shards={},
        run_id=base.run_id,
    )
    async with agent_in(tmp_path) as client:
        await start(client, plan.agents[0])
        events = await until_the_end(client)
        assert isinstance(events[-1], Finished)
    flows = RecordRows()
    for event in events:
        if isinstance(event, RecordBatch):
            flows.extend(event.rows)
    found = flow_rows(flows)
    assert len(found) == 3 * len(listed.transfers)
    # Ranks 0 and 1 share a port, as 2 and 3 do: no packet for what they exchange.
    local = {(row.rank, row.peer) for row in found if row.packets == 0}
    assert local == {(0, 1), (2, 3)}
    assert {row.cause_kind for row in found} >= {CAUSE_MESSAGE}


async def test_a_second_plan_follows_after_a_reset(tmp_path: Path) -> None:
    async with agent_in(tmp_path) as client:
        for _ in range(2):
            await start(client, ring_plan())
            assert isinstance((await until_the_end(client))[-1], Finished)
            await client.reset()


async def test_only_ranks_of_chosen_jobs_begin_iterations(tmp_path: Path) -> None:
    async with agent_in(tmp_path) as client:
        client.jobs = ("other",)
        await start(client, endless_plan())
        async with asyncio.timeout(TIMEOUT_S), aclosing(client.events()) as events:

            async def resting(*ranks: int) -> set[int]:
                """Wait until these ranks rest, and return the iterations of all."""
                async for event in events:
                    if isinstance(event, Progress) and event.resting == ranks:
                        return {done for _, done in event.iterations}
                return set()

            assert await resting(0, 1) == {0}
            client.jobs = ("job",)
            await resting()
            client.jobs = ("other",)
            assert min(await resting(0, 1)) > 0
        await client.abort("enough")


async def test_abort_ends_the_traffic(tmp_path: Path) -> None:
    async with agent_in(tmp_path) as client:
        await start(client, endless_plan())
        await wait_for_traffic(client)
        processes = shards_of(os.getpid())
        abort = client.abort("enough")
        assert await seconds_of(abort, processes=processes) < 2
        failed = (await until_the_end(client))[-1]
        assert isinstance(failed, Failed)
        assert failed.reason == "enough"
        await client.reset()


async def test_all_records_have_arrived_when_an_abort_returns(tmp_path: Path) -> None:
    heard: list[AgentEvent] = []
    begun = asyncio.Event()

    async def follow(client: AgentClient) -> None:
        async for event in client.events():
            heard.append(event)
            if isinstance(event, RecordBatch):
                begun.set()

    async with agent_in(tmp_path) as client:
        follower = asyncio.create_task(follow(client))
        await start(client, endless_plan())
        async with asyncio.timeout(TIMEOUT_S):
            await begun.wait()
        await client.abort("enough")
        assert isinstance(heard[-1], Failed)
        flows = sum(
            len(event.rows.flows) // len(FLOW_FIELDS)
            for event in heard
            if isinstance(event, RecordBatch)
        )
        counters = [event for event in heard if isinstance(event, CountersSnapshot)]
        assert flows == counters[-1].values[slot("flows_completed")]
        await client.abort("nothing runs any more")
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)


async def test_waiting_ranks_report_the_peer_they_wait_for(tmp_path: Path) -> None:
    plan = ring_plan(transport=TransportPlan(retransmit_timeout_ns=10**12))
    settings = replace(plan.settings, drop_ratio=0.999999, seed=3)
    async with agent_in(tmp_path) as client:
        await start(client, replace(plan, settings=settings))
        async with asyncio.timeout(TIMEOUT_S):
            async for event in client.events():
                if isinstance(event, Progress) and event.waiting_for:
                    break
        assert any("rank" in sentence for sentence in event.waiting_for)
        await client.abort("hung")
        failed = (await until_the_end(client))[-1]
        assert isinstance(failed, Failed)
        assert failed.waiting_for


async def test_a_queue_pair_that_gives_up_ends_the_run(tmp_path: Path) -> None:
    transport = TransportPlan(retransmit_timeout_ns=1_000_000, retry_limit=2)
    plan = ring_plan(transport=transport)
    settings = replace(plan.settings, drop_ratio=0.999999, seed=3)
    async with agent_in(tmp_path) as client:
        await start(client, replace(plan, settings=settings))
        failed = (await until_the_end(client))[-1]
        assert isinstance(failed, Failed)
        assert "gave up" in failed.reason


async def test_a_busy_port_is_named(tmp_path: Path) -> None:
    async with (
        serving(f"unix:{tmp_path}/a") as first,
        serving(f"unix:{tmp_path}/b") as second,
        await AgentClient.connect(first, name="a") as client,
        await AgentClient.connect(second, name="b") as other,
    ):
        await client.prepare(ring_plan())
        with pytest.raises(PortInUse, match=rf"agent b .*127\.18\.0\.1:{UDP_PORT}"):
            await other.prepare(ring_plan(agent="b"))
        await other.reset()
        assert (await other.describe()).phase == "IDLE"


async def test_an_address_that_is_not_allowed_is_refused(tmp_path: Path) -> None:
    async with agent_in(tmp_path) as client:
        with pytest.raises(PlanError, match=r"does not send to 192\.0") as caught:
            await client.prepare(ring_plan(prefix="192.0.2"))
        assert caught.value.exit_code == 2
        assert (await client.describe()).phase == "IDLE"


async def test_a_missing_interface_is_named(tmp_path: Path) -> None:
    async with agent_in(tmp_path) as client:
        with pytest.raises(FabricError, match="there is no interface nonesuch0"):
            await client.prepare(ring_plan(open_spec="udp:nonesuch0"))


@pytest.mark.parametrize("shards", [1, 2], ids=["by-the-shard", "by-the-agent"])
async def test_path_that_is_no_namespace_does_not_block_the_agent(
    tmp_path: Path, shards: int
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    plan = ring_plan(shards=shards, netns=(str(fifo), None))
    if shards > 1:  # both ranks at one port: the agent opens it for its shards
        plan = replace(
            plan,
            ports=plan.ports[:1],
            ranks=tuple(replace(rank, port=0) for rank in plan.ranks),
        )
    async with agent_in(tmp_path) as client:
        with pytest.raises(FabricError, match="it is not a network namespace"):
            await client.prepare(plan)
        await client.reset()
        assert (await client.describe()).phase == "IDLE"


async def test_shards_have_no_higher_priority_than_their_agent(tmp_path: Path) -> None:
    async with agent_in(tmp_path) as client:
        await client.prepare(ring_plan(shards=2))
        shards = shards_of(os.getpid())
        assert len(shards) == 2
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in shards} == {ours}


async def test_rate_cap_is_reported(tmp_path: Path) -> None:
    async with agent_in(tmp_path, policy=Policy(max_rate_bps=200_000_000)) as client:
        assert client.description.max_rate_bps == 200_000_000
        await start(client, ring_plan())
        events = await until_the_end(client)
        lines = [event.text for event in events if isinstance(event, LogLine)]
        assert len(lines) == 2
        assert "port 0 (h0) sends at most 100Mbit/s: " in lines[0]


async def test_commands_in_the_wrong_phase_are_refused(tmp_path: Path) -> None:
    async with agent_in(tmp_path) as client:
        await client.attach()
        with pytest.raises(UnexpectedEvent, match="in phase IDLE: cannot arm now"):
            await client.arm(time.monotonic_ns() + SOON_NS)
        await client.prepare(ring_plan())
        with pytest.raises(AgentError, match="s from now"):
            await client.arm(time.monotonic_ns() - SOON_NS)
        with pytest.raises(UnexpectedEvent, match="cannot prepare now"):
            await client.prepare(ring_plan())


async def test_agent_serves_one_controller_at_a_time(tmp_path: Path) -> None:
    async with (
        serving(socket_in(tmp_path)) as target,
        await AgentClient.connect(target, name="a") as client,
        await AgentClient.connect(target, name="a") as other,
    ):
        await client.attach(controller="first@host")
        with pytest.raises(AgentError, match="the agent is in use by first@host"):
            await other.attach()


async def test_hosts_of_one_boot_share_a_clock(tmp_path: Path) -> None:
    async with agent_in(tmp_path) as client:
        assert (await clock_of(client)).uncertainty_ns == 0
        client.description = replace(client.description, clock="another")
        track = await clock_of(client)
        assert abs(track.line.offset_ns) <= track.uncertainty_ns < 10**9

"""Ports with ranks in several data-plane processes, over real sockets."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chakram.collectives.groups import world_group
from chakram.control.client import AgentClient
from chakram.control.events import CountersSnapshot, Failed, Finished, RecordBatch
from chakram.foundation.errors import FabricError, PortInUse
from chakram.plan.placement import PlacementOptions, place
from chakram.plan.plan import AgentPlan, RunSettings
from chakram.plan.queue_pairs import SHARD_BITS
from chakram.records.counter_slots import INVALID, slot
from chakram.records.row_layout import FLOW_FIELDS, PORT_FIELDS, RecordRows
from chakram_agent.dataplane.udp_sockets import UDP_SEGMENT
from chakram_agent.divided_ports import open_receivers
from tests.agents import TIMEOUT_S, agent_in, shards_of, start, until_the_end
from tests.made_plans import collective, program
from tests.plans import ring_plan
from tests.udp_ports import free_udp_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from chakram.control.events import AgentEvent

SHARDS = (1, 17, 33, 62)
"""All six bits that name a shard tell them apart."""

ATTEMPTS = 5
"""Something else may keep the machine busy for a while."""

LOOPBACK = ("127.0.0.1", "::1")
_UDP_GRO = 104


def family_of(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@contextmanager
def receivers(
    address: str, shards: Sequence[int] = SHARDS
) -> Iterator[tuple[int, list[socket.socket]]]:
    """Yield the UDP port and the sockets of a divided port."""
    udp_port = free_udp_ports()
    opened = open_receivers("", address, udp_port, shards)
    try:
        yield udp_port, opened
    finally:
        for each in opened:
            each.close()


def packet(qpn: int, size: int = 40) -> bytes:
    return (bytes(5) + qpn.to_bytes(3) + bytes(size))[:size]


def arrived(receiver: socket.socket) -> list[bytes]:
    found = []
    while True:
        try:
            found.append(receiver.recv(65_536))
        except BlockingIOError:
            return found


@pytest.mark.parametrize("address", LOOPBACK)
def test_every_packet_arrives_at_the_shard_of_its_queue_pair(address: str) -> None:
    with (
        receivers(address) as (udp_port, opened),
        socket.socket(family_of(address), socket.SOCK_DGRAM) as sender,
    ):
        qpns = [n << SHARD_BITS | SHARDS[n % 4] for n in range(16, 80)]
        for qpn in qpns:
            sender.sendto(packet(qpn), (address, udp_port))
        for shard, receiver in zip(SHARDS, opened, strict=True):
            expected = [packet(qpn) for qpn in qpns if qpn % 64 == shard]
            assert arrived(receiver) == expected


@pytest.mark.parametrize("address", LOOPBACK)
def test_packets_of_unknown_queue_pairs_arrive_at_the_first_shard(address: str) -> None:
    with (
        receivers(address) as (udp_port, opened),
        socket.socket(family_of(address), socket.SOCK_DGRAM) as sender,
    ):
        odd = [b"", b"x", bytes(7), packet(2), packet(63), b"\xff" * 8]
        for data in odd:
            sender.sendto(data, (address, udp_port))
        assert arrived(opened[0]) == odd
        assert [arrived(each) for each in opened[1:]] == [[], [], []]


def test_joined_packets_arrive_together_at_the_shard_of_the_first_one() -> None:
    """Packets for two shards must not share addresses and ports in a plan."""
    with (
        receivers("127.0.0.1") as (udp_port, opened),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        for receiver in opened:
            receiver.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
        run = packet(16 << SHARD_BITS | 17) + packet(17 << SHARD_BITS | 33)
        segment = struct.pack("H", len(run) // 2)
        sender.sendmsg(
            [run],
            [(socket.IPPROTO_UDP, UDP_SEGMENT, segment)],
            0,
            ("127.0.0.1", udp_port),
        )
        assert [arrived(receiver) for receiver in opened] == [[], [run], [], []]


@pytest.mark.parametrize("address", LOOPBACK)
def test_place_in_a_socket_group_cannot_be_taken_twice(address: str) -> None:
    with receivers(address) as (udp_port, opened):
        with pytest.raises(PortInUse, match="taken by another program"):
            open_receivers("", address, udp_port, SHARDS)
        assert len(opened) == len(SHARDS)
    with pytest.raises(FabricError, match="no interface has that address"):
        open_receivers("", "198.51.100.7", udp_port, SHARDS)


# ---- an agent ------------------------------------------------------------------------


def divided_plan(
    address: str, *, shards: int, rate_bps: int | None = 1_000_000_000, iterations: int
) -> AgentPlan:
    """Return four jobs on the same two ports, whose ranks exchange 2 x 200 kB each."""
    base = ring_plan(nranks=2, rate_bps=rate_bps)
    ports = tuple(
        replace(
            port,
            address=address if address == "::1" else f"{address[:-1]}{port.number + 1}",
            udp_port=free_udp_ports(),
        )
        for port in base.ports
    )
    world = world_group(2)
    rows = [collective("all_reduce", 200_000, number=n) for n in range(2)]
    jobs = "abcd"
    plan = place(
        {
            job: [program(rank, world, rows, job=job) for rank in range(2)]
            for job in jobs
        },
        ports,
        {job: PlacementOptions(first_port=0) for job in jobs},
        # Four processes on a busy machine may well leave each other waiting.
        replace(base.transport, retransmit_timeout_ns=2 * 10**9),
        RunSettings(warmup=0, measured=iterations),
        shards={"a": shards},
        run_id="run-1",
    )
    return plan.agents[0]


async def run(client: AgentClient, plan: AgentPlan) -> list[AgentEvent]:
    await start(client, plan)
    return await until_the_end(client)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("address", "shards", "compiled"),
    [
        ("127.18.9.1", 4, "auto"),
        # Which shard an IPv6 packet comes to is tried above, whole runs in e2e.
        pytest.param("::1", 4, "auto", marks=pytest.mark.soak),
        pytest.param("127.18.9.1", 4, "off", marks=pytest.mark.soak),
    ],
)
async def test_ranks_of_one_port_live_in_several_shards(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    shards: int,
    compiled: str,
) -> None:
    monkeypatch.setenv("CHAKRAM_COMPILED", compiled)
    plan = divided_plan(address, shards=shards, iterations=3)
    parts = plan.shards_of_ports()
    assert [len(each) for each in parts.values()] == [shards // 2] * 2
    async with agent_in(tmp_path) as client:
        events = await run(client, plan)
        assert isinstance(events[-1], Finished)

    rows = RecordRows()
    for event in events:
        if isinstance(event, RecordBatch):
            rows.extend(event.rows)
    width = len(FLOW_FIELDS)
    flows = [rows.flows[at : at + width] for at in range(0, len(rows.flows), width)]
    sizes: Counter[int] = Counter()
    for flow in flows:
        sizes[flow[FLOW_FIELDS.index("rank")]] += flow[FLOW_FIELDS.index("size_bytes")]
    assert sizes == dict.fromkeys(range(8), 3 * 2 * 200_000)

    (*_, last) = (event for event in events if isinstance(event, CountersSnapshot))
    values = {name: last.values[slot(name)] for name in ("tx_packets", "rx_packets")}
    assert values["tx_packets"] > 0
    # Each shard counts by itself, until the stop command: of the last packets, an
    # acknowledgment of each may be counted at one end and not yet at the other.
    assert abs(values["tx_packets"] - values["rx_packets"]) <= shards
    assert all(last.values[slot(f"invalid_{reason}")] == 0 for reason in INVALID)
    assert last.values[slot("retransmitted_packets_timeout")] == 0
    assert len(last.loads) == shards

    # The last sample of each part; together they are the port's.
    samples: dict[tuple[int, int], dict[str, int]] = {}
    width = len(PORT_FIELDS)
    for at in range(0, len(rows.ports), width):
        row = dict(zip(PORT_FIELDS, rows.ports[at : at + width], strict=True))
        samples[row["port"], row["shard"]] = row
    assert sorted(samples) == [(port, each) for port in parts for each in parts[port]]
    for name, total in values.items():
        assert abs(sum(row[name] for row in samples.values()) - total) <= shards


@pytest.mark.asyncio
async def test_parts_of_a_port_share_its_rate(tmp_path: Path) -> None:
    rate_bps = 50_000_000
    plan = divided_plan("127.18.9.1", shards=4, rate_bps=rate_bps, iterations=2)
    found = []
    async with agent_in(tmp_path) as client:
        for _ in range(ATTEMPTS):
            found.append(goodput_bps(await run(client, plan)))
            # Parts with their own rate would have twice as much.
            assert found[-1] <= rate_bps
            # How near to it they come is up to the machine.
            if found[-1] >= rate_bps * 0.4:
                return
            await client.reset()
    raise AssertionError(f"{found} of {rate_bps} bit/s")


def goodput_bps(events: Sequence[AgentEvent]) -> float:
    """Return the rate of each of the two ports; both must be equal."""
    rows = RecordRows()
    for event in events:
        if isinstance(event, RecordBatch):
            rows.extend(event.rows)
    width = len(FLOW_FIELDS)
    acked = rows.flows[FLOW_FIELDS.index("last_acked_ns") :: width]
    first = rows.flows[FLOW_FIELDS.index("first_sent_ns") :: width]
    sizes = rows.flows[FLOW_FIELDS.index("size_bytes") :: width]
    took_s = (max(acked) - min(first)) / 1e9
    return 8 * sum(sizes) / 2 / took_s


@pytest.mark.asyncio
async def test_killed_part_of_a_port_ends_the_run(tmp_path: Path) -> None:
    # Slow, so that four processes leave cores to their agent and its controller.
    rate_bps = 50_000_000
    plan = divided_plan("127.18.9.1", shards=4, rate_bps=rate_bps, iterations=100_000)
    async with agent_in(tmp_path) as client:
        await start(client, plan)
        async with asyncio.timeout(TIMEOUT_S):
            async for event in client.events():
                if isinstance(event, RecordBatch):
                    break
        shards = shards_of(os.getpid())
        os.kill(shards[1], signal.SIGKILL)
        events = await until_the_end(client)
        assert isinstance(events[-1], Failed)
        assert "was killed by signal 9" in events[-1].reason
        await client.reset()
        await client.prepare(plan)  # the place is free again

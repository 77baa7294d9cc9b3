"""One measurement of the engine, in a process of its own; prints JSON.

``python engine.py KIND NETNS...`` drives all ports itself, as a data-plane process
does. ``CHAKRAM_COMPILED`` decides which form of the code runs.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from dataclasses import replace
from ipaddress import IPv4Network
from statistics import median

from chakram._compiled import status
from chakram.core.groups import ProcessGroup, world_group
from chakram.core.plan import AgentPlan, RunSettings, TransportPlan
from chakram.core.program import Operation
from chakram.errors import RunFailed
from chakram.fabric.topology import single_switch
from chakram.testing.plans import (
    collective,
    iteration_rows,
    make_plan,
    program,
    receive,
    send,
    share_rows,
)
from chakram_agent.dataplane.loop import DataPlane
from chakram_agent.policy import Policy
from chakram_agent.shard import build_plane

BULK_BYTES = 128 << 20
MESSAGE_BYTES = 1024
GROUPS = 64
MESSAGES_PER_GROUP = 30
ALL_REDUCE_BYTES = 64 * 1024
LIMIT_S = 60


def plan_of(
    rows: list[list[Operation]],
    groups: list[ProcessGroup],
    netns: list[str],
    transport: TransportPlan,
    settings: RunSettings,
) -> AgentPlan:
    """Return the plan of ranks with these operations, one per namespace."""
    programs = [program(rank, groups, each) for rank, each in enumerate(rows)]
    topology = single_switch(len(rows), None)
    (plan,) = make_plan(
        programs, topology, transport=transport, settings=settings
    ).agents
    ports = [
        replace(port, open="udp:eth0", netns=where)
        for port, where in zip(plan.ports, netns, strict=True)
    ]
    return replace(plan, ports=tuple(ports))


def run(plan: AgentPlan) -> DataPlane:
    """Carry out *plan* in this process."""
    plane = build_plane(plan, Policy(allow=(IPv4Network("198.18.0.0/15"),)))
    gc.collect()
    gc.freeze()
    start_ns = time.monotonic_ns() + 5_000_000
    plane.arm(start_ns)
    try:
        while not plane.finished():
            plane.round()
            plane.wait(50_000_000)
            failure = plane.failure()
            if failure is None and time.monotonic_ns() > start_ns + LIMIT_S * 10**9:
                failure = f"not finished after {LIMIT_S} s"
            if failure is not None:
                raise RunFailed("bench", failure)
    finally:
        plane.close()
    return plane


def durations_ns(plane: DataPlane, warmup: int) -> list[int]:
    """Return how long each measured iteration took, from first to last rank."""
    spans: dict[int, list[int]] = {}
    for line in plane.lines:
        for row in iteration_rows(line.endpoint.records):
            spans.setdefault(row.iteration, []).extend((row.start_ns, row.end_ns))
    return [max(span) - min(span) for each, span in spans.items() if each >= warmup]


def bulk(netns: list[str], iterations: int) -> float:
    """Return the goodput of one long message after the other, in bit/s."""
    world = [world_group(2)]
    rows: list[list[Operation]] = [[send(1, BULK_BYTES)], [receive(0, BULK_BYTES)]]
    transport = TransportPlan(
        max_burst_packets=15, window_bytes=1 << 20, ack_interval_packets=60
    )
    settings = RunSettings(warmup=1, measured=iterations)
    plane = run(plan_of(rows, world, netns[:2], transport, settings))
    return 8e9 * BULK_BYTES / median(durations_ns(plane, 1))


def messages(netns: list[str], iterations: int) -> float:
    """Return how many messages of one packet arrive per second."""
    groups = [ProcessGroup(name=f"g{each}", ranks=(0, 1)) for each in range(GROUPS)]
    rows: list[Operation] = [
        collective("all_to_all", 2 * MESSAGE_BYTES, group=group.name, number=number)
        for number in range(MESSAGES_PER_GROUP)
        for group in groups
    ]
    settings = RunSettings(warmup=1, measured=iterations)
    plan = plan_of([rows, rows], groups, netns[:2], TransportPlan(), settings)
    plane = run(plan)
    return 1e9 * 2 * len(rows) / median(durations_ns(plane, 1))


def all_reduce(netns: list[str], iterations: int) -> float:
    """Return how long a small all-reduce over a ring takes, in seconds."""
    count = len(netns)
    rows: list[Operation] = [
        collective("all_reduce", ALL_REDUCE_BYTES, algorithm="ring"),
        collective("barrier", number=1, after=[0]),
    ]
    settings = RunSettings(warmup=10, measured=iterations)
    plan = plan_of(
        [rows] * count, [world_group(count)], netns, TransportPlan(), settings
    )
    spans: dict[int, list[int]] = {}
    for line in run(plan).lines:
        for row in share_rows(line.endpoint.records):
            if row.operation == 0:
                spans.setdefault(row.iteration, []).extend((row.start_ns, row.end_ns))
    return median(max(span) - min(span) for span in spans.values()) / 1e9


KINDS = {"bulk": bulk, "messages": messages, "all_reduce": all_reduce}


def main() -> None:
    kind, iterations, *netns = sys.argv[1:]
    found = KINDS[kind](netns, int(iterations))
    json.dump({"value": found, "compiled": status().is_compiled()}, sys.stdout)


if __name__ == "__main__":
    main()

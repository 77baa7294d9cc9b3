"""One measurement of the engine, in a separate process; prints JSON.

``python engine.py KIND ITERATIONS NETNS...`` drives all ports itself, as a data-plane
process does, or, for the kinds of two ranks, one port in each of two processes that
keep to a core each. ``CHAKRAM_COMPILED`` decides which form of the code runs.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Network
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from chakram._compiled import status
from chakram.collectives.groups import world_group
from chakram.foundation.errors import RunFailed
from chakram.plan.plan import AgentPlan, RunSettings
from chakram.plan.transport import TransportPlan
from chakram.program.operations import Operation, RankProgram
from chakram.records.counter_slots import FCT_BUCKET_BOUNDS_NS
from chakram.topology.topology_helpers import single_switch
from chakram_agent.counter_updates import LONGEST_WAIT_NS
from chakram_agent.dataplane.loop import DataPlane
from chakram_agent.send_limits import Policy
from chakram_agent.shard import CHORES_NS, GARBAGE_THRESHOLD, build_plane
from tests.bench.extent import sized
from tests.made_plans import (
    collective,
    flow_rows,
    iteration_rows,
    make_plan,
    program,
    receive,
    send,
    share_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

BULK_BYTES = sized(128 << 20, 1 << 20)
# Payload of a full packet, and how many fill one send.
LARGE_PACKETS = (4096, 15)
SMALL_PACKETS = (1024, 60)
BURSTS_PER_ACK = 4
MESSAGE_BYTES = 1024
QUEUE_PAIRS = 64
MESSAGES_PER_QUEUE_PAIR = 100
TINY_BYTES = 64
ROUND_TRIPS = sized(500, 20)
ALL_REDUCE_BYTES = 64 * 1024
PACED_BPS = 10**9
PACED_BYTES = sized(32 << 20, 1 << 20)
LIMIT_S = 60


def plan_of(
    programs: list[RankProgram],
    netns: list[str],
    transport: TransportPlan,
    settings: RunSettings,
) -> AgentPlan:
    """Return the plan of *programs*; the ranks of each job are on all namespaces."""
    topology = single_switch(len(netns), None)
    (plan,) = make_plan(
        programs,
        topology,
        transport=transport,
        settings=settings,
        first_ports={each.job: 0 for each in programs},
    ).agents
    ports = [
        replace(port, open="udp:eth0", netns=where)
        for port, where in zip(plan.ports, netns, strict=True)
    ]
    return replace(plan, ports=tuple(ports))


def run(plan: AgentPlan, start_ns: int | None = None) -> DataPlane:
    """Carry out *plan* in this process, at *start_ns* or at once."""
    plane = build_plane(plan, Policy(allow=(IPv4Network("198.18.0.0/15"),)))
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
    if start_ns is None:
        start_ns = time.monotonic_ns() + 5_000_000
    plane.arm(start_ns)
    try:
        while not plane.finished():
            plane.work(time.monotonic_ns() + CHORES_NS, LONGEST_WAIT_NS)
            failure = plane.failure()
            if failure is None and time.monotonic_ns() > start_ns + LIMIT_S * 10**9:
                failure = f"not finished after {LIMIT_S} s"
            if failure is not None:
                raise RunFailed("bench", failure)
    finally:
        plane.close()
    return plane


def part_of(plan: AgentPlan, positions: Iterable[int]) -> AgentPlan:
    """Return the part of *plan* that is about some of its ports."""
    ports = tuple(plan.ports[position] for position in positions)
    numbers = {port.number for port in ports}
    ranks = tuple(rank for rank in plan.ranks if rank.port in numbers)
    return replace(plan, ranks=ranks, ports=ports)


def run_apart(plan: AgentPlan) -> DataPlane:
    """Carry out *plan*, of two ports, in two processes; return that of the first."""
    cores = sorted(os.sched_getaffinity(0))
    start_ns = time.monotonic_ns() + 300_000_000
    child = os.fork()
    mine = 0 if child else 1
    os.sched_setaffinity(0, {cores[mine % len(cores)]})
    part = part_of(plan, [mine])
    if not child:
        status = 1
        try:
            run(part, start_ns)
            status = 0
        finally:
            os._exit(status)
    try:
        plane = run(part, start_ns)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(child, 0)
    if status:
        raise RunFailed("bench", "the process of the other port failed")
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
    return 8e9 * BULK_BYTES / one_way(netns, [BULK_BYTES], iterations, jobs=1)


def bulk_small(netns: list[str], iterations: int) -> float:
    """Return the same for small packets."""
    elapsed_ns = one_way(netns, [BULK_BYTES], iterations, jobs=1, packets=SMALL_PACKETS)
    return 8e9 * BULK_BYTES / elapsed_ns


def goodput(
    netns: list[str],
    iterations: int,
    *,
    verify_every: int,
    together: bool,
    packets: tuple[int, int] = LARGE_PACKETS,
) -> float:
    """Return the goodput of long messages, with or without verification, in bit/s."""
    elapsed_ns = one_way(
        netns,
        [BULK_BYTES],
        iterations,
        jobs=1,
        packets=packets,
        verify_every=verify_every,
        together=together,
    )
    return 8e9 * BULK_BYTES / elapsed_ns


def messages(netns: list[str], iterations: int) -> float:
    """Return how many messages of one packet are acknowledged per second."""
    sizes = [MESSAGE_BYTES] * MESSAGES_PER_QUEUE_PAIR
    elapsed_ns = one_way(netns, sizes, iterations, jobs=QUEUE_PAIRS)
    return 1e9 * QUEUE_PAIRS * len(sizes) / elapsed_ns


def latency(netns: list[str], iterations: int) -> float:
    """Return half a round trip of small messages between two processes, in ns."""
    first: list[Operation] = []
    second: list[Operation] = []
    for number in range(ROUND_TRIPS):
        last = [len(first) - 1] if first else []
        first.append(send(1, TINY_BYTES, number=number, after=last))
        first.append(receive(1, TINY_BYTES, number=number))
        second.append(receive(0, TINY_BYTES, number=number))
        second.append(send(0, TINY_BYTES, number=number, after=[len(second) - 1]))
    rows = first, second
    programs = [program(rank, [world_group(2)], each) for rank, each in enumerate(rows)]
    settings = RunSettings(warmup=1, measured=iterations)
    plane = run_apart(plan_of(programs, netns[:2], TransportPlan(), settings))
    posted_ns = [row.posted_ns for row in flow_rows(plane.lines[0].endpoint.records)]
    return median(after - before for before, after in pairwise(posted_ns)) / 2


def pacing(netns: list[str], iterations: int) -> float:
    """Return the 99th percentile of pacing errors of a port at 1 Gbit/s, in us.

    The error is how much later a burst is offered than the rate of the port allows; the
    bound is that of its bucket in the histogram that every run has.
    """
    rows = [send(1, PACED_BYTES)], [receive(0, PACED_BYTES)]
    programs = [program(rank, [world_group(2)], rows[rank]) for rank in range(2)]
    settings = RunSettings(warmup=0, measured=iterations)
    plan = plan_of(programs, netns[:2], TransportPlan(max_burst_packets=1), settings)
    ports = tuple(replace(port, rate_bps=PACED_BPS) for port in plan.ports)
    plane = run_apart(replace(plan, ports=ports))
    counts = plane.lines[0].endpoint.engine.pacing_errors.snapshot().counts
    seen = 0
    for bound_ns, count in zip(FCT_BUCKET_BOUNDS_NS, counts, strict=False):
        seen += count
        if seen >= 0.99 * sum(counts):
            return bound_ns / 1e3
    return FCT_BUCKET_BOUNDS_NS[-1] / 1e3


def one_way(
    netns: list[str],
    sizes: list[int],
    iterations: int,
    *,
    jobs: int,
    packets: tuple[int, int] = LARGE_PACKETS,
    verify_every: int = 1,
    together: bool = False,
) -> float:
    """Return how long messages take from the first port to the second, in ns.

    Every job has one queue pair there, and posts all its messages at once. The ports
    have a process and a core each, or are *together* in one. Of *verify_every* packets
    one is looked at; 0: none.
    """
    world = [world_group(2)]
    sends = [send(1, size, number=number) for number, size in enumerate(sizes)]
    receives = [receive(0, size, number=number) for number, size in enumerate(sizes)]
    programs = [
        program(rank, world, rows, job=f"job{job}")
        for job in range(jobs)
        for rank, rows in enumerate((sends, receives))
    ]
    path_mtu, burst = packets
    transport = TransportPlan(
        path_mtu=path_mtu,
        max_burst_packets=burst,
        window_bytes=1 << 20,
        ack_interval_packets=BURSTS_PER_ACK * burst,
        # On a busy machine, a receiver may get no core for several timeouts.
        retry_limit=1000,
        verify_every=verify_every,
    )
    settings = RunSettings(warmup=1, measured=iterations)
    plan = plan_of(programs, netns[:2], transport, settings)
    plane = run(plan) if together else run_apart(plan)
    return median(durations_ns(plane, 1))


def all_reduce(netns: list[str], iterations: int) -> float:
    """Return how long a small all-reduce over a ring takes, in seconds."""
    count = len(netns)
    rows: list[Operation] = [
        collective("all_reduce", ALL_REDUCE_BYTES, algorithm="ring"),
        collective("barrier", number=1, after=[0]),
    ]
    world = [world_group(count)]
    programs = [program(rank, world, rows) for rank in range(count)]
    settings = RunSettings(warmup=10, measured=iterations)
    spans: dict[int, list[int]] = {}
    for line in run(plan_of(programs, netns, TransportPlan(), settings)).lines:
        for row in share_rows(line.endpoint.records):
            if row.operation == 0:
                spans.setdefault(row.iteration, []).extend((row.start_ns, row.end_ns))
    return median(max(span) - min(span) for span in spans.values()) / 1e9


KINDS = {
    "bulk": bulk,
    "bulk_small": bulk_small,
    "messages": messages,
    "all_reduce": all_reduce,
    "latency": latency,
    "pacing": pacing,
    "bulk_unverified": partial(goodput, verify_every=0, together=False),
    "together": partial(goodput, verify_every=1, together=True),
    "together_unverified": partial(goodput, verify_every=0, together=True),
    "together_small": partial(
        goodput, verify_every=1, together=True, packets=SMALL_PACKETS
    ),
    "together_small_unverified": partial(
        goodput, verify_every=0, together=True, packets=SMALL_PACKETS
    ),
}


def main() -> None:
    kind, iterations, *netns = sys.argv[1:]
    found = KINDS[kind](netns, int(iterations))
    json.dump({"value": found, "compiled": status().is_compiled()}, sys.stdout)


if __name__ == "__main__":
    main()

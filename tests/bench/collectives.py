"""Collectives of eight ranks by the engine or by gloo, in a separate program.

``python collectives.py WHO PROCESSES ADDRESS CASES NETNS...`` prints how long each
collective of each case took, as JSON.  WHO is ``chakram`` (PROCESSES processes drive
the ports of all ranks) or ``gloo`` (a process per rank; ADDRESS is that of the first
rank).  Both run in the namespaces named, a rank each, and their times are taken alike:
from the first rank that begins to the last that ends, by one clock.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from statistics import median
from typing import Any, NamedTuple

from chakram.collectives.groups import world_group
from chakram.fabric.labs.enter_namespace import enter_namespace
from chakram.foundation.errors import ChakramError
from chakram.plan.plan import RunSettings
from chakram.plan.transport import TransportPlan
from chakram.plan.transport_defaults import (
    ack_interval_packets,
    burst_packets,
    window_bytes,
)
from chakram.program.operations import Operation
from tests.made_plans import collective, program, share_rows

WARMUP = 3
PATH_MTU = 4096
_TCP_PORT = 29_500
_TIMEOUT_S = 60
_ALGORITHMS = {"all_reduce": "ring", "all_to_all": "auto"}

Spans = list[list[tuple[int, int]]]
"""By case, then by collective in order: when it began and ended, in ns."""


class Case(NamedTuple):
    """One line of the comparison: so many collectives of one kind and size."""

    op: str
    input_bytes: int
    count: int


def in_processes(parts: Sequence[int], work: Callable[[int], Spans]) -> list[Spans]:
    """Return what *work* returns for each of *parts*, each done by a fork."""
    children: list[tuple[int, int]] = []
    try:
        for part in parts:
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                os.close(reader)
                status = 1
                try:
                    with os.fdopen(writer, "w") as stream:
                        json.dump(work(part), stream)
                    status = 0
                except ChakramError as error:
                    sys.stderr.write(f"{error}\n")
                finally:
                    os._exit(status)
            os.close(writer)
            children.append((child, reader))
        answers = []
        for _, reader in children:
            with os.fdopen(reader) as stream:
                answers.append(stream.read())
    except BaseException:
        for child, _ in children:
            os.kill(child, signal.SIGKILL)
        raise
    finally:
        failed = [child for child, _ in children if os.waitpid(child, 0)[1]]
    if failed:
        sys.exit(f"{len(failed)} of {len(children)} processes failed")
    return [json.loads(answer) for answer in answers]


def durations_ns(parts: Sequence[Spans]) -> list[list[int]]:
    """Return how long each collective took, over all processes, without warm-up."""
    return [
        [
            max(end for _, end in spans) - min(start for start, _ in spans)
            for spans in list(zip(*case, strict=True))[WARMUP:]
        ]
        for case in zip(*parts, strict=True)
    ]


def by_chakram(cases: Sequence[Case], netns: list[str], processes: int) -> list[Spans]:
    """Run the cases as an experiment over links without rates would."""
    from tests.bench.engine import part_of, plan_of, run

    burst = burst_packets(
        rate_bps=None,
        path_mtu=PATH_MTU,
        window_bytes=None,
        on_kernel=True,
        ports=len(netns),
        tiers=1,
    )
    transport = TransportPlan(
        path_mtu=PATH_MTU,
        max_burst_packets=burst,
        window_bytes=window_bytes(burst_packets=burst, path_mtu=PATH_MTU),
        ack_interval_packets=ack_interval_packets(burst),
    )
    cores = sorted(os.sched_getaffinity(0))
    world = [world_group(len(netns))]
    parts: list[Spans] = [[] for _ in range(processes)]
    for case in cases:
        rows: list[Operation] = [
            collective(case.op, case.input_bytes, algorithm=_ALGORITHMS[case.op]),
            collective("barrier", number=1, after=[0]),
        ]
        programs = [program(rank, world, rows) for rank in range(len(netns))]
        settings = RunSettings(warmup=WARMUP, measured=case.count)
        plan = plan_of(programs, netns, transport, settings)
        start_ns = time.monotonic_ns() + 300_000_000

        def work(part: int, plan: Any = plan, start_ns: int = start_ns) -> Spans:
            os.sched_setaffinity(0, {cores[part % len(cores)]})
            mine = part_of(plan, range(part, len(netns), processes))
            spans: dict[int, tuple[int, int]] = {}
            for line in run(mine, start_ns).lines:
                for row in share_rows(line.endpoint.records):
                    if row.operation == 0:
                        first, last = spans.get(row.iteration, (row.start_ns, 0))
                        spans[row.iteration] = (
                            min(first, row.start_ns),
                            max(last, row.end_ns),
                        )
            return [[spans[iteration] for iteration in sorted(spans)]]

        done = in_processes(range(processes), work)
        for part, answer in zip(parts, done, strict=True):
            part.extend(answer)
    return parts


def by_gloo(cases: Sequence[Case], netns: list[str], address: str) -> list[Spans]:
    """Run the cases with torch.distributed and its gloo backend, over eth0."""
    # Once for all ranks, before they fork.
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"

    def work(rank: int) -> Spans:
        enter_namespace(netns[rank])
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{address}:{_TCP_PORT}",
            rank=rank,
            world_size=len(netns),
            timeout=timedelta(seconds=_TIMEOUT_S),
        )
        found: Spans = []
        for case in cases:
            values = torch.zeros(case.input_bytes, dtype=torch.uint8).view(
                torch.float32
            )
            others = torch.empty_like(values)
            spans = []
            for _ in range(WARMUP + case.count):
                dist.barrier()
                start_ns = time.monotonic_ns()
                if case.op == "all_reduce":
                    dist.all_reduce(values)
                else:
                    dist.all_to_all_single(others, values)
                spans.append((start_ns, time.monotonic_ns()))
            found.append(spans)
        dist.barrier()
        dist.destroy_process_group()
        return found

    return in_processes(range(len(netns)), work)


def main() -> None:
    who, processes, address, listed, *netns = sys.argv[1:]
    cases = [Case(*each) for each in json.loads(listed)]
    if who == "gloo":
        parts = by_gloo(cases, netns, address)
    else:
        parts = by_chakram(cases, netns, int(processes))
    json.dump([median(each) for each in durations_ns(parts)], sys.stdout)


if __name__ == "__main__":
    main()

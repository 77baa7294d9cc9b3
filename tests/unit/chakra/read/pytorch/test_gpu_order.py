"""Random programs of a GPU: their replay takes the time of the original."""

from __future__ import annotations

import math
import random
from typing import Any, NamedTuple

import pytest

from chakram.chakra.read.pytorch.graph import HostOrder
from chakram.chakra.read.pytorch.kineto import Span
from chakram.trace.graph import TraceGraph
from chakram.trace.node import NodeKind
from tests.unit.chakra.read.pytorch.hosts import (
    PAIR,
    WORLD,
    event,
    groups,
    kernel,
    node,
    profile,
    read,
    record,
    tensor,
    wait,
)

MAIN, SIDE = 7, 20
LAUNCH_US = 4
NCCL_STREAMS = {"0": 13, "7": 14}


class Step(NamedTuple):
    """A step of the host: computation, a transfer, or a wait for a transfer."""

    what: str
    stream: int
    group: str = ""
    number: int = 0
    duration_us: int = 0


def program(seed: int) -> list[Step]:
    rng = random.Random(seed)
    steps: list[Step] = []
    pending: list[Step] = []
    numbers = dict.fromkeys(NCCL_STREAMS, 0)
    for _ in range(40):
        kind = rng.choice(["compute", "compute", "compute", "async", "sync", "wait"])
        stream = rng.choice([MAIN, MAIN, MAIN, SIDE])
        if kind == "compute":
            step = Step(kind, stream, duration_us=rng.randint(5, 200))
        elif kind == "wait":
            if not pending:
                continue
            step = pending.pop(rng.randrange(len(pending)))._replace(
                what=kind, stream=MAIN
            )
        else:
            group = rng.choice(list(NCCL_STREAMS))
            numbers[group] += 1
            step = Step(kind, stream, group, numbers[group], rng.randint(20, 400))
            pending += [step] * (kind == "async")
        steps.append(step)
    steps += [each._replace(what="wait", stream=MAIN) for each in pending]
    return [*steps, Step("compute", MAIN, duration_us=5)]


def kernels(
    steps: list[Step], *, scale: float, on_current_stream: bool
) -> list[tuple[int, float, float]]:
    """Return stream, start and end of each step; transfers last *scale* times."""
    free_us: dict[object, float] = {}
    ends_us: dict[tuple[str, int], float] = {}
    found = []
    for at, step in enumerate(steps, start=1):
        stream, duration_us = step.stream, float(step.duration_us)
        busy: list[object] = [stream]
        if step.what == "wait":
            ended_us = ends_us[step.group, step.number]
            free_us[stream] = max(free_us.get(stream, 0), ended_us)
            found.append((stream, 0.0, 0.0))
            continue
        if step.what != "compute":
            if step.what == "async" or not on_current_stream:
                stream = NCCL_STREAMS[step.group]
            duration_us *= scale
            busy += [stream, step.group]
        start_us = max(at * LAUNCH_US, *(1 + free_us.get(each, 0) for each in busy))
        end_us = start_us + duration_us
        free_us[stream] = end_us
        if step.what != "compute":
            free_us[step.group] = ends_us[step.group, step.number] = end_us
        if step.what == "sync":
            free_us[step.stream] = end_us
        found.append((stream, start_us, end_us))
    return found


def graph_of(steps: list[Step], ran: list[tuple[int, float, float]]) -> TraceGraph:
    rows: list[Any] = [groups(WORLD, PAIR)]
    events = []
    for at, (step, (stream, start_us, end_us)) in enumerate(
        zip(steps, ran, strict=True), start=10
    ):
        sequence, group = [step.number, False], (step.group, "x")
        if step.what == "wait":
            rows.append(wait(at, sequence, group=group))
            continue
        name = "aten::mm"
        if step.what == "compute":
            rows.append(node(at, name))
        else:
            name = "record_param_comms"
            behind = [0, 1, 2, step.what == "async"]
            rows.append(
                record(
                    at, "allreduce", [tensor(1)], sequence=sequence, group=group,
                    behind=behind,
                )
            )  # fmt: skip
        events.append(event(10 * at, at * LAUNCH_US, 1, name=name))
        events.append(kernel(10 * at, start_us, end_us - start_us, stream=stream))
    return read(*rows, rank=1, profiled=profile(*events)).graph


def replayed_us(graph: TraceGraph, *, scale: float) -> float:
    """Return the time of the graph if collectives of a group follow each other."""
    ends_us = [0.0] * len(graph)
    of_group: dict[str | None, float] = {}
    for position in graph.topological_order():
        each = graph.node(position)
        start_us = max((ends_us[at] for at in each.dependencies), default=0)
        duration_us = each.duration_ns / 1_000
        if each.kind is NodeKind.COLLECTIVE:
            start_us = max(start_us, of_group.get(each.group, 0))
            duration_us *= scale
            of_group[each.group] = start_us + duration_us
        ends_us[position] = start_us + duration_us
    return max(ends_us)


def test_dependencies_do_not_grow_with_the_square_of_the_streams() -> None:
    order = HostOrder()
    edges = 0
    for at in range(700):
        span = Span(10 * at, 5)
        edges += len(order.compute(2 * at, 2 * at, span))
        edges += len(
            order.transfer(
                2 * at + 1,
                group=None,
                sequence=None,
                is_async=False,
                queue=None,
                stream=2 * at + 1,
                span=span,
            )
        )
    assert edges < 700 * 3 * 128


@pytest.mark.parametrize("on_current_stream", [False, True])
@pytest.mark.parametrize("scale", [0.2, 1, 4])
def test_replay_takes_the_time_of_the_original(
    scale: float, on_current_stream: bool
) -> None:
    errors = []
    for seed in range(8):
        steps = program(seed)
        recorded = kernels(steps, scale=1, on_current_stream=on_current_stream)
        wanted = kernels(steps, scale=scale, on_current_stream=on_current_stream)
        wanted_us = max(end_us for _, _, end_us in wanted)
        got_us = replayed_us(graph_of(steps, recorded), scale=scale)
        errors.append(math.log(got_us / wanted_us))
    # Waits that no trace shows change little, unless transfers take other times.
    assert max(map(abs, errors)) < (0.02 if scale == 1 else 0.15)
    assert sum(map(abs, errors)) / len(errors) < 0.03

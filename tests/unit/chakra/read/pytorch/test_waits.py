"""Waits for asynchronous operations that only the profile shows."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from chakram.chakra.read.pytorch.host_waits import waits_from_profile
from chakram.chakra.read.pytorch.kineto import Profile, Span
from chakram.chakra.trace_warning import WarningKind
from chakram.trace.node import NodeKind
from tests.unit.chakra.read.pytorch.hosts import (
    after,
    all_reduce,
    all_to_all,
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

WORLD = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2}


def label(node_id: int, name: str = "all_reduce") -> dict[str, Any]:
    return node(node_id, f"gloo:{name}")


def of_label(
    node_id: int, start_us: float, duration_us: float, name: str = "all_reduce"
) -> dict[str, Any]:
    return event(
        10 * node_id,
        start_us,
        duration_us,
        thread=7,
        category="user_annotation",
        name=f"gloo:{name}",
    )


def trace(
    *, ends_us: float, goes_on_us: float, more: tuple[dict[str, Any], ...] = ()
) -> Any:
    """A host that reduces from 30 us on, computes till 60 us, and then goes on."""
    rows = [
        groups(WORLD),
        *(node(each, "aten::mm") for each in (10, 11)),
        all_reduce(12, 256, is_async=True),
        label(13),
        *(node(each, "aten::mm") for each in (14, 15, 16, 17)),
    ]
    events = [
        event(100, 10, 9),
        event(110, 20, 9),
        event(120, 30, 9, name="c10d::allreduce_"),
        of_label(13, 35, ends_us - 35),
        event(140, 40, 9),
        event(150, 50, 10),
        event(160, goes_on_us, 9),
        event(170, goes_on_us + 10, 9),
        *more,
    ]
    return read(*rows, profiled=profile(*events))


def waited(trace: Any) -> dict[int, set[int]]:
    """Return by id of a node what waits it follows, and what these do."""
    nodes = list(trace.graph.nodes())
    waits = {each.node_id for each in nodes if each.kind is NodeKind.PASS}
    return {
        each.node_id: {
            begun
            for wait in after(nodes, each.node_id) & waits
            for begun in after(nodes, wait)
        }
        for each in nodes
        if each.kind is NodeKind.COMPUTE
    }


def test_host_blocked_until_the_end_of_an_operation_waited_for_it() -> None:
    got = trace(ends_us=158, goes_on_us=160)
    # What it had computed meanwhile did not wait; all that follows did.
    assert waited(got) == {
        **{each: set() for each in (10, 11, 14, 15)},
        **{each: {12} for each in (16, 17)},
    }
    (warning,) = got.warnings
    assert (warning.kind, warning.count) == (WarningKind.WAIT_INFERRED, 1)
    assert "node 12 'c10d::allreduce_'" in warning.where


@pytest.mark.parametrize(
    ("ends_us", "goes_on_us"),
    [
        (45, 160),  # it had ended while the host was at work
        (70, 160),  # long before the host went on: it did something else
        (165, 160),  # only after the host had gone on
        (65, 66),  # the host stalled no longer than ever
    ],
)
def test_uncertain_waits_are_ignored(ends_us: float, goes_on_us: float) -> None:
    got = trace(ends_us=ends_us, goes_on_us=goes_on_us)
    assert not any(waited(got).values())
    (warning,) = got.warnings
    assert (warning.kind, warning.count) == (WarningKind.WAIT_UNKNOWN, 1)
    assert "is one of 1 asynchronous operations, of 1 in total" in warning.found
    assert warning.hint == "rely on times of collectives, not of iterations"


def test_a_host_that_waits_for_another_operation_is_not_waiting_for_this() -> None:
    rows = [
        groups(WORLD),
        *(node(each, "aten::mm") for each in (10, 11)),
        all_reduce(12, 256, is_async=True),
        label(13),
        node(14, "aten::mm"),
        all_to_all(15, 64, 64),
        label(16, "all_to_all"),
        node(17, "aten::mm"),
    ]
    events = [
        event(100, 10, 9),
        event(110, 20, 9),
        event(120, 30, 9, name="c10d::allreduce_"),
        of_label(13, 35, 123),
        event(140, 40, 9),
        event(150, 50, 9, name="c10d::alltoall_base_"),
        of_label(16, 55, 104, "all_to_all"),
        event(170, 160, 9),
    ]
    got = read(*rows, profiled=profile(*events))
    assert after(list(got.graph.nodes()), 17) == {14, 15}
    assert got.warnings == ()


@pytest.mark.slow
def test_many_waits_take_time_in_proportion_to_their_number() -> None:
    transfers: list[Any] = []
    spans: dict[int, Span] = {}
    work: list[tuple[int, int]] = []
    for start_us in range(0, 20_000_000, 1_000):
        for offset_us in (0, 11, 22):
            work.append((start_us + offset_us, start_us + offset_us))
            spans[start_us + offset_us] = Span((start_us + offset_us) * 1_000, 10_000)
        posted, ran = start_us + 33, start_us + 34
        spans[posted] = Span(posted * 1_000, 1_000)
        spans[ran] = Span(ran * 1_000, 900_000)
        transfers.append(
            SimpleNamespace(
                node=SimpleNamespace(node_id=posted),
                what=SimpleNamespace(is_async=True, sequence=None),
                label=ran,
                rf_ids=(posted,),
            )
        )
    begun_s = time.process_time()
    waits = waits_from_profile(transfers, work, Profile(source="x", spans=spans))
    assert time.process_time() - begun_s < 2
    assert len(waits) == len(transfers) - 1
    assert waits[1_000] == [33]


def test_recorded_waits_and_devices_need_no_profile() -> None:
    rows = [
        groups(WORLD),
        *(node(each, "aten::mm") for each in (10, 11)),
        record(12, "allreduce", [5, 6, 0, 8, 4, "cpu"], group=("0", "d")),
        label(13),
        node(14, "aten::mm"),
        node(15, "aten::mm"),
    ]
    events = [
        event(100, 10, 9),
        event(110, 20, 9),
        event(120, 30, 9, name="record_param_comms"),
        of_label(13, 35, 123),
        event(140, 40, 9),
        event(150, 160, 9),
    ]
    got = read(*rows, profiled=profile(*events))
    assert after(list(got.graph.nodes()), 15) == {14}
    got = trace(ends_us=158, goes_on_us=160, more=(kernel(100, 10, 5, stream=1),))
    assert not any(waited(got).values())


@pytest.mark.parametrize(
    ("recorded", "ends_us", "waits"),
    [
        ((), 158, True),
        ((), 95, False),  # long before the GPU continued
        (("wait",), 158, True),  # the same, but the host recorded it
        (("other",), 158, False),  # the GPU stalled for a later one of the group
    ],
)
def test_gpu_that_stalled_until_the_end_of_a_transfer_waited_for_it(
    recorded: tuple[str, ...], ends_us: float, waits: bool
) -> None:
    """As in DistributedDataParallel, whose waits have no record."""
    synchronous = record(16, "allgather", [tensor(1)], behind=[0, 1, 2, False])
    rows = [
        groups(WORLD),
        *(node(each, "aten::mm") for each in (10, 11)),
        record(12, "allreduce", [tensor(256)], sequence=[1, False]),
        *(node(each, "aten::mm") for each in (14, 15)),
        *([synchronous] if "other" in recorded else []),
        *([wait(17, [1, False])] if "wait" in recorded else []),
        *(node(each, "aten::add_") for each in (18, 19)),
    ]
    computations = {10: 10, 11: 21, 14: 40, 15: 51, 18: 160, 19: 171}
    events = [
        *(event(10 * each, each / 10, 0.1) for each in (10, 11, 14, 15)),
        *(event(10 * each, each / 10, 0.1, name="aten::add_") for each in (18, 19)),
        *(kernel(10 * each, at, 10, stream=7) for each, at in computations.items()),
        event(120, 1.2, 0.1, name="record_param_comms"),
        kernel(120, 32, ends_us - 32, stream=13),
    ]
    if "other" in recorded:
        events.append(event(160, 1.6, 0.1, name="record_param_comms"))
        events.append(kernel(160, 61, 98, stream=14))
    got = read(*rows, profiled=profile(*events))
    found = waited(got)
    assert found[18] == ({12} if waits else set())
    # The next kernel of the stream waits only for the previous one.
    assert not any(found[each] for each in (10, 11, 14, 15, 19))
    kinds = {each.kind for each in got.warnings}
    assert (WarningKind.WAIT_INFERRED in kinds) == (waits and not recorded)
    assert (WarningKind.WAIT_UNKNOWN in kinds) == (not waits and not recorded)


@pytest.mark.parametrize(
    ("is_async", "computed_us"),
    [
        (False, 10),  # 80 us less the 5 us of the call and the 65 us of the wait
        (True, 75),  # the host went on computing
    ],
)
def test_a_caller_does_not_compute_while_it_waits_for_a_synchronous_transfer(
    is_async: bool, computed_us: int
) -> None:
    rows = [
        groups(WORLD),
        node(10, "Exchange"),
        all_reduce(11, 256, is_async=is_async, parent=10),
        label(12),
        node(13, "aten::mm"),
    ]
    events = [
        event(100, 10, 80, name="Exchange"),
        event(110, 15, 5, name="c10d::allreduce_"),
        of_label(12, 18, 67),
        event(130, 95, 9),
    ]
    got = read(*rows, profiled=profile(*events))
    durations_ns = {each.node_id: each.duration_ns for each in got.graph.nodes()}
    assert durations_ns[10] == computed_us * 1_000
    assert durations_ns[13] == 9_000

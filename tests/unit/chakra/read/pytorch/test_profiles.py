"""Host traces with a profile: durations, and groups by thread."""

from __future__ import annotations

import pytest

from chakram.chakra.trace_warning import WarningKind
from chakram.foundation.errors import ForeignProfile, GarbageTrace, TraceError
from tests.unit.chakra.read.pytorch.hosts import (
    PAIR,
    WORLD,
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


def test_missing_profile_gives_no_times_and_a_warning() -> None:
    trace = read(groups(WORLD), node(4, "aten::mm"), all_reduce(5, 1))
    assert len(trace.graph) == 1
    assert WarningKind.NO_TIMES in {each.kind for each in trace.warnings}


def test_cpu_operations_take_their_self_time() -> None:
    profiled = profile(
        event(40, 100, 50),
        event(41, 110, 20),
        event(60, 200, 5),
        event(51, 160, 30, thread=9, category="user_annotation"),
        event(50, 155, 1),
    )
    trace = read(
        groups(WORLD),
        node(4, "aten::mm", rf_id=40),
        node(41, "aten::mm", parent=4, rf_id=41),
        all_reduce(45, 1, rf_id=50),
        node(46, "gloo:all_reduce", [tensor(1)], ["Tensor(float)"], rf_id=51),
        node(60, "aten::mm", rf_id=60),
        profiled=profiled,
    )
    found = list(trace.graph.nodes())
    assert [(each.node_id, each.duration_ns, each.start_ns) for each in found] == [
        (4, 30_000, 0),
        (41, 20_000, 10_000),
        (45, 30_000, 60_000),
        (60, 5_000, 100_000),
    ]
    assert after(found, 45) == {41}
    assert after(found, 60) == {41, 45}
    assert not trace.warnings


def test_only_kernels_compute_if_a_profile_has_kernels() -> None:
    profiled = profile(
        event(40, 0, 50),
        event(50, 60, 1),
        event(60, 70, 1),
        kernel(40, 10, 100, stream=7),
        kernel(40, 120, 10, stream=7),
        kernel(40, 20, 3, stream=20),
        kernel(50, 130, 500, stream=13),
        kernel(60, 700, 4, stream=7),
    )
    trace = read(
        groups(WORLD),
        node(4, "aten::mm", rf_id=40),
        record(5, "allreduce", [tensor(1)], rf_id=50, sequence=1),
        node(6, "aten::mm", rf_id=60),
        profiled=profiled,
    )
    found = list(trace.graph.nodes())
    shown = [(each.node_id % 2**40, each.stream, each.duration_ns) for each in found]
    assert shown == [
        (4, 7, 110_000),
        (4, 20, 3_000),
        (5, 13, 500_000),
        (6, 7, 4_000),
    ]
    assert found[2].dependencies == (0, 1)
    assert found[3].dependencies == (0,)


@pytest.mark.parametrize("is_async", [False, True])
def test_kernels_wait_only_for_kernels_that_had_ended(is_async: bool) -> None:
    profiled = profile(
        *(event(each, each / 10, 1) for each in (40, 50, 60, 70, 80)),
        kernel(40, 10, 100, stream=7),
        kernel(50, 20, 180, stream=13),
        kernel(60, 110, 50, stream=7),
        kernel(70, 200, 5, stream=7),
        kernel(80, 210, 5, stream=20),
    )
    sequence = [1, False]
    trace = read(
        groups(WORLD),
        node(4, "aten::mm", rf_id=40),
        record(
            5, "allgather", [tensor(1)], rf_id=50, sequence=sequence,
            behind=[0, 1, 4, is_async],
        ),
        *([wait(6, sequence)] if is_async else []),
        node(7, "aten::mm", rf_id=60),
        node(8, "aten::mm", rf_id=70),
        node(9, "aten::mm", rf_id=80),
        profiled=profiled,
    )  # fmt: skip
    found = list(trace.graph.nodes())
    waited = 6 if is_async else 5
    assert after(found, 5) == set()
    assert after(found, 7) == {4}
    assert after(found, 8) == {7, waited}
    assert after(found, 9) == {waited}


def test_kernels_wait_for_transfers_of_all_streams() -> None:
    profiled = profile(
        *(event(each, each / 10, 1) for each in (40, 50, 60, 70, 80)),
        kernel(40, 10, 300, stream=13),
        kernel(50, 20, 10, stream=14),
        kernel(60, 40, 10, stream=7),
        kernel(70, 50, 10, stream=7),
        kernel(80, 310, 10, stream=7),
    )
    synchronous = {"behind": [0, 1, 4, False]}
    trace = read(
        groups(WORLD, PAIR),
        record(4, "allgather", [tensor(1)], rf_id=40, **synchronous),
        record(5, "allreduce", [tensor(1)], rf_id=50, group=("7", "pp"), **synchronous),
        node(6, "aten::mm", rf_id=60),
        # It runs on the stream of the computation.
        record(7, "allreduce", [tensor(1)], rf_id=70, **synchronous),
        node(8, "aten::mm", rf_id=80),
        profiled=profiled,
        rank=1,
    )
    found = list(trace.graph.nodes())
    assert after(found, 5) == set()
    assert after(found, 6) == {5}
    assert after(found, 7) == {5, 6}
    assert after(found, 8) == {4, 7}


def test_transfer_waits_for_all_streams_of_computation() -> None:
    profiled = profile(
        *(event(each, each / 10, 1) for each in (40, 50, 60)),
        kernel(40, 10, 5, stream=13),  # such as a copy after an earlier transfer
        kernel(50, 20, 10, stream=7),
        kernel(60, 31, 10, stream=13),
    )
    trace = read(
        groups(WORLD),
        node(4, "aten::mm", rf_id=40),
        node(5, "aten::mm", rf_id=50),
        record(6, "allreduce", [tensor(1)], rf_id=60),
        profiled=profiled,
    )
    assert after(list(trace.graph.nodes()), 6) == {4, 5}


def test_computation_on_the_stream_of_a_transfer_waits_for_it() -> None:
    profiled = profile(
        *(event(each, each / 10, 1) for each in (40, 50, 60)),
        kernel(40, 10, 50, stream=13),
        kernel(50, 60, 5, stream=13),
        kernel(60, 70, 5, stream=13),
    )
    trace = read(
        groups(WORLD, PAIR),
        record(4, "allgather", [tensor(1)], rf_id=40),
        node(5, "aten::mm", parent=4, rf_id=50),
        record(6, "allreduce", [tensor(1)], rf_id=60, group=("7", "pp")),
        profiled=profiled,
        rank=1,
    )
    found = list(trace.graph.nodes())
    assert after(found, 5) == {4}
    assert after(found, 6) == {5}


def test_profile_without_ids_is_reported_to_have_no_times() -> None:
    trace = read(groups(WORLD), all_reduce(5, 1), profiled=profile(event(0, 1, 2)))
    assert [each.kind for each in trace.warnings] == [WarningKind.NO_TIMES]
    assert "Record function id" in trace.warnings[0].found


@pytest.mark.parametrize(("lost_us", "warned"), [(1, False), (50, True)])
def test_kernels_without_an_operation_are_reported(lost_us: int, warned: bool) -> None:
    launched = kernel(40, 10, 100, stream=7)
    replayed = kernel(40, 110, lost_us, stream=7)  # as from a CUDA graph
    del replayed["args"]["External id"]
    trace = read(
        groups(WORLD),
        node(4, "aten::mm", rf_id=40),
        profiled=profile(event(40, 0, 50), launched, replayed),
    )
    assert trace.graph.node(0).duration_ns == 100_000
    found = [each.found for each in trace.warnings]
    assert len(found) == warned
    assert not warned or found[0].startswith("1 of its kernels, with 33.3% of the time")


def test_kernels_of_coalesced_transfers_are_no_computation() -> None:
    nccl = {"name": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"}
    stray = {**kernel(90, 30, 500, stream=13), **nccl}
    trace = read(
        groups(WORLD),
        node(4, "autograd::engine::evaluate_function: x", rf_id=40),
        record(5, "allreduce", [tensor(1)], rf_id=50),
        profiled=profile(
            event(40, 0, 50, name="autograd::engine::evaluate_function: x"),
            event(50, 60, 1, name="record_param_comms"),
            kernel(40, 10, 100, stream=7),
            {**kernel(40, 20, 900, stream=13), **nccl},
            {**kernel(50, 70, 40, stream=13), **nccl},
            stray,
        ),
    )
    assert [(each.node_id, each.duration_ns) for each in trace.graph.nodes()] == [
        (4, 100_000),
        (5, 40_000),
    ]
    assert WarningKind.NO_TIMES not in {each.kind for each in trace.warnings}


def test_the_profile_of_another_run_is_refused() -> None:
    other = profile(event(40, 1, 2, name="aten::add"))
    told = "node 4: is 'aten::mm' in the trace, but 'aten::add' in the profile"
    with pytest.raises(TraceError, match=told):
        read(groups(WORLD), node(4, "aten::mm", rf_id=40), profiled=other)


def test_the_profile_of_other_steps_is_refused() -> None:
    rows = (groups(WORLD), node(4, "aten::mm", rf_id=40), all_reduce(5, 1, rf_id=50))
    other = profile(event(140, 1, 2), event(150, 4, 2, name="c10d::allreduce_"))
    with pytest.raises(ForeignProfile, match="no operation that is in the profile"):
        read(*rows, profiled=other)
    # One operation of both is enough.
    part = profile(event(140, 1, 2), event(50, 4, 2, name="c10d::allreduce_"))
    assert len(read(*rows, profiled=part).graph) == 1


@pytest.mark.parametrize(("missing", "warned"), [(1, False), (2, True), (4, True)])
def test_a_profile_of_some_steps_is_reported(missing: int, warned: bool) -> None:
    rows = [node(each, "aten::mm", rf_id=each) for each in range(100, 105)]
    some = profile(*(event(each, each, 1) for each in range(100 + missing, 105)))
    trace = read(groups(WORLD), *rows, profiled=some)
    assert len(trace.graph) == 5 - missing
    found = [each.found for each in trace.warnings]
    told = f"does not have {missing} of the 5 operations of the trace, so they take no "
    assert found == [f"{told}time"] * warned


def test_the_profile_of_another_rank_is_refused() -> None:
    other = profile(event(40, 1, 2, process=7))
    with pytest.raises(TraceError, match=r"of process 1, but device\.0\.json is"):
        read(groups(WORLD), node(4, "aten::mm", rf_id=40), profiled=other)


def done(*threads: int, splits: dict[int, int] | None = None) -> dict[str, object]:
    """Operations of gloo, one by each thread; those of *splits* are uneven."""
    rows: list[object] = []
    events = []
    for index, thread in enumerate(threads):
        count = (splits or {}).get(index)
        rows.append(
            all_reduce(10 * index + 10, 1)
            if count is None
            else all_to_all(10 * index + 10, count, count, [1] * count, [1] * count)
        )
        label = 10 * index + 11
        rows.append(node(label, "gloo:x", [tensor(1)], ["Tensor(float)"]))
        events.append(
            event(10 * label, index, 1, thread=thread, category="user_annotation")
        )
    trace = read(groups(WORLD, PAIR), *rows, profiled=profile(*events))
    return {
        "groups": [each.group for each in trace.graph.nodes()],
        "warned": WarningKind.GROUP_INFERRED in {each.kind for each in trace.warnings},
    }


def test_threads_identify_gloo_groups() -> None:
    assert done(500, 501, 503, 503, 509, 500) == {
        "groups": [None, None, "7", "7", "7", None],
        "warned": True,
    }


def test_splits_identify_groups_that_threads_do_not() -> None:
    assert done(500, 501, splits={0: 4, 1: 2})["groups"] == [None, "7"]
    assert done(500, 501, splits={0: 4, 1: 4})["groups"] == [None, None]
    assert done(5, splits={0: 2})["groups"] == ["7"]


@pytest.mark.parametrize("threads", [(5,), (500, 501), (500, 501, 503), range(5)])
def test_ambiguous_threads_are_refused(threads: tuple[int, ...]) -> None:
    with pytest.raises(TraceError, match="names no process group"):
        done(*threads)


@pytest.mark.parametrize(
    "wrong", [3, {"ph": "X", "cat": "cpu_op", "ts": "x"}, {"ph": "X", "cat": "kernel",
    "ts": -1, "args": {"External id": 3}}],
)  # fmt: skip
def test_faulty_profiles_are_refused_with_their_place(wrong: object) -> None:
    with pytest.raises(GarbageTrace, match=r"^device\.0\.json: offset "):
        profile(wrong)  # type: ignore[arg-type] # wrong on purpose

"""Exclusive resources of a rank, plain and as in ASTRA-sim."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chakram.foundation.errors import ConfigError, MatchingError
from chakram.program.operations import Operation
from chakram.trace.node import CPU_STREAM, NodeKind
from tests.made_graphs import collective, compute, receive, send
from tests.unit.program.lowered import lowered, operations

PAIRS = {"a": (0, 1), "b": (0, 1)}


def names_before(operations: Sequence[Operation]) -> dict[str, set[str]]:
    """Dependencies of each operation, by name."""
    return {
        each.name: {operations[index].name for index in each.dependencies}
        for each in operations
    }


def streams(**options: object) -> list[int | None]:
    row = compute(1, duration_ns=5)
    (mine,) = operations(
        [
            {**row, "stream": CPU_STREAM},
            {**row, "node_id": 2, "stream": 7},
            {**row, "node_id": 3},
            {**row, "node_id": 4, "kind": NodeKind.MEMORY, "stream": 7},
        ],
        **options,
    )
    return [each.stream for each in mine]


def test_a_cpu_a_gpu_and_each_of_its_streams_are_slots() -> None:
    assert streams() == [CPU_STREAM, 7, None, 7]


def test_in_astra_sim_a_gpu_has_one_slot_and_memory_none_of_its() -> None:
    cpu, kernel, plain, memory = streams(resources="astra-sim")
    assert (cpu, kernel, plain) == (CPU_STREAM, None, None)
    assert memory not in (CPU_STREAM, None)


def test_in_astra_sim_a_rank_communicates_one_thing_at_a_time() -> None:
    memory = {**compute(3, duration_ns=5), "kind": NodeKind.MEMORY, "name": "load"}
    rows = [collective(1, group="a"), collective(2, group="b"), memory]
    first, second = operations(
        [*rows, send(4, 1)], [*rows, receive(4, 0)], groups=PAIRS, resources="astra-sim"
    )
    chain = {
        "all_reduce-1": set(),
        "all_reduce-2": {"all_reduce-1"},
        "load": {"all_reduce-2"},
    }
    assert names_before(first) == {**chain, "send-4": {"load"}}
    # A receive takes no slot.
    assert names_before(second) == {**chain, "receive-4": set()}
    plain, _ = operations(rows, rows, groups=PAIRS)
    assert all(not each.dependencies for each in plain)


def test_ranks_with_different_group_numbers_follow_one_order() -> None:
    # Each taking its own smallest id first, these two would wait forever.
    first, second = operations(
        [collective(1, group="a", name="x"), collective(2, group="b", name="y")],
        [collective(1, group="b", name="y"), collective(2, group="a", name="x")],
        groups=PAIRS,
        resources="astra-sim",
    )
    assert names_before(first) == names_before(second)


def test_message_gets_the_slot_when_its_receiver_is_ready() -> None:
    # With credits the send ends when the receive is there, which waits for x.
    first, _ = operations(
        [send(1, 1), collective(2, group="a", name="x")],
        [collective(1, group="a", name="x"), receive(2, 0, after=[1])],
        groups=PAIRS,
        resources="astra-sim",
    )
    assert names_before(first) == {"send-1": {"x"}, "x": set()}


def test_job_without_a_common_order_is_refused() -> None:
    with pytest.raises(MatchingError, match="remove resources: astra-sim"):
        lowered(
            [send(1, 1), collective(2, group="a", after=[1])],
            [collective(1, group="a"), receive(2, 0, after=[1])],
            groups=PAIRS,
            resources="astra-sim",
        )


def test_other_resources_are_refused() -> None:
    with pytest.raises(ConfigError, match="choose from streams, astra-sim"):
        lowered([], resources="gpu")

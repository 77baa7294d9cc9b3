"""Counters in memory shared between a shard and its agent."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator

import pytest

from chakram.control.events import ShardLoad
from chakram.records.row_layout import PORT_FIELDS, QUEUE_PAIR_FIELDS
from chakram_agent.shared_counters import SharedCounters

PAIR = range(len(QUEUE_PAIR_FIELDS))
PORT = range(1000, 1000 + len(PORT_FIELDS))


@pytest.fixture
def both_ends() -> Iterator[tuple[SharedCounters, SharedCounters]]:
    """Return the shard's view of the memory, and the agent's."""
    agent = SharedCounters.create("test", queue_pairs=3, ports=2)
    shard = SharedCounters(os.dup(agent.descriptor))
    yield shard, agent
    shard.close()
    agent.close()


def test_rows_are_read_while_they_are_written(
    both_ends: tuple[SharedCounters, SharedCounters],
) -> None:
    shard, agent = both_ends
    assert (shard.queue_pairs, shard.ports) == (3, 2)
    assert not agent.queue_pair_rows()
    assert not agent.port_rows()
    shard.set_queue_pair(1, PAIR)
    shard.set_port(1, PORT)
    # Those that have not been written yet are left out.
    assert agent.queue_pair_rows() == array("q", PAIR)
    assert agent.port_rows() == array("q", PORT)
    later = [value + 5 for value in PAIR]
    shard.set_queue_pair(0, PAIR)
    shard.set_queue_pair(1, later)
    shard.set_queue_pair(2, PAIR)
    assert agent.queue_pair_rows() == array("q", [*PAIR, *later, *PAIR])
    assert agent.port_rows() == array("q", PORT)


def test_row_without_space_is_left_out(
    both_ends: tuple[SharedCounters, SharedCounters],
) -> None:
    shard, agent = both_ends
    shard.set_queue_pair(3, PAIR)
    shard.set_port(2, PORT)
    assert not agent.queue_pair_rows()
    assert not agent.port_rows()


def test_row_that_is_never_consistent_is_not_shown(
    both_ends: tuple[SharedCounters, SharedCounters],
) -> None:
    shard, agent = both_ends
    shard.set_queue_pair(0, PAIR)
    shard.set_queue_pair(1, PAIR)
    # The shard has died in the middle of the first row, whose version stands first.
    first = bytes(agent.values).index(array("q", [2, *PAIR]).tobytes()) // 8
    shard.values[first] += 1
    assert agent.queue_pair_rows() == array("q", PAIR)


def test_rows_do_not_change_the_load(
    both_ends: tuple[SharedCounters, SharedCounters],
) -> None:
    shard, agent = both_ends
    load = ShardLoad(
        shard=7,
        wall_ns=1,
        cpu_ns=2,
        max_lag_ns=3,
        late_rounds=4,
        rounds=5,
        busy_ns=6,
        queue_pairs=7,
        queue_pairs_limited=8,
        queue_pairs_failed=9,
    )
    shard.set_load(load)
    shard.set_queue_pair(0, PAIR)
    assert agent.load(7) == load
    assert not any(agent.snapshot())

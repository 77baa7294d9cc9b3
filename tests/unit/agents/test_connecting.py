"""The state of an agent whose queue pairs are on RDMA NICs."""

from __future__ import annotations

import pytest

from chakram.foundation.errors import UnexpectedEvent
from chakram_agent.events_and_instructions import (
    Arm,
    ArmShards,
    Attach,
    Connect,
    Prepare,
    ShardConnected,
    ShardReady,
)
from chakram_agent.state import AgentState

CONNECT = Connect(session="s")
ARM = Arm(session="s", start_ns=10, now_ns=5)


def prepared() -> AgentState:
    state = AgentState()
    state.handle(Attach(session="s", controller="c", now_ns=0))
    state.handle(Prepare(session="s", run_id="r", shards=2))
    with pytest.raises(UnexpectedEvent, match="cannot connect now"):
        state.handle(CONNECT)
    for shard in range(2):
        state.handle(ShardReady(shard=shard))
    return state


def test_traffic_starts_only_after_all_shards_have_connected() -> None:
    state = prepared()
    state.handle(CONNECT)
    state.handle(ShardConnected(shard=0))
    assert not state.is_connected
    with pytest.raises(UnexpectedEvent, match="cannot arm now"):
        state.handle(ARM)
    state.handle(ShardConnected(shard=1))
    assert state.is_connected
    assert state.handle(ARM) == [ArmShards(start_ns=10)]
    assert state.check() == []


def test_queue_pairs_are_connected_once() -> None:
    state = prepared()
    state.handle(CONNECT)
    with pytest.raises(UnexpectedEvent, match="cannot connect now"):
        state.handle(CONNECT)


def test_agents_without_nics_are_armed_at_once() -> None:
    assert prepared().handle(ARM) == [ArmShards(start_ns=10)]

"""Bursts of pings to several agents, some of which do not answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from chakram.control.clock_pings import PingTimes
from chakram.execution.clock_watch import ClockWatch
from chakram.foundation.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Pinged:
    """An agent that answers pings, perhaps after the failures of others."""

    def __init__(
        self, *, shares_clock: bool = False, error: Exception | None = None
    ) -> None:
        self.shares_clock = shares_clock
        self.bursts = 0
        self._error = error

    async def send_pings(self) -> Sequence[PingTimes]:
        self.bursts += 1
        if self._error is not None:
            raise self._error
        for _ in range(5):
            await asyncio.sleep(0)
        times = {"remote_received_ns": 7, "remote_sent_ns": 7}
        return [PingTimes(sent_ns=0, answered_ns=0, **times)]


def watch_of(**agents: Pinged) -> ClockWatch:
    clients: Any = agents
    return ClockWatch(clients)


def test_an_agent_without_an_answer_does_not_hide_the_clocks_of_others() -> None:
    lost = Pinged(error=AgentError("agent b", "did not answer a ping"))
    watch = watch_of(a=Pinged(), b=lost, c=Pinged())
    with pytest.raises(AgentError, match="agent b"):
        asyncio.run(watch.burst())
    assert [len(each.samples) for each in watch.tracks.values()] == [1, 0, 1]


def test_agents_with_the_controllers_clock_get_no_pings() -> None:
    own = Pinged(shares_clock=True)
    watch = watch_of(a=own, b=Pinged())
    assert watch.is_needed
    asyncio.run(watch.start())
    assert own.bursts == 0
    assert watch.tracks["a"].to_remote(5) == 5
    assert watch.tracks["b"].to_remote(5) == 12


def test_pings_of_many_agents_do_not_wait_for_each_other() -> None:
    running = most = 0

    class Crowded(Pinged):
        async def send_pings(self) -> Sequence[PingTimes]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            pings = await super().send_pings()
            running -= 1
            return pings

    agents = {f"a{number}": Crowded() for number in range(40)}
    watch = watch_of(**agents)
    asyncio.run(watch.burst())
    assert 1 < most <= 4
    assert all(len(each.samples) == 1 for each in watch.tracks.values())

"""Bursts of pings to all agents before, during and after a run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from chakram.control.clock_track import ClockTrack, next_burst_ns
from chakram.execution.concurrent_calls import call_all
from chakram.foundation.errors import ChakramError

if TYPE_CHECKING:
    from chakram.control.client import AgentClient

log = logging.getLogger(__name__)

_AT_ONCE = 4
"""Number of agents that get pings at the same time. Pings to all agents at once would
delay each other in this process. With 200 agents, the usual error was then above 1 ms
instead of 60 us."""


async def clock_of(client: AgentClient) -> ClockTrack:
    """Return a model of an agent's clock from one burst of pings.

    Raises:
        AgentError: If the agent does not answer.
    """
    track = ClockTrack()
    if not client.shares_clock:
        track.add(await client.send_pings())
    return track


class ClockWatch:
    """Models of the clocks of all agents, for an ``async with`` block.

    The block begins after a first burst of pings, and ends after a last one. Agents on
    the controller's clock get no pings.

    Args:
        clients: The connected agents.

    Attributes:
        tracks: Model of each agent's clock, by name.
    """

    def __init__(self, clients: Mapping[str, AgentClient]) -> None:
        self._clients = {
            name: each for name, each in clients.items() if not each.shares_clock
        }
        self.tracks = {name: ClockTrack() for name in clients}
        self._first_ns = self._last_ns = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_needed(self) -> bool:
        """Whether any agent has another clock than the controller."""
        return bool(self._clients)

    async def burst(self) -> None:
        """Send a burst of pings to every agent.

        Raises:
            ChakramError: If an agent does not answer. All other agents have been
                measured.
        """
        self._last_ns = time.monotonic_ns()

        async def send(name: str) -> ChakramError | None:
            try:
                self.tracks[name].add(await self._clients[name].send_pings())
            except ChakramError as error:
                return error
            return None

        sent = call_all(send, self._clients, at_once=_AT_ONCE)
        for error in await sent:
            if error is not None:
                raise error

    async def start(self) -> None:
        """Send a burst of pings. Times are converted from this burst on.

        Raises:
            ChakramError: If an agent does not answer.
        """
        await self.burst()
        for track in self.tracks.values():
            track.start()

    async def _keep_sending(self) -> None:
        while True:
            due_ns = next_burst_ns(first_ns=self._first_ns, last_ns=self._last_ns)
            await asyncio.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
            try:
                await self.burst()
            except ChakramError as error:
                # The session reports an agent that is lost.
                log.info("no pings error=%s", error)

    async def __aenter__(self) -> Self:
        if self._clients:
            await self.burst()
            self._first_ns = self._last_ns
            self._task = asyncio.create_task(self._keep_sending(), name="clocks")
        return self

    async def __aexit__(
        self, _: object, error: BaseException | None, __: object
    ) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if error is None:
            with suppress(ChakramError):
                await self.burst()

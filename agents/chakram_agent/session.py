"""What is on its way to the controller that has the agent."""

from __future__ import annotations

import asyncio

from chakram.control.events import AgentEvent, Progress, RecordBatch

MAX_QUEUED_ROWS = 4_000_000
"""Records that a controller may leave lying, about 700 MB."""


class Session:
    """The events for one controller, in order.

    Records are never dropped; of progress reports that nobody took only the last one
    stays.

    Attributes:
        name: The session's.
        ended: Why the agent has ended it; None while it lasts.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended: str | None = None
        self._events: list[AgentEvent] = []
        self._rows = 0
        self._arrived = asyncio.Event()

    def put(self, event: AgentEvent) -> bool:
        """Queue an event; False if the controller has left too much lying."""
        if (
            isinstance(event, Progress)
            and self._events
            and isinstance(self._events[-1], Progress)
        ):
            self._events[-1] = event
        else:
            self._events.append(event)
        if isinstance(event, RecordBatch):
            self._rows += len(event.rows)
        self._arrived.set()
        return self._rows <= MAX_QUEUED_ROWS

    def end(self, reason: str) -> None:
        """Let the stream end once everything is sent."""
        self.ended = reason
        self._arrived.set()

    async def take(self) -> list[AgentEvent]:
        """Wait for events; an empty list means that the session has ended."""
        while not self._events and self.ended is None:
            self._arrived.clear()
            await self._arrived.wait()
        events, self._events, self._rows = self._events, [], 0
        return events

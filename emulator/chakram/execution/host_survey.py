"""Survey of agents: their versions, ports and clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.execution.agents_of_run import agents_of_run
from chakram.execution.clock_watch import clock_of
from chakram.execution.concurrent_calls import call_all
from chakram.foundation.errors import AgentError

if TYPE_CHECKING:
    from chakram.control.clock_track import ClockTrack
    from chakram.control.events import AgentDescription
    from chakram.execution.observer import Progress
    from chakram.fabric.fabric_types.base import AgentPlace
    from chakram.fabric.inventory.reported_interfaces import HostPort
    from chakram.launch.launched_agents import LaunchOptions

_AT_ONCE = 16
"""Number of agents that are asked at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAnswer:
    """An agent's report about its host."""

    description: AgentDescription
    ports: Sequence[HostPort]
    clock: ClockTrack


async def survey(
    places: Sequence[AgentPlace],
    *,
    launch: LaunchOptions | None,
    progress: Progress,
) -> dict[str, HostAnswer | AgentError]:
    """Ask all agents, and return their answers or errors by name.

    Args:
        places: Places of the agents.
        launch: Options for launching the agents. None if they already listen.
        progress: Progress display that shows how many agents have started.

    Raises:
        AgentError: If an agent does not start.
        ConfigError: If an option of the launcher is wrong.
        EnvironmentProblem: If the launcher cannot be used.
    """
    async with agents_of_run(
        places, launch=launch, allow=(), logs=None, progress=progress
    ) as agents:

        async def ask(place: AgentPlace) -> HostAnswer | AgentError:
            try:
                async with await agents.connect(place) as client:
                    return HostAnswer(
                        description=client.description,
                        ports=await client.list_ports(),
                        clock=await clock_of(client),
                    )
            except AgentError as error:
                return error

        answers = await call_all(ask, places, at_once=_AT_ONCE)
    return {place.name: each for place, each in zip(places, answers, strict=True)}

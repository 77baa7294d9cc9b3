"""Connections to the agents of a run, which already listen or are started for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import chakram
from chakram.control.client import AgentClient
from chakram.control.tls_files import TlsFiles
from chakram.foundation.errors import (
    AgentError,
    ChakramError,
    ConfigError,
    RunFailed,
)

if TYPE_CHECKING:
    from chakram.execution.observer import Progress
    from chakram.fabric.fabric_types.base import AgentPlace
    from chakram.launch.launched_agents import LaunchedAgents, LaunchOptions


_HEARD_WITHIN_S = 0.5
"""Time within which a run detects the end of an agent."""


class AgentsOfRun:
    """The agents of a run.

    Args:
        launched: Agents that were started for the run, or None if all agents already
            listen.
    """

    def __init__(self, launched: LaunchedAgents | None) -> None:
        self._launched = launched

    async def connect(self, place: AgentPlace) -> AgentClient:
        """Return a connection to an agent.

        Raises:
            AgentError: If the agent cannot be reached.
            ConfigError: If a certificate cannot be read, or the agent has no address.
        """
        if self._launched is not None:
            called = self._launched.listener.agents[place.name]
            return await AgentClient.connect(
                called.target,
                name=place.name,
                ping=called.ping,
                place=called.launcher or "launched",
            )
        if place.target is None:
            raise ConfigError(
                f"host {place.name}",
                "the address of its agent is missing",
                "give agent: HOST:PORT, or start agents with --launch ssh",
            )
        tls = None
        if place.tls is not None:
            ca, cert, key = map(Path, (place.tls.ca, place.tls.cert, place.tls.key))
            tls = TlsFiles(ca=ca, cert=cert, key=key)
        return await AgentClient.connect(place.target, name=place.name, tls=tls)

    def check(self, clients: Mapping[str, AgentClient]) -> None:
        """Refuse launched agents of another version, or of different bundles.

        Agents that run as a service belong to their host's administrator, so a banner
        is enough for them.

        Raises:
            AgentError: If a launched agent is refused.
        """
        if self._launched is None:
            return
        version, bundle = chakram.__version__, ""
        for client in clients.values():
            agent = client.description
            own = agent.bundle or "installed"
            bundle = bundle or own
            if (agent.version, own) != (version, bundle):
                raise AgentError(
                    client.where,
                    f"is chakram {agent.version} ({own}), not {version} ({bundle})",
                    "copy one bundle of this version to all hosts: chakram hosts push",
                )

    def facts(self, name: str) -> dict[str, object]:
        """Return the facts for ``run.json`` about the start of an agent."""
        if self._launched is None:
            return {}
        return {"launcher": self._launched.listener.agents[name].launcher}

    @asynccontextmanager
    async def watched(self, abort: Callable[[str], None]) -> AsyncIterator[None]:
        """Call *abort* if a launcher ends during the block or a token is used twice.

        Slurm's launcher may end although its agents are still connected. If it ended
        because of an agent, the session learns of that agent first.

        Args:
            abort: Function to call with the reason.
        """
        if self._launched is None:
            yield
            return
        watch = asyncio.create_task(_watch(self._launched, abort), name="launcher")
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)


async def _watch(launched: LaunchedAgents, abort: Callable[[str], None]) -> None:
    reasons = [
        asyncio.create_task(_second_claim(launched), name="second claim"),
        asyncio.create_task(_end_of_launcher(launched), name="launcher end"),
    ]
    try:
        await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
        abort(next(each.result() for each in reasons if each.done()))
    finally:
        for each in reasons:
            each.cancel()
        await asyncio.gather(*reasons, return_exceptions=True)


async def _explained(launched: LaunchedAgents, error: ChakramError) -> ChakramError:
    """Return an error that also states which launchers have ended, and how."""
    ended = await launched.ended()
    if not ended:
        return error
    found = "; ".join(
        [error.found, *(each for each in ended if each not in error.found)]
    )
    return type(error)(error.where, found, error.hint)


async def _second_claim(launched: LaunchedAgents) -> str:
    """Wait until a second agent has claimed a name, and describe that in a sentence.

    The first agent may have stolen the token and may take part in the run.
    """
    while True:
        try:
            await launched.listener.wait()
        except AgentError as error:
            return str(error)


async def _end_of_launcher(launched: LaunchedAgents) -> str:
    """Wait until a launcher has ended, and return a sentence that describes its end."""
    first, *_ = await launched.ended(within_s=None)
    await asyncio.sleep(_HEARD_WITHIN_S)
    return f"the launcher of agents has ended: {first}"


@asynccontextmanager
async def agents_of_run(
    places: Sequence[AgentPlace],
    *,
    launch: LaunchOptions | None,
    allow: Sequence[str] | None,
    logs: Path | None,
    progress: Progress,
) -> AsyncIterator[AgentsOfRun]:
    """Start the agents of a run, if requested, until the block ends.

    Args:
        places: Places of the agents.
        launch: Options for launching the agents. None if they already listen.
        allow: Prefixes that launched agents may send to. None if the fabric starts its
            agents itself.
        logs: Folder for a log of each launched agent, or None for no logs.
        progress: Progress display that shows how many agents have started.

    Raises:
        AgentError: If an agent does not start. Errors of the block that a launcher may
            explain also state which launchers have ended, and how.
        ConfigError: If the fabric needs no launcher.
        EnvironmentProblem: If the launcher cannot be used.
    """
    if launch is None:
        yield AgentsOfRun(None)
        return
    if allow is None:
        raise ConfigError(
            f"--launch {launch.kind}",
            "this fabric starts its agents itself",
            "remove the option, or use a fabric of kind external",
        )
    # Imported on demand, because only a launching controller makes keys.
    from chakram.launch.launched_agents import launched_agents

    progress.phase("starting agents")
    async with launched_agents(
        launch,
        {place.name: place.login or place.name for place in places},
        allow=allow,
        logs=logs,
        arrived=lambda done, total: progress.iterations(done, total, "agent"),
    ) as launched:
        try:
            yield AgentsOfRun(launched)
        except (AgentError, RunFailed) as error:
            raise await _explained(launched, error) from error

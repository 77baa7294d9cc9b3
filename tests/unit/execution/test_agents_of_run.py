"""Launched agents have one version, one bundle, and one token each."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import chakram
from chakram.execution import agents_of_run
from chakram.execution.agents_of_run import AgentsOfRun
from chakram.execution.observer import Silent
from chakram.foundation.errors import (
    AgentError,
    ChakramError,
    ConfigError,
    RunFailed,
)
from chakram.launch import launched_agents as launched_agents_module

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def clients(*found: tuple[str, str]) -> Any:
    """Return connections to agents, given by version and bundle."""
    return {
        f"h{at}": SimpleNamespace(
            where=f"agent h{at} (ssh)",
            description=SimpleNamespace(version=version, bundle=bundle),
        )
        for at, (version, bundle) in enumerate(found)
    }


LAUNCHED = AgentsOfRun(cast("Any", SimpleNamespace(agents={})))
OURS = chakram.__version__


def test_equal_bundles_are_accepted() -> None:
    LAUNCHED.check(clients((OURS, "0a1b"), (OURS, "0a1b")))
    LAUNCHED.check(clients((OURS, ""), (OURS, "")))


@pytest.mark.parametrize(
    ("second", "found"),
    [
        (("0.0.1", "0a1b"), f"is chakram 0.0.1 (0a1b), not {OURS} (0a1b)"),
        ((OURS, "ffff"), f"is chakram {OURS} (ffff), not {OURS} (0a1b)"),
        ((OURS, ""), f"is chakram {OURS} (installed), not {OURS} (0a1b)"),
    ],
)
def test_another_agent_is_refused(second: tuple[str, str], found: str) -> None:
    with pytest.raises(AgentError) as refused:
        LAUNCHED.check(clients((OURS, "0a1b"), second))
    assert refused.value.where == "agent h1 (ssh)"
    assert refused.value.found == found
    assert refused.value.hint is not None
    assert "chakram hosts push" in refused.value.hint


def test_agents_that_run_as_services_may_differ() -> None:
    AgentsOfRun(None).check(clients((OURS, "0a1b"), ("0.0.1", "")))


class Listening:
    """A listener that agents have called, and a second one with the token of another.

    Args:
        second: Why enrollment stops; None: it does not.
    """

    def __init__(self, second: AgentError | None) -> None:
        self._second = second

    async def wait(self) -> None:
        # Each change that is no second claim ends a wait, too.
        await asyncio.sleep(0)
        if self._second is not None:
            raise self._second
        await asyncio.Event().wait()


class Launched:
    """Launched agents, one of which may have lost its launcher."""

    def __init__(self, second: AgentError | None, *, ended: list[str]) -> None:
        self.listener = Listening(second)
        self._ended = ended

    async def ended(self, within_s: float | None = 1.0) -> list[str]:
        if not self._ended:
            await asyncio.Event().wait()
        return self._ended


@pytest.mark.parametrize(
    ("second", "ended", "reason"),
    [
        (AgentError("agent 'h1'", "claimed twice"), [], "agent 'h1': claimed twice"),
        (AgentError("agent 'h1'", "twice"), ["h1: ssh ended"], "agent 'h1': twice"),
        (None, ["h1: ssh ended"], "the launcher of agents has ended: h1: ssh ended"),
    ],
)
def test_a_run_ends_with_a_launcher_or_a_second_claim(
    second: AgentError | None,
    ended: list[str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agents_of_run, "_HEARD_WITHIN_S", 0.01)
    launched = cast("Any", Launched(second, ended=ended))

    async def watch() -> str:
        aborted = asyncio.get_running_loop().create_future()
        async with AgentsOfRun(launched).watched(aborted.set_result):
            return str(await aborted)

    assert asyncio.run(watch()) == reason


def test_agents_that_listen_have_no_launcher_to_watch() -> None:
    async def watch() -> None:
        async with AgentsOfRun(None).watched(pytest.fail):
            await asyncio.sleep(0)

    asyncio.run(watch())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            AgentError("agent h1", "lost", "see its log"),
            "agent h1: lost; h1: ssh ended",
        ),
        (RunFailed("run", "agent h1: lost"), "run: agent h1: lost; h1: ssh ended"),
        (RunFailed("run", "why: h1: ssh ended"), "run: why: h1: ssh ended"),
        (ConfigError("fabric", "has one port"), "fabric: has one port"),
    ],
)
def test_errors_name_the_launchers_that_have_ended(
    error: ChakramError, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def launched_agents(*_: object, **__: object) -> AsyncIterator[Launched]:
        yield Launched(None, ended=["h1: ssh ended"])

    monkeypatch.setattr(launched_agents_module, "launched_agents", launched_agents)

    async def fail() -> None:
        async with agents_of_run.agents_of_run(
            (),
            launch=launched_agents_module.LaunchOptions(kind="ssh"),
            allow=(),
            logs=None,
            progress=Silent(),
        ):
            raise error

    with pytest.raises(type(error)) as raised:
        asyncio.run(fail())
    assert str(raised.value).startswith(told)
    assert raised.value.hint == error.hint

"""Launched agents have one version, one bundle, and one token each."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

import chakram
from chakram.execution import agents_of_run
from chakram.execution.agents_of_run import AgentsOfRun
from chakram.foundation.errors import AgentError


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
        second: Why enrolment stops; None: it does not.
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

    async def ended(self, within_s: float | None) -> list[str]:
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
    reasons: list[str] = []
    launched = cast("Any", Launched(second, ended=ended))
    asyncio.run(AgentsOfRun(launched).watch(reasons.append))
    assert reasons == [reason]

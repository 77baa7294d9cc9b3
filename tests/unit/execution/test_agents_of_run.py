"""Launched agents have the version of the controller, and one bundle."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

import chakram
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

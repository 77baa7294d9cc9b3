"""Plans that need plug-ins which the agent lacks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.foundation.errors import PlugInError
from chakram.plan.plan import PlugInUse
from chakram_agent.agent import check_plug_ins
from tests.plans import ring_plan
from tests.plug_ins import have_examples

AIMD = PlugInUse(noun="congestion control", name="aimd", package="chakram-aimd 1.0")
STAR = PlugInUse(noun="algorithm", name="star", package="chakram-star 1.0")
PLAN = replace(ring_plan(), run_id="r", agent="a")


def test_a_plan_without_plug_ins_needs_none() -> None:
    check_plug_ins(PLAN)


def test_agent_with_all_plug_ins_accepts_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    have_examples(monkeypatch)
    check_plug_ins(replace(PLAN, plug_ins=(AIMD, STAR)))


@pytest.mark.parametrize(
    ("plug_in", "found"),
    [
        (
            replace(AIMD, package="chakram-aimd 1.1"),
            "congestion control 'aimd' comes from chakram-aimd 1.0 here, but from "
            "chakram-aimd 1.1 on the controller (install chakram-aimd 1.1 on the "
            "agent's host, too, and restart it)",
        ),
        (
            replace(STAR, name="comet", package="chakram-comet 3"),
            "there is no algorithm 'comet' here (known: dissemination, ",
        ),
        (replace(AIMD, noun="hub"), "has the unknown type 'hub'"),
    ],
)
def test_missing_or_different_plug_in_is_refused(
    plug_in: PlugInUse, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_examples(monkeypatch)
    with pytest.raises(PlugInError) as caught:
        check_plug_ins(replace(PLAN, plug_ins=(plug_in,)))
    assert str(caught.value).startswith("plan r: agent a: ")
    assert found in str(caught.value)

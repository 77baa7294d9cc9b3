"""Reports of injected faults and of agents."""

from __future__ import annotations

import chakram
from chakram.config.transport import Faults
from chakram.control.events import AgentDescription
from chakram.preparation.run_description import (
    agent_banners,
    faults_disturbed,
    injected_banners,
)

LOSSY = Faults(drop=0.01)


def test_disturbed_packets_are_reported() -> None:
    (banner,) = injected_banners({"drops": 5, "delays": 1}, (), LOSSY)

    assert banner == "fault: packets disturbed: drops 5, delays 1"


def test_fault_without_any_hit_is_reported() -> None:
    (banner,) = injected_banners({}, (), LOSSY)

    assert banner == "fault: packets disturbed: none, no packet matched"
    assert injected_banners({}, (), Faults()) == ()


def test_rule_without_any_hit_is_reported_despite_others_with_hits() -> None:
    faults = Faults.model_validate(
        {
            "packets": [
                {"action": "drop", "nth": 3},
                {"action": "delay", "packets": "ack", "nth": 10**6, "source": 5},
                {"action": "mark", "probability": 0.5},
            ]
        }
    )
    first, *others = injected_banners({"drops": 4, "marks": 9}, (4, 0, 9), faults)

    assert first == "fault: packets disturbed: drops 4, marks 9"
    assert others == [
        "fault: faults.packets[1] disturbed no packet: delay number 1000000 of the ack "
        "packets received from rank 5"
    ]
    assert [each["packets"] for each in faults_disturbed((4, 0, 9), faults)] == [
        4, 0, 9,
    ]  # fmt: skip


def test_faults_of_a_job_that_does_not_run_are_not_reported() -> None:
    faults = Faults.model_validate(
        {"packets": [{"action": "drop", "nth": 1, "job": job} for job in ("a", "b")]}
    )
    _, *others = injected_banners({}, (0, 0), faults, alone="b")

    assert [line.split(" disturbed")[0] for line in others] == [
        "fault: faults.packets[1]"
    ]


def agent(bundle: str) -> AgentDescription:
    return AgentDescription(
        protocol=1,
        version=chakram.__version__,
        host="h",
        kernel="6.1",
        python="3.11.2",
        cores=4,
        compiled=True,
        max_rate_bps=None,
        phase="idle",
        clock="c",
        bundle=bundle,
    )


def test_agents_of_different_bundles_are_reported() -> None:
    assert agent_banners({"a": agent("0a"), "b": agent("0a")}) == []
    assert agent_banners({"a": agent("0a"), "b": agent("")}) == [
        "agents run from different bundles: 0a, installed"
    ]

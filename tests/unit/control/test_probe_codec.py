from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chakram.foundation.errors import PlanError
from chakram.plan.plan import AgentPlan
from chakram.plan.probes import ProbePacket, ProbePlan
from chakram.preflight.probe_plan import plan_probes
from chakram.preflight.report import PreflightSettings
from tests.made_plans import collective, world_plan
from tests.plans import parse_plan, plan_bytes
from tests.unit.preflight.ports import TRANSPORT, ports

WHERE = "agent"


def planned() -> tuple[AgentPlan, ProbePlan]:
    settings = PreflightSettings(path_mtu=1024, paths=2)
    agent = plan_probes(ports(3), TRANSPORT, settings, run_id="r").agents[1]
    assert agent.probes is not None
    return agent, agent.probes


def test_decoded_probes_equal_the_encoded_ones() -> None:
    agent, _ = planned()

    assert parse_plan(plan_bytes(agent), where=WHERE) == agent


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"copies": 0}, r"probes\.copies: 0 is not in 1\.\."),
        ({"gap_ns": 1}, r"probes\.gap_ns: 1 is not in"),
        ({"source_ports": (5, 5)}, r"probes\.source_ports: contains a duplicate"),
        ({"source_ports": tuple(range(1, 66))}, r"probes\.source_ports: 65 entries"),
        (
            {"packets": (ProbePacket(size_bytes=60, tos=0),)},
            r"probes\.packets\[0\]\.size_bytes: 60 is not in 128\.\.",
        ),
        (
            {"packets": (ProbePacket(size_bytes=128, tos=256),)},
            r"probes\.packets\[0\]\.tos: 256 is not in 0\.\.255",
        ),
    ],
)
def test_wrong_probes_are_refused(changes: dict[str, Any], sentence: str) -> None:
    agent, probes = planned()
    wrong = replace(agent, probes=replace(probes, **changes))

    with pytest.raises(PlanError, match=sentence):
        parse_plan(plan_bytes(wrong), where=WHERE)


def test_probes_to_or_from_unknown_ports_are_refused() -> None:
    agent, probes = planned()
    first = probes.targets[0]
    for changed, sentence in (
        (replace(first, address="198.18.9.9"), r"targets\[0\]\.address.*not among"),
        (replace(first, source=77), r"targets\[0\]\.source: port 77 is not in"),
    ):
        wrong = replace(agent, probes=replace(probes, targets=(changed,)))
        with pytest.raises(PlanError, match=sentence):
            parse_plan(plan_bytes(wrong), where=WHERE)


def test_a_plan_has_ranks_or_probes() -> None:
    _, probes = planned()
    plan, _ = world_plan([collective("all_reduce", 64)], nranks=2)
    wrong = replace(plan.agents[0], probes=replace(probes, targets=()))

    with pytest.raises(PlanError, match="cannot be combined with ranks"):
        parse_plan(plan_bytes(wrong), where=WHERE)

"""Experiments that name plug-ins: sections, warnings, plans and records."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from chakram.collectives.algorithms import ALGORITHMS, algorithm
from chakram.config.experiment import Experiment, parse_experiment
from chakram.foundation.errors import (
    ConfigError,
    PlanError,
    PlugInError,
    ScheduleError,
)
from chakram.foundation.plugin_registry import Registry
from chakram.plan.plan import Plan, PlugInUse
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.plan_settings import transport_plan
from chakram.preparation.resolved_run import resolve
from chakram.preparation.run_description import manifest_of
from chakram.preparation.saved_plans import load_plan, save_plan
from chakram.roce.congestion import CONTROLS
from tests.experiments import EXPERIMENT as NAMESPACES
from tests.experiments import planned_run
from tests.plug_ins import (
    AIMD,
    ATTENTIVE,
    CONTRADICTORY,
    HALVED,
    LOPSIDED,
    STAR,
    have_examples,
    install,
)

EXPERIMENT = """
version: 1
name: plugged
jobs:
  - name: moe
    trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}
fabric: {kind: loopback, ports: 4, RATE}
"""


def experiment_with(
    control: object = None, *, rate: str = "rate: 1Gbit", **sections: object
) -> Experiment:
    text = EXPERIMENT.replace("RATE", rate)
    if control is not None:
        sections["transport"] = {"congestion_control": control}
    return parse_experiment(text + yaml.safe_dump(sections) if sections else text)


def plan_of(experiment: Experiment) -> Plan:
    jobs = load_jobs(experiment)
    return planned_run(experiment, jobs, "r")


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    have_examples(monkeypatch)


def test_declared_arguments_of_a_control_can_be_set() -> None:
    experiment = experiment_with(
        {"aimd": {"increase": "1%", "decrease": "1/4", "cnp_interval": "20us"}}
    )
    plan = transport_plan(experiment)
    assert plan.congestion_control == "aimd"
    assert plan.congestion_parameters == (
        ("line_rate_bps", 10**9),
        ("increase_bps", 10**7),
        ("period_ns", 50_000),
        ("decrease_q20", 1 << 18),
        ("min_rate_bps", 10**6),
        ("cnp_interval_ns", 20_000),
        ("cnp_scope", 0),
    )
    # What the record of a run holds can be read again.
    dumped = experiment.model_dump(mode="json", by_alias=True, exclude_none=True)
    again = parse_experiment(yaml.safe_dump(dumped))
    assert transport_plan(again) == plan
    described = experiment.transport.congestion_control.describe()
    assert described == "aimd with increase 1%, decrease 1/4, cnp_interval 20us"


def test_a_name_alone_means_the_defaults() -> None:
    assert transport_plan(experiment_with("aimd")) == transport_plan(
        experiment_with({"aimd": {"increase": "0.5%", "decrease": "1/2"}})
    )


def test_dilation_stretches_times_and_rates_but_not_shares() -> None:
    plain, dilated = (
        dict(
            transport_plan(
                experiment_with("aimd", rate=f"rate: 1Gbit, dilation: {dilation}")
            ).congestion_parameters
        )
        for dilation in (1, 100)
    )
    assert dilated == {
        name: value * 100
        if name.endswith("_ns")
        else value // 100
        if name.endswith("_bps")
        else value
        for name, value in plain.items()
    }


@pytest.mark.parametrize(
    ("control", "found"),
    [
        (
            {"aimd": {"incraese": "1%"}},
            "transport.congestion_control.aimd.incraese: unknown key (did you mean "
            "'increase'?)",
        ),
        (
            {"aimd": {"increase": "1"}},
            "congestion_control.aimd.increase: '1' is neither a rate nor a percentage",
        ),
        (
            {"aimd": {"period": "10ns"}},
            "congestion_control.aimd.period: 10ns is too small (must be at least 1us)",
        ),
        (
            {"aimd": {"period": "2h"}},
            "congestion_control.aimd.period: period of 2h is more than 1000s",
        ),
        (
            {"aimd": {"min_rate": "2Gbit"}},
            "aimd.min_rate: min_rate of 2Gbit/s is above the line rate of 1Gbit/s",
        ),
        ({"aimd": {"decrease": "3/2"}}, "aimd.decrease: decrease is out of range"),
        ({"aimd": {}, "none": {}}, "names two congestion controls"),
        ({"amid": {}}, "congestion_control.amid: unknown key (did you mean 'aimd'?)"),
        ("amid", "'amid' is not a congestion control (known: none, dcqcn, "),
    ],
)
def test_mistakes_in_plug_ins_are_reported_like_ours(
    control: object, found: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment_with(control)
    assert found in str(caught.value)


def test_check_of_a_control_that_fails_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CONTROLS, "installed", (CONTRADICTORY,))
    with pytest.raises(PlugInError) as caught:
        experiment_with("contradictory")
    assert str(caught.value) == (
        "congestion control contradictory: acme 1: AttributeError: 'NoneType' object "
        "has no attribute 'items' (report this to its author)"
    )


def test_control_that_starts_at_line_rate_needs_a_port_rate() -> None:
    with pytest.raises(ConfigError, match=r"congestion_control\.aimd: starts at line"):
        experiment_with("aimd", rate="mtu: 4200")


def test_control_that_needs_marks_warns_without_them() -> None:
    (warning,) = resolve(experiment_with("aimd")).warnings()
    assert "aimd reacts to marks, but no link of the fabric marks packets" in warning


def test_plans_list_required_plug_ins() -> None:
    experiment = experiment_with("aimd", collectives={"all_reduce": "star(hubs=2)"})
    plan = plan_of(experiment)
    expected = (
        PlugInUse(noun="congestion control", name="aimd", package="chakram-aimd 1.0"),
        PlugInUse(noun="algorithm", name="star", package="chakram-star 1.0"),
    )
    assert {agent.plug_ins for agent in plan.agents} == {expected}
    assert plan_of(experiment_with()).agents[0].plug_ins == ()


def test_records_name_the_versions() -> None:
    experiment = experiment_with("aimd")
    manifest = manifest_of(
        resolve(experiment, load_jobs(experiment)),
        run_id="r",
        started=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert manifest.versions["chakram-aimd"] == "1.0"
    assert "congestion control aimd" in manifest.transport


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        ("star(hubs=9)", "star(hubs=9) does not fit a group of 2 ranks: it has 9 hubs"),
        ("star(hub=9)", "star has no parameter 'hub' (choose from hubs)"),
        ("sta", "there is no algorithm 'sta' for all_reduce (did you mean 'star'?)"),
    ],
)
def test_impossible_algorithm_is_refused(choice: str, found: str) -> None:
    with pytest.raises((ConfigError, ScheduleError)) as caught:
        plan_of(experiment_with(collectives={"all_reduce": choice}))
    assert found in str(caught.value)


def test_algorithm_applies_only_to_its_collectives() -> None:
    with pytest.raises(ConfigError, match="there is no algorithm 'star'"):
        experiment_with(collectives={"all_gather": "star"})


@pytest.fixture
def attentive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CONTROLS, "installed", (AIMD, ATTENTIVE))


@pytest.mark.usefixtures("attentive")
def test_control_that_needs_round_trips_gets_an_ack_per_burst() -> None:
    control = {"attentive": {"pace": "10Mbit", "steps": 4, "soft": False}}
    plan = transport_plan(experiment_with(control))
    assert plan.ack_interval_packets == plan.max_burst_packets
    assert plan.congestion_parameters == (
        ("pace_bps", 10**7),
        ("part_bytes", 2048),
        ("steps", 4),
        ("soft", 0),
    )
    other = transport_plan(experiment_with())
    assert other.ack_interval_packets > other.max_burst_packets
    # What waits in a host of modeled switches would be part of its round trips.
    modeled = NAMESPACES.replace("namespaces", "namespaces\n  switch: model")
    asks = modeled + yaml.safe_dump({"transport": {"congestion_control": control}})
    assert transport_plan(parse_experiment(modeled)).saves_up
    assert not transport_plan(parse_experiment(asks)).saves_up
    # Nothing of it needs the rate of the line.
    assert transport_plan(experiment_with(control, rate="mtu: 4200")) is not None
    assert resolve(experiment_with(control)).warnings() == []


@pytest.mark.usefixtures("attentive")
@pytest.mark.parametrize(
    ("settings", "line", "found"),
    [
        ({}, "rate: 1Gbit", "attentive.pace: is missing"),
        ({"pace": "1%", "steps": 6}, "rate: 1Gbit", "attentive.steps: 6 is too large"),
        ({"pace": "1e99Gbit"}, "rate: 1Gbit", "1e99Gbit is not a valid network rate"),
        (
            {"pace": "1%"},
            "mtu: 4200",
            "attentive.pace: is a share of the line rate, but the fabric's ports have",
        ),
    ],
)
def test_undeclared_argument_is_refused(
    settings: dict[str, object], line: str, found: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment_with({"attentive": settings}, rate=line)
    assert found in str(caught.value)


def test_an_algorithm_that_breaks_its_promise_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ALGORITHMS, "installed", (LOPSIDED,))
    experiment = experiment_with(collectives={"all_reduce": "lopsided"})
    with pytest.raises(
        ScheduleError, match="algorithm lopsided for all_reduce of 2 ranks: "
    ):
        load_jobs(experiment)


def test_an_algorithm_whose_chunks_do_not_add_up_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ALGORITHMS, "installed", (HALVED,))
    experiment = experiment_with(collectives={"all_reduce": "halved"})
    with pytest.raises(ScheduleError) as caught:
        load_jobs(experiment)
    assert str(caught.value) == (
        "algorithm halved for all_reduce of 2 ranks: chunks 0 to 0 add up to 0 bytes "
        "if the input has 1: chunk_bytes must return sizes that add up to exactly 1"
    )


FAULTY = """
from chakram.collectives.algorithms.family import Family
from chakram.collectives.algorithms.tree import TreeAllReduce

class Faulty(TreeAllReduce):
    name = "faulty"
    METHOD

def make(name):
    MAKE

FAMILY = Family("faulty", Faulty.op, make)
"""


@pytest.mark.parametrize(
    ("method", "make", "found"),
    [
        ("def nchunks(self, nranks): return 1 / 0", "", "/acme.py:7: ZeroDivisionE"),
        ("def unfit(self, nranks): raise SystemExit(3)", "", ".py:7: SystemExit: 3"),
        ("def chunk_bytes(self, chunk, **of): return of[0]", "", "py:7: KeyError: 0"),
        ("def sends(self, position, **of): yield of[0]", "", "py:7: KeyError: 0"),
        ("def receives(self, position, **of): yield of[0]", "", "py:7: KeyError: 0"),
        (
            "def sends(self, position, **of): return None",
            "",
            "acme 1.0: TypeError: sends of position 0 returns None, not Transfers",
        ),
        (
            "def receives(self, position, **of): return [1]",
            "",
            "acme 1.0: TypeError: receives of position 0 returns 1, not Transfers",
        ),
        ("def sends(self): pass", "", "acme 1.0: TypeError: "),
        ("__hash__ = None", "", "acme 1.0: TypeError: unhashable type: 'Faulty'"),
        ("", "return 1 / 0", "/acme.py:10: ZeroDivisionError: division by zero"),
        ("", "return None", "acme 1.0: AttributeError: 'NoneType' object"),
        ("", "return TreeAllReduce()", "its make returns 'tree' for all_reduce"),
    ],
)
def test_exceptions_of_an_algorithm_name_its_package_and_line(
    method: str,
    make: str,
    found: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = FAULTY.replace("METHOD", method or "pass")
    install(
        tmp_path,
        group="chakram.algorithms",
        entries={"faulty": "acme:FAMILY"},
        acme=text.replace("MAKE", make or "return Faulty()"),
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "acme", raising=False)
    installed = Registry("a", group=ALGORITHMS.group, own=dict, accept=str).installed
    monkeypatch.setattr(ALGORITHMS, "installed", installed)
    monkeypatch.setattr(ALGORITHMS, "_loaded", {})
    algorithm.cache_clear()
    with pytest.raises(PlugInError) as caught:
        load_jobs(experiment_with(collectives={"all_reduce": "faulty"}))
    assert str(caught.value).startswith("algorithm faulty: ")
    assert found in str(caught.value)


def test_saved_plan_requires_the_same_version_of_an_algorithm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = experiment_with(collectives={"all_reduce": "star"})
    jobs = load_jobs(experiment)
    path = tmp_path / "plan"
    save_plan(path, experiment, jobs)
    (again,) = load_plan(path, experiment)
    assert again.programs == jobs[0].programs
    monkeypatch.setattr(
        ALGORITHMS, "installed", (replace(STAR, package="chakram-star 1.1"),)
    )
    with pytest.raises(PlanError, match="collectives"):
        load_plan(path, experiment)

"""Profiles of DCQCN: what stands in them, and how queue pairs behave with them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from chakram.config.congestion import (
    congestion_arguments,
    knobs_model,
    knobs_of,
    load_profile,
    settings_model,
)
from chakram.config.experiment import parse_experiment
from chakram.foundation.errors import ConfigError
from chakram.preparation.job_loading import load_jobs
from chakram.preparation.plan_settings import transport_plan
from chakram.preparation.resolved_run import resolve
from chakram.preparation.run_description import describe_transport, manifest_of
from chakram.roce.congestion.dcqcn import Dcqcn
from chakram.topology.topology import EcnThresholds

GIGABIT = 10**9
PROFILES = Dcqcn.profiles.names
DcqcnKnobs: Any = knobs_model("dcqcn")
DcqcnSettings: Any = settings_model("dcqcn")


def dcqcn_parameters(settings: Any, line_bps: int) -> tuple[tuple[str, int], ...]:
    return congestion_arguments("dcqcn", settings, line_bps)


def parameters_of(profile: str, gigabits: int, **overrides: object) -> dict[str, int]:
    settings = DcqcnSettings(
        profile=profile, overrides=DcqcnKnobs.model_validate(overrides)
    )
    return dict(dcqcn_parameters(settings, gigabits * GIGABIT))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_sets_every_knob_and_names_its_sources(profile: str) -> None:
    loaded = load_profile("dcqcn", profile)

    assert loaded.sources
    assert [name for name, value in loaded.knobs if value is None] == []


def test_rates_of_a_profile_scale_from_the_line_that_they_are_meant_for() -> None:
    settings = DcqcnSettings.model_validate(
        {
            "profile": "dcqcn-paper",
            "scaled_from": "40Gbit",
            "overrides": {"hyper_increase": "200Mbit"},
        }
    )
    scaled = dict(dcqcn_parameters(settings, 400 * GIGABIT))
    plain = parameters_of("dcqcn-paper", 400, hyper_increase="200Mbit")

    changed = {name for name, value in scaled.items() if plain[name] != value}
    assert changed == {"additive_increase_bps", "min_rate_bps"}
    assert scaled["additive_increase_bps"] == scaled["min_rate_bps"] == 400_000_000
    assert settings.describe() == (
        "dcqcn-paper with rates scaled from 40Gbit, hyper_increase 200Mbit"
    )
    # Shares of the line scale anyhow.
    shares = DcqcnSettings.model_validate(
        {"profile": "dcqcn-hpcc-ns3", "scaled_from": "25Gbit"}
    )
    plain = parameters_of("dcqcn-hpcc-ns3", 400)
    scaled = dict(dcqcn_parameters(shares, 400 * GIGABIT))
    assert scaled == plain | {"min_rate_bps": 16 * GIGABIT}


def test_percentages_scale_with_the_line() -> None:
    slow = parameters_of("dcqcn-hpcc-ns3", 25)
    fast = parameters_of("dcqcn-hpcc-ns3", 400)

    # 5 and 50 Mbit/s for each 25 Gbit/s.
    assert slow["additive_increase_bps"] == 5_000_000
    assert fast["additive_increase_bps"] == 80_000_000
    assert fast["hyper_increase_bps"] == 800_000_000
    assert slow["min_rate_bps"] == fast["min_rate_bps"] == GIGABIT
    assert fast["first_cnp_rate_bps"] == 400 * GIGABIT


def test_overrides_go_before_the_vendors_names_and_those_before_the_profile() -> None:
    settings = DcqcnSettings.model_validate(
        {
            "profile": "dcqcn-nvidia",
            "vendor": {"rpg_ai_rate": 7, "rpg_time_reset": 100},
            "overrides": {"increase_period": "200us", "clamp_target": True},
        }
    )
    parameters = dict(dcqcn_parameters(settings, 10 * GIGABIT))

    assert parameters["additive_increase_bps"] == 7_000_000
    assert parameters["increase_period_ns"] == 200_000
    assert parameters["clamps_target"] == 1
    assert parameters["hyper_increase_bps"] == 50_000_000
    assert settings.describe() == (
        "dcqcn-nvidia with increase_period 200us, clamp_target true, rpg_ai_rate 7, "
        "rpg_time_reset 100"
    )


@pytest.mark.parametrize("gigabits", [1, 10, 25, 400])
@pytest.mark.parametrize("in_percent", [False, True])
@pytest.mark.parametrize("profile", PROFILES)
def test_parameters_can_be_said_as_knobs_again(
    profile: str, in_percent: bool, gigabits: int
) -> None:
    line_bps = gigabits * GIGABIT
    parameters = dcqcn_parameters(DcqcnSettings(profile=profile), line_bps)
    knobs = knobs_of("dcqcn", parameters, in_percent=in_percent)
    # As an experiment file would say them, over another profile.
    text = yaml.safe_dump(knobs.model_dump(mode="json"))
    again = DcqcnSettings.model_validate(
        {"profile": "dcqcn-paper", "overrides": yaml.safe_load(text)}
    )
    assert dcqcn_parameters(again, line_bps) == parameters
    # Shares of the line scale with it.
    faster = dict(dcqcn_parameters(again, 2 * line_bps))
    before = dict(parameters)
    factor = 2 if in_percent else 1
    for knob in ("additive_increase_bps", "hyper_increase_bps", "first_cnp_rate_bps"):
        assert faster[knob] == factor * before[knob]


@pytest.mark.parametrize(
    ("overrides", "found"),
    [
        (
            {"min_rate": "11Gbit"},
            "min_rate of 11Gbit/s is above the line rate of 10Gbit/s",
        ),
        ({"first_cnp_rate": "11Gbit"}, "first_cnp_rate of 11Gbit/s is above"),
        ({"alpha_gain": "3/2"}, "alpha_gain is out of range"),
        ({"byte_counter": "1B"}, "byte_counter is less than 512 bytes"),
        ({"alpha_period": "2h"}, r"alpha_period of 2h is more than 1000s \(at most"),
        ({"cnp_interval": "2h"}, "cnp_interval of 2h is more than 1000s"),
    ],
)
def test_contradictions_are_refused(overrides: dict[str, str], found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        parameters_of("dcqcn-nvidia", 10, **overrides)


@pytest.mark.parametrize("value", ["101%", "5", "fast", 5])
def test_rates_are_rates_or_percentages(value: object) -> None:
    with pytest.raises(ValidationError):
        DcqcnKnobs.model_validate({"min_rate": value})


EXPERIMENT = """
version: 1
name: congested
jobs:
  - name: moe
    trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}
fabric: {kind: loopback, ports: 4, RATE}
transport:
  congestion_control: CONTROL
"""


def experiment_text(control: str, rate: str = "rate: 1Gbit") -> str:
    return EXPERIMENT.replace("CONTROL", control).replace(", RATE", f", {rate}")


def test_an_experiment_chooses_a_profile() -> None:
    experiment = parse_experiment(
        experiment_text(
            "{dcqcn: {profile: dcqcn-nvidia, overrides: {cnp_interval: 50us, "
            "min_rate: 0.5%, hyper_increase: 20Mbit, first_cnp_rate: 7bit}}}"
        )
    )
    plan = transport_plan(experiment)
    parameters = dict(plan.congestion_parameters)

    assert plan.congestion_control == "dcqcn"
    assert parameters["line_rate_bps"] == GIGABIT
    assert parameters["cnp_interval_ns"] == 50_000
    assert parameters["min_rate_bps"] == 5_000_000
    described = experiment.transport.congestion_control.describe()
    assert (
        "dcqcn-nvidia with hyper_increase 20Mbit, min_rate 0.5%, first_cnp_rate 7bit, "
        "cnp_interval 50us"
    ) in describe_transport(plan, described)
    # What the record of a run holds can be read again.
    dumped = experiment.model_dump(mode="json", by_alias=True, exclude_none=True)
    again = parse_experiment(yaml.safe_dump(dumped))
    assert transport_plan(again) == plan


@pytest.mark.parametrize("dilation", [1, 50])
def test_the_record_of_a_run_names_profile_overrides_and_dilation(
    dilation: int,
) -> None:
    text = experiment_text(
        "{dcqcn: {profile: dcqcn-intel, overrides: {min_rate: 1%}, "
        "vendor: {dcqcn_T: 60, EWMA_GAIN: 0.0625}}}"
    )
    written = yaml.safe_load(text)
    written["fabric"]["dilation"] = dilation
    text = yaml.safe_dump(written, sort_keys=False)
    experiment = parse_experiment(text).stretched()
    manifest = manifest_of(
        resolve(experiment, load_jobs(experiment)),
        run_id="r",
        started=datetime(2026, 1, 1, tzinfo=UTC),
    )
    said = "dcqcn-intel with min_rate 1%, dcqcn_T 60, EWMA_GAIN 0.0625"
    assert said in manifest.transport
    recorded: Any = manifest.experiment
    dcqcn = recorded["transport"]["congestion_control"]["dcqcn"]
    assert dcqcn["profile"] == "dcqcn-intel"
    assert dcqcn["overrides"]["min_rate"] == "1%"
    assert dcqcn["vendor"] == {"dcqcn_T": 60, "EWMA_GAIN": 0.0625}
    assert manifest.dilation == dilation


def test_a_name_alone_means_the_default_profile() -> None:
    experiment = parse_experiment(experiment_text("dcqcn"))
    assert experiment.transport.congestion_control.describe() == "dcqcn-nvidia"


@pytest.mark.parametrize(
    ("control", "rate", "found"),
    [
        ("dcqcn", "mtu: 4200", "starts at line rate, but the fabric's ports have no"),
        (
            "{dcqcn: {profile: dcqcn-hpcc-ns3, overrides: {min_rate: 2Gbit}}}",
            "rate: 1Gbit",
            "min_rate of 2Gbit/s is above the line rate of 1Gbit/s",
        ),
        ("{dcqcn: {}, fixed_rate: {}}", "rate: 1Gbit", "names two"),
        ("{dcqcn: {profile: dcqcn-acme}}", "rate: 1Gbit", "dcqcn-acme"),
    ],
)
def test_mistakes_are_told(control: str, rate: str, found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        parse_experiment(experiment_text(control, rate))


CLOS = """
version: 1
name: marked
jobs:
  - name: moe
    trace: {synth: moe, ranks: 4, ep: 2, dp: 2, layers: 1}
fabric:
  kind: namespaces
  topology: {clos: {leaves: 2, spines: 1, hosts_per_leaf: 2}}
  links:
    host: {rate: 10Gbit, ecn: 40KB/160KB/0.2}
    uplink: {rate: 20Gbit, ecn: {kmin: 80KB, kmax: 320KB, pmax: 0.5}}
transport: {congestion_control: dcqcn}
"""


def test_links_say_when_they_mark() -> None:
    experiment = parse_experiment(CLOS)
    topology = experiment.fabric.to_topology()
    assert topology is not None
    host, *_, uplink = topology.links
    assert host.ecn == EcnThresholds(
        kmin_bytes=40_000, kmax_bytes=160_000, probability=0.2
    )
    assert uplink.ecn == EcnThresholds(
        kmin_bytes=80_000, kmax_bytes=320_000, probability=0.5
    )
    assert "ECN marks are simulated only" in resolve(experiment).warnings()[0]
    dumped = experiment.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert parse_experiment(yaml.safe_dump(dumped)) == experiment


@pytest.mark.parametrize(
    ("ecn", "found"),
    [
        ("40KB/160KB", "is not Kmin/Kmax/Pmax"),
        ("40KB/160KB/much", "is not Kmin/Kmax/Pmax"),
        ("160KB/40KB/0.2", "kmax is below kmin"),
        ("40/160KB/0.2", "'40' has no unit"),
        ("40KB/160KB/1.5", "1.5 is too large"),
        ("{kmin: 40KB}", "ecn.kmax"),
    ],
)
def test_thresholds_that_are_none_are_refused(ecn: str, found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        parse_experiment(CLOS.replace("40KB/160KB/0.2", ecn))


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        ("dcqcn", "{dcqcn: {}}, ecn: off", "transport.ecn is off"),
        (", ecn: 40KB/160KB/0.2", "", None),
    ],
)
def test_dcqcn_without_marks_is_warned_of(
    old: str, new: str, warning: str | None
) -> None:
    warnings = resolve(parse_experiment(CLOS.replace(old, new))).warnings()
    # One of the two kinds of links still marks.
    assert [each for each in warnings if "dcqcn" in each] == [
        each for each in warnings if warning is not None and warning in each
    ]
    assert warning is None or any(warning in each for each in warnings)


def test_dcqcn_on_a_loopback_fabric_is_warned_of() -> None:
    (warning,) = resolve(parse_experiment(experiment_text("dcqcn"))).warnings()
    assert "no link of the fabric marks packets" in warning


def test_marks_that_faults_set_are_marks() -> None:
    text = experiment_text("dcqcn") + "faults: {packets: [{action: mark, nth: 1}]}\n"
    assert resolve(parse_experiment(text)).warnings() == []

from __future__ import annotations

import pytest

from chakram.config.experiment import Experiment, parse_experiment
from chakram.execution.preflight_session import preflight_settings
from chakram.foundation.errors import ConfigError
from chakram.preparation.resolved_run import resolve


def experiment(preflight: str | None, fabric: str = "{kind: loopback}") -> Experiment:
    text = f"""
version: 1
name: t
jobs: [{{name: j, trace: {{synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}}}}]
transport: {{path_mtu: 1024}}
fabric: {fabric}
"""
    return parse_experiment(
        text if preflight is None else f"{text}preflight: {preflight}\n"
    )


@pytest.mark.parametrize(
    ("written", "action"),
    [
        (None, "off"),
        ("off", "off"),
        ("warn", "warn"),
        ("require", "require"),
        ("{mtu: false}", "require"),
        ("{action: warn}", "warn"),
    ],
)
def test_what_a_run_does(written: str | None, action: str) -> None:
    assert experiment(written).preflight.action == action


def test_the_sketch_of_the_design_is_read() -> None:
    settings = preflight_settings(
        resolve(experiment("{pairs: rate, mtu: true, dscp_ecn_echo: true}"))
    )

    assert settings.check_rate
    assert settings.check_latency
    assert settings.check_mtu
    assert settings.check_classes
    assert settings.path_mtu == 1024


@pytest.mark.parametrize(
    ("written", "rate", "latency", "permutation"),
    [
        ("{pairs: rate}", True, True, True),
        ("{pairs: rate, permutation: false}", True, True, False),
        ("{pairs: latency}", False, True, False),
        ("{pairs: none}", False, False, False),
    ],
)
def test_what_is_measured(
    written: str, rate: bool, latency: bool, permutation: bool
) -> None:
    settings = preflight_settings(resolve(experiment(written)))

    assert (settings.check_rate, settings.check_latency) == (rate, latency)
    assert settings.check_permutation == permutation
    assert settings.sends_messages == latency


STAR = "{kind: namespaces, topology: {single_switch: {hosts: 4}}}"
CLOS = "{kind: namespaces, topology: {clos: {leaves: 2, spines: 2, hosts_per_leaf: 1}}}"


@pytest.mark.parametrize(
    ("fabric", "written", "paths"),
    [
        ("{kind: loopback}", "require", 1),
        (STAR, "require", 1),
        (CLOS, "require", 8),
        (CLOS, "{paths: 3}", 3),
    ],
)
def test_several_ways_are_probed_from_several_source_ports(
    fabric: str, written: str, paths: int
) -> None:
    assert preflight_settings(resolve(experiment(written, fabric))).paths == paths


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("always", "preflight"),
        ("{rate: true}", "preflight"),
        ("{min_rate: 1.5}", "preflight.min_rate"),
        ("{path_mtu: 1500}", "preflight.path_mtu"),
        ("{path_mtu: 4096}", "preflight.path_mtu: 4096 does not fit into .* of 1500"),
        ("{max_latency: 5}", "preflight.max_latency: '5' has no unit"),
        ("{rounds: 0}", "preflight.rounds"),
    ],
)
def test_mistakes_are_named_with_their_path(written: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        experiment(written, "{kind: loopback, mtu: 1500}")

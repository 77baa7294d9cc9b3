"""What an experiment says of switches to read is checked before a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chakram.config.experiment import Experiment, parse_experiment
from chakram.foundation.errors import ConfigError
from chakram.topology.topology import Topology

TARGET = {"switch": "s0", "address": "127.0.0.1:8080", "ports": {"Ethernet0": "h0-s0"}}


def experiment(**telemetry: Any) -> Experiment:
    return read({"telemetry": {"targets": [TARGET], **telemetry}})


def read(changes: dict[str, Any]) -> Experiment:
    fabric = {
        "kind": "external",
        "hosts": [
            {
                "name": f"h{number}",
                "agent": f"unix:/run/h{number}.sock",
                "ports": [{"open": "udp:e0", "address": f"198.18.0.{number + 1}/24"}],
            }
            for number in range(2)
        ],
        "topology": {"single_switch": {"hosts": 2}},
        "links": {"host": {"rate": "1Gbit"}},
        **changes,
    }
    job = {"name": "moe", "trace": {"synth": "moe", "ranks": 2, "ep": 2, "dp": 1}}
    whole = {"version": 1, "name": "x", "jobs": [job], "fabric": fabric}
    return parse_experiment(json.dumps(whole), source="x.yaml")


def mistake(telemetry: Any, **changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read({"telemetry": telemetry, **changes})
    return str(caught.value)


def topology_of(found: Experiment) -> Topology:
    topology = found.fabric.to_topology()
    assert topology is not None
    return topology


def target(**changes: Any) -> dict[str, Any]:
    return {"targets": [{**TARGET, **changes}]}


@pytest.mark.parametrize(
    ("telemetry", "words"),
    [
        ({"targets": []}, "needs targets"),
        (
            target(switch="s9"),
            "s9 is not a switch of the topology (its switches",
        ),
        (target(ports={"Ethernet0": "h9-s0"}), "h9-s0 is neither a link nor a port of"),
        (
            target(ports={"Ethernet0": "h0-s0", "Ethernet4": "s0:h0"}),
            "Ethernet4: s0:h0 already belongs to Ethernet0",
        ),
        (target(address="192.0.2.7:8080"), "ca: is missing, but 192.0.2.7:8080 is on"),
        (target(address=None), "address: is missing"),
        (target(cert="c.pem"), "needs key, and key needs cert"),
        (target(mapping="none.yaml"), "none.yaml: cannot be read"),
        (
            target(password_env="A", password_file="b"),
            "cannot be combined with password_env",
        ),
        ({"targets": [TARGET, TARGET]}, "s0 is listed twice"),
        (target(address="127.evil.example:1"), "ca: is missing"),
        (
            {"otlp": {"listen": "127.0.0.1:1", "ca": "a"}, "targets": [TARGET]},
            "otlp.ca: needs cert and key (set both, or remove ca)",
        ),
        (
            {
                "otlp": {"listen": "127.0.0.1:1"},
                "targets": [{"switch": "s0"}, {"switch": "s1"}],
            },
            "targets[0].device: is missing, but several switches send OTLP",
        ),
        ({"interval": "1us", "targets": [TARGET]}, "telemetry.interval"),
    ],
)
def test_mistakes_are_told_with_their_place(telemetry: Any, words: str) -> None:
    assert words in mistake(telemetry)


def test_counters_need_links_to_belong_to() -> None:
    assert "needs topology" in mistake({"targets": [TARGET]}, topology=None)


def test_ports_are_named_by_links_or_by_the_topology() -> None:
    for place in ("h0-s0", "h0", "s0:h0"):
        found = experiment(**target(ports={"Ethernet0": place}))
        telemetry = found.fabric.telemetry
        plan = telemetry.to_plan(topology_of(found))
        assert plan.targets[0].ports == {"s0:h0": "Ethernet0"}
    found = experiment(**target(ports={}))
    plan = found.fabric.telemetry.to_plan(topology_of(found))
    assert plan.targets[0].ports == {"s0:h0": "h0", "s0:h1": "h1"}


def test_only_switches_that_are_asked_limit_the_interval() -> None:
    otlp = {"listen": "127.0.0.1:4317"}
    found = experiment(interval="10ms", otlp=otlp, **target(address=None))
    (sends,) = found.fabric.telemetry.to_plan(topology_of(found)).targets
    assert sends.sampled_ns == 10_000_000
    found = experiment(interval="10ms", **target())
    (asked,) = found.fabric.telemetry.to_plan(topology_of(found)).targets
    assert asked.sampled_ns == 10**9


def test_passwords_are_read_when_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "password"
    secret.write_text("q1w2e3\n", encoding="utf-8")
    found = experiment(**target(password_file=str(secret), username="me"))
    (made,) = found.fabric.telemetry.to_plan(topology_of(found)).targets
    assert (made.credentials.username, made.credentials.password) == ("me", "q1w2e3")
    assert "q1w2e3" not in found.model_dump_json() + repr(made)
    found = experiment(**target(password_env="SWITCH_PASSWORD"))
    monkeypatch.delenv("SWITCH_PASSWORD", raising=False)
    with pytest.raises(ConfigError, match="SWITCH_PASSWORD is not set"):
        found.fabric.telemetry.to_plan(topology_of(found))


def lab(**changes: Any) -> Experiment:
    topology = {"single_switch": {"hosts": 2}}
    fabric = {"kind": "namespaces", "topology": topology, **changes}
    job = {"name": "moe", "trace": {"synth": "moe", "ranks": 2, "ep": 2, "dp": 1}}
    whole = {"version": 1, "name": "x", "jobs": [job], "fabric": fabric}
    return parse_experiment(json.dumps(whole), source="x.yaml")


def test_only_modeled_switches_of_a_lab_can_be_read() -> None:
    lab(switch="model", telemetry={})
    with pytest.raises(ConfigError, match="needs switch: model"):
        lab(telemetry={})
    with pytest.raises(ConfigError, match="is not used in a lab"):
        lab(switch="model", telemetry={"targets": [TARGET]})


def test_an_interval_is_real_time_whatever_the_dilation() -> None:
    fabric = {"switch": "model", "telemetry": {"interval": "2s"}, "dilation": 10}
    found = lab(links={"host": {"rate": "1Gbit"}}, **fabric)
    assert found.fabric.telemetry.interval_ns == 2 * 10**9

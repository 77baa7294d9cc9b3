"""Switches of an experiment that are configured like a SONiC switch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from chakram.cli import main
from chakram.config.experiment import Experiment, load_experiment
from chakram.foundation.errors import ConfigError
from chakram.predict.simulator.switch_fabric import SwitchFabric
from chakram.switch.headroom import LinkEnd
from chakram.switch.settings import SwitchSettings, WatchdogSettings, WredSettings
from chakram.switch.sonic_config import read_sonic
from tests.sonic_tables import tables

END = LinkEnd(rate_bps=200 * 10**6, delay_ns=0)

EXPERIMENT = """\
version: 1
name: sonic
jobs:
  - name: moe
    trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}
    size_scale: 1/64
fabric:
  kind: namespaces
  switch: model
  topology: {single_switch: {hosts: 2}}
  links: {host: {rate: 200Mbit}}
"""


def experiment(folder: Path, switches: dict[str, Any], **fabric: Any) -> Experiment:
    document = yaml.safe_load(EXPERIMENT)
    document["fabric"] |= {"switches": switches, **fabric}
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    return load_experiment(path)


def in_file(folder: Path, said: dict[str, Any] | None = None) -> dict[str, Any]:
    """Write tables into a file; return the section that names it."""
    text = json.dumps(tables() if said is None else said)
    (folder / "config_db.json").write_text(text, "utf-8")
    return {"sonic": "config_db.json"}


def switch_of(said: Experiment) -> SwitchSettings:
    """Return the settings of the switch that a simulation or a run creates."""
    profile = said.fabric.switching(said.seed).profile
    return profile.switch([END, END], queue_bytes=[None, None], thresholds=[None, None])


def test_a_file_next_to_the_experiment_configures_the_switches(
    tmp_path: Path,
) -> None:
    said = experiment(tmp_path, in_file(tmp_path))
    assert switch_of(said) == read_sonic(tables(), [END, END], where="db")
    topology = said.fabric.to_topology()
    assert topology is not None
    profile = said.fabric.switching(1).profile
    model = SwitchFabric(topology, profile, ecn=True, seed=1).model
    # A host sorts packets into the same classes as its switch: DSCP 3 into class 3.
    assert profile.host(queue_bytes=None).class_of_dscp[3] == 3
    assert model.port(0).pauses()


def test_the_record_of_a_run_has_the_tables_instead_of_the_file(
    tmp_path: Path,
) -> None:
    said = experiment(tmp_path, in_file(tmp_path))
    recorded = said.model_dump(mode="json", by_alias=True)["fabric"]["switches"]
    assert recorded["profile"] == "sonic"
    assert recorded["sonic"]["QUEUE"] == tables()["QUEUE"]
    (tmp_path / "config_db.json").unlink()
    assert switch_of(experiment(tmp_path, recorded)) == switch_of(said)


def test_keys_next_to_the_file_take_precedence(tmp_path: Path) -> None:
    own = {
        "buffer": "6233KiB",
        "balancing": "adaptive",
        "latency": "cut_through",
        "quanta": 100,
        "mark_at": "enqueue",
        "watchdog": {"detection": "1s", "action": "alert"},
    }
    settings = switch_of(experiment(tmp_path, {**in_file(tmp_path), **own}))
    assert (settings.balancing, settings.cut_through) == ("adaptive", True)
    sizes = {pool.name: pool.shared_bytes for pool in settings.pools}
    assert sizes["ingress_lossless_pool"] == 6233 * 1024
    assert sizes["egress_lossy_pool"] == 7326924 * 6233 * 1024 // 12766208
    lossless, lossy = settings.ports
    assert lossless.pause.quanta == 100
    assert lossless.wred[3] == WredSettings(
        kmin_bytes=250000, kmax_bytes=2097152, probability=0.05, at="enqueue"
    )
    assert lossless.watchdog == WatchdogSettings(detection_ns=10**9, action="alert")
    assert lossy.watchdog is None


def test_thresholds_of_a_link_replace_those_of_its_lossless_classes(
    tmp_path: Path,
) -> None:
    said = experiment(tmp_path, in_file(tmp_path))
    port, _ = (
        said.fabric.switching(1)
        .profile.switch(
            [END, END], queue_bytes=[None] * 2, thresholds=[(10, 20, 1.0), None]
        )
        .ports
    )
    own = WredSettings(kmin_bytes=10, kmax_bytes=20, probability=1.0)
    assert port.wred == (None, None, None, own, own, None, None, None)


def test_dilation_stretches_the_watchdog_of_the_file(tmp_path: Path) -> None:
    watchdog = switch_of(experiment(tmp_path, in_file(tmp_path), dilation=100)).ports[0]
    assert watchdog.watchdog == WatchdogSettings(
        detection_ns=40 * 10**9, restoration_ns=60 * 10**9, poll_ns=20 * 10**9
    )


@pytest.mark.parametrize(
    ("switches", "cuts"),
    [
        ({}, False),
        ({"latency": "store_and_forward"}, False),
        ({"latency": "cut_through"}, True),
    ],
)
def test_bounds_and_switches_agree_on_when_packets_leave(
    tmp_path: Path, switches: dict[str, Any], cuts: bool
) -> None:
    said = experiment(tmp_path, switches)
    topology = said.fabric.to_topology()
    assert topology is not None
    assert topology.cuts_through is cuts
    assert said.fabric.switching(1).profile.cut_through is cuts


def _without_profile(said: dict[str, Any]) -> None:
    del said["BUFFER_PROFILE"]["egress_lossy_profile"]


def _without_ports(said: dict[str, Any]) -> None:
    del said["PORT"]


def _bad_weight(said: dict[str, Any]) -> None:
    said["SCHEDULER"]["scheduler.0"]["weight"] = "many"


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (
            _without_profile,
            "config_db.json: BUFFER_QUEUE.Ethernet0,Ethernet4|0-2.profile: refers to "
            "BUFFER_PROFILE 'egress_lossy_profile' (add it, or remove the reference)",
        ),
        (
            _without_ports,
            "config_db.json: has no PORT (use a config_db.json of a switch)",
        ),
        (
            _bad_weight,
            "config_db.json: SCHEDULER.scheduler.0.weight: 'many' is not a number in "
            "1..1000 (use a whole number in this range)",
        ),
    ],
)
def test_errors_name_the_file_the_table_and_the_key(
    tmp_path: Path, spoil: Any, problem: str
) -> None:
    said = tables()
    spoil(said)
    with pytest.raises(ConfigError) as caught:
        experiment(tmp_path, in_file(tmp_path, said))
    assert f"fabric.switches.sonic: {problem}" in str(caught.value)


@pytest.mark.parametrize(
    ("switches", "problem"),
    [
        ({"sonic": "none.json"}, "cannot be read: No such file or directory"),
        ({"sonic": 3}, "is not a file or its tables"),
        ({"sonic": {"PORT": []}}, "PORT: is not a table"),
        (
            {"profile": "ns3", "sonic": {"PORT": {"Ethernet0": {}}}},
            "has no effect for switches of profile ns3",
        ),
        (
            {"sonic": {"PORT": {"Ethernet0": {}}}},
            "has 1 entries in PORT, but s0 has 2 links",
        ),
    ],
)
def test_a_wrong_configuration_is_refused(
    tmp_path: Path, switches: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match="sonic") as caught:
        experiment(tmp_path, switches)
    assert problem in str(caught.value)


def test_convert_prints_the_section_and_what_it_does_not_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = in_file(tmp_path)
    assert main(["fabric", "convert", str(tmp_path / "config_db.json")]) == 0
    text = capsys.readouterr().out
    assert "# not used: BUFFER_POOL: mode, type\n# not used: PORT: speed\n" in text
    section = yaml.safe_load(text)["fabric"]["switches"]
    converted = switch_of(experiment(tmp_path, section))
    assert converted == switch_of(experiment(tmp_path, said))


def test_convert_names_the_table_of_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = tables()
    _without_profile(said)
    in_file(tmp_path, said)
    assert main(["fabric", "convert", str(tmp_path / "config_db.json")]) == 2
    assert "config_db.json: BUFFER_QUEUE.Ethernet0" in capsys.readouterr().err

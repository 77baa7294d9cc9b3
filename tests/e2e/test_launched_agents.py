"""Agents that ssh starts on four hosts: find their ports, run, and leave nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.host_lab import AGENT, HostLab, ssh_lab
from tests.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXPERIMENT = {
    "version": 1,
    "name": "launched",
    "jobs": [
        {
            "name": "ring",
            "trace": {
                "synth": "collectives",
                "ranks": 4,
                "streams": [{"op": "all_reduce", "size": "64KiB", "count": 1}],
            },
        }
    ],
    "iterations": {"warmup": 0, "measured": 2},
    "fabric": {
        "kind": "external",
        "hosts": "hosts.yaml",
        "defaults": {"rate": "50Mbit"},
    },
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostLab]:
    with ssh_lab(tmp_path_factory.mktemp("lab")) as made:
        yield made


def launch(lab: HostLab) -> list[str]:
    """Return the options that start agents by ssh."""
    options = [f"--launcher-option={each}" for each in lab.ssh_options]
    return ["--launch", "ssh", "--agent", AGENT, *options]


@pytest.fixture(scope="module")
def experiment(lab: HostLab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Find the ports of the hosts, and return an experiment on them."""
    folder = tmp_path_factory.mktemp("experiment")
    found = lab.chakram(
        *("hosts", "find", "n[1-4]", "--port-in", "198.18.0.0/15", *launch(lab))
    )
    (folder / "hosts.yaml").write_text(found.stdout)
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT))
    assert lab.agents() == []
    return path


def test_found_ports_are_those_of_the_fabric(experiment: Path) -> None:
    inventory = yaml.safe_load((experiment.parent / "hosts.yaml").read_text())
    assert [
        (host["name"], *((port["open"], port["address"]) for port in host["ports"]))
        for host in inventory["hosts"]
    ] == [(f"n{at}", ("udp:eth1", f"198.18.77.{at}/24")) for at in range(1, 5)]
    assert all("agent" not in host for host in inventory["hosts"])


def test_a_run_starts_its_agents_and_ends_them(lab: HostLab, experiment: Path) -> None:
    runs = experiment.parent / "runs"
    done = lab.chakram("run", str(experiment), "--runs", str(runs), *launch(lab))
    assert "# Run complete." in done.stdout
    assert lab.agents() == []
    (run,) = runs.iterdir()
    agents = json.loads((run / "run.json").read_text())["agents"]
    assert {each["launcher"] for each in agents.values()} == {"ssh from 10.77.0.254"}
    assert sorted(agents) == lab.hosts
    assert "session started" in lab.chakram("logs", str(run), "n2").stdout
    assert "n9: has no log" in lab.chakram("logs", str(run), "n9", expected=2).stderr


@pytest.mark.soak
def test_a_sweep_starts_the_agents_of_each_cell(lab: HostLab, experiment: Path) -> None:
    suite = experiment.parent / "suite.yaml"
    suite.write_text(
        "{version: 1, name: sizes, base: experiment.yaml, world: run, matrix: "
        "{transport.window: [32KiB, 64KiB]}}"
    )
    out = experiment.parent / "swept"
    given = ["sweep", str(suite), "--out", str(out), *launch(lab), "--json"]
    results = json.loads(lab.chakram(*given).stdout)
    assert (results["missing"], results["failed"]) == (0, [])
    assert lab.agents() == []
    for cell in ("0000", "0001"):
        (run,) = (out / "runs" / cell).iterdir()
        agents = json.loads((run / "run.json").read_text())["agents"]
        launchers = {each["launcher"] for each in agents.values()}
        assert launchers == {"ssh from 10.77.0.254"}


def test_no_token_is_visible(lab: HostLab, experiment: Path) -> None:
    """Neither arguments nor environments of processes nor files have the token."""
    runs = experiment.parent / "visible"
    command = [sys.executable, "-m", "chakram", "run", str(experiment)]
    command += ["--runs", str(runs), "--set", "iterations.measured=200", *launch(lab)]
    process = subprocess.Popen(lab.at("ctl", *command), stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(lab.agents()) == 4, "four agents")
        # An authority's certificate and a token go together, so look for the former.
        for pid in [*lab.agents(), process.pid]:
            for name in ("cmdline", "environ"):
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    seen = file.read()
                assert b"BEGIN CERTIFICATE" not in seen
                assert b"authority" not in seen
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    wait_until(lambda: lab.agents() == [], "no agent")
    for path in runs.rglob("*"):
        if path.is_file():
            assert b"BEGIN CERTIFICATE" not in path.read_bytes()


def test_a_host_without_chakram_is_named(lab: HostLab, experiment: Path) -> None:
    options = launch(lab)
    options[options.index(AGENT)] = "/opt/absent/chakram-agent"
    done = lab.chakram("run", str(experiment), *options, expected=4)
    assert "ssh ended with exit status 127" in done.stderr
    assert "--agent PATH" in done.stderr
    assert lab.agents() == []


def test_a_host_that_ssh_does_not_reach_is_named(
    lab: HostLab, experiment: Path
) -> None:
    options = [*launch(lab), "--launcher-option=-p2222"]
    done = lab.chakram("preflight", str(experiment), *options, expected=4)
    assert "agent of n1: did not start: ssh ended with exit status 255" in done.stderr
    assert "Connection refused" in done.stderr
    assert lab.agents() == []


@pytest.fixture
def spare(experiment: Path, tmp_path: Path) -> Path:
    """Return the experiment on an inventory with a first host that does not exist."""
    inventory = yaml.safe_load((experiment.parent / "hosts.yaml").read_text())
    gone = {
        "name": "n0",
        "login": "absent@10.77.0.1",
        "ports": [{"open": "udp:eth1", "address": "198.18.77.99/24"}],
    }
    inventory["hosts"].insert(0, gone)
    (tmp_path / "hosts.yaml").write_text(yaml.safe_dump(inventory))
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT))
    return path


def test_ranks_move_to_spare_hosts_if_that_is_tolerated(
    lab: HostLab, spare: Path, tmp_path: Path
) -> None:
    command = ["run", str(spare), "--runs", str(tmp_path / "runs"), *launch(lab)]
    done = lab.chakram(*command, "--tolerate", "1")
    assert "(did not start: ssh ended with exit status 255" in done.stderr
    assert "left out: hosts n0" in done.stderr
    assert "left out: hosts n0" in done.stdout, "among the banners of the results"
    (run,) = (
        each
        for each in (tmp_path / "runs").iterdir()
        if json.loads((each / "run.json").read_text())["status"] == "complete"
    )
    told = json.loads((run / "run.json").read_text())
    assert sorted(told["agents"]) == lab.hosts
    assert any("left out: hosts n0" in each for each in told["banners"])
    assert (run / "experiment.yaml").read_text().startswith("# left out: hosts n0")
    assert lab.agents() == []


@pytest.mark.parametrize(
    "victim", [pytest.param("controller", marks=pytest.mark.soak), "agent"]
)
def test_a_killed_process_leaves_no_agent(
    lab: HostLab, experiment: Path, victim: str
) -> None:
    runs = experiment.parent / f"killed-{victim}"
    command = [sys.executable, "-m", "chakram", "run", str(experiment)]
    command += ["--runs", str(runs), "--set", "iterations.measured=1000"]
    process = subprocess.Popen(
        lab.at("ctl", *command, *launch(lab), "--lease", "5s"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(lab.agents()) == 4, "four agents")
    wait_until(lambda: any(runs.rglob("*.parquet")), "records")
    if victim == "controller":
        process.kill()
        process.communicate()
    else:
        os.kill(lab.agents()[0], signal.SIGKILL)
        _, complaint = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 4, complaint
        assert "ssh ended with exit status" in complaint
    began_s = time.monotonic()
    wait_until(lambda: lab.agents() == [], "no agent")
    assert time.monotonic() - began_s < 15
    (run,) = runs.iterdir()
    assert "iteration" in lab.chakram("show", str(run), expected=None).stdout


def test_a_pushed_agent_needs_no_installation(lab: HostLab, experiment: Path) -> None:
    """The hosts run Debian's Python, which has none of the packages."""
    options = [f"--launcher-option={each}" for each in lab.ssh_options]
    inventory = experiment.parent / "hosts.yaml"
    told = lab.chakram("hosts", "push", str(inventory), *options, "--json").stdout
    pushed = json.loads(told)
    assert pushed["hosts"] == lab.hosts
    assert pushed["unpacked_bytes"] < 40 << 20
    assert (lab.folder / "home-n2" / pushed["command"]).exists()
    runs = experiment.parent / "pushed"
    launch = ["--launch", "ssh", *options]
    lab.chakram("run", str(experiment), "--runs", str(runs), *launch)
    (run,) = runs.iterdir()
    agents = json.loads((run / "run.json").read_text())["agents"]
    assert all(each["compiled"] for each in agents.values())
    digest = pushed["bundle"].rpartition("-")[2]
    assert {each["bundle"] for each in agents.values()} == {digest}
    assert lab.agents() == []


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    path = f"/proc/{pid}/task/{pid}/children"
    with open(path, encoding="ascii") as file:
        return [int(each) for each in file.read().split()]


@pytest.mark.soak
def test_a_preflight_ends_with_a_launcher(lab: HostLab, experiment: Path) -> None:
    runs = experiment.parent / "preflight"
    command = [sys.executable, "-m", "chakram", "preflight", str(experiment)]
    command += ["--runs", str(runs), "--set", "preflight.duration=20s", *launch(lab)]
    process = subprocess.Popen(
        lab.at("ctl", *command),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = iter(process.stderr)
    assert any("measuring pairs" in line for line in said)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    _, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4, complaint
    assert "ssh was ended by SIGKILL" in complaint
    wait_until(lambda: lab.agents() == [], "no agent")

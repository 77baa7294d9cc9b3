"""From a switch's counters through gNMI to the records of a run, and back to itself."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest

from chakram.fabric.enter_lab import enter_command
from chakram.fabric.labs.lab import down, lab_status
from chakram.fabric.labs.link_counters import LabCounters, read_counters
from chakram.run_directory.validation import check_run
from tests.e2e.runs import LAB, Ended, chakram, moe, write_experiment
from tests.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chakram.fabric.labs.lab_spec import LabState
    from chakram.records.run_records import LinkRecord

pytestmark = pytest.mark.usefixtures("netns")

INCAST = {
    "name": "incast",
    "trace": {
        "synth": "incast", "ranks": 4, "fan_in": 3, "receiver": 0,
        "size": "1MiB", "repeats": 2,
    },
}  # fmt: skip
LINKS = {"host": {"rate": "100Mbit", "ecn": "20KB/80KB/0.5"}}
TOPOLOGY = {"single_switch": {"hosts": 4}}
FABRIC = {
    "kind": "namespaces",
    "switch": "model",
    # Three windows are more than the switch holds before it pauses.
    "switches": {"profile": "sonic", "buffer": "400KB"},
    "topology": TOPOLOGY,
    "links": LINKS,
}
TRANSPORT = {
    "congestion_control": "fixed_rate",
    "local_ack_timeout": 18,
    # Queues grow on a busy machine too.
    "window": "512KiB",
    "burst": 15,
}

SHIFTED_SERVER = """
import asyncio, json, sys, time
from chakram.fabric.modeled_switch import gnmi_server
request = json.loads(sys.stdin.readline())
class Shifted(gnmi_server.LabTree):
    def wall_ns(self):
        return time.time_ns() + request["ahead_ns"]
tree = Shifted(sys.argv[1], request["facts"])
asyncio.run(gnmi_server.serve(tree, request["addresses"]))
"""

PYGNMI = """
import json, sys
from pygnmi.client import gNMIclient
host, port = sys.argv[1].rsplit(":", 1)
with gNMIclient(target=(host, port), insecure=True) as client:
    version = client.capabilities()["gnmi_version"]
    sonic = client.get(path=["COUNTERS/h0"], target="COUNTERS_DB", encoding="json_ietf")
    wild = client.get(path=["COUNTERS/*/Queues"], encoding="json_ietf")
    oc = client.get(path=["interfaces/interface[name=h0]/state"], encoding="json_ietf")
    subscription = {"subscription": [
        {"path": "COUNTERS/h1", "mode": "sample", "sample_interval": 50_000_000}
    ], "mode": "stream", "encoding": "json_ietf"}
    stream = client.subscribe2(subscription)
    first = [next(stream), next(stream), next(stream)]
    print(json.dumps([version, sonic, wild, oc, first]))
    sys.stdout.flush()
    import os; os._exit(0)  # it prints a traceback when a stream is closed
"""


def completed(experiment: Path) -> Ended:
    """Run an experiment in a separate process.

    The threads of gRPC stay in the network in which the first of them began, and every
    test has another one.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-m", "chakram", "run", str(experiment)],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return Ended(
        code=0,
        output=done.stdout,
        errors=done.stderr,
        runs=experiment.parent / "runs",
    )


@pytest.mark.parametrize(
    "mix", ["incast", pytest.param("clos", marks=pytest.mark.soak)]
)
def test_a_run_reads_its_own_switches(tmp_path: Path, mix: str) -> None:
    fabric, jobs = FABRIC, [INCAST]
    if mix == "clos":
        shape = {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 2}}
        link = {"rate": "100Mbit"}
        fabric = {**FABRIC, "topology": shape, "links": {"host": link, "uplink": link}}
        jobs = [moe(4, layers=1, all_to_all="512KiB", all_reduce="1MiB")]
    experiment = write_experiment(
        tmp_path,
        jobs,
        {**fabric, "telemetry": {"interval": "200ms"}},
        transport=TRANSPORT,
    )

    ran = completed(experiment)

    results = ran.results
    # It also compares them with what the lab counted.
    assert "TELEMETRY" not in ran.output
    assert check_run(results) == []
    links = results.links()
    assert {link.observed for link in links} == {"switch"}
    assert len(links) == 2 * (4 if mix == "incast" else 8)
    switches = results.manifest.switches
    assert set(switches) == {link.port.partition(":")[0] for link in links} - {
        *(f"h{number}" for number in range(4))
    }
    for told in switches.values():
        assert told["facts"]["DEVICE_METADATA/localhost"]["profile"] == "sonic"
        assert told["resets"] == []
        assert told["ignored"] == 0
    check_samples(results, links)
    if mix == "incast":
        paused = {link.link for link in links if link.direction == "up" and link.pauses}
        assert paused == {"h1-s0", "h2-s0", "h3-s0"}
        (busy,) = (link for link in links if link.port == "s0:h0")
        assert busy.marked
        counted = results.summary().marked
        assert busy.marked == counted
    for arguments in (("report", "--out", tmp_path / "a.html"), ("why",), ("show",)):
        verb, *options = arguments
        assert chakram(verb, ran.directory, *options, runs=ran.runs).code == 0


def check_samples(results: Any, links: list[LinkRecord]) -> None:
    """Check that the last samples are the totals."""
    last: dict[str, dict[int | None, int]] = {}
    for row in sorted(
        results.table("link_samples").to_pylist(), key=lambda row: row["time_ns"]
    ):
        if row["bytes"] is not None:
            last.setdefault(row["port"], {})[row["traffic_class"]] = row["bytes"]
    for link in links:
        found = last.get(link.port, {})
        # Whole ports where there is no other, else the sum over classes.
        total = sum(value for key, value in found.items() if key is not None)
        assert link.bytes in (total, found.get(None, 0))


@pytest.fixture
def lab(tmp_path: Path, state_root: Path) -> Iterator[LabState]:
    """Yield a running lab with modeled switches."""
    del state_root
    path = write_experiment(tmp_path, [INCAST], FABRIC)
    assert chakram("fabric", "up", path, runs=tmp_path / "runs").code == 0
    try:
        status = lab_status(LAB)
        assert status is not None
        assert status.state is not None
        yield status.state
    finally:
        asyncio.run(down(LAB))


@contextmanager
def serving(state: LabState, *, ahead_ns: int = 0) -> Iterator[str]:
    """Serve the lab's switch, whose clock is ahead, and yield its address."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", SHIFTED_SERVER, state.directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    request = {"addresses": {"s0": "127.0.0.1:0"}, "facts": {"os": "model"}}
    process.stdin.write(json.dumps({**request, "ahead_ns": ahead_ns}) + "\n")
    process.stdin.flush()
    try:
        yield json.loads(process.stdout.readline())["addresses"]["s0"]
    finally:
        process.stdin.close()
        process.wait(PATIENCE_S)
        process.stdout.close()


@contextmanager
def agents(state: LabState, folder: Path) -> Iterator[list[dict[str, Any]]]:
    """Run an agent on each host of the lab, and yield their sections."""
    sections = []
    with ExitStack() as stack:
        for host in state.hosts:
            socket = folder / f"{host.name}.sock"
            command = [sys.executable, "-P", "-m", "chakram_agent", "serve"]
            command += ["--listen", f"unix:{socket}"]
            process = subprocess.Popen(
                enter_command(state.holder_pid, command, netns=host.netns),
                stdout=subprocess.DEVNULL,
            )
            stack.callback(process.wait, PATIENCE_S)
            stack.callback(process.terminate)
            wait_until(socket.exists, "an agent", processes=[process.pid])
            address = f"{host.address}/{host.prefix_length}"
            port = {"open": f"udp:{host.interface}", "address": address}
            sections.append(
                {
                    "name": host.name,
                    "agent": f"unix:{socket}",
                    "ports": [{**port, "mtu": 4200, "rate": "100Mbit"}],
                }
            )
        yield sections


@pytest.mark.parametrize("ahead_s", [pytest.param(0, marks=pytest.mark.soak), 86_400])
def test_hosts_that_are_given_read_the_switch_between_them(
    lab: LabState, tmp_path: Path, ahead_s: int
) -> None:
    with (
        serving(lab, ahead_ns=ahead_s * 10**9) as address,
        agents(lab, tmp_path) as hosts,
    ):
        # Its counters are never old, unlike those of SONiC.
        built_in = files("chakram.telemetry") / "mappings/sonic.yaml"
        text = built_in.read_text("utf-8").replace("refresh: 10s", "refresh: 0s")
        own = tmp_path / "own.yaml"
        own.write_text(text.replace("refresh: 1s", "refresh: 0s"))
        target = {"switch": "s0", "address": address, "mapping": "own.yaml"}
        experiment = write_experiment(
            tmp_path,
            [INCAST],
            {
                "kind": "external",
                "hosts": hosts,
                "topology": TOPOLOGY,
                "links": LINKS,
                "telemetry": {"interval": "1s", "targets": [target]},
            },
            transport=TRANSPORT,
        )
        before = read_counters(lab)
        start_ns = time.monotonic_ns()
        ran = completed(experiment)
        end_ns = time.monotonic_ns()
        after = read_counters(lab)
    results = ran.results
    links = {link.port: link for link in results.links()}
    assert len(links) == 8
    for port in ("s0:h0", "s0:h1", "s0:h2", "s0:h3"):
        check_direction(links[port], port, before, after)
    assert links["s0:h0"].marked
    assert links["h1:eth0"].pauses
    # The last metrics have what arrived after the traffic.
    marked = re.findall(
        r'^chakram_switch_marked_packets_total\{.*direction="down",link="h0-s0",.*\} '
        r"(\S+)$",
        (ran.directory / "metrics.txt").read_text(),
        re.MULTILINE,
    )
    total = sum(after.ports["s0:h0"]["marked_packets"])
    assert sum(map(float, marked)) == total
    told = results.manifest.switches["s0"]
    lead_ns = time.time_ns() + ahead_s * 10**9 - time.monotonic_ns()
    assert abs(told["clock_ahead_ns"] - lead_ns) <= told["clock_bound_ns"] + 10**7
    for time_ns in results.table("link_samples", "time_ns")["time_ns"].to_pylist():
        assert start_ns < time_ns < end_ns
    check_samples(results, list(links.values()))
    assert "s0" in ran.output or links["s0:h0"].bytes


def check_direction(
    link: LinkRecord, port: str, before: LabCounters, after: LabCounters
) -> None:
    """Check a record against counters that were read without gNMI."""
    first, last = before.ports[port], after.ports[port]
    for name, counter in (
        ("bytes", "sent_bytes"),
        ("marked", "marked_packets"),
        ("pauses", "pfc_received"),
        ("paused_ns", "paused_ns"),
    ):
        assert getattr(link, name) == sum(last[counter]) - sum(first[counter])


def test_pygnmi_reads_the_same(lab: LabState) -> None:
    with serving(lab) as address:
        done = subprocess.run(
            [sys.executable, "-P", "-c", PYGNMI, address],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        counters = read_counters(lab)
    version, sonic, wild, openconfig, stream = json.loads(done.stdout)
    assert version == "0.10.0"
    ((_, leaves),) = values(sonic)
    received = sum(counters.ports["s0:h0"]["received_packets"])
    assert leaves["SAI_PORT_STAT_IF_IN_UCAST_PKTS"] == str(received)
    assert len(values(wild)) == 4
    ((_, state),) = values(openconfig)
    assert state["counters"]["in-pkts"] == str(received)
    assert state["oper-status"] == "UP"
    assert sum("update" in each for each in stream) >= 2


def values(answer: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return path and value of every update in an answer of pygnmi."""
    return [
        (update["path"], update["val"])
        for notification in answer["notification"]
        for update in notification["update"]
    ]

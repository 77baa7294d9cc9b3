"""snappi's own client drives the fabric of a service, through REST and gRPC."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chakram.run_directory.reader import RunResults, open_run
from tests.service_client import EXPERIMENT, Service, served
from tests.support import REPO_ROOT, require
from tests.unit.service.test_otg_config import config
from tests.waiting import PATIENCE_S, Stopwatch

CLIENT = Path(__file__).with_name("otg_client.py")
HOSTS = 5
FABRIC = {
    "kind": "namespaces",
    "switch": "model",
    "topology": {"single_switch": {"hosts": HOSTS}},
    "links": {"host": {"rate": "50Mbit", "ecn": "20KB/80KB/0.5"}},
}


def environment() -> Path:
    """Return the environment of snappi."""
    return Path(sys.executable).parent.parent / "snappi"


@pytest.fixture
def service(tmp_path: Path, netns: None, state_root: Path) -> Iterator[Service]:
    """Yield a service whose fabric clients of OTG may drive."""
    del netns, state_root
    place = next(environment().glob("lib/python3*/site-packages/snappi"), None)
    require("snappi", None if place else f"there is no snappi in {environment()}")
    assert place is not None
    # Only the package itself: the others there are older than ours.
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "snappi").symlink_to(place)
    fabrics = tmp_path / "resources/fabrics"
    fabrics.mkdir(parents=True)
    (fabrics / "lab.yaml").write_text(yaml.safe_dump(FABRIC))
    options = ("--otg", "lab", "--otg-grpc", "127.0.0.1:0")
    with served(tmp_path, *options, PYTHONPATH=str(packages)) as made:
        yield made


def script(service: Service, transport: str, name: str) -> dict[str, Any]:
    """Run a script of a user of snappi, and return what it found."""
    location = service.grpc_address if transport == "grpc" else service.address
    done = subprocess.run(
        [environment() / "bin/python", CLIENT, location, transport, name],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE_S,
        cwd=REPO_ROOT,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def last_run(service: Service) -> RunResults:
    run = service.json("/runs?owner=otg&limit=1")["runs"][0]
    assert run["state"] == "canceled"
    (directory,) = (service.folder / "jobs" / run["id"] / "runs").iterdir()
    return open_run(directory)


def numbers(row: dict[str, Any], names: tuple[str, ...]) -> list[int]:
    # JSON of protobuf has 64-bit numbers as text.
    return [int(row[name]) for name in names]


@pytest.mark.parametrize(
    ("transport", "is_long"),
    [
        ("http", True),
        ("grpc", False),
        pytest.param("grpc", True, marks=pytest.mark.soak),
    ],
)
def test_scripts_of_snappi_run_unchanged(
    service: Service, transport: str, is_long: bool
) -> None:
    found = script(service, transport, "at_a_rate")
    assert found["same"]
    assert {each["ethernet_name"] for each in found["neighbors"]} == {"e1"}
    # Every other host of the switch, whose address is that of its interface.
    addresses = {each["ipv4_address"] for each in found["neighbors"]}
    assert addresses == {f"198.18.0.{number}" for number in (1, 3, 4, 5)}
    assert all(each["link_layer_address"] for each in found["neighbors"])
    assert {port["transmit"] for port in found["running"]} == {"started"}
    assert {port["transmit"] for port in found["ports"]} == {"stopped"}
    (flow,) = found["flows"]
    # At most half of 50 Mbit/s; a busy machine sends less.
    assert 0.010 < float(flow["data_tx_rate"]) < 0.026
    rows = last_run(service).queue_pair_metrics().to_pylist()
    (sent,) = [row for row in rows if row["flow_name"].endswith("/0>1")]
    (arrived,) = [row for row in rows if row["flow_name"].endswith("/1>0")]
    names = ("data_frames_tx", "tx_bytes", "cnp_rx", "ack_rx", "message_tx")
    assert numbers(flow, names) == numbers(sent, names)
    names = ("data_frames_rx", "rx_bytes", "ecn_ce_rx", "ack_tx")
    assert numbers(flow, names) == numbers(arrived, names)
    assert (flow["src_ipv4"], flow["dest_ipv4"]) == ("198.18.0.2", "198.18.0.1")
    ports = {row["name"]: row for row in last_run(service).port_metrics().to_pylist()}
    for port in found["ports"]:
        own = ports[port["location"]]
        names = ("frames_tx", "frames_rx", "bytes_tx", "bytes_rx")
        of_run = ("tx_packets", "rx_packets", "tx_bytes", "rx_bytes")
        assert numbers(port, names) == numbers(own, of_run)

    if transport == "grpc" and not is_long:
        return
    flows = script(service, transport, "incast")["flows"]
    assert len(flows) == HOSTS - 1
    assert all(int(flow["ecn_ce_rx"]) > 0 for flow in flows)
    results = last_run(service)
    assert "dcqcn" in results.manifest.transport

    told = script(service, transport, "again")
    for rows, peers in told["turns"]:
        assert [row["flow_name"] for row in rows] == ["a", "b"]
        assert all(int(row["data_frames_tx"]) > 0 for row in rows)
        assert {int(peer["qp_down"]) for peer in peers} == {HOSTS}
    first, second = told["errors"]
    assert "ports[0].location: nowhere is not a port of the fabric" in first
    assert "pause is not supported" in second


@pytest.mark.parametrize(
    "transport", ["http", pytest.param("grpc", marks=pytest.mark.soak)]
)
def test_flows_start_and_stop_while_others_go_on(
    service: Service, transport: str
) -> None:
    turns = script(service, transport, "in_turns")["turns"]
    sending = ["a", "ab", "b", "b", "ab", "a", ""]
    started = [
        "".join(name for name, state in turn["states"].items() if state == "started")
        for turn in turns
    ]
    assert started == sending
    assert len(service.json("/runs?owner=otg")["runs"]) == 1

    def counts(turn: int, flow: int) -> list[int]:
        row = {"message_tx": 0, "message_complete_rx": 0} | turns[turn]["flows"][flow]
        return numbers(row, ("message_tx", "message_complete_rx"))

    assert counts(0, 1) == [0, 0]
    # All that a stopped flow has sent has arrived, and nothing follows.
    posted, arrived = counts(2, 0)
    assert posted == arrived > 0
    names = ("data_frames_tx", "data_frames_rx", "tx_bytes", "rx_bytes", "message_tx")
    stopped, later, again = (turns[turn]["flows"][0] for turn in (2, 3, 4))
    assert numbers(stopped, names) == numbers(later, names)
    assert counts(3, 1)[0] > counts(2, 1)[0]
    assert counts(4, 1)[0] > counts(3, 1)[0]
    assert counts(5, 1)[0] == counts(5, 1)[1] == counts(6, 1)[0]
    # A start clears the counters of that flow only.
    whole = {
        row["flow_name"].partition("/")[0]: row
        for row in last_run(service).queue_pair_metrics().to_pylist()
        if row["flow_name"].endswith("/0>1")
    }
    first, second = turns[6]["flows"]
    names = ("data_frames_tx", "tx_bytes", "message_tx")
    assert numbers(second, names) == numbers(whole["f1"], names)
    assert numbers(whole["f0"], names) == [
        one + other
        for one, other in zip(
            numbers(stopped, names), numbers(first, names), strict=True
        )
    ]
    # 20 % of 50 Mbit/s while it sends; a busy machine sends less.
    for row in (stopped, again, turns[5]["flows"][1]):
        assert 0.001 < float(row["data_tx_rate"]) < 0.0105


def test_a_configuration_locks_the_fabric(service: Service) -> None:
    port = {"name": "p0", "location": "h0"}
    configured = json.dumps({"ports": [port]}).encode()
    assert service.ask("/config", "POST", configured)[0] == 200
    text = EXPERIMENT.replace("fabric:\n  kind: loopback\n", "fabric: lab\n")
    waiting, other = service.submit(text, "run"), service.submit()
    # A simulation would disturb the flows on this machine.
    time.sleep(1)
    assert service.state(waiting) == service.state(other) == "queued"
    assert service.json("/fabrics")["in_use"] == {"this machine": "otg"}
    assert b"<td>otg</td>" in service.ask("/")[1]
    for run in service.json("/runs")["runs"][:2]:
        assert run["reason"] == "waits until otg releases this machine"
    assert service.ask("/config", "POST", b"{}")[0] == 200
    assert service.wait(waiting)["state"] == service.wait(other)["state"] == "done"
    for method, path in {"PATCH": "/config", "POST": "/monitor/capture"}.items():
        status, body, _ = service.ask(path, method, b"{}")
        assert (status, json.loads(body)["kind"]) == (501, "validation")
    for body in (b"[", b"[]", b'{"ports": 5}', b'{"traffic": {"flow_transmit": 1}}'):
        for path in (
            *("/config", "/control/state"),
            *("/monitor/metrics", "/monitor/states"),
        ):
            status, answer, _ = service.ask(path, "POST", body)
            assert status in (400, 501), (path, body, answer)
            assert json.loads(answer)["errors"]


def collectives() -> dict[str, Any]:
    """Return an experiment of the service, and then an all-reduce twice."""
    names = [f"d{number}" for number in range(4)]
    size = {"data_size": 1, "data_size_unit": "megabit"}
    short = {"choice": "fixed_iterations"}
    ports_and_devices = config()
    del ports_and_devices["stateful_flows"]
    return {
        **ports_and_devices,
        "ccl": {
            "name": "training",
            "stage_mode": "llm",
            "stage_loop_count": 2,
            "stages": [
                {"name": "moe", "experiment": "moe"},
                {
                    "name": "reduce",
                    "communicators": [
                        {
                            "name": "dp",
                            "device_names": names,
                            "generation": {
                                **size,
                                "compute_gap": {"choice": "fixed", "fixed": {"ms": 5}},
                            },
                        }
                    ],
                    "duration": {
                        **short,
                        "fixed_iterations": {"count": 3, "interval_ms": 10},
                    },
                },
            ],
        },
    }


def ask(service: Service, path: str, document: Any) -> Any:
    status, body, _ = service.ask(path, "POST", json.dumps(document).encode())
    assert status == 200, body
    return json.loads(body)


def rows_of(service: Service, **how: Any) -> list[dict[str, Any]]:
    asked = {"choice": "ccl", "ccl": how}
    rows: list[dict[str, Any]] = ask(service, "/monitor/metrics", asked)["ccl_metrics"]
    return rows


def test_collectives_run_in_stages(service: Service) -> None:
    folder = service.folder.parent / "resources/experiments"
    folder.mkdir()
    text = EXPERIMENT.replace("fabric:\n  kind: loopback\n", "fabric: lab\n")
    (folder / "moe.yaml").write_text(text)
    configured = collectives()
    assert ask(service, "/config", configured) == {"warnings": []}
    start = {
        "choice": "traffic",
        "traffic": {"choice": "ccl", "ccl": {"state": "start"}},
    }
    ask(service, "/control/state", start)
    watch = Stopwatch()
    while watch.look() < PATIENCE_S:
        runs = service.json("/runs?owner=otg")["runs"]
        if [run["state"] for run in runs] == ["done"] * 3:
            break
        time.sleep(0.2)
    moe, reduce = rows_of(service, include_loop_metrics=True)
    assert (moe["iteration_count"], reduce["iteration_count"]) == (3, 6)
    assert (reduce["communicator_name"], moe["communicator_name"]) == ("dp", "moe")
    assert [each["stage_loop"] for each in reduce["loop_metrics"]] == [1, 2]
    # 125,000 bytes, 2 * 3 / 4 of them through a port of 50 Mbit/s.
    ideal_s = 6 * 1.5 * 1e6 / 50e6
    assert reduce["ideal_jct"] == pytest.approx(ideal_s)
    assert reduce["reduce_time"] == pytest.approx(6 * 5e-3)
    assert reduce["trans_time"] > ideal_s
    assert reduce["jct"] == pytest.approx(reduce["trans_time"] + 6 * 5e-3)
    assert reduce["bus_bw"] == pytest.approx(6 * 1.5 * 1e-3 / reduce["jct"])
    (directory,) = (service.folder / "jobs" / runs[1]["id"] / "runs").iterdir()
    durations = [each.duration_ns for each in open_run(directory).collectives()]
    first = reduce["loop_metrics"][0]
    assert first["trans_time"] == pytest.approx(sum(durations) * 1e-9)
    assert {each.identity.algorithm for each in open_run(directory).collectives()} == {
        "ring"
    }
    assert rows_of(service, stage_names=["moe"]) == [moe]

    # A stage that takes its time is stopped.
    del configured["ccl"]["stage_mode"], configured["ccl"]["stages"][0]
    configured["ccl"]["stages"][0]["duration"] = {
        "choice": "fixed_seconds",
        "fixed_seconds": {"seconds": 3600, "interval_ms": 0},
    }
    ask(service, "/config", configured)
    ask(service, "/control/state", start)
    start["traffic"]["ccl"] = {"state": "stop"}
    ask(service, "/control/state", start)
    assert service.json("/runs?owner=otg&limit=1")["runs"][0]["state"] == "canceled"
    ask(service, "/config", {})

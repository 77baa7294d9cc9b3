"""Preflights of faulty fabrics on separate hosts find and name each fault."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from chakram.run_directory.manifest import COMPLETE, FAILED
from tests.e2e.hosts import ADDRESSES, CONTROL_PORT, NAMES, Hosts, host_section
from tests.e2e.rewriting import missing_bpf, rewriting
from tests.e2e.runs import moe, star, write_experiment
from tests.e2e.runs import run as run_here
from tests.support import missing_program, require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PREFLIGHT_FAILED = 5

RATE = {"rate": "40Mbit"}
"""Four data planes share this machine with whatever else a test needs."""

SHORT: dict[str, Any] = {"duration": "20ms", "min_rate": 0.5}
"""Half of the rate is far above that of a broken link, and any machine reaches it."""

DSCP = 0xFC
ECN = 0x03


@pytest.fixture(scope="module", autouse=True)
def _can_plant() -> None:
    """Require the programs that plant faults."""
    require("netns", missing_program("tc"))
    require("bpf", missing_bpf())


def write(
    found: Hosts,
    folder: Path,
    *,
    preflight: dict[str, Any] = SHORT,
    **sections: object,
) -> Path:
    """Write an experiment over the hosts that is quickly tested."""
    fabric = found.fabric(defaults=RATE) | sections
    ranks = len(fabric["hosts"])
    job = moe(ranks, dp=ranks // 2) | {"size_scale": "1/16"}
    return write_experiment(folder, [job], fabric, preflight=preflight)


def two(*names: str) -> dict[str, Any]:
    """Return what names only these hosts: each takes a data plane, and seconds."""
    return {"hosts": [host_section(name) for name in names]}


def filtered(
    found: Hosts, port: str, *, keep: int = 0xFF, longest: int | None = None
) -> AbstractContextManager[None]:
    return rewriting(found.namespace("sw"), port, keep=keep, longest=longest)


@contextmanager
def one_each(found: Hosts) -> Iterator[None]:
    """Change the behavior of each host's switch port."""
    with (
        filtered(found, "h1", keep=DSCP),
        filtered(found, "h2", longest=0),
        filtered(found, "h3", longest=900),
        filtered(found, "h4", keep=ECN),
    ):
        yield


EXPECTED = {
    "ecn": ("h1 -> all others", "ECT(0) arrives as Not-ECT: cleared"),
    "reach": ("h2 -> all others", "no packet arrives"),
    "mtu": (
        "h3 -> all others",
        "packets of 1088 bytes (path MTU 1024) do not arrive, but those of path MTU "
        "512 do; no ICMP error arrives: the path silently drops large packets",
    ),
    "dscp": ("h4 -> all others", "DSCP 26 arrives as 0: bleached"),
}


def test_faults_of_the_fabric_are_found_and_named(found: Hosts, tmp_path: Path) -> None:
    experiment = write(found, tmp_path)

    with one_each(found):
        ended = found.chakram("preflight", experiment, "--json", experiment=experiment)

    assert ended.output, ended.errors
    document = json.loads(ended.output)
    failed = [each for each in document["findings"] if each["verdict"] == "failed"]
    assert {(each["check"], each["where"]) for each in failed} == {
        (check, where) for check, (where, _) in EXPECTED.items()
    }
    for check, (_, sentence) in EXPECTED.items():
        assert any(
            each["check"] == check and each["found"].startswith(sentence)
            for each in failed
        ), failed
    assert ended.code == PREFLIGHT_FAILED
    pairs = {(pair["source"], pair["destination"]) for pair in document["pairs"]}
    assert len(pairs) == 12
    rows = pq.read_table(ended.directory / "preflight.parquet").to_pylist()
    assert len(rows) == len(pairs)


def test_a_missing_host_is_named_and_the_others_are_tested(
    found: Hosts, tmp_path: Path
) -> None:
    nobody = {"agent": f"{ADDRESSES['h2']}:{CONTROL_PORT + 1}"}
    absent = {"open": "udp:eth9", "address": f"{ADDRESSES['h3']}/16"}
    sections = {"h2": nobody, "h3": {"ports": [absent]}}
    experiment = write(
        found,
        tmp_path,
        hosts=[host_section(name, **sections.get(name, {})) for name in NAMES],
    )

    ended = found.chakram("preflight", experiment, "--json", experiment=experiment)

    assert ended.code == PREFLIGHT_FAILED
    document = json.loads(ended.output)
    agents = [each for each in document["findings"] if each["check"] == "agent"]
    assert [each["where"] for each in agents] == ["h2", "h3"], agents
    assert agents[0]["found"].startswith("no agent listens at this address")
    assert "there is no interface eth9" in agents[1]["found"]
    tested = {(pair["source"], pair["destination"]) for pair in document["pairs"]}
    assert tested == {("h1", "h4"), ("h4", "h1")}


def test_a_run_that_requires_it_is_refused_with_the_finding(
    found: Hosts, tmp_path: Path
) -> None:
    experiment = write(found, tmp_path, **two("h1", "h4"))

    with filtered(found, "h4", keep=ECN):
        refused = found.run(experiment)

    assert refused.code == PREFLIGHT_FAILED
    assert "dscp: h4 -> h1: DSCP 26 arrives as 0" in refused.sentence
    manifest = refused.results.manifest
    assert manifest.status == FAILED
    assert manifest.preflight["passed"] is False


def test_run_with_preflight_warnings_continues_with_a_banner(
    found: Hosts, tmp_path: Path
) -> None:
    preflight = SHORT | {"action": "warn"}
    experiment = write(found, tmp_path, preflight=preflight, **two("h1", "h4"))

    with filtered(found, "h4", keep=ECN):
        warned = found.run(experiment)

    assert warned.code == 0, warned.errors
    assert "# !! preflight: dscp: h4 -> h1: DSCP 26 arrives" in warned.output
    assert warned.results.manifest.status == COMPLETE


def test_run_on_an_intact_fabric_follows_its_preflight(
    netns: None, tmp_path: Path
) -> None:
    experiment = write_experiment(
        tmp_path,
        [moe(2, dp=1)],
        star(2, rate="50Mbit"),
        preflight=SHORT | {"action": "require"},
    )

    ended = run_here(experiment)

    assert ended.code == 0, ended.errors
    assert ended.results.manifest.preflight["passed"] is True
    (first, second) = pq.read_table(ended.directory / "preflight.parquet").to_pylist()
    assert (first["source"], first["destination"]) == ("h0", "h1")
    for row in (first, second):
        assert row["failed"] == []
        assert row["path_mtu"] == 4096
        assert 0.5 <= row["together_share"] < 1.1


def test_loopback_ports_are_tested_for_their_requirements(tmp_path: Path) -> None:
    experiment = write_experiment(
        tmp_path, [moe(2, dp=1)], {"kind": "loopback"}, preflight={"pairs": "latency"}
    )

    ended = run_here(experiment, "--json", verb="preflight")

    assert ended.code == 0, ended.errors
    document = json.loads(ended.output)
    assert document["passed"] is True
    assert len(document["pairs"]) == 2
    assert document["directory"] == str(ended.directory)
    for pair in document["pairs"]:
        assert 0 < pair["round_trip_min_ns"] <= pair["round_trip_p99_ns"]
        assert pair["goodput_bps"] is None

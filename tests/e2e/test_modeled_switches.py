"""Runs over modeled switches in real time, compared with simulations."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

import chakram
from chakram.analysis.run_causes import why_of
from chakram.run_directory.validation import check_run
from tests.e2e.runs import completed, moe, write_experiment
from tests.e2e.test_paths import paths, uplink_bytes
from tests.e2e.traffic_totals import check_complete
from tests.pcap_files import ip_packet, read_frames

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("netns")


@pytest.mark.parametrize(
    "family", ["ipv4", pytest.param("ipv6", marks=pytest.mark.soak)]
)
def test_run_has_the_paths_and_bytes_of_its_simulation(
    tmp_path: Path, family: str
) -> None:
    experiment = write_experiment(
        tmp_path,
        [moe(4, layers=1, all_to_all="256KiB", all_reduce="512KiB")],
        {
            "kind": "namespaces",
            "switch": "model",
            "switches": {"profile": "sonic"},
            "addressing": family,
            "capture": ["h0"],
            "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 2}},
            "links": {
                "host": {"rate": "200Mbit", "delay": "20us"},
                "uplink": {"rate": "200Mbit", "delay": "20us"},
            },
        },
        transport={
            "congestion_control": "fixed_rate",
            "class_of": [{"collective": "all_to_all", "class": 4}],
        },
        agents={"shards": 1},
        seed=5,
    )
    (tmp_path / "simulated").mkdir()
    copy = tmp_path / "simulated" / experiment.name
    copy.write_bytes(experiment.read_bytes())

    ran = completed(experiment)
    simulated = completed(copy, "--runs", copy.parent / "runs", verb="simulate").results

    check_complete(ran.results, ranks=4)
    assert "simulated only" not in ran.output
    counted, predicted = uplink_bytes(ran.results), uplink_bytes(simulated)
    assert counted == pytest.approx(predicted, rel=0.02)
    assert paths(ran.results) == paths(simulated)
    assert None not in paths(ran.results).values()
    capture = (ran.directory / "capture-h0.pcap").read_bytes()
    classes = {
        packet[1] if packet[0] >> 4 == 4 else (packet[0] & 15) << 4 | packet[1] >> 4
        for frame in read_frames(capture, where="capture")
        for packet in [ip_packet(frame.data)]
    }
    # The class selector of class 4 beside what all data have.
    assert {each >> 2 for each in classes} == {26, 32}
    # Nothing, answers included, is of a kind that switches drop in place of marking.
    assert {each & 3 for each in classes} <= {2, 3}
    # The model keeps the rates, so that nothing is faster than it can be.
    bounds = ran.results.bounds()
    for record in ran.results.collectives():
        least_ns = bounds.get(record.identity.key)
        assert least_ns is None or record.duration_ns >= least_ns


def test_an_incast_over_lossless_switches_loses_nothing(tmp_path: Path) -> None:
    trace = {"synth": "incast", "ranks": 8, "fan_in": 7, "receiver": 0}
    experiment = write_experiment(
        tmp_path,
        [{"name": "incast", "trace": {**trace, "size": "256KiB", "repeats": 2}}],
        {
            "kind": "namespaces",
            "switch": "model",
            "switches": {"profile": "sonic", "buffer": "800KB"},
            "topology": {"single_switch": {"hosts": 8}},
            "links": {"host": {"rate": "100Mbit"}},
        },
        # Seven windows are five times what the switch holds before it pauses.
        transport={"congestion_control": "fixed_rate", "local_ack_timeout": 18},
    )
    for _ in range(3):
        ran = completed(experiment)
        if "COULD NOT KEEP UP" not in ran.output:  # beside other work
            break
    links = ran.results.links()

    assert sum(link.drops or 0 for link in links) == 0
    assert ran.results.summary().retransmitted == 0
    paused = {
        link.link
        for link in links
        if link.direction == "up" and link.pauses and link.paused_ns
    }
    assert paused == {f"h{number}-s0" for number in range(1, 8)}
    assert "# Pauses: " in ran.output
    # The hosts heard it: they rested, and that is not the generator's fault.
    heard: dict[str, int] = {}
    for row in ran.results.table("ports", "host", "paused_ns").to_pylist():
        heard[row["host"]] = row["paused_ns"]
    for link in links:
        if link.direction == "up" and link.pauses:
            host = link.link.partition("-")[0]
            assert 0 < heard[host] < 2 * link.paused_ns
    assert heard["h0"] == 0


def test_declared_link_faults_happen_and_are_in_the_samples(tmp_path: Path) -> None:
    slow = {"kind": "degrade", "link": "h1-s0", "direction": "up", "rate": "20Mbit"}
    loss = {"kind": "loss", "link": "h2-s0", "direction": "down", "probability": 0.05}
    experiment = write_experiment(
        tmp_path,
        [moe(4, layers=1, all_to_all="256KiB", all_reduce="256KiB")],
        {
            "kind": "namespaces",
            "switch": "model",
            "topology": {"single_switch": {"hosts": 4}},
            "links": {"host": {"rate": "200Mbit"}},
        },
        transport={"congestion_control": "fixed_rate"},
        faults={"links": [slow, loss]},
    )
    results = completed(experiment).results
    links = results.links()

    dropped = {(link.link, link.direction) for link in links if link.drops}
    assert dropped == {("h2-s0", "down")}
    first, second = results.manifest.link_faults
    assert first["fault"] == "link h1-s0 (up) has 20Mbit at 0ns"
    table = results.table("faults").to_pylist()
    assert [(row["link"], row["direction"], row["start_ns"]) for row in table] == [
        ("h1-s0", "up", first["at_ns"]),
        ("h2-s0", "down", second["at_ns"]),
    ]
    assert (first["ports"], second["ports"]) == (["h1:eth0"], ["s0:h2"])
    origin_ns = min(rank.start_ns for rank in results.ranks())
    assert abs(first["at_ns"] - origin_ns) < 10**8
    samples = results.table("link_samples").to_pylist()
    last = {row["port"]: row for row in samples}
    for link in links:
        row = last[link.port]
        assert row["bytes"] == pytest.approx(link.bytes, rel=0.02)
        assert row["drops"] == (link.drops or 0)
    busiest_bps = {
        port: max(
            (after["bytes"] - before["bytes"])
            * 8e9
            / max(10**7, after["time_ns"] - before["time_ns"])
            for before, after in pairwise(row for row in samples if row["port"] == port)
        )
        for port in ("h0:eth0", "h1:eth0")
    }
    assert busiest_bps["h1:eth0"] < 25e6 < busiest_bps["h0:eth0"]


@pytest.mark.soak
def test_traffic_recovers_from_a_fault(tmp_path: Path) -> None:
    stream = {"op": "all_reduce", "size": "256KiB", "count": 20}
    trace = {"synth": "collectives", "ranks": 4, "streams": [stream]}
    slow = {"kind": "degrade", "link": "h1-s0", "direction": "up", "rate": "20Mbit"}
    experiment = write_experiment(
        tmp_path,
        [{"name": "job", "trace": trace}],
        {
            "kind": "namespaces",
            "switch": "model",
            "topology": {"single_switch": {"hosts": 4}},
            "links": {"host": {"rate": "200Mbit"}},
        },
        collectives={"all_reduce": "ring"},
        iterations={"warmup": 0, "measured": 4},
        faults={"links": [slow | {"at": "500ms", "for": "300ms"}]},
    )
    results = completed(experiment).results
    (row,) = results.table("faults").to_pylist()
    assert row["end_ns"] - row["start_ns"] == 300 * 10**6
    assert 0 <= row["recovered_ns"] - row["end_ns"] < 300 * 10**6
    held_up = [
        each["last_acked_ns"] - each["first_sent_ns"]
        for each in results.table("flows").to_pylist()
        if each["src"] == 1
        and row["start_ns"] < each["first_sent_ns"] < row["end_ns"] - 30 * 10**6
    ]
    # 64 KiB take 26 ms at that rate, and 2.6 ms at that of the link.
    assert min(held_up) > 20 * 10**6
    assert check_run(results) == []
    assert row["fault"] in {each.fault for each in why_of(results).causes}


@pytest.mark.soak
def test_a_host_sends_as_many_packets_again_as_simulated(tmp_path: Path) -> None:
    streams = [
        {"op": "all_reduce", "size": "4MiB", "count": 2},
        {"op": "all_to_all", "size": "1MiB", "count": 6},
    ]
    trace = {"synth": "collectives", "ranks": 8, "streams": streams}
    loss = {"kind": "loss", "link": "leaf0-spine0", "probability": 0.005}
    experiment = write_experiment(
        tmp_path,
        [{"name": "job", "trace": trace}],
        {
            "kind": "namespaces",
            "switch": "model",
            "switches": {"profile": "sonic"},
            "topology": {
                "clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 4, "uplinks": 2}
            },
            "links": {"host": {"rate": "40Mbit"}, "uplink": {"rate": "80Mbit"}},
        },
        collectives={"all_reduce": "ring", "all_to_all": "direct"},
        iterations={"warmup": 1, "measured": 8},
        faults={"links": [loss]},
    )
    measured = completed(experiment).results.summary().retransmitted
    simulated = chakram.simulate(experiment, runs=tmp_path / "simulated")
    assert measured == pytest.approx(simulated.summary().retransmitted, rel=0.2)


def test_sprayed_packets_are_kept_until_missing_ones_arrive(
    tmp_path: Path,
) -> None:
    experiment = write_experiment(
        tmp_path,
        [moe(4, layers=1, all_to_all="256KiB", all_reduce="256KiB")],
        {
            "kind": "namespaces",
            "switch": "model",
            "switches": {"balancing": "random"},
            "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 2}},
            "links": {"host": {"rate": "200Mbit"}, "uplink": {"rate": "100Mbit"}},
        },
        transport={"reordering": "accept", "local_ack_timeout": 18},
        agents={"shards": 1},
    )
    ran = completed(experiment)

    check_complete(ran.results, ranks=4)
    assert "transport.reordering" not in ran.output
    assert ran.results.summary().retransmitted == 0
    kept: dict[int, int] = {}
    for row in ran.results.table("queue_pairs", "qpn", "reordered_rx").to_pylist():
        kept[row["qpn"]] = max(kept.get(row["qpn"], 0), row["reordered_rx"])
    assert sum(kept.values()) > 20

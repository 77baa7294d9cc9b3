"""Exported inputs of ASTRA-sim have the meaning and costs of the experiment."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import chakram
from chakram.cli import main

ALGORITHMS = {
    "ring": "ring",
    "direct": "direct",
    "halvingDoubling": "halving_doubling",
    "doubleBinaryTree": "binary_tree",
}
SHAPES = {
    "Switch": lambda n: {"single_switch": {"hosts": n}},
    "Ring": lambda n: {"ring": {"nodes": n}},
    "FullyConnected": lambda n: {"fully_connected": {"nodes": n}},
    "Clos2L": lambda n: {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": n // 2}},
}
GIB_BITS = 8 << 30
AWARE = {
    "congestion_aware": "astra-sim-aware",
    "congestion_unaware": "astra-sim-unaware",
}


def experiment(
    topology: str, npus: int, link: Mapping[str, str], trace: Mapping[str, Any]
) -> dict[str, Any]:
    kinds = {"Switch": ("host",), "Clos2L": ("host", "uplink")}
    return {
        "version": 1,
        "name": "there-and-back",
        "jobs": [
            {"name": "j", "trace": dict(trace), "resources": "astra-sim"},
        ],
        "iterations": {"warmup": 0, "measured": 1, "sync": "free"},
        "fabric": {
            "kind": "namespaces",
            "topology": SHAPES[topology](npus),
            "links": {kind: dict(link) for kind in kinds.get(topology, ("uplink",))},
        },
        "transport": {"congestion_control": "none"},
    }


def exported(
    folder: Path, document: Mapping[str, Any], capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """Return the output of the command; its files are in ``folder / "out"``."""
    path = folder / "experiment.yaml"
    path.write_text(json.dumps(document))
    capsys.readouterr()
    out = ["--out", str(folder / "out"), "--json"]
    assert main(["export", "astra-sim", str(path), *out]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    written = {str(each) for each in (folder / "out").rglob("*") if each.is_file()}
    assert written == set(told["written"])
    return told


def read_again(out: Path, *, cost_model: str) -> dict[str, Any]:
    """Return the experiment that the files of ASTRA-sim are."""
    network = yaml.safe_load((out / "network.yml").read_text())
    system = json.loads((out / "system.json").read_text())
    (topology,), (npus,) = network["topology"], network["npus_count"]
    ((rate,), (delay,)) = network["bandwidth"], network["latency"]
    link = {"rate": f"{round(rate * GIB_BITS)}bit", "delay": f"{delay}ns"}
    document = experiment(topology, npus, link, {"path": str(out)})
    document["collectives"] = {
        op: ALGORITHMS[system[f"{op.replace('_', '-')}-implementation"][0]]
        for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    }
    document["simulation"] = {
        "level": "message",
        "cost_model": cost_model,
        "parts": system["preferred-dataset-splits"],
        "endpoint_delay": f"{system['endpoint-delay']}ns",
        "local_memory": f"{system['local-mem-bw']} GB/s",
    }
    return document


def cases(
    chakram_data: Path, *, of: tuple[str, ...], npus: tuple[str, ...]
) -> list[dict[str, str]]:
    """Return rows of the reference: one for all that have some columns alike.

    What is not among these is another from case to case: backends, sizes, chunks ...
    """
    with open(chakram_data / "reference" / "astra-sim.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["npus"] in npus]
    found: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        if row["backend"] in AWARE:
            found.setdefault(tuple(row[name] for name in of), []).append(row)
    return [
        alike[37 * number % len(alike)] for number, alike in enumerate(found.values())
    ]


def check_case(
    folder: Path, row: Mapping[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Export a case, read the files back, and simulate them."""
    folder.mkdir()
    npus = int(row["npus"])
    size = f"{row['size_bytes']}B"
    stream = {"op": row["collective"], "size": size, "count": 1}
    rate_bps = round(float(row["bandwidth_GBps"]) * GIB_BITS)
    document = experiment(
        row["topology"],
        npus,
        {"rate": f"{rate_bps}bit", "delay": f"{float(row['latency_ns']):.0f}ns"},
        {"synth": "collectives", "ranks": npus, "streams": [stream]},
    )
    document["collectives"] = {row["collective"]: ALGORITHMS[row["algorithm"]]}
    document["simulation"] = {"parts": int(row["chunks"])}
    told = exported(folder, document, capsys)
    missing = "no ns3: link h0-n0 has no rate, but ns-3 needs one"
    assert told["notes"] == [missing] * (row["topology"] != "Switch")
    network = yaml.safe_load((folder / "out" / "network.yml").read_text())
    assert network["topology"] == [row["topology"]]
    assert network["bandwidth"] == [float(row["bandwidth_GBps"])]
    again = read_again(folder / "out", cost_model=AWARE[row["backend"]])
    results = chakram.simulate(again, runs=folder / "runs")
    finish_ns = max(each.end_ns - each.start_ns for each in results.ranks())
    assert finish_ns == int(row["finish_ns"]), row


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_exported_job_takes_the_time_of_astra_sim(
    algorithm: str,
    tmp_path: Path,
    chakram_data: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ("algorithm", "topology", "npus")
    rows = cases(chakram_data, of=names, npus=("4", "8"))
    # From 8 hosts on two ways round a ring of one length are on other ways, too.
    own = [
        row
        for row in rows
        if row["algorithm"] == algorithm
        and (row["npus"] == "4" or row["topology"] == "Ring")
    ]
    assert {row["topology"] for row in own} == {"Switch", "Ring", "FullyConnected"}
    for number, row in enumerate(own):
        check_case(tmp_path / str(number), row, capsys)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_every_exported_job_takes_the_time_of_astra_sim(
    tmp_path: Path, chakram_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("topology", "collective", "algorithm", "chunks", "backend")
    rows = cases(chakram_data, of=names, npus=("4", "8", "16"))
    assert len(rows) > 100
    assert {row["npus"] for row in rows} == {"4", "8", "16"}
    for number, row in enumerate(rows):
        check_case(tmp_path / str(number), row, capsys)


LINK = {"rate": "400Gbit", "delay": "500ns", "ecn": "800kB/3200kB/0.2"}


@pytest.mark.parametrize(
    ("topology", "npus", "name"),
    [
        ("Switch", 4, "star4_400Gbps_0.0005ms"),
        ("Switch", 8, "star8_400Gbps_0.0005ms"),
        ("Clos2L", 8, "clos8_2_2_400Gbps"),
        ("Clos2L", 16, "clos16_2_2_400Gbps"),
    ],
)
def test_topologies_and_groups_equal_the_ns3_input(
    topology: str,
    npus: int,
    name: str,
    tmp_path: Path,
    chakram_data: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = {"op": "all_reduce", "size": "1MiB"}
    trace = {"synth": "collectives", "ranks": npus, "streams": [stream]}
    told = exported(tmp_path, experiment(topology, npus, LINK, trace), capsys)
    theirs = chakram_data / "reference" / "simulators" / "ns3" / "topologies"
    written = (tmp_path / "out" / "ns3" / "topology.txt").read_bytes()
    assert written == (theirs / f"{name}.txt").read_bytes()
    has_network = (tmp_path / "out" / "network.yml").exists()
    assert has_network == (topology == "Switch")
    assert len(told["notes"]) == (not has_network)


def settings_of(path: Path) -> dict[str, list[str]]:
    words = [line.split() for line in path.read_text().splitlines()]
    return {each[0]: each[1:] for each in words if each}


@pytest.mark.parametrize(
    ("control", "window", "name"),
    [
        ("none", "scaled", "cc12_Switch8_all_reduce_ring_1_1048576"),
        ("dcqcn", "scaled", "cc1_Switch4_all_reduce_halvingDoubling_1_65536"),
        ("dcqcn", "off", "mix_mix_cc1_HAS_WIN0"),
    ],
)
def test_configuration_equals_the_ns3_input(
    control: str,
    window: str,
    name: str,
    tmp_path: Path,
    chakram_data: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = {"op": "all_reduce", "size": "1MiB"}
    trace = {"synth": "collectives", "ranks": 4, "streams": [stream]}
    document = experiment("Switch", 4, LINK, trace)
    document["simulation"] = {"window": window}
    if control == "dcqcn":
        knobs = {
            "increase_period": "900us",
            "additive_increase": "50Mbit",
            "hyper_increase": "100Mbit",
            "min_rate": "100Mbit",
        }
        dcqcn = {"profile": "dcqcn-hpcc-ns3", "overrides": knobs}
        document["transport"] = {"congestion_control": {"dcqcn": dcqcn}}
    exported(tmp_path, document, capsys)
    ours = settings_of(tmp_path / "out" / "ns3" / "config.txt")
    folder = chakram_data / "reference" / "simulators" / "ns3" / name
    theirs = settings_of(folder / "config.txt")
    assert ours.keys() == theirs.keys()
    for key in ("KMAX_MAP", "KMIN_MAP", "PMAX_MAP"):
        pairs = dict(zip(theirs[key][1::2], theirs[key][2::2], strict=True))
        assert ours.pop(key) == ["1", "400000000000", pairs["400000000000"]]
    for key, value in ours.items():
        # Without a window, its scaling does not matter.
        if key != "TOPOLOGY_FILE" and (key != "VAR_WIN" or window != "off"):
            assert value == theirs[key], key


MIXED = {
    "synth": "moe",
    "ranks": 4,
    "ep": 2,
    "dp": 2,
    "layers": 2,
    "all_reduce": "128KiB",
    "dense": "64KiB",
    "routing": {"law": "log_normal"},
}


def pairs(results: chakram.Results) -> dict[tuple[int, int], int]:
    """Return the bytes of every pair of ranks."""
    grouped = results.flows.group_by(["src", "dst"]).aggregate([("bytes", "sum")])
    rows = grouped.to_pylist()
    return {(row["src"], row["dst"]): row["bytes_sum"] for row in rows}


def test_unsupported_collectives_become_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = experiment("Switch", 4, {"rate": "100Gbit", "delay": "1us"}, MIXED)
    document["collectives"] = {"all_reduce": "tree"}
    document["simulation"] = {"level": "message"}
    document["jobs"][0]["start"] = "7us"
    told = exported(tmp_path, document, capsys)
    (note,) = told["notes"]
    assert "shares of collectives are written as messages" in note
    own = chakram.simulate(document, runs=tmp_path / "runs")
    again = {**read_again(tmp_path / "out", cost_model="chakram")}
    again["simulation"] = {"level": "message"}
    theirs = chakram.simulate(again, runs=tmp_path / "runs")
    assert pairs(theirs) == pairs(own)
    (job,) = (each for each in [theirs.manifest.jobs["j"]])
    assert job["ranks"] == 4
    first_ns = min(theirs.flows["posted_ns"].to_pylist())
    begin_ns = min(each.start_ns for each in theirs.ranks())
    assert first_ns - begin_ns >= 7_000


STREAM = {"op": "all_reduce", "size": "1MiB"}


def test_notes_name_what_the_files_lack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = {"synth": "collectives", "ranks": 4, "streams": [STREAM]}
    document = experiment("Clos2L", 4, LINK, trace)
    document["fabric"]["links"]["uplink"]["ecn"] = "100kB/200kB/0.2"
    document["faults"] = {"drop": 0.1}
    document["jobs"][0]["repeat"] = 3
    notes = exported(tmp_path, document, capsys)["notes"]
    for start in (
        "one iteration: ",
        "faults are omitted: ",
        "no network.yml: ",
        "no ns3: fabric.links have several ecn for one rate",
    ):
        assert [note.startswith(start) for note in notes].count(True) == 1
    assert len(notes) == 4


@pytest.mark.parametrize(
    ("size", "mebibytes"), [(None, "32"), ("3MiB", "3"), ("512KiB", None)]
)
def test_buffers_of_ns3_are_whole_mebibytes(
    size: str | None,
    mebibytes: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = {"synth": "collectives", "ranks": 2, "streams": [STREAM]}
    document = experiment("Switch", 2, {"rate": "100Gbit"}, trace)
    document["fabric"]["switches"] = {"profile": "sonic", "buffer": size}
    notes = exported(tmp_path, document, capsys)["notes"]
    if mebibytes is None:
        (note,) = notes
        assert note.startswith(
            "no ns3: fabric.switches.buffer is not a multiple of 1MiB"
        )
    else:
        written = settings_of(tmp_path / "out" / "ns3" / "config.txt")
        assert written["BUFFER_SIZE"] == [mebibytes]


def test_a_note_names_ports_whose_rate_the_links_do_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = {"synth": "collectives", "ranks": 2, "streams": [STREAM]}
    document = experiment("Switch", 2, {"rate": "100Gbit"}, trace)
    ports = [
        {"open": "udp:e", "address": f"198.18.0.{at}/24", "rate": f"{at}0Gbit"}
        for at in (1, 2)
    ]
    document["fabric"] |= {
        "kind": "external",
        "hosts": [
            {"name": f"h{at}", "agent": f"unix:/{at}", "ports": [port]}
            for at, port in enumerate(ports)
        ],
    }
    (note,) = exported(tmp_path, document, capsys)["notes"]
    assert "h0: 100Gbit/s instead of 10Gbit/s" in note


def test_unsupported_experiment_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = {"op": "all_reduce", "size": "1MiB"}
    trace = {"synth": "collectives", "ranks": 4, "streams": [stream]}
    document = experiment("Switch", 2, LINK, trace)
    document["jobs"][0]["placement"] = {"ranks_per_port": 2}
    document["jobs"][0]["placement"]["same_host"] = "skip"
    path = tmp_path / "experiment.yaml"
    path.write_text(json.dumps(document))
    assert main(["export", "astra-sim", str(path), "--out", str(tmp_path / "o")]) == 2
    assert "puts several ranks on port h0" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()

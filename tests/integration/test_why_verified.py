"""``chakram why`` tests causes of simulations by simulating the run without them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from chakram.analysis.cause_ranking import (
    CauseClass,
    Finding,
    Saving,
    Suspect,
    Times,
    Verdict,
)
from chakram.chakra.et_codec import CollectiveType
from chakram.cli import main
from chakram.diagnosis import verification
from chakram.diagnosis.suspect_removal import RemovalTimer
from tests.diagnosis import virtual
from tests.diagnosis.cases import judged
from tests.diagnosis.design import Design, Job, Step, star

HOSTS = ["h0", "h1", "h2", "h3"]


def experiment(folder: Path, **sections: Any) -> Path:
    """Write a ring of four hosts; the last one's link may have another rate."""
    own_rate = sections.pop("own_rate", "100Mbit")
    links = [{"ends": [host, "s0"]} for host in HOSTS[:-1]]
    links.append({"ends": ["h3", "s0"], "rate": own_rate})
    document = {
        "version": 1,
        "name": "verified",
        "jobs": [
            {
                "name": "ring",
                "trace": {
                    "synth": "collectives",
                    "streams": [{"op": "all_reduce", "size": "400KB", "count": 2}],
                    "ranks": 4,
                },
            }
        ],
        "collectives": {"all_reduce": "ring"},
        "iterations": {"warmup": 1, "measured": 2},
        "fabric": {
            "kind": "namespaces",
            "topology": {"graph": {"hosts": HOSTS, "switches": ["s0"], "links": links}},
            "links": {"host": {"rate": "100Mbit"}},
        },
        "predict": ["bound"],
        **sections,
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def why(
    folder: Path, capsys: pytest.CaptureFixture[str], *options: str, **sections: Any
) -> dict[str, Any]:
    path = experiment(folder, **sections)
    assert main(["simulate", str(path), "--runs", str(folder / "runs")]) == 0
    (run,) = (folder / "runs").iterdir()
    capsys.readouterr()
    assert main(["why", str(run), "--json", *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "chakram.why/2"
    assert isinstance(document, dict)
    return document


def test_link_slower_than_its_peers_is_named_with_its_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = tmp_path / "slow"
    clean = tmp_path / "clean"
    slow.mkdir()
    clean.mkdir()
    found = why(slow, capsys, own_rate="40Mbit")
    usual = why(clean, capsys)
    first = found["first"]
    assert (first["cause"], first["class"], first["place"]) == (
        "slow link",
        "fault",
        "h3-s0",
    )
    assert "40 Mbit/s" in first["evidence"] or "40Mbit/s" in first["evidence"]
    without = usual["mean_iteration_ns"] / found["mean_iteration_ns"]
    assert first["saving"]["share"] == pytest.approx(1 - without, abs=1e-4)
    assert usual["first"] is None
    assert not [each for each in usual["causes"] if each["class"] == "fault"]


def test_a_declared_fault_without_effect_is_excluded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = {"links": [{"kind": "degrade", "link": "h1-s0", "rate": "99Mbit"}]}
    found = why(tmp_path, capsys, faults=faults)
    assert found["first"] is None
    assert {"cause": "slow link", "class": "fault", "place": "h1-s0"} in found[
        "excluded"
    ]


def test_charges_without_simulation_are_not_called_tested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = why(tmp_path, capsys, "--no-verify", own_rate="40Mbit")
    assert found["verified"] is False
    assert found["not_verified"] == "--no-verify"
    assert found["causes"] == found["charged"]


def test_a_full_window_is_charged_to_the_slow_path_of_acknowledgements(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = {"kind": "degrade", "link": "h3-s0", "direction": "up", "rate": "20Mbit"}
    found = why(
        tmp_path,
        capsys,
        "--no-verify",
        faults={"links": [fault]},
        transport={"window": "64KiB"},
    )
    charged = found["charged"]
    assert (charged[0]["cause"], charged[0]["place"]) == ("slow link", "h3-s0 up")


def test_changed_trace_is_reported_without_a_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = experiment(tmp_path, own_rate="40Mbit")
    assert main(["simulate", str(path), "--runs", str(tmp_path / "runs")]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    manifest = json.loads((run / "run.json").read_text())
    manifest["traces"]["ring"]["sha256"] = "0" * 64
    (run / "run.json").write_text(json.dumps(manifest))
    capsys.readouterr()
    assert main(["why", str(run)]) == 0
    output = capsys.readouterr().out
    assert "Not tested by simulation: job ring: its trace" in output
    assert "has changed since the run" in output


def test_fault_of_one_run_explains_the_difference_of_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / name for name in ("clean", "slow")]
    for folder, rate in zip(folders, ("100Mbit", "40Mbit"), strict=True):
        folder.mkdir()
        path = experiment(folder, own_rate=rate)
        assert main(["simulate", str(path), "--runs", str(folder / "runs")]) == 0
    capsys.readouterr()
    runs = [str(folder / "runs") for folder in folders]
    assert main(["why", *runs, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (cause,) = document["causes"]
    assert (cause["cause"], cause["place"]) == ("slow link", "h3-s0")
    assert cause["time_ns"] == pytest.approx(document["difference_ns"], rel=1e-3)
    assert abs(document["unexplained_ns"]) < 1e-3 * document["b_ns"]
    assert main(["why", *reversed(runs)]) == 0
    assert "slow link at h3-s0" in capsys.readouterr().out


@pytest.mark.parametrize(("rate", "code"), [("100Mbit", 0), ("40Mbit", 6)])
def test_gate_can_require_no_confirmed_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: str, code: int
) -> None:
    path = experiment(tmp_path, own_rate=rate)
    rules = tmp_path / "rules.yaml"
    rules.write_text("version: 1\nrules: [{check: no confirmed fault}]\n")
    assert main(["simulate", str(path), "--runs", str(tmp_path / "runs")]) == 0
    capsys.readouterr()
    assert main(["gate", str(tmp_path / "runs"), str(rules)]) == code
    assert ("slow link at h3-s0" in capsys.readouterr().out) is (code == 6)
    document = tmp_path / "run.json"
    assert main(["show", str(tmp_path / "runs"), "--json"]) == 0
    document.write_text(capsys.readouterr().out)
    assert main(["gate", str(document), str(rules)]) == 6
    assert "UNKNOWN no confirmed fault" in capsys.readouterr().out


def test_late_and_slow_ranks_are_named(tmp_path: Path) -> None:
    step = Step(op=CollectiveType.ALL_REDUCE, size_bytes=64_000, compute_ns=50_000)
    job = Job(
        name="main",
        ranks=4,
        ports=("h0", "h1", "h2", "h3"),
        steps=(step, step),
        longer_ns={(2, 1): 300_000},
        loading_ns={2: 400_000},
    )
    design = Design(
        shape=star(4), rates_bps={"host": 10**10}, delays_ns={"host": 500}, jobs=(job,)
    )
    found = virtual.explained(design, tmp_path)
    faults = [
        (each["cause"], each["place"])
        for each in found["causes"]
        if each["class"] == "fault"
    ]
    assert faults == [("late rank", "rank 2"), ("slow compute", "rank 2")]
    late, slow = (each["saving"]["time_ns"] for each in found["causes"][:2])
    assert late == pytest.approx(400_000, rel=0.05)
    assert slow == pytest.approx(300_000, rel=0.05)


def test_cause_without_a_saving_is_no_fault(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of_one_iteration(suspects: Sequence[Suspect], _: Times) -> Verdict:
        found = next(each for each in suspects if each.kind is CauseClass.FAULT)
        saving = Saving(share=0.04, low=0.04, high=0.04)
        finding = Finding(suspect=found, saving=saving, after_previous=saving)
        return Verdict(faults=(finding,), joint=saving)

    monkeypatch.setattr(verification, "find_causes", of_one_iteration)
    # A hundredth less: the suspect saves that share of the run, and no more.
    late = {"kind": "degrade", "link": "h3-s0", "rate": "99Mbit"}
    document = why(tmp_path, capsys, faults={"links": [late]})
    assert document["first"] is None
    assert document["causes"] == []
    assert [each["place"] for each in document["excluded"]] == ["h3-s0"]


def test_savings_are_those_of_the_whole_run_if_iterations_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loss = {"kind": "loss", "link": "h3-s0", "direction": "up", "probability": 0.1}
    document = why(tmp_path, capsys, faults={"links": [loss]})
    (cause,) = (each for each in document["causes"] if each["class"] == "fault")
    # No other fault was removed before this one.
    assert cause["after_previous"]["share"] == cause["saving"]["share"]
    assert document["saving_without_faults"]["share"] == cause["saving"]["share"]


@pytest.mark.parametrize(
    "packets", [[], [{"action": "drop", "destination": 1, "nth": 20, "every": 500}]]
)
def test_all_uneven_switches_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], packets: list[dict[str, Any]]
) -> None:
    shift = {"order": "shift", "shift": 4, "size": "1MB"}
    document = why(
        tmp_path,
        capsys,
        jobs=[{"name": "j", "trace": {"synth": "permutation", "ranks": 8, **shift}}],
        transport={"source_ports": [5000]},
        faults={"packets": packets},
        fabric={
            "kind": "namespaces",
            "topology": {"clos": {"leaves": 2, "spines": 4, "hosts_per_leaf": 4}},
            "links": {"host": {"rate": "100Mbit"}, "uplink": {"rate": "100Mbit"}},
        },
    )
    first = document["first"]
    # Two of the four flows of each leaf share an uplink.
    assert (first["cause"], first["place"]) == ("hash imbalance", "leaf0, leaf1")
    assert "carries 2.00 times the mean" in first["evidence"]
    # Charges name one of them each.
    assert first["lost_ns"] > 0


def test_full_direction_of_a_single_uplink_is_ranked_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    links = [{"ends": [host, "west"]} for host in HOSTS[:3]]
    links += [{"ends": ["h3", "east"]}, {"ends": ["west", "east"], "rate": "50Mbit"}]
    graph = {"hosts": HOSTS, "switches": ["west", "east"], "links": links}
    sent = {"synth": "incast", "ranks": 4, "fan_in": 3, "receiver": 3, "size": "400KB"}
    document = why(
        tmp_path,
        capsys,
        jobs=[{"name": "incast", "trace": sent}],
        fabric={
            "kind": "namespaces",
            "topology": {"graph": graph},
            "links": {"host": {"rate": "100Mbit"}},
        },
    )
    assert document["first"] is None
    limits = [(each["cause"], each["place"]) for each in document["causes"]]
    assert limits[0] == ("contention", "west-east up")
    assert ("contention", "west-east") in limits


def test_hash_is_not_accused_if_only_one_even_spread_saves_time(tmp_path: Path) -> None:
    # Alternating paths would save 5 % here, the shortest queue next to nothing.
    outcome = judged(11_700_032, tmp_path, clean=True)
    assert outcome.is_hit, outcome.line()


def test_mean_over_several_jobs_names_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    streams = [{"op": "all_reduce", "size": "40KB", "count": 1}]
    trace = {"synth": "collectives", "streams": streams, "ranks": 2}
    jobs = [{"name": name, "trace": trace} for name in ("a", "b")]
    path = experiment(tmp_path, jobs=jobs)
    assert main(["simulate", str(path), "--runs", str(tmp_path / "runs")]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    capsys.readouterr()
    assert main(["why", str(run), "--no-verify"]) == 0
    assert "(mean of 4 of jobs a, b)" in capsys.readouterr().out
    assert main(["why", str(run), "--no-verify", "--job", "b"]) == 0
    assert "(mean of 2)" in capsys.readouterr().out
    assert main(["why", str(run), "--job", "c"]) == 2
    found = capsys.readouterr().err
    assert "--job: 'c' is not a job of" in found
    assert "(its jobs are: a, b)" in found


def test_simulation_that_does_not_end_is_a_reason_not_to_test(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RemovalTimer, "times_ns", lambda *arguments: None)
    found = why(tmp_path, capsys)
    assert not found["verified"]
    assert "its simulation does not end" in found["not_verified"]


CLOS = {
    "kind": "namespaces",
    "topology": {"clos": {"leaves": 2, "spines": 2, "hosts_per_leaf": 4}},
    "links": {
        "host": {"rate": "100Gbit", "delay": "500ns"},
        "uplink": {"rate": "200Gbit", "delay": "500ns"},
    },
}
INCAST = {
    "kind": "namespaces",
    "topology": {"single_switch": {"hosts": 8}},
    "links": {"host": {"rate": "100Gbit", "delay": "500ns"}},
}


@pytest.mark.parametrize(
    ("cause", "trace", "fabric", "transport", "without"),
    [
        pytest.param(
            "propagation",
            {"synth": "all_to_all", "ranks": 8, "size": "4KiB"},
            CLOS,
            {},
            ("fabric.links.host.delay=50ns", "fabric.links.uplink.delay=50ns"),
            id="propagation",
        ),
        pytest.param(
            "go-back-N",
            {"synth": "all_to_all", "ranks": 8, "size": "1MiB"},
            CLOS | {"switches": {"profile": "fifo", "balancing": "random"}},
            {},
            ("transport.reordering=accept",),
            id="go-back-N",
        ),
        pytest.param(
            "queue overflow",
            {"synth": "incast", "ranks": 8, "size": "2MiB"},
            INCAST | {"switches": {"profile": "sonic", "buffer": "4MiB"}},
            {"window": "8MiB", "dscp": {"data": 0, "ack": 0}}
            | {"retransmit_timeout": "5ms"},
            ("fabric.switches.buffer=16GiB",),
            id="queue overflow",
        ),
    ],
)
def test_a_limit_costs_what_an_experiment_without_it_saves(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    cause: str,
    trace: dict[str, Any],
    fabric: dict[str, Any],
    transport: dict[str, Any],
    without: tuple[str, ...],
) -> None:
    jobs = [{"name": "j", "trace": trace}]
    document = why(tmp_path, capsys, jobs=jobs, fabric=fabric, transport=transport)
    (limit,) = (each for each in document["causes"] if each["cause"] == cause)
    assert limit["class"] == "limit"
    options = [part for text in without for part in ("--set", text)]
    runs = str(tmp_path / "without")
    path = str(tmp_path / "experiment.yaml")
    assert main(["simulate", path, "--runs", runs, *options]) == 0
    (run,) = (tmp_path / "without").iterdir()
    capsys.readouterr()
    assert main(["why", str(run), "--json", "--no-verify"]) == 0
    usual_ns = json.loads(capsys.readouterr().out)["mean_iteration_ns"]
    saved = 1 - usual_ns / document["mean_iteration_ns"]
    assert saved > 0.2
    assert limit["saving"]["share"] == pytest.approx(saved, abs=0.02)

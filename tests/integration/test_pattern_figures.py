"""Results of simulated patterns: goodput, fair times, shared links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chakram.cli import main
from tests.support import REPO_ROOT


def simulated(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], *settings: str
) -> dict[str, Any]:
    arguments = ["simulate", str(REPO_ROOT / f"configs/{name}.yaml"), "--json"]
    for each in ("iterations.warmup=0", "iterations.measured=1", *settings):
        arguments += ["--set", each]
    assert main([*arguments, "--runs", str(tmp_path)]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.slow
@pytest.mark.parametrize("fan_in", [1, 2, 5, 7])
def test_an_incast_fills_the_port_of_its_receiver(
    fan_in: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = simulated(
        "incast",
        tmp_path,
        capsys,
        f"jobs[0].trace.fan_in={fan_in}",
        "jobs[0].trace.repeats=2",
    )
    (row,) = document["messages"]["receivers"]
    assert (row["peers"], row["fan"], row["periods"]) == (fan_in, fan_in, 2)
    # The first burst of a message fills its link before the next one has anything to
    # send; of several senders others fill that time. Fair times are of packets.
    lone = 0.02 if fan_in == 1 else 0.0
    assert row["fair_share"] > 0.99 - lone
    assert row["wire_share"] > 0.98 - lone
    assert 0.96 - lone < row["goodput_share"] < row["wire_share"]
    assert fan_in == 1 or row["fairness_min"] > 0.99
    # All messages need about as long: fan_in times what one needs alone.
    alone_ns = 256 * 1024 * 8 / 0.1
    assert row["fair_ns"] == pytest.approx(fan_in * alone_ns, rel=0.04)
    (sends,) = (r for r in document["results"] if r["collective"] == "send_recv")
    assert 0.97 < sends["alone_share"] <= 1


@pytest.mark.slow
def test_a_fan_out_is_no_slow_receiver(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = simulated(
        "incast",
        tmp_path,
        capsys,
        "jobs[0].trace={synth: one_to_all, ranks: 8, size: 256KiB}",
    )
    (sender,) = document["messages"]["senders"]
    assert (sender["peers"], sender["fan"]) == (7, 7)
    assert sender["wire_share"] > 0.98
    for row in document["messages"]["receivers"]:
        assert row["goodput_share"] == pytest.approx(1 / 7, rel=0.05)
        assert 0.98 < row["fair_share"] <= 1


@pytest.mark.slow
def test_permutation_report_names_messages_that_share_an_uplink(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = simulated("permutation", tmp_path, capsys)
    messages = document["messages"]
    assert all(row["fair_share"] > 0.85 for row in messages["receivers"])
    slowest = messages["pairs"][0]
    # An uplink is twice as fast as a port: three pairs on it have two thirds each.
    assert slowest["fair_share"] == pytest.approx(2 / 3, rel=0.05)
    assert messages["worst_over_median"] == pytest.approx(1.5, rel=0.05)
    assert len(slowest["met"]) == 2
    (way,) = slowest["paths"]
    for met in slowest["met"]:
        assert met["share"] > 0.9
        assert met["at"] == way[0]
        (other,) = (
            row
            for row in messages["pairs"]
            if (row["src"], row["dst"]) == (met["src"], met["dst"])
        )
        assert any(met["at"] in path for path in other["paths"])


@pytest.mark.slow
def test_pipeline_messages_are_not_bound_by_ports_they_never_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = simulated(
        "incast",
        tmp_path,
        capsys,
        "jobs[0].trace={synth: dense, layers: 4, hidden: 256, heads: 4, vocabulary: "
        "1024, sequence: 64, pp: 4, dp: 1, tp: 1, micro_batches: 8}",
        "jobs[0].compute={from: roofline, peak: 1 TFLOPS, memory: 100 GB/s}",
    )
    messages = document["messages"]
    assert len(messages["pairs"]) == 6
    for row in (*messages["receivers"], *messages["senders"]):
        assert row["periods"] > 1
        assert 0.8 < row["fair_share"] <= 1

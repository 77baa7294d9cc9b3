"""Quantities that comparisons read from a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from chakram.analysis.comparison_inputs import (
    flattened,
    read_side,
    run_settings,
    side_of_runs,
)
from chakram.foundation.errors import ResultsError
from tests.made_runs import ODD_LINKS, made_run

if TYPE_CHECKING:
    from pathlib import Path

    from chakram.analysis.comparison import Side


def side_of(folder: Path, **fields: Any) -> Side:
    run = made_run(folder, **fields)
    return side_of_runs(run.path, [run])


@pytest.mark.parametrize("dilation", [1, 10])
def test_fastest_of_the_largest_messages_of_a_pair(
    tmp_path: Path, dilation: int
) -> None:
    fastest = side_of(tmp_path, dilation=dilation).fastest
    # Rank 1 sends a second size to rank 2 only; a step takes 66,666 ns from its post.
    assert fastest["moe", 0, 1].time_ns * dilation == 66_166
    assert (fastest["moe", 0, 1].bytes, fastest["moe", 0, 1].messages) == (2**18, 18)
    assert fastest["moe", 1, 0].bytes == 2**17


@pytest.mark.parametrize("dilation", [1, 10])
def test_times_are_means_of_measured_iterations(tmp_path: Path, dilation: int) -> None:
    side = side_of(tmp_path, dilation=dilation)
    mean_ns = {key: each.mean_ns * dilation for key, each in side.times.items()}
    # 400, 440 and 480 us; two groups of 100; 50.
    world, ep1 = ("instance", "moe", "world", 0), ("instance", "moe", "ep1", 0)
    assert mean_ns["iteration", "moe"] == pytest.approx(750_000)
    assert mean_ns["rank", 0] == pytest.approx(750_000)
    assert mean_ns["rank", 3] == pytest.approx(700_000)
    assert mean_ns[world] == pytest.approx(440_000)
    assert mean_ns[ep1] == pytest.approx(100_000)
    assert mean_ns["size", "all_reduce", 4, 2**20] == pytest.approx(440_000)
    assert mean_ns["size", "all_to_all", 2, 2**18] == pytest.approx(100_000)
    assert mean_ns["size", "send_recv", 2, 2**16] == pytest.approx(50_000)
    # Steps of 66,666 ns, the last of 66,670; rank 3's of 40 and 80 us more.
    steps = (5 * 66_666 + 66_670) / 6
    assert mean_ns["pair", "moe", 0, 1, 2**18] == pytest.approx(steps)
    assert mean_ns["pair", "moe", 3, 0, 2**18] == pytest.approx(steps + 120_000 / 18)
    # A port has the number of its rank.
    assert mean_ns["ports", 3, 0, 2**18] == mean_ns["pair", "moe", 3, 0, 2**18]
    # Nearest rank of 29: the 15th; the 29th: of an all-to-all, and of rank 3's.
    assert mean_ns["fct", 50] == pytest.approx(66_666)
    assert mean_ns["fct", 99] == mean_ns["fct", 100]
    assert mean_ns["fct", 100] == pytest.approx((100_000 + 106_670 + 146_670) / 3)
    assert side.times["size", "all_to_all", 2, 2**18].per_iteration == 2
    assert side.times[world].per_iteration == 1
    assert side.times[world].samples == 3
    assert side.kind == "run"
    assert not side.explained


def test_collectives_with_one_name_are_distinguished_by_their_order(
    tmp_path: Path,
) -> None:
    side = side_of(tmp_path)
    named = {key[1:]: each.mean_ns for key, each in side.times.items() if (
        key[0] == "named"
    )}  # fmt: skip
    assert named == {
        ("all_reduce of world", 0): pytest.approx(440_000),
        ("all_to_all of ep0", 0): 100_000,
        ("all_to_all of ep1", 0): 100_000,
        ("activations", 0): 50_000,
    }
    key = ("instance", "moe", "ep0", 0)
    assert side.labels[key] == "all_to_all of ep0 (moe, group ep0, k 0)"


def test_counters_are_compared_as_shares(tmp_path: Path) -> None:
    side = side_of(tmp_path, links=ODD_LINKS)
    counters = {name: (each.value, each.unit) for name, each in side.counters.items()}
    assert counters["packets sent again"] == (pytest.approx(24 / 5040), "%")
    assert counters["packets marked for congestion"] == (pytest.approx(60 / 5040), "%")
    assert counters["generator-bound collectives"] == (0, "%")
    assert counters["busiest uplink over mean"] == (pytest.approx(8 / 3), "")
    assert counters["MB per iteration through leaf0-spine0 up"] == (0.0001, "")
    assert counters["drops per iteration at leaf0-spine0 up"] == (3 / 4, "")
    # There is no counter for them.
    assert "drops per iteration at leaf0-spine0 down" not in counters


def test_folder_of_runs_has_the_values_that_all_runs_have(tmp_path: Path) -> None:
    one = made_run(tmp_path / "a", iterations=(0, 0), links=ODD_LINKS[:1])
    other = made_run(tmp_path / "b", iterations=(0, 60_000), banners=("LATE",))
    side = side_of_runs(tmp_path, [one, other])
    assert (side.name, side.kind) == (str(tmp_path), "2 runs")
    times = side.times["instance", "moe", "world", 0]
    assert times.mean_ns == pytest.approx(430_000)
    # Of two means: 400 and 460 us.
    assert times.error_ns == pytest.approx(30_000)
    assert "MB per iteration through leaf0-spine0 up" not in side.counters
    # Of four senders, one packet each of 1680; in both runs.
    assert side.counters["packets sent again"].value == pytest.approx(4 / 1680)
    assert [note for note in side.notes if note == "LATE"] == ["LATE"]


def test_virtual_time_is_exact(tmp_path: Path) -> None:
    side = side_of(tmp_path, world="simulate", iterations=(0, 0))
    assert side.kind == "simulation"
    assert side.times["iteration", "moe"].error_ns == 0
    assert "generator-bound collectives" not in side.counters


def test_irrelevant_keys_are_no_settings(tmp_path: Path) -> None:
    experiment = {
        "name": "n", "description": "d", "runs": "r", "lab": "l", "metrics": {"on": 1},
        "transport": {"window": 5},
    }  # fmt: skip
    traces = {"moe": {"trace": "t", "sha256": "ab", "producer": "p"}}
    run = made_run(
        tmp_path, iterations=(), experiment=experiment, traces=traces,
        versions={"python": "3"}, host={"cores": 2},
    )  # fmt: skip
    assert run_settings(run) == {
        "transport.window": 5,
        "world": "namespaces",
        "traces.moe.sha256": "ab",
        "traces.moe.trace": "t",
        "versions.python": "3",
        "host.cores": 2,
    }


@pytest.mark.parametrize(
    ("value", "flat"),
    [
        (5, {"": 5}),
        ({"a": {"b": 1}}, {"a.b": 1}),
        ({"a": {}}, {"a": {}}),
        # A list of plain values is one value; of others each has its place.
        ({"a": [1, 2]}, {"a": [1, 2]}),
        ({"a": []}, {"a": []}),
        ({"a": [{"b": 1}, 2]}, {"a[0].b": 1, "a[1]": 2}),
        ({"a": ([1], 2)}, {"a[0]": [1], "a[1]": 2}),
    ],
)
def test_settings_have_the_keys_of_the_option_set(
    value: Any, flat: dict[str, Any]
) -> None:
    assert flattened(value) == flat


# ---- files ---------------------------------------------------------------------------


def test_a_printed_document_has_its_means(tmp_path: Path) -> None:
    row = {
        "job": "j", "nranks": 4, "size": 1024, "time_ns": 5000, "cv": 0.2, "samples": 5,
    }  # fmt: skip
    document: dict[str, Any] = {
        "ranks": [],
        "links": [],
        "run": {"world": "namespaces", "banners": ["LATE"]},
        "iterations": [{"job": "j", "mean_ns": 100, "cv": 0.1, "iterations": 2}],
        "results": [
            {**row, "collective": "all_reduce"}, {**row, "collective": "barrier"},
        ],
    }  # fmt: skip
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document))
    side = read_side(path)
    assert (side.kind, side.notes) == ("run", ("LATE",))
    assert list(side.times) == [
        ("iteration", "j"), ("size", "all_reduce", 4, 1024),
        ("size", "all_reduce", 4, 1024, "j"),
    ]  # fmt: skip
    times = side.times["size", "all_reduce", 4, 1024]
    # The error of a sample of five: 0.2 over the root of four.
    assert (times.mean_ns, times.error_ns) == (5000, pytest.approx(500))
    document["run"] = {"world": "simulate"}
    path.write_text(json.dumps(document))
    side = read_side(path)
    assert (side.kind, side.times["iteration", "j"].error_ns) == ("simulation", 0)
    del document["iterations"]
    path.write_text(json.dumps(document))
    with pytest.raises(
        ResultsError, match="is not the JSON output of a run: iterations is"
    ):
        read_side(path)


def test_rows_of_several_jobs_are_one_quantity(tmp_path: Path) -> None:
    row = {
        "collective": "all_reduce", "nranks": 4, "size": 1024, "samples": 5,
        "per_iteration": 3,
    }  # fmt: skip
    document = {
        "run": {"world": "namespaces"},
        **{"ranks": [], "links": [], "iterations": []},
        "results": [
            {**row, "job": "j", "time_ns": 5000, "cv": 0.2},
            {**row, "job": "k", "time_ns": 1000, "cv": 0.0},
        ],
    }
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document))
    times, *of_jobs = read_side(path).times.values()
    assert (times.mean_ns, times.samples, times.per_iteration) == (3000, 10, 6)
    assert [each.mean_ns for each in of_jobs] == [5000, 1000]
    # Half of the error of a sample of five.
    assert times.error_ns == pytest.approx(250)


def test_folder_of_different_experiments_is_noted(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path / name, experiment={"transport": {"window": window}})
        for name, window in (("a", 1), ("b", 2))
    ]
    note = "its runs have different settings: transport.window"
    assert note in side_of_runs(tmp_path, runs).notes
    assert note not in side_of_runs(tmp_path, runs[:1]).notes


def test_flows_of_ns3_are_times_of_their_ports(tmp_path: Path) -> None:
    # Sender, receiver, two UDP ports, bytes, start, completion time, time alone.
    path = tmp_path / "fct.txt"
    path.write_text(
        "0b000001 0b000101 10000 100 4096 2000000 700 500\n"
        "0b000001 0b000101 10001 100 4096 2000000 900 500\n"
        "0b000201 0b000101 10000 100 8192 2000000 5000 500\n"
    )
    side = read_side(path)
    assert side.kind == "ns-3 fct.txt"
    times = {key: each.mean_ns for key, each in side.times.items()}
    assert times == {
        ("ports", 0, 1, 4096): 800,
        ("ports", 2, 1, 8192): 5000,
        ("fct", 50): 900,
        ("fct", 99): 5000,
        ("fct", 100): 5000,
    }
    assert all(each.error_ns == 0 for each in side.times.values())


@pytest.mark.parametrize("text", ["", "version: 1\nname: first\n", "\0\xff"])
def test_files_that_are_no_results_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "first.yaml"
    path.write_text(text)
    with pytest.raises(ResultsError, match="is no result that can be compared"):
        read_side(path)


def test_empty_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="contains no run"):
        read_side(tmp_path)
    path = tmp_path / "x.json"
    path.write_text("{ no json")
    with pytest.raises(ResultsError, match="is not valid JSON"):
        read_side(path)

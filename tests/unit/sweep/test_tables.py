"""Tables of a sweep: rows of files and values of cells."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from chakram.config.suite import Cell
from chakram.sweep.tables import cell_results, longest_iteration, rows, write_rows
from tests.made_sweeps import CELLS, document_of

if TYPE_CHECKING:
    from pathlib import Path

KEPT = {
    "samples": 6, "time_ns": 5.0, "min_ns": 4.0, "p99_ns": 6.0, "max_ns": 7.0,
    "cv": 0.1, "bound_share": 0.9, "alone_share": None, "packets": 10,
    "retransmitted_packets": 1, "ecn_marked_packets": 2, "generator_bound": 0,
}  # fmt: skip


def cells(*numbers: int, **changes: Any) -> list[Cell]:
    return [Cell(**{**CELLS[number], **changes}) for number in numbers]


def outcomes(
    *kept: tuple[int, int], **changes: Any
) -> dict[tuple[int, int], dict[str, Any]]:
    found = {}
    for number, repetition in kept:
        document = {**document_of(number, repetition), **changes}
        document["results"] = [{**each, **KEPT} for each in document["results"]]
        found[number, repetition] = {"document": document}
    return found


def test_a_row_is_one_of_a_cell_in_a_repetition() -> None:
    made = rows(cells(0, 1), outcomes((1, 0), (0, 1), (0, 0)))
    assert [(row["cell"], row["repetition"], row["size_bytes"]) for row in made] == [
        (0, 0, 65536), (0, 0, 1024), (0, 1, 65536), (0, 1, 1024),
        (1, 0, 65536), (1, 0, 1024),
    ]  # fmt: skip
    assert made[0] == {
        "cell": 0, "repetition": 0, "world": "run", "case": "plain", "ranks": 2,
        "collectives.all_reduce": "ring", "job": "j", "iteration_ns": 990_000.0,
        "iteration_cv": 0.03, "collective": "all_reduce", "algorithm": "ring",
        "nranks": 4, "size_bytes": 65536, **KEPT, "alg_bw": 0.99, "bus_bw": 0.99,
    }  # fmt: skip


def test_simulated_rows_have_no_verdict_on_a_generator() -> None:
    for world, bound in (("run", 0), ("simulate", None)):
        row, _ = rows(cells(0, world=world), outcomes((0, 0)))
        assert row["generator_bound"] == bound


def test_barriers_are_left_out_and_lists_are_json() -> None:
    found = outcomes((0, 0))
    document = found[0, 0]["document"]
    document["results"][0]["collective"] = "barrier"
    document["results"][1]["job"] = "unheard of"
    (row,) = rows(cells(0, values={"sizes": [1, 2], "map": {"a": 1}}), found)
    assert (row["sizes"], row["map"]) == ("[1, 2]", '{"a": 1}')
    assert row["iteration_ns"] is row["iteration_cv"] is None


def test_swept_algorithm_and_algorithm_of_the_row_have_separate_columns() -> None:
    found = outcomes((0, 0))
    found[0, 0]["document"]["results"][0]["algorithm"] = "direct"
    row, _ = rows(cells(0, values={"algorithm": "ring"}), found)
    assert (row["collectives.all_reduce"], row["algorithm"]) == ("ring", "direct")


def test_files_hold_the_same_rows(tmp_path: Path) -> None:
    made = rows(cells(0, 1), outcomes((0, 0), (1, 0)))
    # A column of several kinds is one of texts.
    made[0]["ranks"] = "auto"
    paths = write_rows(tmp_path / "new", made)
    assert [path.name for path in paths] == [
        "results.csv", "results.json", "results.parquet",
    ]  # fmt: skip
    assert json.loads(paths[1].read_text()) == made
    table = pq.read_table(paths[2])
    assert table.column_names == list(made[0])
    assert table["ranks"].to_pylist() == ["auto", "2", "2", "2"]
    assert table["alone_share"].to_pylist() == [None] * 4
    with paths[0].open() as file:
        assert [row["bus_bw"] for row in csv.DictReader(file)] == [
            "0.99", "0.99", "1.98", "1.98",
        ]  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(
        path.name for path in paths
    )
    _, empty, _ = write_rows(tmp_path / "none", [])
    assert json.loads(empty.read_text()) == []


def test_value_of_a_cell_is_the_mean_of_its_repetitions() -> None:
    first, second = cell_results(cells(0, 1), outcomes((0, 0), (0, 1), (1, 0), (1, 1)))
    assert (first.repetitions, first.bus_bw) == (2, 1)
    assert first.iteration is not None
    # Of the job that takes longest.
    assert first.iteration.mean_ns == pytest.approx(1_000_000)
    assert first.iteration.error_ns == pytest.approx(10_000)
    assert first.retransmitted_share == pytest.approx(0.01)
    assert first.marked_share == pytest.approx(0.02)
    assert first.generator_bound_share == pytest.approx(0.1)
    assert first.difference is None
    assert second.difference is not None
    assert second.difference.change == pytest.approx(-0.1)


def test_time_of_a_run_is_that_of_its_longest_job_with_an_end() -> None:
    document = document_of(0, 0)
    longest, shorter = document["iterations"]
    assert longest_iteration(document) == longest
    longest["is_background"] = True
    assert longest_iteration(document) == shorter
    assert longest_iteration({"iterations": [longest]}) is None


def test_one_repetition_has_the_error_that_it_states() -> None:
    (result,) = cell_results(cells(0), outcomes((0, 0)))
    assert result.iteration is not None
    # A coefficient of 3 % of five: over the root of four.
    assert result.iteration.error_ns == pytest.approx(990_000 * 0.03 / 2)
    (result,) = cell_results(cells(0, world="simulate"), outcomes((0, 0)))
    assert result.iteration is not None
    assert result.iteration.error_ns == 0


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        ({"packets": 0}, "retransmitted_share", None),
        ({"packets": 0}, "marked_share", None),
        ({"packets": None, "retransmitted_packets": None}, "retransmitted_share", None),
        ({"packets": None, "ecn_marked_packets": None}, "marked_share", None),
        ({"generator_bound": None}, "generator_bound_share", None),
        (
            {"generator_bound": {"collectives": 0, "of": 0}},
            "generator_bound_share",
            None,
        ),
        ({"average_bus_bandwidth": None}, "bus_bw", None),
        ({"iterations": []}, "iteration", None),
    ],
)
def test_unknown_values_are_none(
    changes: dict[str, Any], name: str, value: object
) -> None:
    (result,) = cell_results(cells(0), outcomes((0, 0), **changes))
    assert getattr(result, name) == value


def test_cells_without_results_are_left_out_also_as_baselines() -> None:
    (result,) = cell_results(cells(0, 1), outcomes((1, 0)))
    assert (result.cell.number, result.difference) == (1, None)

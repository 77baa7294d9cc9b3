"""Key figures of the handmade runs in a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from chakram.run_directory.run_list import list_runs
from tests.made_runs import made_run

if TYPE_CHECKING:
    from pathlib import Path

JOBS = {"moe": {"ranks": 4}}


@pytest.mark.parametrize("dilation", [1, 10])
def test_figures_cover_measured_iterations(tmp_path: Path, dilation: int) -> None:
    made_run(tmp_path, jobs=JOBS, dilation=dilation)
    ((run,), unreadable) = list_runs(tmp_path)
    assert unreadable == []
    figures = run.figures
    assert (figures.ranks, figures.iterations) == (4, 3)
    assert figures.iteration_ns == 750_000 / dilation
    # Bytes on the bus of an all-reduce, two all-to-alls and a message, three times,
    # over 400, 440 and 480, six times 100, and three times 50 us.
    bus_bytes = 3 * (1.5 * 2**20 + 2 * 0.5 * 2**18 + 2**16)
    assert figures.busbw == pytest.approx(bus_bytes / 2070e-6 * dilation)
    # Of four senders 1, 2 and 3 of 1680 packets.
    assert figures.retransmitted_share == pytest.approx(24 / 5040)
    assert run.problem is None


def test_the_time_of_several_jobs_is_that_of_the_longest_iterations(
    tmp_path: Path,
) -> None:
    made = made_run(tmp_path, jobs={**JOBS, "short": {"ranks": 4}})
    path = made.path / "ranks.parquet"
    ranks = pq.read_table(path)
    short = ranks.set_column(
        ranks.schema.get_field_index("job"),
        ranks.schema.field("job"),
        pa.array(["short"] * len(ranks)).cast(ranks.schema.field("job").type),
    )
    index = ranks.schema.get_field_index("end_ns")
    end_ns = pc.add(ranks["start_ns"], 1000)
    short = short.set_column(index, ranks.schema.field("end_ns"), end_ns)
    pq.write_table(pa.concat_tables([ranks, short]), path)
    ((run,), _) = list_runs(tmp_path)
    assert run.problem is None
    assert (run.figures.iterations, run.figures.iteration_ns) == (6, 750_000)


def test_runs_one_folder_deeper_are_listed(tmp_path: Path) -> None:
    made = [made_run(tmp_path / number, iterations=()) for number in ("0000", "0001")]
    (runs, unreadable) = list_runs(tmp_path)
    assert [run.directory for run in runs] == [each.path for each in made]
    assert unreadable == []


def test_iterations_that_not_all_ranks_have_done_do_not_count(tmp_path: Path) -> None:
    made_run(tmp_path, jobs={"moe": {"ranks": 5}})
    ((run,), _) = list_runs(tmp_path)
    assert (run.figures.ranks, run.figures.iterations) == (5, 0)
    assert run.figures.iteration_ns is None


def test_runs_that_measured_nothing_have_no_figures(tmp_path: Path) -> None:
    made_run(tmp_path, iterations=(0,))
    ((run,), _) = list_runs(tmp_path)
    figures = run.figures
    assert (figures.ranks, figures.iterations, figures.iteration_ns) == (0, 0, None)
    assert figures.busbw is figures.retransmitted_share is None


def test_a_run_with_a_damaged_table_is_listed_with_its_problem(tmp_path: Path) -> None:
    made = made_run(tmp_path, jobs=JOBS)
    (made.path / "collectives.parquet").write_bytes(b"none")
    ((run,), unreadable) = list_runs(tmp_path)
    assert unreadable == []
    assert run.problem is not None
    assert "table 'collectives' cannot be read" in run.problem
    assert (run.figures.ranks, run.figures.iterations) == (4, 0)
    assert run.figures.busbw is None


def test_runs_are_sorted_by_start_time_and_name(tmp_path: Path) -> None:
    starts = ("2026-03-01", "2026-01-01", "2026-02-01", "2026-01-01")
    made = [
        made_run(tmp_path, iterations=(), started_at=start).path for start in starts
    ]
    (runs, _) = list_runs(tmp_path)
    assert [run.directory for run in runs] == [made[1], made[3], made[2], made[0]]

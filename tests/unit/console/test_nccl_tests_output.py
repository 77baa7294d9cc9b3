"""The output of a run in the format of nccl-tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chakram.collectives.ops import CollectiveOp
from chakram.console import nccl_tests_output
from chakram.console.nccl_tests_output import (
    closing,
    cycle_lines,
    document,
    documents_of,
    opening,
)
from chakram.console.nccl_tests_rows import (
    AVERAGE,
    FIRST,
    LAST,
    LEAST,
    BenchRow,
    BenchSize,
    BenchTest,
    measured_rows,
)
from chakram.run_directory.reader import RunResults, open_run
from tests.run_directories import EP1, STARTED, WORLD, begin
from tests.small_run import small_rows

SLOWER_NS = (0, 40_000, -40_000, -40_000)
"""By iteration, how much later rank 3 is done with its all-reduce of 400 us."""

CONFIG: dict[str, Any] = {
    "nthreads": 1,
    "ngpus": 4,
    "minimum_bytes": 1024,
    "maximum_bytes": 4096,
    "step_factor": 2,
    "warmup_iters": 1,
    "iterations": 3,
    "aggregated_iterations": 1,
    "validation": 1,
}


def size_of(size_bytes: int, **changes: int) -> BenchSize:
    sizes = {
        "size_bytes": size_bytes,
        "count": size_bytes,
        "input_bytes": size_bytes,
        "record_bytes": size_bytes,
    }
    return BenchSize(**{**sizes, **changes})


def bench_of(*sizes: BenchSize, **changes: Any) -> BenchTest:
    values: dict[str, Any] = {
        "name": "all_reduce_perf",
        "nranks": 4,
        "factor": 1.5,
        "sizes": sizes,
        "datatype": "float",
        "redop": "sum",
        "root": None,
        "average": LAST,
        "per_iteration": False,
        "timestamps": False,
        "skip": 0,
        "least_busbw": None,
        "config": CONFIG,
        "devices": (("h0", "d"), ("h1", "")),
    }
    return BenchTest(**{**values, **changes})


def row_of(size: BenchSize, **changes: Any) -> BenchRow:
    values: dict[str, Any] = {
        "size": size,
        "time_ns": 2000.0,
        "times_ns": (1000.0, 3000.0),
        "wrong": 0,
        "bound_ns": 1500.0,
        "bound_share": 0.75,
        "net_bytes": 6000.0,
        "generator_bound": 0,
    }
    return BenchRow(**{**values, **changes})


# ---- what is read of a run -----------------------------------------------------------


@pytest.fixture
def results(tmp_path: Path) -> RunResults:
    """Return a run whose all-reduces take 440, 400 and 400 us; rank 3 is uneven."""
    return finished(tmp_path)


def finished(folder: Path, *, wait_ns: int = 0, **fields: Any) -> RunResults:
    directory = begin(folder, **fields)
    for iteration, slower_ns in enumerate(SLOWER_NS):
        rows = small_rows(iteration, slower_ns=slower_ns, generator_wait_ns=wait_ns)
        directory.add(rows)
    bound = {WORLD: 300_000, EP1: 250_000}
    directory.finish(ended=STARTED, bound=bound)
    return open_run(directory.path)


@pytest.mark.parametrize(
    ("average", "time_ns"),
    [
        (FIRST, 400_000),
        # Of rank 3: 440, 360 and 360 us.
        (LEAST, 1_160_000 / 3),
        # Of all ranks: 410, 390 and 390 us.
        (AVERAGE, 1_190_000 / 3),
        # Until the last one is done: 440, 400 and 400 us.
        (LAST, 1_240_000 / 3),
    ],
)
@pytest.mark.parametrize("dilation", [1, 10])
def test_row_has_the_requested_time(
    tmp_path: Path, average: int, time_ns: float, dilation: int
) -> None:
    results = finished(tmp_path, dilation=dilation)
    size = size_of(2**20)
    ((row,),) = measured_rows(results, bench_of(size, average=average), cycles=1)
    assert row.time_ns == pytest.approx(time_ns / dilation)
    assert row.times_ns == pytest.approx(
        [each / dilation for each in (440_000, 400_000, 400_000)]
    )
    assert row.algbw == pytest.approx(2**20 * dilation / time_ns)
    assert row.bound_ns == pytest.approx(300_000 / dilation)
    assert row.bound_share == pytest.approx(900 / 1240)


def test_bandwidth_uses_the_busiest_rank_and_the_last_end(
    results: RunResults,
) -> None:
    # Six steps of 256 KiB; an all-to-all of two groups: half of 256 KiB.
    sizes = size_of(2**20), size_of(2**18)
    (rows,) = measured_rows(results, bench_of(*sizes), cycles=1)
    assert [row.net_bytes for row in rows] == [6 * 2**18, 2**17]
    assert rows[0].net_bw == pytest.approx(6 * 2**18 / (1_240_000 / 3))


def test_traffic_within_hosts_is_on_no_port(results: RunResults) -> None:
    path = results.path / "plan.json"
    plan = json.loads(path.read_text())
    # Of the ring 0 > 1 > 2 > 3 > 0 ranks 0 and 1 are on one host.
    for rank, peer in ((0, 1), (1, 0)):
        plan["ranks"][rank]["within_host"] = [peer]
    path.write_text(json.dumps(plan))
    sizes = size_of(2**18), size_of(2**16)
    (rows,) = measured_rows(results, bench_of(*sizes), cycles=1)
    # The message from 0 to 1 does not cross a port, the all-to-all of 2 and 3 does.
    assert [row.net_bytes for row in rows] == [2**17, None]
    assert rows[1].net_bw is None


def test_a_bound_is_never_more_than_what_was_measured(results: RunResults) -> None:
    # The all-to-alls of ranks 2 and 3 took 100 us, less than what is their bound.
    ((row,),) = measured_rows(results, bench_of(size_of(2**18)), cycles=1)
    assert (row.bound_ns, row.bound_share) == (100_000, 1)


@pytest.mark.parametrize(
    ("cycles", "times_us"),
    [(1, [[440, 400, 400]]), (3, [[440], [400], [400]]), (2, [[440], [400]])],
)
def test_cycles_are_equal_parts_of_the_iterations(
    results: RunResults, cycles: int, times_us: list[list[float]]
) -> None:
    for average in (LAST, FIRST):
        test = bench_of(size_of(2**20), average=average)
        found = measured_rows(results, test, cycles=cycles)
        assert [[each / 1000 for each in row.times_ns] for (row,) in found] == times_us


def test_the_ranks_of_a_cycle_have_the_iterations_of_that(results: RunResults) -> None:
    test = bench_of(size_of(2**20), average=LEAST)
    found = measured_rows(results, test, cycles=3)
    # In the first, rank 3 is the slowest, then it is the fastest.
    assert [row.time_ns for (row,) in found] == [400_000, 360_000, 360_000]


def test_leading_iterations_are_excluded(
    results: RunResults,
) -> None:
    ((row,),) = measured_rows(results, bench_of(size_of(2**20), skip=1), cycles=1)
    assert row.times_ns == (400_000, 400_000)


@pytest.mark.parametrize("changes", [{"input_bytes": 0}, {"record_bytes": 77}])
def test_collectives_that_did_not_run_have_no_time(
    results: RunResults, changes: dict[str, int]
) -> None:
    ((row,),) = measured_rows(results, bench_of(size_of(2**20, **changes)), cycles=1)
    assert (row.time_ns, row.algbw, row.net_bw) == (0, 0, None)
    assert (row.times_ns, row.wrong, row.generator_bound) == ((), None, 0)
    assert (row.bound_ns, row.bound_share) == (None, None)


@pytest.mark.parametrize(
    ("verification", "wrong"), [({"every": 1}, 0), ({"every": 0}, None), ({}, None)]
)
def test_wrong_packets_are_reported_if_checked(
    tmp_path: Path, verification: dict[str, int], wrong: int | None
) -> None:
    results = finished(tmp_path, verification=verification)
    ((row,),) = measured_rows(results, bench_of(size_of(2**20)), cycles=1)
    assert row.wrong == wrong


def test_collectives_that_waited_for_the_generator_are_counted(tmp_path: Path) -> None:
    results = finished(tmp_path, wait_ns=50_000)
    ((row,),) = measured_rows(results, bench_of(size_of(2**20)), cycles=1)
    assert row.generator_bound == 3


def test_a_run_has_the_documents_of_the_programs_that_would_have_made_it(
    results: RunResults,
) -> None:
    documents, notes = documents_of(results, version="1.2")
    assert list(documents) == [
        "all_reduce_perf-moe-ring-4",
        "alltoall_perf-moe-direct-2",
        "sendrecv_perf-moe-send-2",
    ]
    assert notes == []
    found = documents["all_reduce_perf-moe-ring-4"]
    assert found["chakram_version"] == "1.2"
    assert found["args"] == ["all_reduce_perf"]
    assert found["run_directory"] == str(results.path)
    assert found["start_time"] == results.manifest.started_at
    assert found["end_time"] == results.manifest.ended_at
    config = found["config"]
    assert (config["ngpus"], config["warmup_iters"], config["iterations"]) == (4, 1, 3)
    assert (config["minimum_bytes"], config["maximum_bytes"]) == (2**20, 2**20)
    assert (config["step_factor"], config["validation"], config["graph"]) == (2, 0, 0)
    assert (config["nthreads"], config["aggregated_iterations"]) == (1, 1)
    assert config["per_iter_skip"] == 0
    assert len(config["devices"]) == 4
    (row,) = found["results"]
    assert (row["size"], row["count"]) == (2**20, 2**20)
    assert row["out_of_place"]["time"] == pytest.approx(1240 / 3)
    # 2 (n - 1) / n of four ranks.
    assert row["out_of_place"]["bus_bw"] == pytest.approx(
        1.5 * row["out_of_place"]["alg_bw"]
    )
    assert row["out_of_place_per_iter"]["times_us"] == [440, 400, 400]
    assert (row["actual_iterations"], row["root"]) == (3, "    -1")
    assert row["bound_share"] == pytest.approx(900 / 1240)
    # Each of the groups is a sample, and the count is that of one peer.
    (row,) = documents["alltoall_perf-moe-direct-2"]["results"]
    assert (row["size"], row["count"], row["redop"]) == (2**18, 2**17, "none")
    assert row["out_of_place"]["time"] == 100
    (row,) = documents["sendrecv_perf-moe-send-2"]["results"]
    assert (row["size"], row["count"]) == (2**16, 2**16)


def test_unsupported_columns_are_reported(
    results: RunResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(nccl_tests_output._PROGRAM_OF, CollectiveOp.ALL_TO_ALL)
    documents, notes = documents_of(results, version="1")
    assert "alltoall_perf-moe-direct-2" not in documents
    # Two groups in three measured iterations.
    assert notes == ["6 of all_to_all are omitted: nccl-tests has no such test"]


# ---- what is printed ----------------------------------------------------------------


def test_header_shows_the_request() -> None:
    lines = opening(bench_of(), banners=["LATE"], notes=["a note"], version="1.2")
    assert lines == [
        "# !! LATE",
        "# nccl-tests version 2.19 as printed by chakram 1.2",
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 4 minBytes 1024 maxBytes 4096 step: 2(factor) "
        "warmup iters: 1 iters: 3 agg iters: 1 validation: 1 graph: 0 unalign: 0",
        "# a note",
        "#",
        "# Using devices",
        "#  Rank  0 Group  0 Pid      0 on         h0 device  0 [0000:00:00] d",
        "#  Rank  1 Group  0 Pid      0 on         h1 device  0 [0000:00:00]",
    ]
    steps = {**CONFIG, "step_bytes": 512}
    del steps["step_factor"]
    lines = opening(bench_of(config=steps), banners=[], notes=[], version="1")
    assert " step: 512(bytes) " in lines[2]


def test_the_table_has_both_blocks_in_the_widths_of_nccl_tests() -> None:
    row = row_of(size_of(4096, count=1024))
    lines = cycle_lines(bench_of(root=2), [row, row_of(size_of(0), wrong=None)],
                        printed="12:00")  # fmt: skip
    assert lines == [
        "#",
        "#" + " " * 62 + "out-of-place" + " " * 23 + "in-place" + " " * 12,
        "#       size         count      type   redop    root  "
        "   time   algbw   busbw  #wrong     time   algbw   busbw  #wrong",
        "#        (B)    (elements)                            "
        "   (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)        ",
        "        4096          1024     float     sum       2  "
        "   2.00    2.05    3.07       0     2.00    2.05    3.07       0",
        "           0             0     float     sum       2  "
        "   2.00  0.0000  0.0000     N/A     2.00  0.0000  0.0000     N/A",
    ]


def test_iteration_and_print_times_have_columns_on_request() -> None:
    test = bench_of(per_iteration=True, timestamps=True)
    lines = cycle_lines(test, [row_of(size_of(4096))], printed="12:00:00")
    assert lines[2].split()[6:14] == [
        "time", "algbw", "busbw", "#wrong", "i_min", "i_max", "i_p99", "i_cv%",
    ]  # fmt: skip
    assert lines[2].endswith("i_cv%  timestamp")
    assert lines[3].split()[5:9] == ["(GB/s)", "(us)", "(us)", "(us)"]
    cells = lines[-1].split()
    # 1 and 3 us: deviation 1 of a mean of 2.
    assert cells[9:13] == cells[17:21] == ["1.00", "3.00", "3.00", "50.00"]
    assert cells[4] == "-1"
    assert cells[-1] == "12:00:00"
    # Each block has its name in its middle.
    assert lines[1].index("out-of-place") < lines[1].index(" in-place")
    # Below eight characters the heading is as wide as itself.
    assert cycle_lines(test, [], printed="1" * 12)[2].endswith("     timestamp")


@pytest.mark.parametrize(
    ("times_us", "p50", "p95", "p99"),
    [
        ([5], 5, 5, 5),
        # The sample behind the middle, as nccl-tests has it.
        ([4, 1, 3, 2], 3, 4, 4),
        (list(range(1, 21)), 11, 19, 20),
        (list(range(1, 101)), 51, 95, 99),
    ],
)
def test_percentiles_of_iterations_are_samples(
    times_us: list[int], p50: int, p95: int, p99: int
) -> None:
    row = row_of(size_of(1), times_ns=tuple(1000.0 * each for each in times_us))
    (found,) = documented(bench_of(per_iteration=True), [row])["results"]
    stats = found["out_of_place_per_iter"]
    assert stats == found["in_place_per_iter"]
    assert (stats["p50_us"], stats["p95_us"], stats["p99_us"]) == (p50, p95, p99)
    assert (stats["min_us"], stats["max_us"]) == (min(times_us), max(times_us))
    assert stats["avg_us"] == pytest.approx(sum(times_us) / len(times_us))
    assert stats["skipped_iterations"] == 0
    assert stats["times_us"] == times_us


def documented(
    test: BenchTest, rows: list[BenchRow], banners: tuple[str, ...] = ()
) -> dict[str, Any]:
    return document(
        test, [rows], args=["x", "-n"], started="then", ended="later", version="1.2",
        directory="/runs/1", banners=banners,
    )  # fmt: skip


def test_the_document_has_the_keys_of_nccl_tests_and_ours() -> None:
    row = row_of(size_of(4096, count=1024), wrong=3, generator_bound=2)
    found = documented(bench_of(least_busbw=3.5), [row], banners=("LATE",))
    result = {
        "size": 4096, "count": 1024, "type": "float", "redop": "sum", "root": "    -1",
        "out_of_place": {"time": 2.0, "alg_bw": 2.048, "bus_bw": 3.072, "nwrong": 3},
        "in_place": {"time": 2.0, "alg_bw": 2.048, "bus_bw": 3.072, "nwrong": 3},
        "actual_iterations": 2, "experiment_name": "all_reduce_perf", "net_bw": 3.0,
        "bound_ns": 1500.0, "bound_share": 0.75, "cv": 0.5, "generator_bound": 2,
    }  # fmt: skip
    assert found == {
        "version": 3,
        "start_time": "then",
        "args": ["x", "-n"],
        "nccl_version": None,
        "chakram_version": "1.2",
        "run_directory": "/runs/1",
        "banners": ["LATE"],
        "config": {
            **CONFIG,
            "devices": [
                {
                    "rank": rank, "group": 0, "pid": 0, "hostname": f"h{rank}",
                    "device": 0, "device_hex": "0000:00:00", "device_info": what,
                }
                for rank, what in enumerate(("d", ""))
            ],
        },
        "results": [result],
        "out_of_bounds": {"count": 3, "okay": "false"},
        # 3.072 are not nine tenths of 3.5.
        "average_bus_bandwidth": {"bandwidth": 3.072, "okay": "false"},
        "end_time": "later",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("least", "okay", "word"),
    [
        (None, "unchecked", ""),
        (3.0, "true", "OK"),
        (3.072 / 0.9, "true", "OK"),
        (3.5, "false", "FAILED"),
    ],
)
def test_bandwidth_passes_from_90_percent_of_the_requirement(
    least: float | None, okay: str, word: str
) -> None:
    test, row = bench_of(least_busbw=least), row_of(size_of(4096))
    assert documented(test, [row])["average_bus_bandwidth"]["okay"] == okay
    lines = closing(test, [[row]], notes=[], directory="/d")
    assert lines[1] == f"# Avg bus bandwidth    : 3.072 {word}"


def test_footer_counts_all_cycles_and_network_events() -> None:
    first = row_of(size_of(4096), wrong=2)
    other = row_of(
        size_of(2048), wrong=None, bound_ns=None, bound_share=None, net_bytes=None,
        times_ns=(), generator_bound=1,
    )  # fmt: skip
    lines = closing(
        bench_of(), [[first], [other]], notes=["a note"], directory="/runs/1"
    )
    assert lines == [
        "# Out of bounds values : 2 FAILED",
        # The mean of 3.072 and 1.536.
        "# Avg bus bandwidth    : 2.304 ",
        "#",
        "# Network: net_bw of the busiest rank's port; bound: the least time that this "
        "schedule can take",
        "#       size   net_bw      bound  %bound     cv     n",
        "#        (B)   (GB/s)       (us)     (%)    (%)",
        "#       4096     3.00       1.50    75.0   50.0     2",
        "#       2048      N/A        N/A     N/A    N/A     0 *",
        "# * some of these collectives waited for the generator",
        "#",
        "# a note",
        "# Run directory: /runs/1",
        "# Collective test concluded: all_reduce_perf",
    ]
    fine = closing(bench_of(), [[row_of(size_of(1))]], notes=[], directory="/d")
    assert fine[0] == "# Out of bounds values : 0 OK"
    assert not any("*" in line for line in fine)
    nothing = closing(bench_of(), [[]], notes=[], directory="/d")
    assert nothing[1] == "# Avg bus bandwidth    : 0 "

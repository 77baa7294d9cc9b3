"""``chakram bench`` is nccl-tests over a network: options, table, JSON, exit status."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chakram.cli import bench as bench_verb
from chakram.cli import main
from chakram.cli.common.bench_programs import sizes_of
from chakram.console.nccl_tests_output import float_text
from chakram.formats.nccl_tests import read_nccl_json, read_nccl_text
from chakram.foundation.errors import ConfigError, RunInterrupted
from chakram.simulation import simulate_experiment as virtual_time
from chakram.simulation.simulate_experiment import simulate_experiment

if TYPE_CHECKING:
    from chakram.execution.outcome import RunOutcome
    from chakram.execution.request import RunRequest

EXPERIMENT = """\
version: 1
name: four
jobs:
  - name: j
    trace: {synth: incast, ranks: 4}
fabric:
  kind: namespaces
  topology: {single_switch: {hosts: 4}}
  links: {host: {rate: 100Gbit, delay: 500ns}}
simulation: {level: message}
"""
RATE = 12.5
"""Of a port, in GB/s."""


@pytest.fixture
def bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Return what calls the verb: its exit code, what it prints, what it complains."""
    path = tmp_path / "four.yaml"
    path.write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NCCL_TESTS_MIN_BW", raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        options = ["--world", "simulate", "--experiment", str(path)]
        code = main(["bench", *options, *arguments])
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def data_rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if not line.startswith("#")]


def cloudai_rows(text: str) -> list[dict[str, float]]:
    """Read a table as NVIDIA's cloudai does: thirteen fields, all of them numbers."""
    found = []
    for line in text.splitlines():
        fields = re.split(r"\s+", line.strip())
        if not re.match(r"\d", line.strip()) or len(fields) != 13:
            continue
        numbers = [float(fields[place]) for place in (0, 5, 6, 7, 9, 10, 11)]
        names = ("size", "time", "algbw", "busbw", "time_in", "algbw_in", "busbw_in")
        found.append(dict(zip(names, numbers, strict=True)))
    return found


def cloudai_ranks(text: str) -> int:
    """Count ranks as it does."""
    return sum(
        "Rank" in line and "device" in line and "NVIDIA" in line
        for line in text.splitlines()
    )


def superbench_rows(text: str) -> dict[int, tuple[float, float]]:
    """Read a table as SuperBench does: columns counted from the end of the heading."""
    lines = text.splitlines()
    start = max(at for at, line in enumerate(lines) if "out-of-place" in line)
    end = max(at for at, line in enumerate(lines) if "Out of bounds values" in line)
    body = lines[start + 1 : end]
    heading = next(line for line in body if "time" in line and "busbw" in line)
    names = heading[1:].split()
    size = names.index("size")
    time = names.index("time") - len(names)
    busbw = names.index("busbw") - len(names)
    rows = [line.split() for line in body if re.match(r"\s*\d", line)]
    return {int(row[size]): (float(row[time]), float(row[busbw])) for row in rows}


def test_the_table_is_what_readers_of_nccl_tests_take(bench: Any) -> None:
    arguments = ["-b", "64K", "-e", "1M", "-f", "4", "-n", "2"]
    # Whole messages are stored and forwarded at the message level.
    packets = ["--set", "simulation.level=packet"]
    code, text, _ = bench("all_reduce_perf", *arguments, *packets)
    assert code == 0
    rows = cloudai_rows(text)
    assert [row["size"] for row in rows] == [65536, 262144, 1048576]
    assert cloudai_ranks(text) == 4
    assert superbench_rows(text) == {
        int(row["size"]): (row["time"], row["busbw"]) for row in rows
    }
    for row in rows:
        assert row["time"] == row["time_in"]
        # Of four ranks an all-reduce moves 2 x 3/4 of its size over each port.
        assert row["busbw"] == pytest.approx(1.5 * row["algbw"], rel=0.01)
        assert row["algbw"] == pytest.approx(row["size"] / row["time"] / 1e3, rel=0.01)
        assert row["busbw"] < RATE
    assert rows[-1]["busbw"] > 0.8 * RATE
    found = read_nccl_text(text.encode(), "out.txt")
    assert (found.op, found.nranks, found.iterations) == ("all_reduce", 4, 2)
    average = sum(row["busbw"] for row in rows) / 3
    (line,) = re.findall(r"# Avg bus bandwidth    : (\S+) $", text, re.MULTILINE)
    assert float(line) == pytest.approx(average, rel=0.01)
    assert "# Out of bounds values : 0 OK\n" in text
    assert text.splitlines()[-1] == "# Collective test concluded: all_reduce_perf"
    # What the network did stands behind, where nobody else looks.
    network = text.partition("# Network")[2]
    shares = re.findall(
        r"^# +(\d+) +([\d.]+) +[\d.]+ +([\d.]+) ", network, re.MULTILINE
    )
    assert [int(size) for size, *_ in shares] == [65536, 262144, 1048576]
    for row, (_, net_bw, share) in zip(rows, shares, strict=True):
        # A ring moves over a port what busbw says.
        assert float(net_bw) == pytest.approx(row["busbw"], rel=0.05)
        assert 70 < float(share) <= 100


def test_json_is_read_as_nccl_tests_own_script_reads_it(bench: Any) -> None:
    arguments = ["-b", "64K", "-e", "128K", "-f", "2", "-n", "4", "-I", "1"]
    code, text, _ = bench("all_gather_perf", *arguments, "-J", "out.json")
    assert code == 0
    assert "# Writing JSON output to out.json\n" in text
    data = json.loads(Path("out.json").read_text())
    assert (data["version"], data["config"]["iterations"]) == (3, 4)
    assert "env" not in data  # nccl-tests writes all of it, secrets as well
    for row in data["results"]:
        each = row["out_of_place_per_iter"]
        assert len(each["times_us"]) == row["actual_iterations"] == 4
        assert each["min_us"] <= each["p50_us"] <= each["p95_us"] <= each["p99_us"]
        assert each["max_us"] == max(each["times_us"])
        spike = each["max_us"] / each["avg_us"]
        assert spike < 1.5
        assert each["cv_pct"] < 5
    assert data["out_of_bounds"] == {"count": 0, "okay": "true"}
    assert data["average_bus_bandwidth"]["okay"] == "unchecked"
    found = read_nccl_json(data, "out.json")
    assert (found.op, found.nranks) == ("all_gather", 4)
    assert len(found.rows[0].times_ns) == 4
    # With times of iterations there are eight fields a placement.
    assert {len(row) for row in data_rows(text)} == {5 + 2 * 8}
    # A file that is there stays, as nccl-tests has it.
    assert "to out.json.0\n" in bench("all_gather_perf", "-J", "out.json", "-n", "1")[1]


def test_two_algorithms_are_compared_by_size(
    bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for algorithm in ("ring", "tree"):
        options = ["--algorithm", algorithm, "-J", f"{algorithm}.json"]
        sizes = ["-b", "64K", "-e", "256K", "-f", "4", "-n", "3"]
        assert bench("all_reduce_perf", *sizes, *options)[0] == 0
    capsys.readouterr()
    assert main(["compare", "ring.json", "tree.json", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert found["a"]["kind"] == "nccl-tests"
    compared = {each["key"][3] for each in found["levels"]["size"]}
    assert compared == {65536, 262144}
    assert all(each["significant"] for each in found["levels"]["size"])
    assert found["sentences"][0].startswith("All_reduce of 256KiB, 4 ranks takes ")


@pytest.mark.parametrize(
    ("test", "size", "count", "redop", "root", "factor"),
    [
        # 1,000,006 bytes: 250,001 floats, or 62,500 of each rank.
        ("all_reduce_perf", 1000004, 250001, "sum", -1, 1.5),
        ("all_gather_perf", 1000000, 62500, "none", -1, 0.75),
        ("reduce_scatter_perf", 1000000, 62500, "sum", -1, 0.75),
        ("alltoall_perf", 1000000, 62500, "none", -1, 0.75),
        ("sendrecv_perf", 1000004, 250001, "none", -1, 1),
        ("broadcast_perf", 1000004, 250001, "none", 2, 1),
        ("reduce_perf", 1000004, 250001, "sum", 2, 1),
        ("gather_perf", 1000000, 62500, "none", 2, 0.75),
        ("scatter_perf", 1000000, 62500, "none", 2, 0.75),
        ("hypercube_perf", 750000, 62500, "none", -1, 1),
    ],
)
def test_every_program_has_its_size_and_factor(
    bench: Any,
    test: str,
    size: int,
    count: int,
    redop: str,
    root: int,
    factor: float,
) -> None:
    arguments = ["-b", "1000006", "-e", "1000006", "-n", "2", "-r", "2", "-a", "3"]
    code, text, _ = bench(test, *arguments)
    assert code == 0
    (row,) = data_rows(text)
    assert row[:5] == [str(size), str(count), "float", redop, str(root)]
    algbw, busbw = float(row[6]), float(row[7])
    assert busbw == pytest.approx(factor * algbw, rel=0.01)
    assert 1 < busbw < RATE * 1.001
    assert read_nccl_text(text.encode(), "x").nranks == 4


def test_options_mean_what_they_mean_in_nccl_tests(bench: Any) -> None:
    plain = ["-b", "64K", "-e", "192K", "-i", "64K", "-n", "2", "-w", "0"]
    code, text, told = bench(
        "all_reduce_perf", *plain, "-d", "half", "-o", "avg", "-m", "3", "-N", "2",
        "-z", "1", "-g", "2", "-c", "0", "-R", "1", "-G", "4",
    )  # fmt: skip
    assert code == 0
    rows = data_rows(text)
    assert [row[0] for row in rows] == ["65536", "131072", "196608"] * 2
    assert {(row[1], row[2], row[3]) for row in rows} >= {("32768", "half", "avg")}
    assert cloudai_ranks(text) == 2
    assert "-R is ignored: there are no buffers to register" in told
    assert "-G is ignored: there are no CUDA graphs" in told
    assert "agg iters: 3 validation: 0" in text
    # A size below an element of each rank is a row without a collective.
    rows = data_rows(bench("alltoall_perf", "-b", "8", "-e", "64", "-f", "8")[1])
    assert [(row[0], row[5]) for row in rows] == [("0", "0.00"), ("64", rows[1][5])]
    assert float(rows[1][5]) > 0


@pytest.mark.parametrize("test", ["broadcast_perf", "sendrecv_perf"])
def test_times_are_those_of_the_ranks_that_are_asked_for(bench: Any, test: str) -> None:
    first, mean, least, last = (
        float(data_rows(bench(test, "-n", "2", "-r", "1", "-a", how)[1])[0][5])
        for how in "0123"
    )
    assert 0 < least <= mean <= last
    assert least <= first <= last
    if test == "broadcast_perf":
        # The root has sent long before the last rank has everything.
        assert least < mean < last
    else:
        assert first == pytest.approx(mean, rel=0.01)


def test_rows_end_with_their_time_if_asked(bench: Any) -> None:
    _, text, told = bench("all_reduce_perf", "-n", "1", "-S", "1")
    assert "ignored" not in told
    (row,) = [line for line in text.splitlines() if not line.startswith("#")]
    assert re.search(r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", row)
    assert re.search(r" timestamp$", text, re.MULTILINE)


def test_an_uneven_all_to_all_takes_its_sizes_from_a_matrix(
    bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Of a larger group, of which the first four ranks count.
    matrix = [
        [0, 300, 100, 0, 9],
        [600, 0, 0, 100, 9],
        [100, 0, 0, 300, 9],
        [0, 0, 300, 0, 9],
        [9] * 5,
    ]
    text = "\n".join(" ".join(str(1024 * each) for each in row) for row in matrix)
    (tmp_path / "matrix.txt").write_text(f"{text}\n")
    monkeypatch.setenv("ALLTOALLV_MATRIX_FILE", "matrix.txt")
    code, text, _ = bench(
        "alltoallv_perf", "-b", "1M", "-e", "1M", "-n", "2", "-a", "3",
        "--set", "simulation.level=packet",
    )  # fmt: skip
    assert code == 0
    (row,) = data_rows(text)
    # S: what the busiest rank sends or gets; count: a rank's equal part of that.
    assert row[:4] == [
        str(700 * 1024),
        str(700 * 1024 // 4 // 4),
        "float",
        "none",
    ]
    time_us, algbw, busbw = map(float, row[5:8])
    assert algbw == pytest.approx(700 * 1024 / time_us / 1e3, rel=0.01)
    assert busbw == pytest.approx(0.75 * algbw, rel=0.01)
    # Its port has to carry that.
    assert 700 * 1024 / RATE / 1e3 < time_us < 1.3 * 700 * 1024 / RATE / 1e3
    assert bench("alltoallv_perf", "-b", "1K", "-e", "1K")[0] == 2
    (tmp_path / "matrix.txt").write_text("1 2\n3 4\n")
    code, _, told = bench("alltoallv_perf", "-b", "1K", "-e", "1K")
    assert code != 0
    assert "has 2 sources, but a group has 4 ranks" in told


def test_cycles_go_on_until_they_are_interrupted(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = iter([False, False, True])

    def simulate(request: RunRequest) -> RunOutcome:
        if next(ended):
            raise RunInterrupted("run", "was interrupted", None)
        return simulate_experiment(request)

    monkeypatch.setattr(virtual_time, "simulate_experiment", simulate)
    code, text, _ = bench("all_reduce_perf", "-n", "1", "-N", "0", "-J", "all.json")
    assert code == 130
    assert len(data_rows(text)) == 2
    assert text.count("out-of-place") == 2
    assert text.count("# Avg bus bandwidth") == 1
    assert len(json.loads(Path("all.json").read_text())["results"]) == 2


def test_the_least_bandwidth_is_demanded(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ["all_reduce_perf", "-b", "1M", "-e", "1M", "-n", "2"]
    monkeypatch.setenv("NCCL_TESTS_MIN_BW", "6.5")
    code, text, _ = bench(*call)
    assert code == 0
    assert re.search(r"# Avg bus bandwidth    : 6\.\d+ OK$", text, re.MULTILINE)
    monkeypatch.setenv("NCCL_TESTS_MIN_BW", "20")
    code, text, _ = bench(*call, "--json")
    assert code == 6
    document = json.loads(text)
    assert document["schema"] == "chakram.bench/1"
    assert document["average_bus_bandwidth"]["okay"] == "false"


@pytest.mark.parametrize("text", ["fast", "-1", "inf", "nan"])
def test_what_is_no_bandwidth_cannot_be_demanded(
    text: str, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_TESTS_MIN_BW", text)
    code, _, told = bench("all_reduce_perf", "-b", "1M", "-e", "1M", "-n", "2")
    assert code == 2
    assert f"NCCL_TESTS_MIN_BW: '{text}' is not a bandwidth in GB/s" in told


def test_no_bandwidth_may_be_demanded(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_TESTS_MIN_BW", "0")
    code, _, _ = bench("all_reduce_perf", "-b", "1M", "-e", "1M", "-n", "2")
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["all_reduce"], "there is no such test"),
        (["all_reduce_perf", "-b", "2M", "-e", "1M"], "below the smallest"),
        (["all_reduce_perf", "-b", "0", "-e", "1M", "-f", "2"], "would never grow"),
        (["all_reduce_perf", "-b", "8", "-e", "1M", "-i", "0"], "-i 0: sizes would"),
        (["all_reduce_perf", "-b", "1", "-e", "1M", "-i", "1"], "more than 1000 sizes"),
        (["all_reduce_perf", "-b", "8Q"], "-b 8Q: '8Q' has an unknown unit 'Q'"),
        (["all_reduce_perf", "-d", "all"], "-d all: is not a type"),
        (["all_reduce_perf", "-o", "all"], "-o all: is not a reduction"),
        (["broadcast_perf", "-r", "4"], "-r 4: there are 4 ranks"),
        (["alltoallv_perf", "-b", "1M", "-e", "2M"], "give several sizes"),
        (
            ["alltoallv_perf", "-b", "1M", "-e", "1M"],
            "(set ALLTOALLV_MATRIX_FILE to a file",
        ),
        (["all_reduce_perf", "-n", "99999999"], "iterations are too many"),
        (
            ["alltoall_perf", "-b", "8", "-e", "8"],
            "less than one element for each of 4 ranks",
        ),
        (["all_reduce_perf", "--algorithm", "rong"], "rong"),
        (["all_reduce_perf", "--world", "mars"], "run or simulate"),
        (["all_reduce_perf", "-g", "16"], "ports"),
        (["all_reduce_perf", "-J", "gone/x.json", "-n", "1"], "cannot be written"),
    ],
)
def test_what_cannot_be_measured_is_told(
    bench: Any, arguments: list[str], message: str
) -> None:
    code, _, told = bench(*arguments)
    assert code in (2, 3)
    assert message in told
    assert "unexpected" not in told


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (0.0, 7, "   0.00"),
        (34.27, 7, "  34.27"),
        (1234.5, 7, "1234.50"),
        (12345.6, 7, "12345.6"),
        (123456.7, 7, " 123457"),
        (1234567.8, 7, "1234568"),
        (123456789.0, 7, "1.2e+08"),
        (0.01562, 6, "0.0156"),
        (12.5, 6, " 12.50"),
        (483.217, 6, "483.22"),
        (4832.17, 6, "4832.2"),
    ],
)
def test_numbers_have_the_digits_that_there_is_room_for(
    value: float, width: int, text: str
) -> None:
    assert float_text(value, width) == text


@pytest.mark.parametrize(
    ("algorithm", "seconds"),
    # 16 GiB x 2 iterations, 12.5 GB/s: 3/2 of it for a ring, 2 x 2 for a tree that has
    # two children at its root.
    [("ring", 4.12), ("tree", 10.99)],
)
def test_a_run_that_takes_long_says_how_long(
    algorithm: str,
    seconds: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(*_: object, **__: object) -> RunOutcome:
        raise ConfigError("x", "is enough", "stop")

    path = tmp_path / "four.yaml"
    path.write_text(EXPERIMENT)
    monkeypatch.setattr(bench_verb, "_LONG_NS", 0)
    monkeypatch.setattr(bench_verb, "_outcome", refused)
    sizes = ["-b", "16G", "-e", "16G", "-n", "1", "-w", "1"]
    command = ["bench", "all_reduce_perf", *sizes, "--algorithm", algorithm]
    assert main([*command, "--experiment", str(path)]) == 2
    told = re.search(
        r"takes at least ([0-9.]+)s at the port rate", capsys.readouterr().err
    )
    assert told is not None
    assert float(told[1]) == pytest.approx(seconds, rel=0.02)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ((8, 8, 0, 1), [8]),
        ((8, 24, 8, 1), [8, 16, 24]),
        ((0, 16, 8, 1), [0, 8, 16]),
        ((8, 40, 8, 2), [8, 16, 32]),
    ],
)
def test_sizes_grow_by_a_step_or_a_factor(
    options: tuple[int, int, int, int], sizes: list[int]
) -> None:
    assert list(sizes_of(*options)) == sizes

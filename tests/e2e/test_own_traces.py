"""The example of docs/howto/record-a-pytorch-job.md: recorded, read and replayed.

One test records with PyTorch where it is installed.  The others read the files that
the script recorded for the page.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import chakram
from tests.documented import fences
from tests.support import REPO_ROOT, require, why_no_torch

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = REPO_ROOT / "docs/examples/own-trace"
PAGE = "docs/howto/record-a-pytorch-job.md"


def experiment(traces: Path, nranks: int) -> dict[str, Any]:
    """Return the page's experiment for other traces and another number of ranks."""
    (fence,) = [each for each in fences(PAGE) if each.file == "own-moe.yaml"]
    content: dict[str, Any] = yaml.safe_load(fence.text)
    content["jobs"][0]["trace"]["path"] = str(traces)
    content["fabric"]["topology"]["clos"]["hosts_per_leaf"] = nranks // 2
    return content


def unpacked(folder: Path) -> Path:
    with tarfile.open(EXAMPLE / "recorded.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def recorded_splits(traces: Path, rank: int) -> list[list[int]]:
    """Return the rows that a rank sends in each uneven all-to-all, from its file."""
    nodes = json.loads((traces / f"host_{rank}.json").read_text())["nodes"]
    values = [
        node["inputs"]["values"]
        for node in nodes
        if node["name"] == "c10d::alltoall_base_"
    ]
    return [each[4] for each in values if each[4]]


def check_replay(traces: Path, runs: Path, nranks: int, width: int = 128) -> None:
    """Simulate a set, and compare what was sent with what the script recorded."""
    results = chakram.simulate(experiment(traces, nranks), runs=runs)
    flows = results.table("flows", "collective", "src", "dst", "bytes", "iteration")
    rows = [row for row in flows.to_pylist() if row["iteration"] == 1]
    for rank in range(nranks):
        splits = recorded_splits(traces, rank)
        # To the experts and back; then the gradients, to the experts and back.
        assert len(splits) == 4
        for peer in set(range(nranks)) - {rank}:
            sent = sum(
                row["bytes"]
                for row in rows
                if (row["src"], row["dst"]) == (rank, peer)
                and row["collective"].startswith("all_to_all_v")
            )
            assert sent == sum(each[peer] for each in splits) * width * 4
    reduced = {
        record.identity.size_bytes
        for record in results.collectives()
        if record.identity.op == "all_reduce"
    }
    # Two layers of 128 x 1024 with their biases; and the router's.
    dense = (2 * width * 8 * width + 8 * width + width) * 4
    assert reduced == {dense, (width * nranks + nranks) * 4}


ATTEMPTS = 5
TORN_DOWN = "terminate called without an active exception"
"""PyTorch sometimes ends a process on a busy machine while its own threads run."""


def recorded(traces: Path) -> subprocess.CompletedProcess[str]:
    """Train on two processes, and record their traces."""
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         "--local-addr", "127.0.0.1", "--nproc-per-node", "2",
         str(EXAMPLE / "train.py"), "--out", str(traces)],
        capture_output=True,
        text=True,
        timeout=100,
    )  # fmt: skip


def test_a_job_that_the_example_records_is_replayed(tmp_path: Path) -> None:
    require("torch", why_no_torch())
    traces = tmp_path / "traces"
    for _ in range(ATTEMPTS):
        done = recorded(traces)
        if not done.returncode or TORN_DOWN not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    check_replay(traces, tmp_path / "runs", 2)


def test_the_recorded_example_is_replayed(tmp_path: Path) -> None:
    check_replay(unpacked(tmp_path / "traces"), tmp_path / "runs", 4)


def recording_lines(source: str) -> dict[str, str]:
    """Return the calls that record a job, by the name of what they call."""
    calls = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call)]
    return {
        name: ast.unparse(call).replace("SKIPPED - 1", "2")
        for call in calls
        if (name := ast.unparse(call.func))
        in ("profile", "ExecutionTraceObserver", "observer.register_callback")
    }


def test_the_page_records_like_the_example_and_is_complete() -> None:
    (shown,) = [each for each in fences(PAGE) if each.language == "python"]
    calls = recording_lines(shown.text)
    assert calls == recording_lines((EXAMPLE / "train.py").read_text())
    assert len(calls) == 3
    nodes = [*ast.walk(ast.parse(shown.text))]
    names = [each for each in nodes if isinstance(each, ast.Name)]
    bound = {each.id for each in names if isinstance(each.ctx, ast.Store)}
    bound |= {each.arg for each in nodes if isinstance(each, ast.arg)}
    bound |= {
        alias.asname or alias.name
        for each in nodes
        if isinstance(each, ast.Import | ast.ImportFrom)
        for alias in each.names
    }
    assert {each.id for each in names} - bound <= {*dir(builtins)}


def test_traces_with_random_names_are_named_by_rank(tmp_path: Path) -> None:
    first = unpacked(tmp_path / "first")
    scattered = tmp_path / "scattered"
    scattered.mkdir()
    for number, path in enumerate(sorted(first.iterdir())):
        scattered.joinpath(f"tmp{7 * number % 11}.json").write_bytes(path.read_bytes())
    command = [sys.executable, str(EXAMPLE / "name_by_rank.py"), str(tmp_path / "out")]
    subprocess.run([*command, *scattered.iterdir()], check=True)
    for path in first.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()


def refused_one_rank(traces: Path) -> None:
    for path in traces.glob("*_[123].json"):
        path.unlink()


def refused_gap(traces: Path) -> None:
    (traces / "host_1.json").unlink()


def refused_cut(traces: Path) -> None:
    path = traces / "host_2.json"
    path.write_bytes(path.read_bytes()[:200_000])


def refused_copies(traces: Path) -> None:
    (traces / "host_0.json.gz").write_bytes((traces / "host_0.json").read_bytes())


def refused_names(traces: Path) -> None:
    (traces / "host_2.json").write_bytes((traces / "host_1.json").read_bytes())


def refused_iterations(traces: Path) -> None:
    # In another iteration, the router chooses other experts.
    path = traces / "host_1.json"
    content = json.loads(path.read_text())
    for node in content["nodes"]:
        if node["name"] == "c10d::alltoall_base_" and node["inputs"]["values"][4]:
            splits = node["inputs"]["values"][4]
            splits[0], splits[2] = splits[0] + 3, splits[2] - 3
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (refused_one_rank, "states that the job had 4 ranks, but the set has files of"),
        (refused_gap, "has files up to rank 3, but none for rank 1"),
        (refused_cut, "the file ends inside a JSON value"),
        (refused_copies, "rank 0 has two files: host_0.json and host_0.json.gz"),
        (refused_names, "is the profile of process"),
        (refused_iterations, "bytes to rank 0, but rank 0 expects"),
    ],
)
def test_refusals_of_the_page_are_those_of_lint(
    damage: Any, message: str, tmp_path: Path
) -> None:
    traces = unpacked(tmp_path / "traces")
    damage(traces)
    command = [sys.executable, "-m", "chakram", "trace", "lint", str(traces)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stdout
    page = (REPO_ROOT / PAGE).read_text()
    words = re.sub(r"\d+", "N", message)
    assert words.partition("bytes to")[0] in re.sub(r"\d+", "N", page)

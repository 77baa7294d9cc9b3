"""PyTorch's host traces, replayed with their recorded splits.

What every rank must send every other one is read from the JSON again, by a few
lines that share nothing with the reader; the groups are those that the traces' authors
tell of.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.runs import completed, fabric, star, write_experiment
from tests.e2e.traffic_totals import check_complete
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chakram.run_directory.reader import RunResults

RANKS = 8
DILATIONS = (1, 8, 64)
"""Where others use the machine, too, time is stretched: who is late by a millisecond
is late by less of it."""
SIX = REPO_ROOT / "tests/data/gloo_moe_6r.tar.xz"
MOE = "pytorch_moe_gloo_8r/host_et_json.tar.gz"
DLRM = "pytorch_dlrm_nccl_8r/dlrm_pytorch_et.tar.gz"

Bytes = Counter[tuple[int, int]]
"""Bytes from rank to rank."""


def nodes(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield rank and node of all nodes in an archive of ``<name>_<rank>.json``."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.endswith(".json") and "/._" not in member.name:
                rank = int(member.name.removesuffix(".json").rpartition("_")[2])
                file = archive.extractfile(member)
                assert file is not None
                for node in json.load(file)["nodes"]:
                    yield rank, node


def add(found: Bytes, rank: int, members: list[int], buffer: Any, splits: Any) -> None:
    """Add the operations of one rank: *splits* count rows of *buffer*."""
    splits = splits or [1] * len(members)
    row_bytes = buffer[3] * buffer[4] / sum(splits)
    for peer, rows in zip(members, splits, strict=True):
        if rows and peer != rank:
            found[rank, peer] += round(rows * row_bytes)


def moe_bytes(path: Path) -> Bytes:
    """All of its all_to_alls are among the ranks of one copy of the experts, EP = 4."""
    found: Bytes = Counter()
    for rank, node in nodes(path):
        if node["name"] == "c10d::alltoall_base_":
            _, sent, _, _, in_splits, *_ = node["inputs"]["values"]
            copy = rank // 4
            add(found, rank, list(range(4 * copy, 4 * copy + 4)), sent, in_splits)
    return found


def six_ranks() -> dict[int, list[dict[str, Any]]]:
    """Return by rank the nodes of the recorded set of six."""
    with tarfile.open(SIX) as archive:
        files = {member.name: archive.extractfile(member) for member in archive}
        return {
            # `extractfile` may return None, for what is no file.
            rank: json.load(files[f"host_{rank}.json"])["nodes"]  # type: ignore[arg-type]
            for rank in range(6)
        }


def six_ranks_bytes() -> Bytes:
    """Its all_to_alls are among the even ranks, and among the odd ones."""
    found: Bytes = Counter()
    for rank, its_nodes in six_ranks().items():
        for node in its_nodes:
            if node["name"] == "c10d::alltoall_base_":
                _, sent, _, _, in_splits, *_ = node["inputs"]["values"]
                add(found, rank, list(range(rank % 2, 6, 2)), sent, in_splits)
    return found


def check_six_ranks(results: RunResults) -> None:
    check_complete(results, ranks=6)
    assert carried(results) == six_ranks_bytes()
    # Two steps, each with one gradient of 64 x 256 floats.
    assert reduced(results) == Counter({("world", 65_536): 2})
    assert "imply: 2 all_reduce in '0', 4 all_to_all_v in '1'" in " ".join(
        results.manifest.banners
    )


def dlrm_bytes(path: Path) -> Bytes:
    """All of its all_to_alls are among all ranks."""
    found: Bytes = Counter()
    for rank, node in nodes(path):
        values = node["inputs"]
        if node["name"] == "record_param_comms" and "all_to_all" in str(values[4:5]):
            add(found, rank, list(range(RANKS)), values[0], values[5])
    return found


def carried(results: RunResults) -> Bytes:
    """Bytes in the flows of all_to_alls, by pair of ranks."""
    found: Bytes = Counter()
    flows = results.table("flows", "collective", "src", "dst", "bytes")
    for row in flows.to_pylist():
        if row["collective"].startswith("all_to_all"):
            found[row["src"], row["dst"]] += row["bytes"]
    return found


def reduced(results: RunResults) -> Counter[tuple[str, int]]:
    """Group and size of the all_reduces."""
    return Counter(
        (record.identity.key.group, record.identity.size_bytes)
        for record in results.collectives()
        if record.identity.op == "all_reduce"
    )


def experiment(
    folder: Path, trace: Path, ports: dict[str, object], **collectives: str
) -> Path:
    job = {
        "name": "job",
        "trace": {"path": str(trace)},
        "compute": {"from": "trace", "scale": "1/100"},
    }
    return write_experiment(folder, [job], ports, collectives=collectives)


def check_moe(results: RunResults, trace: Path) -> None:
    check_complete(results, ranks=RANKS)
    assert carried(results) == moe_bytes(trace)
    # Two parameters of each of a rank's experts, weight and bias of two layers each,
    # over its two copies; those of attention and gate over all ranks.
    assert reduced(results) == Counter(
        {
            **{("world", size): 1 for size in (16_384, 256, 2_048, 32)},
            **{
                (group, size): count
                for group in "3456"
                for size, count in ((32_768, 4), (512, 2), (256, 2))
            },
        }
    )


@pytest.mark.parametrize(
    "kind",
    ["namespaces", pytest.param("loopback", marks=pytest.mark.soak)],
    indirect=True,
)
def test_a_mixture_of_experts_sends_its_recorded_splits(
    tmp_path: Path, chakram_data: Path, kind: str
) -> None:
    trace = chakram_data / "traces" / MOE
    path = experiment(tmp_path, trace, fabric(kind, RANKS))
    results = completed(path).results
    check_moe(results, trace)
    # The profile beside the traces gives the computation its time.
    assert all(rank.compute_ns > 0 for rank in results.ranks())


@pytest.mark.parametrize(
    "algorithm", ["direct", pytest.param("pairwise", marks=pytest.mark.soak)]
)
def test_simulated_mixture_of_experts_sends_its_recorded_splits(
    tmp_path: Path, chakram_data: Path, algorithm: str
) -> None:
    trace = chakram_data / "traces" / MOE
    ports = star(RANKS, rate="10Gbit")
    path = experiment(tmp_path, trace, ports, all_to_all_v=algorithm)
    results = completed(path, verb="simulate").results
    check_moe(results, trace)
    bounds_ns = results.bounds()
    for record in results.collectives():
        key = record.identity.key
        if record.identity.op == "all_to_all_v":
            assert bounds_ns[key] <= record.duration_ns * 1.001


@pytest.mark.parametrize(
    "kind",
    ["loopback", pytest.param("namespaces", marks=pytest.mark.soak)],
    indirect=True,
)
def test_two_gloo_expert_groups_are_distinguished(tmp_path: Path, kind: str) -> None:
    path = experiment(tmp_path, SIX, fabric(kind, 6))
    check_six_ranks(completed(path).results)


def profiled_overlap_ns(rank: int) -> int:
    """Return how long the operations took that ran while gradients were reduced.

    An operation's time is what it took without those inside it; those count that began
    between the call of an all_reduce and the end of the backend's work on it.
    """
    with tarfile.open(SIX) as archive:
        file = archive.extractfile(f"kineto_{rank}.json")
        assert file is not None
        events = [
            each for each in json.load(file)["traceEvents"] if each.get("ph") == "X"
        ]
    calls = sorted(e["ts"] for e in events if e["name"] == "c10d::allreduce_")
    ends = sorted(e["ts"] + e["dur"] for e in events if e["name"] == "gloo:all_reduce")
    operations = [
        e
        for e in events
        if e["cat"] == "cpu_op" and not e["name"].startswith(("c10d::", "gloo:"))
    ]
    found_ns = 0
    for call, end in zip(calls, ends, strict=True):
        for outer in operations:
            if not call < outer["ts"] < end:
                continue
            begin, stop = outer["ts"], outer["ts"] + outer["dur"]
            inside = [
                (e["ts"], e["ts"] + e["dur"])
                for e in operations
                if e is not outer
                and e["tid"] == outer["tid"]
                and begin <= e["ts"]
                and e["ts"] + e["dur"] <= stop
            ]
            # Those inside others of them are counted with these.
            outermost = [
                (a, b)
                for a, b in inside
                if not any(c <= a and b <= d and (c, d) != (a, b) for c, d in inside)
            ]
            found_ns += round(1_000 * (outer["dur"] - sum(b - a for a, b in outermost)))
    return found_ns


def overlaps_ns(results: RunResults) -> dict[int, float]:
    """Return by rank for how long it computed and communicated at once, undilated."""
    dilation = results.manifest.dilation
    return {
        rank.rank: (rank.communication_ns - rank.exposed_ns) / dilation
        for rank in results.ranks()
    }


def as_recorded(folder: Path, rate: str, dilation: int = 1) -> Path:
    """Return the experiment in which six ranks compute as long as they did."""
    job = {"name": "job", "trace": {"path": str(SIX)}}
    ports = star(6, rate=rate) | {"dilation": dilation}
    return write_experiment(folder, [job], ports)


@pytest.mark.parametrize(
    "rate", ["100Mbit", pytest.param("10Mbit", marks=pytest.mark.soak)]
)
def test_two_simulated_expert_groups_compute_while_they_reduce(
    tmp_path: Path, rate: str
) -> None:
    results = completed(as_recorded(tmp_path, rate), verb="simulate").results
    check_six_ranks(results)
    # At these rates gradients take 9 ms and more, and what the host does meanwhile less
    # than 2 ms: so all of it overlaps, and nothing of what waited for them.  Times are
    # rounded to nanoseconds, of some 30 operations and those inside them.
    for rank, overlap_ns in overlaps_ns(results).items():
        assert overlap_ns == pytest.approx(profiled_overlap_ns(rank), abs=100)


def test_two_expert_groups_compute_while_they_reduce(tmp_path: Path) -> None:
    profiled_ns = {rank: profiled_overlap_ns(rank) for rank in range(6)}
    found = []
    for dilation in DILATIONS:
        folder = tmp_path / str(dilation)
        folder.mkdir()
        results = completed(as_recorded(folder, "50Mbit", dilation)).results
        check_six_ranks(results)
        shares = {
            rank: overlap_ns / profiled_ns[rank]
            for rank, overlap_ns in overlaps_ns(results).items()
        }
        # More would be what waited for the gradient.  Computation goes on while the
        # gradient has yet to be taken up, so on few cores less may be; how much
        # exactly the simulation above tells.
        assert max(shares.values()) < 1.05
        if min(shares.values()) > 0.5:
            return
        found.append(shares)
    pytest.fail(f"shares of the overlap by the profile: {found}")


def test_a_simulated_dlrm_sends_its_recorded_splits(
    tmp_path: Path, chakram_data: Path
) -> None:
    trace = chakram_data / "traces" / DLRM
    path = experiment(tmp_path, trace, star(RANKS, rate="10Gbit"))
    results = completed(path, verb="simulate").results
    check_complete(results, ranks=RANKS)
    assert carried(results) == dlrm_bytes(trace)
    # Everybody sends rank 3 the most: 1,664 of 3,392 elements in one exchange.
    received = Counter[int]()
    for (_, dst), nbytes in carried(results).items():
        received[dst] += nbytes
    assert max(received, key=received.__getitem__) == 3
    assert reduced(results) == Counter(
        {("world", size): 1 for size in (1_576_964, 448, 907_840)}
    )

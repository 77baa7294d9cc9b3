"""Several jobs on one fabric, and the time between iterations."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.e2e.runs import completed, fabric, moe, write_experiment
from tests.e2e.traffic_totals import check_complete, sent_by_job

if TYPE_CHECKING:
    from pathlib import Path

ITERATIONS = 3


@pytest.mark.parametrize(
    "kind",
    ["namespaces", pytest.param("loopback", marks=pytest.mark.soak)],
    indirect=True,
)
def test_two_jobs_share_a_fabric(tmp_path: Path, kind: str) -> None:
    jobs = [
        moe(4) | {"name": "left"},
        moe(4) | {"name": "right", "size_scale": "1/2"},
    ]
    experiment = write_experiment(tmp_path, jobs, fabric(kind, 8))

    results = completed(experiment).results

    check_complete(results, ranks=8)
    ranks = {(each.job, each.rank, each.number) for each in results.ranks()}
    assert len(ranks) == 8
    assert {job for job, _, _ in ranks} == {"left", "right"}
    sent = sent_by_job(results)
    assert sent["left"].keys() == sent["right"].keys() == set(range(4))
    for rank, (messages, nbytes) in sent["left"].items():
        assert sent["right"][rank] == (messages, nbytes // 2)


def test_jobs_share_ports_and_repeat_independently(tmp_path: Path) -> None:
    # What repeats until the others end does more than its own three iterations where
    # they leave it the time; how long that takes is up to the machine.
    for start_ms in (100, 1_000, 10_000):
        folder = tmp_path / str(start_ms)
        folder.mkdir()
        if repeated(folder, start_ms) > 3:
            return
    pytest.fail("the job that repeats until others end ends before them")


def repeated(folder: Path, start_ms: int) -> int:
    """Run three jobs, one of which begins late; return how often the other went on."""
    jobs = [
        moe(2) | {"name": "front", "start": f"{start_ms}ms"},
        moe(2) | {"name": "back", "repeat": "until_others_end"},
        moe(2) | {"name": "short", "repeat": 1, "placement": {"ports": [2, 3]}},
    ]
    # Ports 0 and 1 are in one process, 2 and 3 in another: one process finishes early.
    experiment = write_experiment(
        folder,
        jobs,
        fabric("loopback", 4),
        iterations={"warmup": 1, "measured": 2},
        agents={"shards": 2},
    )

    results = completed(experiment).results

    assert all(record.complete for record in results.collectives())
    ranks = results.ranks()
    first_ns = min(record.start_ns for record in ranks)
    counts = defaultdict(set)
    for record in ranks:
        counts[record.job].add(record.iteration)
        if record.job == "front":
            assert record.start_ns - first_ns >= start_ms * 10**6
    assert counts["front"] == {0, 1, 2}
    assert counts["short"] == {0, 1}
    assert len(counts["back"]) >= 3
    assert results.manifest.jobs["back"]["iterations"] is None
    return len(counts["back"])


@pytest.mark.parametrize(
    "sync", ["barrier", "gap", pytest.param("free", marks=pytest.mark.soak)]
)
def test_iterations_follow_one_another(tmp_path: Path, sync: str) -> None:
    gap_ns = 20 * 10**6
    gap = {"gap": f"{gap_ns}ns"} if sync == "gap" else {}
    experiment = write_experiment(
        tmp_path,
        [moe(4)],
        fabric("loopback", 4),
        iterations={"warmup": 1, "measured": ITERATIONS - 1, "sync": sync, **gap},
    )

    results = completed(experiment).results

    check_complete(results, ranks=4, iterations=ITERATIONS)
    ops = {str(record.identity.op) for record in results.collectives()}
    assert ("barrier" in ops) is (sync == "barrier")
    by_rank = defaultdict(list)
    for record in sorted(results.ranks(), key=lambda each: each.iteration):
        assert record.measured is (record.iteration > 0)
        by_rank[record.rank].append(record)
    for records in by_rank.values():
        for before, after in pairwise(records):
            assert after.start_ns - before.end_ns >= gap_ns * (sync == "gap")
    if sync == "barrier":
        # No rank starts before all have passed the barrier.
        work = [
            record
            for record in results.collectives()
            if record.identity.op != "barrier"
        ]
        for iteration in range(1, ITERATIONS):
            start_ns = min(r.start_ns for r in work if r.iteration == iteration)
            assert start_ns >= max(
                r.end_ns for r in work if r.iteration == iteration - 1
            )

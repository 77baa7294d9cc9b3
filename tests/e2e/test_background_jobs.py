"""Background jobs with ranks on several hosts, each with its own agent."""

from __future__ import annotations

import signal
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from chakram.run_directory.manifest import COMPLETE
from tests.e2e.hosts import Hosts
from tests.e2e.processes import RunProcess
from tests.e2e.runs import moe, write_experiment
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

UNTIL_OTHERS_END = "until_others_end"
SLOW = {"rate": "10Mbit"}
"""Four data planes share this machine with whatever else a test needs."""

ATTEMPTS = 3
"""Something else may keep the machine busy for a while."""

SMALL = {"size_scale": "1/64"}


def test_a_job_in_the_background_ends_with_the_others_wherever_it_is(
    found: Hosts, tmp_path: Path
) -> None:
    # Agents with ranks of the job in front only, of both kinds, in the background only.
    jobs = [
        moe(2)
        | {"name": "front", "size_scale": "1/32", "placement": {"ports": [0, 1]}},
        moe(2)
        | {
            "name": "back",
            "size_scale": "1/128",
            "repeat": UNTIL_OTHERS_END,
            "placement": {"ports": [1, 2]},
        },
    ]
    late_ns = []
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        front_ns, more_ns = run_both(found, folder, jobs)
        # Up to the news, and to the end of an iteration.
        late_ns.append(more_ns)
        if more_ns <= max(front_ns, 10**9):
            break
    else:
        pytest.fail(f"the background ended {late_ns} ns after the others")
    found.wait_for_silence()


def run_both(found: Hosts, folder: Path, jobs: list[dict[str, Any]]) -> tuple[int, int]:
    """Return how long the job in front took, and how much longer the other one."""
    experiment = write_experiment(
        folder,
        jobs,
        found.fabric(defaults=SLOW),
        iterations={"warmup": 1, "measured": 4},
    )

    ended = found.run(experiment)

    assert ended.code == 0, ended.errors
    results = ended.results
    assert results.manifest.status == COMPLETE
    assert all(record.complete for record in results.collectives())
    iterations = defaultdict(set)
    starts, ends = defaultdict(list), defaultdict(list)
    for record in results.ranks():
        iterations[record.job, record.rank].add(record.iteration)
        starts[record.job].append(record.start_ns)
        ends[record.job].append(record.end_ns)
    for rank in (0, 1):
        assert iterations["front", rank] == set(range(5))
        done = iterations["back", rank]
        assert done
        assert done == set(range(len(done)))
    # Neither rank gets an iteration ahead of the other, nor does its agent's report.
    assert abs(len(iterations["back", 0]) - len(iterations["back", 1])) <= 1
    # It has a quarter of the bytes, and goes on for as long as the other job.
    assert len(iterations["back", 0]) > 5
    front_end_ns = max(ends["front"])
    return front_end_ns - min(starts["front"]), max(ends["back"]) - front_end_ns


def test_death_of_the_controller_ends_background_jobs_on_every_host(
    found: Hosts, tmp_path: Path
) -> None:
    jobs = [
        moe(2) | SMALL | {"name": "front", "placement": {"ports": [0, 1]}},
        moe(2)
        | SMALL
        | {
            "name": "back",
            "repeat": UNTIL_OTHERS_END,
            "placement": {"ports": [2, 3]},
        },
    ]
    experiment = write_experiment(
        tmp_path,
        jobs,
        found.fabric(defaults=SLOW),
        iterations={"warmup": 0, "measured": 1_000_000},
    )
    with RunProcess(experiment, prefix=found.enter("c")) as process:
        process.wait_for_records()
        process.process.send_signal(signal.SIGKILL)
        process.process.wait(PATIENCE_S)
        found.wait_for_silence()

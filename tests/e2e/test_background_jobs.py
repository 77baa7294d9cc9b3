"""Jobs in the background whose ranks are on several hosts, each with its own agent."""

from __future__ import annotations

import signal
from collections import defaultdict
from typing import TYPE_CHECKING

from chakram.observe.manifest import COMPLETE
from tests.e2e.hosts import Hosts
from tests.e2e.processes import TRAFFIC_ENDS_S, RunProcess
from tests.e2e.runs import moe, write_experiment
from tests.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from pathlib import Path

UNTIL_OTHERS_END = "until_others_end"
SLOW = {"rate": "10Mbit"}
"""Four data planes share this machine with whatever else a test needs."""

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
    experiment = write_experiment(
        tmp_path,
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
    # Up to the news, and to the end of an iteration: a busy machine takes its time.
    front_ns = max(ends["front"]) - min(starts["front"])
    assert max(ends["back"]) <= max(ends["front"]) + max(front_ns, 10**9)
    wait_until(found.are_silent, "silence", timeout_s=TRAFFIC_ENDS_S)


def test_a_controller_that_dies_ends_the_background_on_every_host(
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
        wait_until(found.are_silent, "silence", timeout_s=TRAFFIC_ENDS_S + 1.0)

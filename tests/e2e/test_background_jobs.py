"""Jobs in the background whose ranks are on several hosts, each with its own agent."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from chakram.observe.manifest import COMPLETE
from tests.e2e.hosts import NAMES, Hosts, hosts
from tests.e2e.processes import TRAFFIC_ENDS_S, RunProcess
from tests.e2e.runs import PATIENCE_S, Ended, moe, wait_until, write_experiment
from tests.support import missing_program, missing_root, require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNTIL_OTHERS_END = "until_others_end"
SLOW = {"rate": "10Mbit"}
"""Four data planes share this machine with whatever else a test needs."""

SMALL = {"size_scale": "1/64"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Yield hosts whose agents wait for a controller."""
    require("root", missing_root())
    require("netns", missing_program("ip"))
    with hosts(tmp_path_factory.mktemp("hosts")) as made:
        yield made


def run(found: Hosts, experiment: Path) -> Ended:
    """Run an experiment on the host of the controller."""
    done = subprocess.run(
        [
            *found.enter("c"),
            *(sys.executable, "-m", "chakram", "run", str(experiment)),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return Ended(
        code=done.returncode,
        output=done.stdout,
        errors=done.stderr,
        runs=experiment.parent / "runs",
    )


def is_silent(found: Hosts) -> bool:
    """Tell whether hosts send no more than what keeps connections alive."""
    before = [found.sent_bytes(name) for name in NAMES]
    time.sleep(0.1)
    after = [found.sent_bytes(name) for name in NAMES]
    return sum(after) - sum(before) < 10_000


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

    ended = run(found, experiment)

    assert ended.code == 0, ended.errors
    results = ended.results
    assert results.manifest.status == COMPLETE
    assert all(record.complete for record in results.collectives())
    iterations = defaultdict(set)
    ends = defaultdict(list)
    for record in results.ranks():
        iterations[record.job, record.rank].add(record.iteration)
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
    assert max(ends["back"]) <= max(ends["front"]) + 10**9
    wait_until(lambda: is_silent(found), "silence", timeout_s=TRAFFIC_ENDS_S)


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
        wait_until(lambda: is_silent(found), "silence", timeout_s=TRAFFIC_ENDS_S + 1.0)

"""Checks of agents on separate hosts that share too few cores."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from chakram.run_directory.manifest import COMPLETE
from tests.e2e.processes import AGENT, RunProcess, descendants
from tests.e2e.runs import moe, write_experiment
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.e2e.hosts import Hosts

JOB = {
    "name": "moe",
    "trace": {
        "synth": "moe",
        "ranks": 8,
        "ep": 4,
        "dp": 2,
        "layers": 8,
        "hidden": 4096,
        "ffn_hidden": 14336,
        "peak": "400 TFLOPS",
    },
    "compute": {"from": "trace"},
    "placement": {
        "order": [0, 5, 1, 6, 2, 7, 3, 4],
        "ranks_per_port": 2,
        "same_host": "skip",
    },
    "size_scale": "1/64",
}
"""The job of configs/external.yaml: half a gigabyte in an iteration, which takes all of
two cores for longer than heartbeats may be away."""

SLOW = {"rate": "10Mbit"}


@contextmanager
def two_cores() -> Iterator[None]:
    """Restrict this process and its present and future children to two cores."""
    before = os.sched_getaffinity(0)
    everybody = [0, *(each.pid for each in descendants(os.getpid()))]
    _keep_on(everybody, sorted(before)[:2])
    try:
        yield
    finally:
        _keep_on(everybody, before)


def _keep_on(processes: Iterable[int], cores: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.sched_setaffinity(process, cores)


def check_a_run_on_full_cores(found: Hosts, folder: Path) -> None:
    """Run a job that takes all cores; no agent may be declared lost."""
    experiment = write_experiment(
        folder,
        [JOB],
        found.fabric(
            defaults={"rate": "25Gbit", "mtu": 1500},
            topology={"single_switch": {"hosts": 4}},
            links={"host": {"rate": "25Gbit", "delay": "1us"}},
        ),
        iterations={"warmup": 0, "measured": 1},
        transport={"congestion_control": "fixed_rate", "path_mtu": 1024},
        preflight="off",
    )

    ended = found.run(experiment)

    assert ended.code == 0, ended.errors
    assert ended.results.manifest.status == COMPLETE


def check_frozen_agents(found: Hosts, folder: Path) -> None:
    """Stop all agents and kill the controller: nothing is sent, also not later.

    The agents go on, and serve the next controller.
    """
    experiment = write_experiment(
        folder,
        [moe(4)],
        found.fabric(defaults=SLOW),
        iterations={"warmup": 0, "measured": 1_000_000},
    )
    agents = [each for each in descendants(os.getpid()) if AGENT in each.command]
    assert len(agents) == 4
    with RunProcess(experiment, prefix=found.enter("c")) as going:
        going.wait_for_records()
        wait_until(lambda: not found.are_silent(), "traffic")
        try:
            for agent in agents:
                agent.signal(signal.SIGSTOP)
            going.process.kill()
            found.wait_for_silence()
        finally:
            for agent in agents:
                agent.signal(signal.SIGCONT)
        assert found.are_silent()

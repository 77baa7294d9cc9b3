"""The agent that a controller starts on its own machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram.fabric.fabric_types.base import WorldRequest
from chakram.fabric.fabric_types.loopback import LoopbackFabric
from chakram.fabric.local_agent import local_agent
from chakram.foundation.errors import RunDirectoryError
from tests.agents import children_of
from tests.process_priority import niceness_of, urgent
from tests.support import require
from tests.udp_ports import free_udp_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

CORES = len(os.sched_getaffinity(0))


@pytest.fixture
def _urgent() -> Iterator[None]:
    with urgent():
        yield


async def _niceness(folder: Path, processes: int, session: int) -> tuple[int, int]:
    fabric = LoopbackFabric(kind="loopback", ports=2, udp_port=free_udp_ports(2))
    request = WorldRequest(
        seed=1, nports=2, processes=processes, lab_name="niceness", logs=folder
    )
    async with fabric.open(request):
        (agent,) = children_of(os.getpid(), "chakram_agent")
        return niceness_of(agent, session=session)


async def _serve(folder: Path, logs: Path, *, remove: bool = False) -> None:
    socket = folder / "agent.sock"
    async with local_agent(name="local", socket=socket, log=logs / "agent.log"):
        if remove:
            shutil.rmtree(logs)


@pytest.mark.slow
def test_agent_ends_cleanly_without_its_run_directory(tmp_path: Path) -> None:
    logs = tmp_path / "run"
    logs.mkdir()
    asyncio.run(_serve(tmp_path, logs, remove=True))
    assert not logs.exists()


def test_agent_needs_a_run_directory_for_its_log(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="cannot be written: No such file"):
        asyncio.run(_serve(tmp_path, tmp_path / "gone"))


@pytest.mark.slow
@pytest.mark.usefixtures("_urgent")
@pytest.mark.parametrize(
    ("processes", "ours", "expected"),
    [
        pytest.param(CORES - 1, 0, (-20, -20), id="a-core-is-left"),
        pytest.param(CORES, 0, (0, 0), id="no-core-is-left"),
        pytest.param(CORES - 1, 3, (3, 0), id="niced"),
    ],
)
def test_agent_gets_priority_if_a_core_remains_and_its_niceness_is_default(
    tmp_path: Path, processes: int, ours: int, expected: tuple[int, int]
) -> None:
    require("cores", None if CORES > 1 else "there is one core only")
    os.setpriority(os.PRIO_PROCESS, 0, ours)

    assert asyncio.run(_niceness(tmp_path, processes, expected[1])) == expected


@pytest.mark.slow
@pytest.mark.usefixtures("_urgent")
def test_agent_has_the_niceness_of_its_session(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "chakram_agent", "serve", "--nice=-7"]
    with subprocess.Popen(
        [*command, "--listen", f"unix:{tmp_path}/a"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline().startswith("ready")
        found = niceness_of(agent.pid, session=-7)
        agent.terminate()

    assert found == (-7, -7)

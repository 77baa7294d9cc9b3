"""The agent that a controller starts on its own machine."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from chakram.errors import RunDirectoryError
from chakram.fabric.local_agent import local_agent


async def _serve(folder: Path, logs: Path, *, remove: bool = False) -> None:
    socket = folder / "agent.sock"
    async with local_agent(name="local", socket=socket, log=logs / "agent.log"):
        if remove:
            shutil.rmtree(logs)


@pytest.mark.slow
def test_it_ends_in_order_where_the_run_directory_was_removed(tmp_path: Path) -> None:
    logs = tmp_path / "run"
    logs.mkdir()
    asyncio.run(_serve(tmp_path, logs, remove=True))
    assert not logs.exists()


def test_it_needs_a_run_directory_for_its_log(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="cannot be written: No such file"):
        asyncio.run(_serve(tmp_path, tmp_path / "gone"))

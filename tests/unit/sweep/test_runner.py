"""Execution of one cell of a sweep."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from chakram.foundation.errors import RunInterrupted
from chakram.sweep import runner
from chakram.sweep.folder import CellRun
from tests.unit.cli.test_sweep import written

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_interrupted_run_does_not_wait_for_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, has_ended = threading.Event(), threading.Event()

    def read_traces() -> None:
        may_end.wait(2)
        has_ended.set()

    async def interrupted(*_: object) -> None:
        reading = asyncio.create_task(asyncio.to_thread(read_traces))
        await asyncio.sleep(0)
        raise RunInterrupted("run", f"interrupted by SIGINT in {reading}")

    monkeypatch.setattr(runner, "run_tolerantly", interrupted)
    run = CellRun(
        number=0,
        repetition=0,
        name="cell",
        world="run",
        base=str(written(tmp_path) / "base.yaml"),
        overrides=(),
        digest="",
        runs=str(tmp_path / "runs"),
    )
    try:
        outcome = runner.run_cell(run)
        assert not has_ended.is_set()
        assert outcome["interrupted"] is True
    finally:
        may_end.set()
        has_ended.wait()

"""The event loop of a run stays free while the run is planned."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from chakram.config.experiment import parse_experiment
from chakram.execution.observer import Silent
from chakram.execution.request import RunRequest
from chakram.execution.run_experiment import run_experiment
from chakram.foundation.errors import PlanError
from chakram.preparation import resolved_run
from tests.service_client import EXPERIMENT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.asyncio
async def test_plans_are_made_in_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, threads = resolved_run.place, list[threading.Thread]()

    def noted(*args: Any, **how: Any) -> Any:
        threads.append(threading.current_thread())
        if len(threads) == 2:
            raise PlanError("plan", "this is enough")
        return place(*args, **how)

    monkeypatch.setattr(resolved_run, "place", noted)
    request = RunRequest(
        experiment=parse_experiment(EXPERIMENT),
        text=EXPERIMENT,
        runs_directory=tmp_path,
        progress=Silent(),
    )
    with pytest.raises(PlanError, match="this is enough"):
        await run_experiment(request)
    assert len(threads) == 2
    assert threading.main_thread() not in threads

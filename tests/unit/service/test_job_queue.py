"""Runs in a queue, without processes."""

from __future__ import annotations

from pathlib import Path

from chakram.service.job_queue import JobQueue
from chakram.service.run_store import RunStore
from chakram.service.submissions import THIS_MACHINE, check_submission
from tests.service_client import EXPERIMENT


def test_a_run_waits_for_a_reserved_fabric_with_a_reason(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs.sqlite")
    queue = JobQueue(store, tmp_path, tmp_path)
    submission = check_submission(EXPERIMENT, tmp_path)
    run = queue.submit(submission, owner="a")
    assert queue.explained(run).reason is None
    assert queue.reserve(THIS_MACHINE, "otg")
    assert queue.reservations() == {THIS_MACHINE: "otg"}
    assert queue.explained(run).reason == "waits until otg releases this machine"
    queue.release(THIS_MACHINE, "otg")
    assert queue.explained(run).reason is None
    store.close()

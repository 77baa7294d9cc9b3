"""Runs in a queue, whose processes are made by tests."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chakram.foundation.errors import RunDirectoryError
from chakram.service import job_queue
from chakram.service.job_queue import CHANGES, JobQueue
from chakram.service.run_store import (
    CANCELED,
    DONE,
    FAILED,
    INTERRUPTED,
    RUNNING,
    RunStore,
    StoredRun,
)
from chakram.service.submissions import THIS_MACHINE, check_submission
from tests.service_client import EXPERIMENT


class MadeProcess:
    """A process that prints lines, and ends when a test says so."""

    pid = os.getpid()

    def __init__(self, arguments: tuple[str, ...]) -> None:
        self.arguments = arguments
        self.stdout = asyncio.StreamReader()
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    def end(self, code: int = 0) -> None:
        self.returncode = code
        self.stdout.feed_eof()
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode


class Processes(list[MadeProcess]):
    """Processes in the order of their start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def start(*arguments: str, stderr: int) -> MadeProcess:
            self.append(MadeProcess(arguments))
            return self[-1]

        def signaled(process: MadeProcess, number: int) -> None:
            if process.returncode is None:
                process.end(-number)

        monkeypatch.setattr(job_queue, "start_command", start)
        monkeypatch.setattr(job_queue, "send_signal", signaled)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    made = RunStore(tmp_path / "runs.sqlite")
    yield made
    made.close()


@pytest.fixture
def queue(store: RunStore, tmp_path: Path) -> JobQueue:
    return JobQueue(store, tmp_path, tmp_path)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    return Processes(monkeypatch)


def submitted(queue: JobQueue, **fields: Any) -> StoredRun:
    submission = check_submission(EXPERIMENT, queue.resources)
    return queue.submit(submission, owner="a", **fields)


@asynccontextmanager
async def working(queue: JobQueue) -> AsyncIterator[None]:
    """Start runs in the background."""
    worker = asyncio.create_task(queue.work())
    try:
        yield
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def states(queue: JobQueue, run_id: str) -> list[str]:
    """Follow a run until its end, and return its states."""
    async with asyncio.timeout(20):
        events = [event async for event in queue.follow(run_id)]
    return [event.data["state"] for event in events if event.kind == "state"]


async def run_once(queue: JobQueue, run_id: str) -> StoredRun:
    """Work until a run has ended, and return it."""
    async with working(queue):
        await states(queue, run_id)
    found = queue.store.find(run_id)
    assert found is not None
    return found


def test_a_run_waits_for_a_reserved_fabric_with_a_reason(queue: JobQueue) -> None:
    run = submitted(queue)
    assert queue.explained(run).reason is None
    assert queue.reserve(THIS_MACHINE, "otg")
    assert queue.reservations() == {THIS_MACHINE: "otg"}
    assert queue.explained(run).reason == "waits until otg releases this machine"
    queue.release(THIS_MACHINE, "otg")
    assert queue.explained(run).reason is None


@pytest.mark.asyncio
async def test_followers_see_a_run_leave_the_queue_and_end(
    queue: JobQueue, processes: Processes
) -> None:
    first, second = submitted(queue), submitted(queue)
    async with working(queue):
        following = [
            asyncio.create_task(states(queue, run.id)) for run in (first, second)
        ]
        async with asyncio.timeout(5):  # less than followers wait without news
            for count in (1, 2):
                while len(processes) < count:  # noqa: ASYNC110 - no event for this
                    await asyncio.sleep(0)
                processes[-1].end()
            found = await asyncio.gather(*following)
    assert found == [["running", "done"], ["queued", "running", "done"]]


@pytest.mark.asyncio
async def test_a_run_with_damaged_changes_fails_alone(
    queue: JobQueue, processes: Processes
) -> None:
    damaged, sound = submitted(queue), submitted(queue)
    # The machine crashed before the text was on the disk.
    (queue.folder_of(damaged.id) / CHANGES).write_text("")
    with pytest.raises(RunDirectoryError, match="cannot be read"):
        queue.changes_of(damaged.id)
    async with working(queue):
        assert (await states(queue, damaged.id))[-1] == FAILED
        processes[0].end()
        assert (await states(queue, sound.id))[-1] == DONE
    found = queue.store.find(damaged.id)
    assert found is not None
    assert found.reason is not None
    assert "cannot be started" in found.reason


@pytest.mark.asyncio
async def test_a_run_that_a_crash_interrupted_ended_with_its_last_output(
    queue: JobQueue,
) -> None:
    told, silent = submitted(queue), submitted(queue)
    for run in (told, silent):
        queue.store.change(run.id, state=RUNNING, started_s=1000.0)
    output = queue.output_of(told.id)
    output.write_text("replaying\n")
    os.utime(output, (1060.0, 1060.0))
    for run, ended_s in ((told, 1060.0), (silent, 1000.0)):
        found = await run_once(queue, run.id)
        assert (found.state, found.ended_s) == (INTERRUPTED, ended_s)


@pytest.mark.asyncio
async def test_a_run_that_has_ended_is_not_canceled_later(
    queue: JobQueue, processes: Processes
) -> None:
    run = submitted(queue)
    async with working(queue):
        while not processes:  # noqa: ASYNC110 - no event for this
            await asyncio.sleep(0)
        processes[0].end()
        await states(queue, run.id)
    # The client saw it in the queue.
    assert not queue.cancel(run, "b")
    found = queue.store.find(run.id)
    assert found is not None
    assert found.state == DONE
    waiting = submitted(queue)
    assert queue.cancel(waiting, "b")
    found = queue.store.find(waiting.id)
    assert found is not None
    assert (found.state, found.reason) == (CANCELED, "canceled by b")


@pytest.mark.asyncio
async def test_runs_beside_another_one_leave_it_the_address_of_metrics(
    queue: JobQueue, processes: Processes
) -> None:
    queue.metrics = "127.0.0.1:9464"
    submission = check_submission(EXPERIMENT, queue.resources)
    first = await queue.start_now(submission, holder="otg")
    await queue.start_now(submission, holder="otg")
    assert ["--metrics" in each.arguments for each in processes] == [True, False]
    assert not any("--jobs-file" in each.arguments for each in processes)
    for each in processes:
        each.end()
    await states(queue, first.id)


@pytest.mark.asyncio
async def test_a_run_follows_the_choice_of_its_jobs(
    queue: JobQueue, processes: Processes
) -> None:
    submission = check_submission(EXPERIMENT, queue.resources)
    run = await queue.start_now(submission, holder="otg", jobs=["a", "b"])
    (process,) = processes
    option = process.arguments.index("--jobs-file")

    def chosen() -> list[str]:
        return Path(process.arguments[option + 1]).read_text().split()

    assert chosen() == ["a", "b"]

    async def said(text: str, since: int) -> None:
        process.stdout.feed_data(f"{text}\n".encode())
        async with asyncio.timeout(20):
            # No event tells of a line that a run has printed.
            while not queue.has_said(run.id, text, since):  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    since = queue.choose(run.id, ["b"])
    assert chosen() == ["b"]
    await said("jobs: b", since)
    # What the run has said before is not an answer.
    assert not queue.has_said(run.id, "jobs: b", queue.choose(run.id, ["b"]))
    await said("jobs: b", since + 1)
    process.end()
    await states(queue, run.id)
    assert queue.choose(run.id, ["a"]) == 0


@pytest.mark.asyncio
async def test_only_runs_on_fabrics_of_the_service_launch_agents(
    queue: JobQueue, processes: Processes
) -> None:
    queue.launching = ("--launch=ssh", "--lease=10min")
    fabrics = queue.resources / "fabrics"
    fabrics.mkdir()
    port = {"open": "udp:e0"}
    hosts = [
        {"name": f"h{at}", "ports": [{**port, "address": f"198.18.0.{at}/24"}]}
        for at in (1, 2)
    ]
    agents = [{**each, "agent": f"unix:/run/{each['name']}.sock"} for each in hosts]
    rack = {"kind": "external", "hosts": agents}
    (fabrics / "rack7.yaml").write_text(json.dumps(rack))
    on_rack = EXPERIMENT.replace("fabric:\n  kind: loopback", "fabric: rack7")
    for text, verb in ((EXPERIMENT, "run"), (on_rack, "run"), (on_rack, "simulate")):
        submission = check_submission(text, queue.resources, verb=verb)
        run = await queue.start_now(submission, holder="otg")
        processes[-1].end()
        await states(queue, run.id)
    launched = [{*queue.launching} <= {*each.arguments} for each in processes]
    assert launched == [False, True, False]

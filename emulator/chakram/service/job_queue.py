"""The queue of a service: which runs are in progress, and their processes.

Each run is a process ``chakram run`` in the folder of its job, which also contains the
experiment and the output. Runs that use the same fabric follow one another.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chakram.foundation.errors import RunDirectoryError
from chakram.run_directory.manifest import MANIFEST
from chakram.service.run_store import (
    CANCELED,
    DONE,
    FAILED,
    INTERRUPTED,
    QUEUED,
    RUNNING,
    RunStore,
    StoredRun,
)
from chakram.service.submissions import Submission

log = logging.getLogger(__name__)

JOBS = "jobs"
"""Folder of the jobs' folders."""

_ENDED_EARLY = "the service ended while it was in progress"
_GRACE_S = 20.0
_LINES_KEPT = 2_000
_LINE_BYTES = 2_000
_FOLLOWERS = 100
_ERROR = "chakram: error: "


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a run.

    Attributes:
        number: Position among the events of the run.
        kind: ``state`` or ``line``.
        data: The run as the API describes it, or a line of its output.
    """

    number: int
    kind: str
    data: Any


@dataclass(slots=True)
class _Job:
    """A run that is in progress."""

    process: asyncio.subprocess.Process
    lines: deque[Event] = field(default_factory=lambda: deque(maxlen=_LINES_KEPT))
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    count: int = 0
    is_canceled: bool = False
    last_error: str = ""

    def tell(self, kind: str, data: Any) -> None:
        self.lines.append(Event(self.count, kind, data))
        self.count += 1
        self.changed.set()
        self.changed = asyncio.Event()


class JobQueue:
    """Starts queued runs, and keeps what they say.

    Args:
        store: All runs.
        folder: Folder of the service.
        resources: Folder of resources.
        parallel: Number of runs at the same time.
        keep: Number of ended runs to keep. Runs with the tag ``keep`` do not count.
        longest_s: Longest duration of a run.
        metrics: Address at which runs serve metrics, or None.
    """

    def __init__(
        self,
        store: RunStore,
        folder: Path,
        resources: Path,
        *,
        parallel: int = 1,
        keep: int = 200,
        longest_s: float = 86_400.0,
        metrics: str | None = None,
    ) -> None:
        self.store = store
        self._folder = folder
        self._resources = resources
        self._parallel = parallel
        self._keep = keep
        self._longest_s = longest_s
        self._metrics = metrics
        self._jobs: dict[str, _Job] = {}
        self._locks: dict[str, str] = {}
        self._reserved: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._followers = 0

    # ---- what clients do -------------------------------------------------------------

    def submit(
        self,
        submission: Submission,
        *,
        owner: str,
        verb: str,
        tags: Sequence[str],
        changes: Mapping[str, str],
    ) -> StoredRun:
        """Queue an experiment.

        Raises:
            RunDirectoryError: If its folder cannot be written.
        """
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        run_id = f"{moment}-{secrets.token_hex(3)}"
        folder = self.folder_of(run_id)
        try:
            folder.mkdir(parents=True)
            (folder / "experiment.yaml").write_text(submission.text, "utf-8")
            (folder / "changes.json").write_text(json.dumps(dict(changes)), "utf-8")
        except OSError as error:
            raise RunDirectoryError(
                str(folder), f"cannot be written: {error.strerror}"
            ) from error
        run = self.store.add(
            id=run_id,
            owner=owner,
            name=submission.experiment.name,
            verb=verb,
            fabric=submission.fabric,
            tags=tags,
            experiment=submission.text,
            digest=submission.digest,
            state=QUEUED,
            submitted_s=time.time(),
        )
        self._wake.set()
        return run

    def cancel(self, run: StoredRun, by: str) -> bool:
        """End a run that has not ended, and return whether there was something to end.

        A run that is in progress ends its traffic first, and keeps its partial results.
        """
        job = self._jobs.get(run.id)
        if job is not None:
            job.is_canceled = True
            job.last_error = f"canceled by {by}"
            _signal(job.process, signal.SIGINT)
            return True
        if run.state == QUEUED:
            reason = f"canceled by {by}"
            self.store.change(
                run.id, state=CANCELED, reason=reason, ended_s=time.time()
            )
            return True
        return False

    def reserve(self, fabric: str, holder: str) -> bool:
        """Keep queued runs away from a fabric, and return whether that was possible.

        A second call of the same holder has no effect.
        """
        if self._reserved.get(fabric, holder) != holder:
            return False
        used_by = self._locks.get(fabric)
        if fabric not in self._reserved and used_by is not None:
            return False
        self._reserved[fabric] = holder
        return True

    def release(self, fabric: str, holder: str) -> None:
        """Give a reserved fabric back."""
        if self._reserved.get(fabric) == holder:
            del self._reserved[fabric]
            self._wake.set()

    async def start_now(self, submission: Submission, *, holder: str) -> StoredRun:
        """Start a run on a fabric that *holder* has reserved."""
        run = self.submit(submission, owner=holder, verb="run", tags=(), changes={})
        await self._start(run)
        return self.store.find(run.id) or run

    def has_said(self, run_id: str, text: str) -> bool:
        """Return whether a run in progress has printed a line."""
        job = self._jobs.get(run_id)
        return job is not None and any(event.data == text for event in job.lines)

    def locks(self) -> dict[str, str]:
        """Return the run that uses each fabric, for fabrics that are in use."""
        return dict(self._locks)

    def folder_of(self, run_id: str) -> Path:
        """Return the folder of a job."""
        return self._folder / JOBS / run_id

    def output_of(self, run_id: str) -> Path:
        """Return the file with the output of a run."""
        return self.folder_of(run_id) / "output.txt"

    async def follow(self, run_id: str, after: int = -1) -> AsyncIterator[Event]:
        """Yield the events of a run that is queued or in progress, until it ends.

        Args:
            run_id: The run.
            after: Number of the last event that is known.

        Raises:
            RunDirectoryError: If there are too many followers.
        """
        if self._followers >= _FOLLOWERS:
            raise RunDirectoryError("events", f"{_FOLLOWERS} clients follow runs")
        self._followers += 1
        told = None
        job: _Job | None = None
        try:
            while True:
                job = self._jobs.get(run_id, job)
                changed = None if job is None else job.changed
                run = self.store.find(run_id)
                if run is None:
                    return
                if run.state != told:
                    told = run.state
                    yield Event(-1, "state", run.document())
                for event in [] if job is None else list(job.lines):
                    if event.number > after:
                        after = event.number
                        yield event
                if run.state not in (QUEUED, RUNNING):
                    return
                if changed is None:
                    await asyncio.sleep(0.2)
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(10):
                        await changed.wait()
        finally:
            self._followers -= 1

    # ---- running ---------------------------------------------------------------------

    async def work(self) -> None:
        """Start runs as soon as they may start, until canceled."""
        self._mark_interrupted()
        try:
            while True:
                self._wake.clear()
                for run in self.store.waiting():
                    if len(self._jobs) >= self._parallel:
                        break
                    if run.fabric not in {*self._locks, *self._reserved}:
                        await self._start(run)
                await self._wake.wait()
        finally:
            await self._end_all()

    def _mark_interrupted(self) -> None:
        """Mark the runs that were in progress when the service ended."""
        for run in self.store.search(states=(RUNNING,), limit=-1):
            self.store.change(
                run.id,
                state=INTERRUPTED,
                reason=_ENDED_EARLY,
                ended_s=time.time(),
                directory=self.directory_of(run.id),
            )

    async def _start(self, run: StoredRun) -> None:
        folder = self.folder_of(run.id)
        self.store.change(run.id, state=RUNNING, started_s=time.time())
        try:
            process = await self._spawn(run, folder)
        except OSError as error:
            self._finish(run, FAILED, None, f"cannot be started: {error}")
            return
        job = self._jobs[run.id] = _Job(process)
        self._locks[run.fabric] = run.id
        task = asyncio.create_task(self._watch(run, job), name=f"run {run.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _spawn(self, run: StoredRun, folder: Path) -> asyncio.subprocess.Process:
        changes = json.loads((folder / "changes.json").read_text("utf-8"))
        arguments = [
            *(run.verb, str(folder / "experiment.yaml")),
            *("--resources", str(self._resources)),
            *("--runs", str(folder / "runs"), "--end-with-parent"),
            *(f"--set={key}={value}" for key, value in changes.items()),
        ]
        if self._metrics is not None and run.verb == "run":
            arguments += ["--metrics", self._metrics]
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "chakram", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=1 << 20,
            start_new_session=True,
        )

    async def _watch(self, run: StoredRun, job: _Job) -> None:
        """Follow the output of a run until it ends."""
        limit = asyncio.get_running_loop().call_later(
            self._longest_s, self._stop_late, job
        )
        try:
            await self._copy_output(run, job)
            code = await job.process.wait()
        finally:
            limit.cancel()
        ended = DONE if code == 0 else FAILED
        state = CANCELED if job.is_canceled else ended
        reason = None if state == DONE else job.last_error or f"exit code {code}"
        self._jobs.pop(run.id, None)
        self._locks.pop(run.fabric, None)
        self._finish(run, state, code, reason)
        job.changed.set()

    async def _copy_output(self, run: StoredRun, job: _Job) -> None:
        stdout = job.process.stdout
        assert stdout is not None
        with self.output_of(run.id).open("ab") as file:
            while True:
                try:
                    line = await stdout.readline()
                except ValueError:  # a line beyond the limit
                    continue
                if not line:
                    return
                with contextlib.suppress(OSError):  # the disk is full
                    file.write(line)
                    file.flush()
                text = line[:_LINE_BYTES].decode("utf-8", "replace").rstrip()
                if text.startswith(_ERROR) and not job.is_canceled:
                    job.last_error = text.removeprefix(_ERROR)
                job.tell("line", text)

    def _stop_late(self, job: _Job) -> None:
        job.last_error = f"took longer than {self._longest_s:.0f} s"
        job.is_canceled = True
        _signal(job.process, signal.SIGINT)

    def _finish(
        self, run: StoredRun, state: str, code: int | None, reason: str | None
    ) -> None:
        self.store.change(
            run.id,
            state=state,
            exit_code=code,
            reason=reason,
            ended_s=time.time(),
            directory=self.directory_of(run.id),
        )
        self._retire()
        self._wake.set()

    def directory_of(self, run_id: str) -> Path | None:
        """Return the run directory of a job, or None."""
        runs = self.folder_of(run_id) / "runs"
        if not runs.is_dir():
            return None
        found = sorted(path for path in runs.iterdir() if (path / MANIFEST).exists())
        return found[-1] if found else None

    def _retire(self) -> None:
        """Remove the oldest ended runs beyond the number to keep."""
        ended = [run for run in self.store.ended() if "keep" not in run.tags]
        for run in ended[: max(0, len(ended) - self._keep)]:
            self.store.remove(run.id)
            shutil.rmtree(self.folder_of(run.id), ignore_errors=True)

    async def _end_all(self) -> None:
        """End all processes; their runs are marked as interrupted."""
        jobs, self._jobs = dict(self._jobs), {}
        for job in jobs.values():
            job.is_canceled = True
            _signal(job.process, signal.SIGTERM)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for run_id, job in jobs.items():
            try:
                async with asyncio.timeout(_GRACE_S):
                    await _drained(job.process)
            except TimeoutError:
                _signal(job.process, signal.SIGKILL)
            self.store.change(
                run_id,
                state=INTERRUPTED,
                reason=_ENDED_EARLY,
                ended_s=time.time(),
                directory=self.directory_of(run_id),
            )


async def _drained(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a process, and discard what it says until then."""
    assert process.stdout is not None
    with contextlib.suppress(ValueError):
        while await process.stdout.read(1 << 16):
            pass
    await process.wait()


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    """Signal a process, if it has not ended."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)

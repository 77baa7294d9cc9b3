"""The queue of a service, which starts runs as processes and stores their output.

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
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from chakram.fabric.process_control import end_process, process_start_ticks
from chakram.foundation.errors import RunDirectoryError
from chakram.foundation.write_errors import explained_writes
from chakram.run_directory.manifest import MANIFEST, write_whole
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
from chakram.service.submissions import THIS_MACHINE, Submission

log = logging.getLogger(__name__)

JOBS = "jobs"
"""Folder that contains a folder for each job."""

MOST_WAITING = 1_000
"""Maximum number of queued runs."""

ERROR_PREFIX = "chakram: error: "
"""Start of an output line in which a command reports an error."""

EXPERIMENT, CHANGES, PROCESS = "experiment.yaml", "changes.json", "process.json"
CHOSEN = "jobs.txt"
"""Files in a job's folder: its experiment, changes, process, and names of sending
jobs."""

_ENDED_EARLY = "the service ended while it was in progress"
_GRACE_S = 20.0
_LAST_WORDS_S = 2.0
_LINES_KEPT = 2_000
_LINE_BYTES = 2_000
_FOLLOWERS = 100


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a run, for clients that follow the run.

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
    """A run in progress. It has no process until the queue starts one."""

    process: asyncio.subprocess.Process | None = None
    lines: deque[Event] = field(default_factory=lambda: deque(maxlen=_LINES_KEPT))
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    count: int = 0
    is_canceled: bool = False
    last_error: str = ""
    ending: asyncio.Task[None] | None = None

    def tell(self, kind: str, data: Any) -> None:
        self.lines.append(Event(self.count, kind, data))
        self.count += 1
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def cancel(self, reason: str) -> None:
        """Interrupt the process. Kill it if it does not end."""
        self.is_canceled = True
        self.last_error = reason
        if self.process is not None and self.ending is None:
            self.ending = asyncio.create_task(_end(self.process))


@dataclass(slots=True, eq=False)
class JobQueue:
    """Starter of queued runs, which also stores their output.

    Attributes:
        store: All runs.
        folder: Folder of the service.
        resources: Folder of resources.
        parallel: Number of runs at the same time.
        keep: Number of finished runs to keep. Runs with the tag ``keep`` do not count.
        longest_s: Longest duration of a run.
        metrics: Address at which runs serve metrics, or None. A run that starts during
            another one does not serve metrics.
        launching: Options that runs on fabrics of the service use to launch agents.
    """

    store: RunStore
    folder: Path
    resources: Path
    _: KW_ONLY
    parallel: int = 1
    keep: int = 200
    longest_s: float = 86_400.0
    metrics: str | None = None
    launching: Sequence[str] = ()
    _jobs: dict[str, _Job] = field(default_factory=dict)
    _locks: dict[str, str] = field(default_factory=dict)
    _reserved: dict[str, str] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    # Set and replaced when a run leaves the queue.
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _followers: int = 0

    # ---- what clients do -------------------------------------------------------------

    def submit(
        self, submission: Submission, *, owner: str, tags: Sequence[str] = ()
    ) -> StoredRun:
        """Queue an experiment.

        Raises:
            RunDirectoryError: If the folder of the job cannot be written, or the queue
                is full.
        """
        if self.store.counts()[QUEUED] >= MOST_WAITING:
            raise RunDirectoryError("queue", f"{MOST_WAITING} runs are waiting")
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        run_id = f"{moment}-{secrets.token_hex(3)}"
        folder = self.folder_of(run_id)
        with explained_writes(folder):
            folder.mkdir(parents=True)
            (folder / EXPERIMENT).write_text(submission.text, "utf-8")
            changes = json.dumps(dict(submission.changes))
            (folder / CHANGES).write_text(changes, "utf-8")
        run = self.store.add(
            id=run_id,
            owner=owner,
            name=submission.experiment.name,
            verb=submission.verb,
            fabric=submission.fabric,
            tags=tags,
            experiment=submission.written,
            digest=submission.digest,
            state=QUEUED,
            submitted_s=time.time(),
        )
        self._wake.set()
        return run

    def cancel(self, run: StoredRun, by: str) -> bool:
        """End a run, and return whether it was queued or in progress.

        A run that is in progress ends its traffic first, and keeps its partial results.
        """
        job, reason = self._jobs.get(run.id), f"canceled by {by}"
        if job is not None:
            job.cancel(reason)
            return True
        # The run may have ended since the caller read its state.
        now = self.store.find(run.id)
        if now is None or now.state != QUEUED:
            return False
        self._finish(now, CANCELED, None, reason)
        return True

    def reserve(self, fabric: str, holder: str) -> bool:
        """Reserve a fabric, and return whether that was possible.

        A second call with the same holder has no effect.
        """
        if fabric not in {*self._locks, *self._reserved}:
            self._reserved[fabric] = holder
        return self._reserved.get(fabric) == holder

    def release(self, fabric: str, holder: str) -> None:
        """Release a reserved fabric."""
        if self._reserved.get(fabric) == holder:
            del self._reserved[fabric]
            self._wake.set()

    async def start_now(
        self, submission: Submission, *, holder: str, jobs: Collection[str] = ()
    ) -> StoredRun:
        """Start a run on a fabric that *holder* has reserved.

        If *jobs* is not empty, only these jobs send until the next call of ``choose``.
        """
        run = self.submit(submission, owner=holder)
        if jobs:
            self.choose(run.id, jobs)
        await self._start(run)
        return self.store.find(run.id) or run

    def choose(self, run_id: str, jobs: Collection[str]) -> int:
        """Set which jobs of a run send, and return the run's next event number."""
        path = self.folder_of(run_id) / CHOSEN
        with explained_writes(path):
            write_whole(path, " ".join(jobs))
        job = self._jobs.get(run_id)
        return 0 if job is None else job.count

    def has_said(self, run_id: str, text: str, since: int = 0) -> bool:
        """Return whether an active run printed the line *text* since event *since*."""
        job = self._jobs.get(run_id)
        return job is not None and any(
            event.data == text and event.number >= since for event in job.lines
        )

    def locks(self) -> dict[str, str]:
        """Return the run that uses each fabric, for fabrics that are in use."""
        return dict(self._locks)

    def reservations(self) -> dict[str, str]:
        """Return the holder of each reserved fabric."""
        return dict(self._reserved)

    def explained(self, run: StoredRun) -> StoredRun:
        """Return a run, with a reason if it waits for a reserved fabric."""
        holder = self._reserved.get(run.fabric)
        if run.state != QUEUED or holder is None:
            return run
        reason = f"waits until {holder} releases {run.fabric}"
        return run.model_copy(update={"reason": reason})

    def changes_of(self, run_id: str) -> dict[str, str]:
        """Return the changes with which a run was submitted.

        Raises:
            RunDirectoryError: If the changes cannot be read, for example because the
                machine crashed before they were written.
        """
        path = self.folder_of(run_id) / CHANGES
        try:
            changes: dict[str, str] = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            found = f"cannot be read: {error}"
            raise RunDirectoryError(str(path), found, "submit the run again") from error
        return changes

    def folder_of(self, run_id: str) -> Path:
        """Return the folder of a job."""
        return self.folder / JOBS / run_id

    def output_of(self, run_id: str) -> Path:
        """Return the file with the output of a run."""
        return self.folder_of(run_id) / "output.txt"

    async def follow(self, run_id: str, after: int = -1) -> AsyncIterator[Event]:
        """Yield the events of a run that is queued or in progress, until it ends.

        Args:
            run_id: ID of the run.
            after: Number of the last event that the client knows.

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
                changed = self._moved if job is None else job.changed
                run = self.store.find(run_id, with_experiment=False)
                if run is None:
                    return
                if run.state != told:
                    told = run.state
                    yield Event(-1, "state", self.explained(run).document())
                for event in [] if job is None else list(job.lines):
                    if event.number > after:
                        after = event.number
                        yield event
                if run.state not in (QUEUED, RUNNING):
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(10):
                        await changed.wait()
        finally:
            self._followers -= 1

    # ---- running ---------------------------------------------------------------------

    async def work(self) -> None:
        """Start runs as soon as they may start, until canceled."""
        await self._mark_interrupted()
        try:
            while True:
                self._wake.clear()
                for run in self.store.waiting():
                    if len(self._jobs) >= self.parallel:
                        break
                    if run.fabric not in {*self._locks, *self._reserved}:
                        await self._start(run)
                await self._wake.wait()
        finally:
            await self._end_all()

    async def _mark_interrupted(self) -> None:
        """Mark the runs that were in progress when the service ended.

        Their processes may still be ending their traffic.
        """
        for run in self.store.search(states=(RUNNING,), limit=-1):
            was_alive = False
            try:
                text = (self.folder_of(run.id) / PROCESS).read_text("utf-8")
                process = json.loads(text)
                end = partial(end_process, grace_ns=round(_GRACE_S * 1e9))
                was_alive = await asyncio.to_thread(
                    end, process["pid"], process["ticks"]
                )
            except (OSError, ValueError, KeyError, TypeError):
                log.info("no process of run %s", run.id)
            ended_s = None if was_alive else self._last_output_s(run)
            self._finish(run, INTERRUPTED, None, _ENDED_EARLY, ended_s=ended_s)

    def _last_output_s(self, run: StoredRun) -> float | None:
        """Return the time of a run's last output, or else of its start."""
        try:
            return self.output_of(run.id).stat().st_mtime
        except OSError:
            return run.started_s

    async def _start(self, run: StoredRun) -> None:
        found = self.store.find(run.id)
        if found is None or found.state != QUEUED:
            return  # it was canceled in the meantime
        job = self._jobs[run.id] = _Job()
        self._locks[run.fabric] = run.id
        self.store.change(run.id, state=RUNNING, started_s=time.time())
        self._wake_followers()
        try:
            job.process = await self._spawn(run, self.folder_of(run.id))
        except (OSError, RunDirectoryError) as error:
            self._forget(run, job)
            self._finish(run, FAILED, None, f"cannot be started: {error}")
            return
        if job.is_canceled:
            job.cancel(job.last_error)
        task = asyncio.create_task(self._watch(run, job), name=f"run {run.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget(self, run: StoredRun, job: _Job) -> None:
        self._jobs.pop(run.id, None)
        self._locks.pop(run.fabric, None)
        job.wake()

    async def _spawn(self, run: StoredRun, folder: Path) -> asyncio.subprocess.Process:
        changes = self.changes_of(run.id)
        arguments = [
            *(run.verb, str(folder / EXPERIMENT)),
            *("--resources", str(self.resources)),
            *("--runs", str(folder / "runs"), f"--end-with-parent={os.getpid()}"),
            *(f"--set={key}={value}" for key, value in changes.items()),
        ]
        if run.verb == "run" and run.fabric != THIS_MACHINE:
            arguments += self.launching
        # An OTG client can start a run while another run uses the address.
        is_alone = len(self._jobs) == 1
        if self.metrics is not None and run.verb == "run" and is_alone:
            arguments += ["--metrics", self.metrics]
        if (folder / CHOSEN).exists():
            arguments += ["--jobs-file", str(folder / CHOSEN)]
        return await start_command(*arguments, stderr=asyncio.subprocess.STDOUT)

    async def _watch(self, run: StoredRun, job: _Job) -> None:
        """Follow the output of a run until it ends."""
        process = job.process
        assert process is not None
        reason = f"took longer than {self.longest_s:.0f} s"
        loop = asyncio.get_running_loop()
        limit = loop.call_later(self.longest_s, job.cancel, reason)
        copying = asyncio.create_task(self._copy_output(run, job, process))
        code: int | None = None
        try:
            ticks = process_start_ticks(process.pid)
            described = json.dumps({"pid": process.pid, "ticks": ticks})
            with contextlib.suppress(OSError):
                (self.folder_of(run.id) / PROCESS).write_text(described, "utf-8")
            code = await process.wait()
            # A process that the command left behind may keep the output open.
            await asyncio.wait({copying}, timeout=_LAST_WORDS_S)
        finally:
            limit.cancel()
            copying.cancel()
            if job.ending is not None:
                job.ending.cancel()
            if self._jobs.get(run.id) is job:
                ended = DONE if code == 0 else FAILED
                state = CANCELED if job.is_canceled else ended
                why = job.last_error or f"exit code {code}"
                self._forget(run, job)
                self._finish(run, state, code, None if state == DONE else why)

    async def _copy_output(
        self, run: StoredRun, job: _Job, process: asyncio.subprocess.Process
    ) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # a line that exceeds the limit
                continue
            if not line:
                return
            # The disk may be full.
            with (
                contextlib.suppress(OSError),
                self.output_of(run.id).open("ab") as file,
            ):
                file.write(line)
            text = line[:_LINE_BYTES].decode("utf-8", "replace").rstrip()
            if text.startswith(ERROR_PREFIX) and not job.is_canceled:
                job.last_error = text.removeprefix(ERROR_PREFIX)
            job.tell("line", text)

    def _finish(
        self,
        run: StoredRun,
        state: str,
        code: int | None,
        reason: str | None,
        *,
        ended_s: float | None = None,
    ) -> None:
        """Store the end of a run at time *ended_s*, or now if that is None."""
        self.store.change(
            run.id,
            state=state,
            exit_code=code,
            reason=reason,
            ended_s=time.time() if ended_s is None else ended_s,
            directory=self.directory_of(run.id),
        )
        self._retire()
        self._wake.set()
        self._wake_followers()

    def _wake_followers(self) -> None:
        """Wake the followers of runs that are not in progress."""
        self._moved.set()
        self._moved = asyncio.Event()

    def directory_of(self, run_id: str) -> Path | None:
        """Return the run directory of a job, or None."""
        found = sorted(self.folder_of(run_id).glob(f"runs/*/{MANIFEST}"))
        return found[-1].parent if found else None

    def _retire(self) -> None:
        """Remove the oldest finished runs beyond the number to keep."""
        ended = [run for run in self.store.ended() if "keep" not in run.tags]
        for run in ended[: max(0, len(ended) - self.keep)]:
            self.store.remove(run.id)
            folder = self.folder_of(run.id)
            asyncio.get_running_loop().run_in_executor(
                None, partial(shutil.rmtree, folder, ignore_errors=True)
            )

    async def _end_all(self) -> None:
        """End all processes; their runs are marked as interrupted."""
        jobs, self._jobs = dict(self._jobs), {}
        for job in jobs.values():
            job.is_canceled = True
            if job.process is not None:
                send_signal(job.process, signal.SIGTERM)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for run_id, job in jobs.items():
            if job.process is not None:
                try:
                    async with asyncio.timeout(_GRACE_S):
                        await _drained(job.process)
                except TimeoutError:
                    send_signal(job.process, signal.SIGKILL)
            run = self.store.find(run_id)
            if run is not None:
                self._finish(run, INTERRUPTED, None, _ENDED_EARLY)


async def start_command(*arguments: str, stderr: int) -> asyncio.subprocess.Process:
    """Start a command of Chakram, whose output can be read.

    Args:
        arguments: Verb and options of the command.
        stderr: Destination of errors, as for ``asyncio.create_subprocess_exec``.
    """
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "chakram", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        limit=1 << 20,
        start_new_session=True,
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Interrupt a process. If it continues, kill it and its children."""
    for number in (signal.SIGINT, signal.SIGTERM):
        send_signal(process, number)
        await asyncio.sleep(_GRACE_S)
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def _drained(process: asyncio.subprocess.Process) -> None:
    """Wait until a process ends, and discard its output."""
    assert process.stdout is not None
    with contextlib.suppress(ValueError):
        while await process.stdout.read(1 << 16):
            pass
    await process.wait()


def send_signal(process: asyncio.subprocess.Process, number: int) -> None:
    """Send a signal to a process, if it has not ended."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)

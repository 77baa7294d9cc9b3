"""Results of runs, created by the same commands that users type.

A separate process creates each result once. The folder of the job keeps the results.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import signal
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

from chakram.foundation.errors import InputError, ResultsError
from chakram.foundation.write_errors import explained_writes
from chakram.service.job_queue import ERROR_PREFIX, send_signal, start_command

LIMIT_S = 120.0
"""Time limit for creating a result."""

MADE = "made"
"""Name of the folder for results in the folder of a job."""

TEXT, JSON, HTML, BINARY = (
    "text/plain; charset=utf-8",
    "application/json",
    "text/html; charset=utf-8",
    "application/octet-stream",
)
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A command that renders a run, and the media type of its output.

    Attributes:
        arguments: Verb and options of the command.
        media_type: Type of the result.
        out: Whether the command writes a file, which ``--out`` names.
    """

    arguments: tuple[str, ...]
    media_type: str
    out: bool = False


VIEWS = {
    "show": View(arguments=("show", "--wide"), media_type=TEXT),
    "show.json": View(arguments=("show", "--json"), media_type=JSON),
    "why": View(arguments=("why",), media_type=TEXT),
    "why.json": View(arguments=("why", "--json"), media_type=JSON),
    "validate": View(arguments=("validate",), media_type=TEXT),
    "report": View(arguments=("report",), media_type=HTML, out=True),
    "bmwg": View(arguments=("report", "--bmwg"), media_type=HTML, out=True),
    "timeline": View(arguments=("timeline",), media_type=BINARY, out=True),
}
"""Views of runs, by name."""

COMPARISONS = {
    "text": View(arguments=("compare", "--wide"), media_type=TEXT),
    "json": View(arguments=("compare", "--json"), media_type=JSON),
    "report": View(arguments=("report",), media_type=HTML, out=True),
}
"""Comparisons of two runs, by format."""


class Renderer:
    """Creator of results, with a limit on concurrent commands.

    Args:
        parallel: Number of results that are created at the same time.
    """

    def __init__(self, parallel: int = 2) -> None:
        self._room = asyncio.Semaphore(parallel)
        # A lock exists only while a request holds it or waits for it.
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    async def make(self, view: View, runs: list[Path], folder: Path) -> bytes:
        """Return a result, and create it if necessary.

        Args:
            view: View to create.
            runs: Run directories.
            folder: Folder of the job that created the first run.

        Raises:
            ChakramError: If the command fails.
        """
        words = "\n".join([*view.arguments, *map(str, runs)])
        digest = hashlib.sha256(words.encode()).hexdigest()[:16]
        path = folder / MADE / f"{view.arguments[0]}-{digest}"
        async with self._locks.setdefault(path, asyncio.Lock()):
            with contextlib.suppress(FileNotFoundError):
                return await asyncio.to_thread(path.read_bytes)
            async with self._room:
                return await self._run(view, runs, path)

    async def _run(self, view: View, runs: list[Path], path: Path) -> bytes:
        with explained_writes(path.parent):
            # Do not create the folder of the job again if the run has been removed.
            await asyncio.to_thread(path.parent.mkdir, exist_ok=True)
        draft = path.with_suffix(".draft")
        out = ["--out", str(draft), "--force"] if view.out else []
        process = await start_command(
            *view.arguments, *map(str, runs), *out, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                output, errors = await process.communicate()
        except TimeoutError:
            found = f"took longer than {LIMIT_S:.0f} s"
            raise ResultsError(view.arguments[0], found) from None
        finally:
            send_signal(process, signal.SIGKILL)
            await process.wait()
        if process.returncode != 0 and not output:
            lines = errors.decode("utf-8", "replace").splitlines()
            told = [each for each in lines if each.startswith(ERROR_PREFIX)]
            why = told[-1].removeprefix(ERROR_PREFIX) if told else "the command failed"
            raise InputError(f"chakram {view.arguments[0]}", why)
        if view.out:
            with explained_writes(path):
                await asyncio.to_thread(draft.rename, path)
                return await asyncio.to_thread(path.read_bytes)
        if len(output) <= _MOST_BYTES:
            # The disk may be full. Then the next request creates the result again.
            with contextlib.suppress(OSError):
                await asyncio.to_thread(draft.write_bytes, output)
                await asyncio.to_thread(draft.rename, path)
        return output

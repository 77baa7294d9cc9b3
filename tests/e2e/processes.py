"""Runs as separate processes, to be killed and interrupted, and their children."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.fabric.labs.lab import down
from tests.e2e.runs import LAB, Ended
from tests.incomplete_runs import KILLED_AT_A_RENAME
from tests.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

AGENT, FORK_SERVER, SHARD, HOLDER = (
    "chakram_agent serve",
    "chakram-forksrv",
    "chakram-shard",
    "chakram.fabric.labs.holder",
)
"""What the command lines of the processes of a run contain, or names of forked ones."""

TRAFFIC_ENDS_S = 2.0
"""Without its controller, traffic ends within that time: a promise, not a hope."""


class RunProcess:
    """``chakram run`` as a separate process, in its own session.

    As a context manager it is killed at the end, and its lab taken down, whatever
    became of it.

    Args:
        experiment: Its file.
        arguments: Further arguments.
        verb: ``run`` or ``simulate``.
        prefix: What makes a command run somewhere else.
        environment: Variables beside those of this process.
        killed_at: Before which file is put in its place it is killed; empty: none.
    """

    def __init__(
        self,
        experiment: Path,
        *arguments: object,
        verb: str = "run",
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        killed_at: str = "",
    ) -> None:
        chakram = [sys.executable, "-m", "chakram"]
        if killed_at:
            chakram = [sys.executable, "-c", KILLED_AT_A_RENAME, killed_at]
        self.runs = experiment.parent / "runs"
        self._output = experiment.parent / "output.txt"
        self._errors = experiment.parent / "errors.txt"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    *prefix,
                    *(*chakram, verb, str(experiment)),
                    *map(str, arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )

    def __enter__(self) -> RunProcess:
        return self

    def __exit__(self, *_: object) -> None:
        everybody = self.family()
        self.process.kill()
        self.process.wait()
        for each in everybody:
            each.signal(signal.SIGKILL)
        asyncio.run(down(LAB))

    @property
    def errors(self) -> str:
        """Output on stderr so far."""
        return self._errors.read_text(encoding="utf-8")

    def wait(self) -> Ended:
        """Return its result after its end."""
        code = self.process.wait(PATIENCE_S)
        assert "Traceback" not in self.errors
        return Ended(
            code=code,
            output=self._output.read_text(encoding="utf-8"),
            errors=self.errors,
            runs=self.runs,
        )

    def wait_for_records(self) -> None:
        """Return once the first records are in their files."""
        wait_until(self._has_records, "the first records")

    def _has_records(self) -> bool:
        assert self.process.poll() is None, self.errors
        return any(self.runs.glob("*/collectives/*.parquet"))

    def family(self) -> list[Member]:
        """Return the processes that it started, and those that they started."""
        return descendants(self.process.pid)

    def member(self, text: str, index: int = 0) -> Member:
        """Return the process of the family whose command line holds *text*."""
        return [each for each in self.family() if text in each.command][index]


@dataclass(frozen=True, slots=True)
class Member:
    """A process, known by its number and its start, so that it is never mistaken."""

    pid: int
    started: int
    command: str

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        fields = _stat(self.pid)
        return fields is not None and fields[0] not in "ZX" and self.is_in(fields)

    def is_in(self, fields: list[str]) -> bool:
        """Return whether the fields of a ``stat`` file are its own."""
        return int(fields[19]) == self.started

    def signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        fields = _stat(self.pid)
        if fields is not None and self.is_in(fields):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command is in parentheses and may itself hold blanks and parentheses.
    return text[text.rfind(")") + 2 :].split()


def descendants(ancestor: int) -> list[Member]:
    """Return all descendants of a process."""
    children: dict[int, list[Member]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        fields = _stat(pid)
        try:
            command = (folder / "comm").read_text("ascii")
            if not command.startswith("chakram-"):  # forked: the line is the parent's
                line = (folder / "cmdline").read_bytes()
                command = line.replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields is not None:
            member = Member(pid, int(fields[19]), command)
            children.setdefault(int(fields[1]), []).append(member)
    found: list[Member] = []
    waiting = list(children.get(ancestor, ()))
    while waiting:
        member = waiting.pop()
        found.append(member)
        waiting += children.get(member.pid, ())
    return found


def gone(members: Iterable[Member], text: str = "") -> bool:
    """Return whether all processes whose command line contains *text* have ended."""
    return not any(each.alive for each in members if text in each.command)

"""Commands in the documentation, and an environment to run them as printed.

The words after the language of a fence determine how its commands are run:

========================  =====================================================
nothing                   in every check, after the earlier fences of the page
``soak``                  in ``make soak``: it takes long
``needs-traces``          where there are real traces (``CHAKRAM_DATA``)
``needs-torch``           where PyTorch is installed
``generator-bound``       its run may be limited by the generator: the page says so
``file=NAME``             it is no command, but a file that later commands read
``output``                the fence before it prints these lines; ``...`` are others
``measured``              numbers of that output differ from run to run
``not-run: REASON``       never: the reason is told
========================  =====================================================
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import yaml

from chakram.fabric.labs.lab_files import STATE_ROOT_VARIABLE
from tests.support import REPO_ROOT, why_no_torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Set

__all__ = [
    "COMMANDS",
    "CONFIGS",
    "PAGES",
    "Fence",
    "Place",
    "config_fences",
    "fences",
    "parsed_fence",
]

PAGES = sorted(
    path.relative_to(REPO_ROOT).as_posix()
    for path in (
        REPO_ROOT / "README.md",
        REPO_ROOT / "CONTRIBUTING.md",
        *(REPO_ROOT / "docs").rglob("*.md"),
    )
)
CONFIGS = sorted(path.name for path in (REPO_ROOT / "configs").glob("*.yaml"))

COMMANDS = ("sh", "console", "python")
"""Languages of fences that are run."""

_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_WORDS = {
    "soak",
    "needs-traces",
    "needs-torch",
    "generator-bound",
    "output",
    "measured",
}
_NUMBER = re.compile(r"[<>+-]*\d[\d.,]*")
_FIRST_LINE = "# chakram run"
_BANNER = "GENERATOR-BOUND"
_SIMULATED = ("incast", "quickstart", "quickstart-small")
_ATTEMPTS = 3
_GRACE_S = 60.0
"""Time for a command to end after a signal, and for the removal of labs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """One fenced block of a page.

    Attributes:
        page: Path of the page in the repository.
        line: Its first line, from 1.
        language: First word after the fence.
        tags: The words after it.
        file: Name of the file that it is, if it is one.
        reason: Why it is not run; None: it is.
        text: What it holds.
    """

    page: str
    line: int
    language: str
    tags: frozenset[str]
    file: str | None
    reason: str | None
    text: str

    @property
    def where(self) -> str:
        """Page and line, as editors take them."""
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        """Whether it holds commands that can be run."""
        return self.language in COMMANDS and self.reason is None

    def script(self) -> str:
        """Return the commands, without the prompts and outputs of a console."""
        if self.language != "console":
            return self.text
        return "".join(
            f"{line[2:]}\n" for line in self.text.splitlines() if line.startswith("$ ")
        )


def parsed_fence(page: str, line: int, info: str, text: str) -> Fence:
    """Return a fence from the text after and inside it.

    Raises:
        ValueError: If a tag is not known.
    """
    told, _, reason = info.partition("not-run:")
    language, *words = told.split() or [""]
    files = [word.removeprefix("file=") for word in words if word.startswith("file=")]
    tags = {word for word in words if not word.startswith("file=")}
    unknown = tags - _WORDS
    if unknown:
        raise ValueError(f"{page}:{line}: {', '.join(unknown)} is no tag of a fence")
    return Fence(
        page=page,
        line=line,
        language=language,
        tags=frozenset(tags),
        file=files[0] if files else None,
        reason=reason.strip() if "not-run:" in info else None,
        text=text,
    )


def fences(page: str) -> Iterator[Fence]:
    """Yield the fences of a page, in order."""
    text = (REPO_ROOT / page).read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        indent, info, inside = match.groups()
        lines = [line.removeprefix(indent) for line in inside.splitlines(True)]
        line = text.count("\n", 0, match.start()) + 1
        yield parsed_fence(page, line, info, "".join(lines))


def config_fences(config: str) -> list[Fence]:
    """Return the commands in the head of an experiment, each as a fence: all for soak.

    They are indented by three spaces; a backslash continues them, and what follows two
    spaces is a remark.  ``run`` takes long, as does what is tagged so in brackets.
    """
    page = f"configs/{config}"
    found: list[Fence] = []
    pending = ""
    lines = (REPO_ROOT / page).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if not line.startswith("#   ") and not pending:
            continue
        command, _, remark = line.removeprefix("#").strip().partition("   ")
        if command.endswith("\\"):
            pending += command.removesuffix("\\")
            continue
        command, pending = pending + command, ""
        tag = re.search(r"\[(.*)\]", remark)
        info = f"sh {tag.group(1) if tag else ''}"
        if command.startswith("chakram run") and "not-run:" not in info:
            info = f"sh soak {tag.group(1) if tag else ''}"
        found.append(parsed_fence(page, number, info, f"{command}\n"))
    return found


class Place:
    """A folder that looks like the root of the repository; it keeps written files.

    Args:
        folder: An empty one.
        data: Folder of real traces, if there is one.
        programs: Folder of those that are taken first.
    """

    def __init__(
        self, folder: Path, data: Path | None, programs: Path | None = None
    ) -> None:
        self.folder = folder
        self._programs = [] if programs is None else [str(programs)]
        self._has_traces = data is not None
        for entry in REPO_ROOT.iterdir():
            if entry.name not in {"configs", "runs", "traces", "certs", ".git"}:
                (folder / entry.name).symlink_to(entry)
        configs = folder / "configs"
        configs.mkdir()
        for entry in (REPO_ROOT / "configs").iterdir():
            (configs / entry.name).symlink_to(entry)
        if data is not None:
            # Experiments name them relative to their own folder.
            for place in (folder, configs):
                (place / "traces").mkdir()
                for entry in (data / "traces/stage").iterdir():
                    (place / "traces" / entry.name).symlink_to(entry)

    def send_less(self) -> Place:
        """Reduce the traffic of simulated experiments, and change nothing else."""
        for name in _SIMULATED:
            path = self.folder / f"configs/{name}.yaml"
            experiment = yaml.safe_load(path.read_text(encoding="utf-8"))
            for job in experiment["jobs"]:
                job["size_scale"] = "1/16"
            path.unlink()
            path.write_text(json.dumps(experiment), encoding="utf-8")
        return self

    def run(self, chosen: Sequence[Fence], *, soak: bool, timeout_s: float) -> int:
        """Run the commands of fences, in order; return how many fences were run.

        What they leave behind, as a lab that a failed command did not take down, is
        gone when this returns.

        Raises:
            AssertionError: If one fails or does not end, or one of its runs is limited
                by the generator at every attempt although its page does not state it;
                or if the page shows other output.
        """
        count = 0
        output: str | None = None
        with self._environment() as environment:
            for fence in chosen:
                if fence.file is not None:
                    (self.folder / fence.file).write_text(fence.text, encoding="utf-8")
                if "output" in fence.tags and output is not None:
                    _check_output(fence, output)
                if fence.is_run:
                    output = None
                if not fence.is_run or ("soak" in fence.tags and not soak):
                    continue
                if "needs-traces" in fence.tags and not self._has_traces:
                    continue
                if "needs-torch" in fence.tags and why_no_torch() is not None:
                    continue
                output = self._run(fence, environment, timeout_s)
                count += 1
        return count

    @contextmanager
    def _environment(self) -> Iterator[dict[str, str]]:
        """Yield that of commands, whose labs are no others' and end with the block."""
        programs = [*self._programs, str(Path(sys.executable).parent)]
        path = os.pathsep.join([*programs, os.environ.get("PATH", os.defpath)])
        # Sockets lie in it: its path has to be short.
        with TemporaryDirectory(prefix="ck-") as state:
            environment = os.environ | {"PATH": path, STATE_ROOT_VARIABLE: state}
            try:
                yield environment
            finally:
                if any(Path(state).iterdir()):
                    subprocess.run(
                        ["chakram", "fabric", "down", "--all", "--force"],
                        env=environment,
                        stdout=subprocess.DEVNULL,
                        timeout=_GRACE_S,
                        check=True,
                    )

    def _run(self, fence: Fence, environment: dict[str, str], timeout_s: float) -> str:
        """Run the commands of a fence; return what they print."""
        command = ["bash", "-euo", "pipefail", "-c", fence.script()]
        if fence.language == "python":
            command = [sys.executable, "-c", fence.text]
        told: list[str] = []
        limited: Set[int] | None = None
        before = set(self.folder.iterdir())
        for _ in range(_ATTEMPTS):
            for made in set(self.folder.iterdir()) - before:
                if made.is_dir():
                    shutil.rmtree(made)
                else:
                    made.unlink()
            with subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            ) as process:
                try:
                    output, _ = process.communicate(timeout=timeout_s)
                except subprocess.TimeoutExpired:
                    output = _ended(process)
                    raise AssertionError(
                        f"{fence.where}: no end after {timeout_s} s: {output[-4000:]}"
                    ) from None
            assert process.returncode == 0, f"{fence.where}: {output[-4000:]}"
            banners = _banners(output)
            limited = banners.keys() if limited is None else limited & banners.keys()
            if not limited or "generator-bound" in fence.tags:
                return output
            told += banners.values()
        raise AssertionError(
            "\n".join([f"{fence.where}: {_ATTEMPTS} attempts of {_ATTEMPTS}", *told])
        )


def _check_output(fence: Fence, output: str) -> None:
    """Check that commands print the lines of a fence, but for the width of gaps.

    Raises:
        AssertionError: If a line is missing.
    """
    shown, printed = fence.text, output
    if "measured" in fence.tags:
        # Which rows are marked as limited by the generator differs, too.
        printed = printed.replace(" *\n", "\n")
        shown, printed = (_NUMBER.sub("N", each) for each in (shown, printed))
    lines = {" ".join(line.split()) for line in printed.splitlines()}
    missing = {" ".join(line.split()) for line in shown.splitlines()} - lines
    missing -= {"", "..."}
    assert not missing, f"{fence.where}: {missing} is not in: {output[-4000:]}"


def _banners(output: str) -> dict[int, str]:
    """Return the generator-bound runs of an output, with their messages."""
    found = {}
    run = 0
    for line in output.splitlines():
        run += line.startswith(_FIRST_LINE)
        if _BANNER in line:
            found[run] = line
    return found


def _ended(process: subprocess.Popen[str]) -> str:
    """End a command and all that it started, in order if it does; return its output."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_GRACE_S)[0]
    return ""

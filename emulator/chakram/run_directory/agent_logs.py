"""Logs of the agents of a run, and of the launchers that have started them."""

from __future__ import annotations

import re
from pathlib import Path

from chakram.foundation.errors import NoRunDirectory
from chakram.foundation.text_escaping import from_file_name

FOLDER = "agents"
"""Folder of a run directory with a log of each launched agent and each launcher."""

_LOCAL = "agent-"
_LIMIT_BYTES = 4 << 20


def _host_of(path: Path) -> str:
    """Return the host or launcher of a log."""
    if path.parent.name != FOLDER:
        return path.stem.removeprefix(_LOCAL)
    return from_file_name(path.stem)


def _natural(path: Path) -> list[tuple[int, str]]:
    """Return a sort key with which ``n2`` comes before ``n10``."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part)
        for part in re.split(r"(\d+)", _host_of(path))
    ]


def agent_logs(directory: Path) -> dict[str, str]:
    """Return the logs of a run by name of the host or launcher, in natural order.

    Only the end of a long log is returned, because it explains the end of the run.

    Raises:
        NoRunDirectory: If the directory does not exist or cannot be read.
    """
    if not directory.is_dir():
        raise NoRunDirectory(str(directory), "is not a directory")
    found = {}
    try:
        files = [*directory.glob(f"{_LOCAL}*.log"), *(directory / FOLDER).glob("*.log")]
        for path in sorted(files, key=_natural):
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _LIMIT_BYTES))
                text = file.read(_LIMIT_BYTES).decode("utf-8", "replace")
            found[_host_of(path)] = text
    except OSError as error:
        raise NoRunDirectory(
            str(error.filename), f"cannot be read ({error.strerror})"
        ) from error
    return found

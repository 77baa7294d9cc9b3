"""Logs of the agents of a run, and of the launchers that have started them."""

from __future__ import annotations

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


def agent_logs(directory: Path) -> dict[str, str]:
    """Return the logs of a run by name of the host or launcher, in natural order.

    Raises:
        NoRunDirectory: If the directory does not exist or cannot be read.
    """
    if not directory.is_dir():
        raise NoRunDirectory(str(directory), "is not a directory")
    found = {}
    try:
        files = [*directory.glob(f"{_LOCAL}*.log"), *(directory / FOLDER).glob("*.log")]
        for path in sorted(files):
            with path.open("rb") as file:
                text = file.read(_LIMIT_BYTES).decode("utf-8", "replace")
            found[_host_of(path)] = text
    except OSError as error:
        raise NoRunDirectory(
            str(error.filename), f"cannot be read ({error.strerror})"
        ) from error
    return found

"""Output of optional programs on a host, such as ``chronyc``."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence


def command_output(command: Sequence[str], *, timeout_s: float) -> bytes:
    """Return the output of a command, or nothing if it is missing, fails or hangs."""
    if shutil.which(command[0]) is None:
        return b""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return b""

"""The file that marks a folder as a sweep folder.

Run reports also look for this file, so this module imports nothing that is slow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

SUITE: Final = "suite.json"


def is_sweep(folder: Path) -> bool:
    """Return whether a folder is a sweep folder."""
    return (folder / SUITE).is_file()

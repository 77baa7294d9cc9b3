"""Open a page in headless Chromium and return its content and errors."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support import missing_program, require

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["FLAGS", "NOT_A_NUMBER", "OpenedPage", "open_page", "require_chromium"]

NOT_A_NUMBER = re.compile(r"(?<![\w+/])NaN(?![\w+/])")
"""In a coordinate; clips have random letters as names, images are base64."""

# Root needs the first; the others keep it from the network, which may not be there.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_CONSOLE = re.compile(r":[A-Z]+:CONSOLE[:(]\d+\)?\] (.*)")
_ORDINARY = re.compile(r'"\[bokeh [0-9.]+\] (setting log level|document idle)')
_LIMIT_S = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedPage:
    """A page after its scripts have run: its elements, and its console's lines.

    Chromium logs faults of scripts at the level of information, so all lines count.
    """

    dom: str
    console: tuple[str, ...]

    @property
    def complaints(self) -> list[str]:
        """Console messages, without those that Bokeh always prints.

        Chromium's own pages complain, too, as of a slow network for their fonts.
        """
        return [
            line
            for line in self.console
            if not _ORDINARY.match(line) and "source: chrome://" not in line
        ]


def require_chromium() -> None:
    """Skip the test, or fail it, without Chromium."""
    require("chromium", missing_program("chromium"))


def open_page(
    page: Path | str,
    *,
    profile: Path,
    flags: Sequence[str] = (),
    timing: str | None = None,
) -> OpenedPage:
    """Open a page, wait till its scripts are done, and return it.

    Args:
        page: The file, or the address of a page that is shown once it has loaded.
        profile: An empty folder for what the browser keeps.
        flags: Further flags of Chromium.
        timing: The flag that decides when the page is returned, if not the usual one.
    """
    is_live = isinstance(page, str)
    done = subprocess.run(
        [
            "chromium",
            *FLAGS,
            *flags,
            f"--user-data-dir={profile}",
            "--enable-logging=stderr",
            # Virtual time: timers of the page fire at once, none is waited for.
            # A stream of events would keep virtual time from passing.
            timing or ("--timeout=5000" if is_live else "--virtual-time-budget=10000"),
            "--dump-dom",
            page if isinstance(page, str) else page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=True,
    )
    return OpenedPage(
        dom=done.stdout,
        console=tuple(_CONSOLE.findall(done.stderr)),
    )

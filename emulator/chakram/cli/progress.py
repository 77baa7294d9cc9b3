"""Tells a person how far a run is: a bar on a terminal, plain lines elsewhere.

All of it goes to stderr; stdout is for results.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["ProgressReporter"]

_LINE_EVERY_NS = 2 * 10**9


class ProgressReporter:
    """Shows phases, iterations and notes; use it in a ``with`` block.

    Args:
        quiet: Show nothing, as for ``--json``.
        console: Where to; None: stderr.
    """

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self._quiet = quiet
        self._console = console or Console(file=sys.stderr)
        self._bar: Progress | None = None
        self._task = None if quiet or not self._console.is_terminal else self._make()
        self._phase = ""
        self._next_line_ns = 0

    def _make(self) -> TaskID:
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        return self._bar.add_task("starting", total=None)

    def __enter__(self) -> Self:
        """Begin to show."""
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave nothing on the terminal."""
        if self._bar is not None:
            self._bar.stop()

    def phase(self, text: str) -> None:
        """Say that a phase has begun."""
        self._phase = text
        self._next_line_ns = 0
        if self._bar is not None and self._task is not None:
            # ``reset`` alone would keep an old total.
            self._bar.update(self._task, description=text, completed=0, total=None)
        else:
            self._print(text)

    def iterations(self, done: int, total: int, unit: str = "iteration") -> None:
        """Say that so many iterations, or other *unit*, are done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)
            return
        now_ns = time.monotonic_ns()
        if done == total or now_ns >= self._next_line_ns:
            self._next_line_ns = now_ns + _LINE_EVERY_NS
            self._print(f"{self._phase}: {unit} {done} of {total}")

    def note(self, text: str) -> None:
        """Say something that stays to be read."""
        self._print(text)

    def _print(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

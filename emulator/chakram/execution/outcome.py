"""Outcome of a run or simulation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.foundation.errors import ChakramError
from chakram.summary.run_summary import Summary

if TYPE_CHECKING:
    from chakram.run_directory.reader import RunResults


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """Outcome of a run or simulation.

    ``error`` is the reason why the run is incomplete, or None if it is complete.
    """

    results: RunResults
    summary: Summary
    error: ChakramError | None

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.results.path

    @property
    def exit_code(self) -> int:
        """Exit code for the process."""
        return 0 if self.error is None else self.error.exit_code

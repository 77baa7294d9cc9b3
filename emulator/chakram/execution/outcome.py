"""What a run or a simulation leaves to its caller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakram.foundation.errors import ChakramError
    from chakram.summary.run_summary import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """What a run leaves to its caller.

    ``error`` is why the run is not complete, None where it is.
    """

    directory: Path
    summary: Summary
    error: ChakramError | None

    @property
    def exit_code(self) -> int:
        """What the process should end with."""
        return 0 if self.error is None else self.error.exit_code

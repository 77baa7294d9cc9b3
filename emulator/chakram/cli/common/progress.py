"""Progress display of a run: a bar on a terminal, plain lines elsewhere.

All output goes to stderr, because stdout is for results. During a run, the display adds
one line per interval with the counters of the agents
(``chakram.summary.interval_lines``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from chakram.foundation.text_escaping import plain

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from chakram.cli.common.escaping_console import Console
    from chakram.config.experiment import Experiment
    from chakram.execution.request import RunRequest
    from chakram.summary.collectives_in_flight import CollectivesInFlight
    from chakram.summary.interval_lines import AgentSample, Intervals


_LINE_EVERY_NS = 2 * 10**9
_LEFT_AFTER_NS = 5 * 10**9
"""Elapsed time of a phase after which its remaining time is estimated."""


@contextmanager
def run_request(
    experiment: Experiment,
    text: str,
    *,
    runs: Path | None,
    quiet: bool,
    interval_ns: int = 0,
    **how: Any,
) -> Iterator[RunRequest]:
    """Yield the request for a run, and show the run's progress until the block ends.

    Args:
        experiment: Experiment to run.
        text: The text of its file.
        runs: Folder for run directories. None means the folder in the experiment.
        quiet: Show nothing.
        interval_ns: Time between two lines of counters, or 0 for none.
        how: Additional fields of the request.
    """
    from chakram.execution.request import RunRequest

    with ProgressReporter(
        quiet=quiet, interval_ns=interval_ns, dilation=experiment.fabric.dilation
    ) as progress:
        yield RunRequest(
            experiment=experiment,
            text=text,
            runs_directory=runs or experiment.runs,
            progress=progress,
            **how,
        )


@dataclass(slots=True, eq=False, kw_only=True)
class ProgressReporter:
    """Progress display of phases, iterations and notes, for a ``with`` block.

    Attributes:
        quiet: Show nothing, as for ``--json``.
        console: The console. None means stderr, with a bar only on a terminal.
        interval_ns: Time between two lines of counters, or 0 for none.
        dilation: Time dilation of the fabric. Lines show undilated rates.
        clock_ns: Function that returns the current time.
    """

    quiet: bool = False
    console: Console | None = None
    interval_ns: int = 0
    dilation: int = 1
    clock_ns: Callable[[], int] = time.monotonic_ns
    _intervals: Intervals | None = None
    _phases: list[tuple[str, int]] = field(default_factory=list)
    _bar: Progress | None = None
    _task: TaskID | None = None
    _phase: str = ""
    _next_line_ns: int = 0
    _expected_ns: int = 0

    def __post_init__(self) -> None:
        # Rich takes 13 ms to import, and plain lines do not need it.
        if self.console is None and sys.stderr.isatty():
            from chakram.cli.common.escaping_console import Console

            self.console = Console(file=sys.stderr)
        if self.console is not None and self.console.is_terminal and not self.quiet:
            self._task = self._make()

    def _make(self) -> TaskID:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )
        return self._bar.add_task("starting", total=None)

    def __enter__(self) -> Self:
        """Start the display."""
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the display, and print the durations of all phases."""
        if self._bar is not None:
            self._bar.stop()
        if len(self._phases) > 1:
            self._print(phases_line(self._phases, self.clock_ns()))

    def phase(self, text: str) -> None:
        """Show a new phase."""
        self._phase = text
        self._next_line_ns = 0
        self._intervals = None
        self._phases.append((text, self.clock_ns()))
        if self._bar is not None and self._task is not None:
            # ``reset`` alone would keep an old total.
            self._bar.update(self._task, description=text, completed=0, total=None)
        else:
            self._print(text)

    def iterations(self, done: int, total: int, unit: str = "iteration") -> None:
        """Show the number of finished iterations, or of another *unit*."""
        now_ns = self.clock_ns()
        spent_ns = now_ns - self._phases[-1][1] if self._phases else 0
        left = ""
        left_ns = self._left_ns(spent_ns) if unit == "iteration" else None
        if 0 < done < total and spent_ns >= _LEFT_AFTER_NS:
            left_ns = spent_ns * (total - done) // done
        if done < total and left_ns is not None:
            from chakram.summary.interval_lines import time_left

            left = f", {time_left(left_ns)} left"
        if self._bar is not None and self._task is not None:
            text = f"{self._phase}{left}"
            self._bar.update(self._task, description=text, completed=done, total=total)
            return
        if done == total or now_ns >= self._next_line_ns:
            # The interval between lines grows with the duration of the phase.
            self._next_line_ns = now_ns + max(_LINE_EVERY_NS, spent_ns // 10)
            self._print(f"{self._phase}: {unit} {done} of {total}{left}")

    def expect(self, duration_ns: int) -> None:
        """Store the expected duration of all iterations of a run, or 0 if unknown."""
        self._expected_ns = duration_ns

    def _left_ns(self, spent_ns: int) -> int | None:
        """Return the expected remaining time, or None if it is unknown or used up."""
        left_ns = self._expected_ns - spent_ns
        return left_ns if left_ns > 0 else None

    def sample(
        self,
        agent: str,
        sample: AgentSample,
        *,
        done: int,
        total: int,
        work: CollectivesInFlight | None = None,
    ) -> None:
        """Add a sample, and print a line if an interval has passed."""
        from chakram.summary.interval_lines import HEADING, Intervals, time_left

        if not self._phases:
            return
        now_ns = self.clock_ns()
        doing = "" if work is None else work.text()
        if self._bar is not None and self._task is not None and work is not None:
            from rich.markup import escape

            spent_ns = now_ns - self._phases[-1][1]
            left_ns = work.left_ns(spent_ns)
            left = time_left(self._left_ns(spent_ns) if left_ns is None else left_ns)
            text = f"{self._phase}: {doing}, {left} left"
            self._bar.update(self._task, description=escape(text))
        if not self.interval_ns:
            if self._bar is None and self._expected_ns:
                self.iterations(done, total)  # an iteration may take minutes
            return
        if self._intervals is None:
            _, begin_ns = self._phases[-1]
            self._intervals = Intervals(
                every_ns=self.interval_ns,
                begin_ns=begin_ns,
                dilation=self.dilation,
                expected_ns=self._expected_ns,
            )
            self._print(HEADING)
        line = self._intervals.take(
            agent, sample, now_ns=now_ns, done=done, total=total, work=work
        )
        if line is not None:
            # The line includes the number of finished iterations, so `iterations` can
            # wait.
            self._next_line_ns = now_ns + 2 * max(self.interval_ns, _LINE_EVERY_NS)
            # On a terminal, the bar shows the current collectives.
            is_bar = self._bar is not None
            self._print(line if is_bar or not doing else f"{line}  {doing}")

    def note(self, text: str) -> None:
        """Print a message."""
        self._print(text)

    def _print(self, text: str) -> None:
        if self.quiet:
            return
        if self.console is None:
            print(plain(text), file=sys.stderr, flush=True)
        else:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def phases_line(phases: Sequence[tuple[str, int]], end_ns: int) -> str:
    """Return a line with the duration of each phase and the total.

    Args:
        phases: Names and start times of the phases, in order. Durations of phases with
            the same name are added.
        end_ns: End of the last phase.
    """
    took_ns: dict[str, int] = {}
    ends_ns = [begin_ns for _, begin_ns in phases[1:]]
    for (name, begin_ns), after_ns in zip(phases, [*ends_ns, end_ns], strict=True):
        took_ns[name] = took_ns.get(name, 0) + after_ns - begin_ns
    parts = ", ".join(
        f"{name} {time_ns / 1e9:.1f} s" for name, time_ns in took_ns.items()
    )
    return f"{parts}; {(end_ns - phases[0][1]) / 1e9:.1f} s in total"

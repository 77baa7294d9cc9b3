"""Progress: lines where there is no terminal, nothing where none is wanted."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

from chakram.cli.common.progress import ProgressReporter, phases_line
from chakram.summary.interval_lines import HEADING, AgentSample


def make_console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80)
    return console, file


class Clock:
    """Goes on by a tenth of a second whenever somebody looks at it."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 100_000_000
        return self.now_ns


def show(progress: ProgressReporter) -> None:
    with progress:
        progress.phase("building the fabric")
        progress.phase("replaying")
        for done in range(4):
            progress.iterations(done, 3)
        progress.note("agent [a]: something")


def test_elsewhere_than_on_a_terminal_there_are_plain_lines() -> None:
    console, file = make_console(terminal=False)
    show(ProgressReporter(console=console, clock_ns=Clock()))
    assert file.getvalue().splitlines() == [
        "building the fabric",
        "replaying",
        # The ones between come too soon after the first.
        "replaying: iteration 0 of 3",
        "replaying: iteration 3 of 3",
        "agent [a]: something",
        "building the fabric 0.1 s, replaying 0.5 s; 0.6 s in total",
    ]


def test_long_phases_show_the_time_left_at_longer_intervals() -> None:
    console, file = make_console(terminal=False)
    clock = Clock()
    with ProgressReporter(console=console, clock_ns=clock) as progress:
        progress.phase("simulating")
        for second in range(1, 101):
            clock.now_ns = second * 10**9
            progress.iterations(second, 100, "message")
    lines = file.getvalue().splitlines()[1:]
    assert lines[0] == "simulating: message 1 of 100"
    assert "simulating: message 5 of 100, 1m35s left" in lines
    assert lines[-1] == "simulating: message 100 of 100"
    done = [int(line.split()[2]) for line in lines]
    gaps = [after - before for before, after in pairwise(done)]
    assert gaps[0] == 2
    assert 8 <= max(gaps) <= 10


def test_a_run_with_a_long_iteration_shows_its_expected_time() -> None:
    console, file = make_console(terminal=False)
    clock = Clock()
    with ProgressReporter(console=console, clock_ns=clock) as progress:
        progress.expect(100 * 10**9)
        progress.phase("replaying")
        progress.iterations(0, 2)
        for second in (1, 10, 50, 101):
            clock.now_ns = second * 10**9
            progress.sample("local", AgentSample(), done=0, total=2)
    assert file.getvalue().splitlines()[1:] == [
        "replaying: iteration 0 of 2, 1m40s left",
        "replaying: iteration 0 of 2, 1m30s left",
        "replaying: iteration 0 of 2, 50s left",
        "replaying: iteration 0 of 2",  # it takes longer than expected
    ]


def test_lines_of_intervals_show_the_expected_time_at_first() -> None:
    console, file = make_console(terminal=False)
    clock = Clock()
    with ProgressReporter(
        console=console, clock_ns=clock, interval_ns=10**9
    ) as progress:
        progress.expect(100 * 10**9)
        progress.phase("replaying")
        clock.now_ns = 10 * 10**9
        progress.sample("local", AgentSample(), done=0, total=2)
    assert file.getvalue().splitlines()[-1].endswith(" 1m30s")


def test_a_terminal_gets_a_bar_that_leaves_only_notes() -> None:
    console, file = make_console(terminal=True)
    show(ProgressReporter(console=console, clock_ns=Clock()))
    assert "replaying" in file.getvalue()
    assert "3/3" in file.getvalue()
    assert "agent [a]: something\n" in file.getvalue()


def test_quiet_is_quiet() -> None:
    console, file = make_console(terminal=False)
    show(ProgressReporter(quiet=True, console=console, interval_ns=1))
    assert file.getvalue() == ""


def test_intervals_take_the_place_of_iterations() -> None:
    console, file = make_console(terminal=False)
    clock = Clock()
    reporter = ProgressReporter(console=console, interval_ns=10**9, clock_ns=clock)
    with reporter as progress:
        progress.phase("replaying")
        progress.iterations(0, 9)
        for second in range(1, 6):
            clock.now_ns = second * 10**9
            found = AgentSample(delivered_bytes=second * 125_000)
            progress.sample("a", found, done=second, total=9)
            progress.iterations(second, 9)
    lines = file.getvalue().splitlines()
    assert lines[:3] == ["replaying", "replaying: iteration 0 of 9", HEADING]
    assert len(lines) == 8
    assert all(f" {done}/9 " in lines[2 + done] for done in range(1, 6))


def test_no_interval_is_no_line() -> None:
    console, file = make_console(terminal=False)
    with ProgressReporter(console=console, interval_ns=0) as progress:
        progress.phase("replaying")
        progress.sample("a", AgentSample(), done=1, total=2)
    assert file.getvalue() == "replaying\n"


def test_phases_have_a_total_and_come_once() -> None:
    seconds = [("reading", 0), ("replaying", 2), ("reading", 5)]
    phases = [(name, at * 10**9) for name, at in seconds]
    assert (
        phases_line(phases, 6 * 10**9)
        == "reading 3.0 s, replaying 3.0 s; 6.0 s in total"
    )


class Work:
    """Stands for what is under way."""

    def text(self) -> str:
        return "ep0 all_to_all 3/12"

    def left_ns(self, elapsed_ns: int) -> int:
        return 9 * elapsed_ns


@pytest.mark.parametrize("terminal", [False, True])
def test_what_is_under_way_is_said(terminal: bool) -> None:
    console, file = make_console(terminal=terminal)
    clock = Clock()
    reporter = ProgressReporter(console=console, interval_ns=10**9, clock_ns=clock)
    with reporter as progress:
        progress.phase("replaying")
        clock.now_ns = 10**9
        work: Any = Work()
        progress.sample("a", AgentSample(), done=1, total=10, work=work)
    text = file.getvalue()
    assert "ep0 all_to_all 3/12" in text
    assert " 9s" in text
    if terminal:
        assert "9s left" in text

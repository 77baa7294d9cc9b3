"""Progress: lines where there is no terminal, nothing where none is wanted."""

from __future__ import annotations

import io

from rich.console import Console

from chakram.cli.progress import ProgressReporter


def make_console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80)
    return console, file


def show(progress: ProgressReporter) -> None:
    with progress:
        progress.phase("building the fabric")
        progress.phase("replaying")
        for done in range(4):
            progress.iterations(done, 3)
        progress.note("agent [a]: something")


def test_elsewhere_than_on_a_terminal_there_are_plain_lines() -> None:
    console, file = make_console(terminal=False)
    show(ProgressReporter(console=console))
    assert file.getvalue().splitlines() == [
        "building the fabric",
        "replaying",
        # The ones between come too soon after the first.
        "replaying: iteration 0 of 3",
        "replaying: iteration 3 of 3",
        "agent [a]: something",
    ]


def test_a_terminal_gets_a_bar_that_leaves_only_notes() -> None:
    console, file = make_console(terminal=True)
    show(ProgressReporter(console=console))
    assert "replaying" in file.getvalue()
    assert "3/3" in file.getvalue()
    assert "agent [a]: something\n" in file.getvalue()


def test_quiet_is_quiet() -> None:
    console, file = make_console(terminal=False)
    show(ProgressReporter(quiet=True, console=console))
    assert file.getvalue() == ""

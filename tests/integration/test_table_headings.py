"""Headings of tables stay whole on consoles of 80 and 120 columns."""

from __future__ import annotations

import io
import re
from itertools import permutations
from typing import TYPE_CHECKING

import pytest
import rich.table
from rich.box import SIMPLE_HEAD

from chakram.cli import main
from chakram.cli.common.escaping_console import Console, Table
from chakram.cli.common.preflight_tables import print_report
from chakram.preflight.report import PairReport, PreflightReport, PreflightSettings
from tests.support import REPO_ROOT

if TYPE_CHECKING:
    from pathlib import Path

WIDTHS = pytest.mark.parametrize("width", [80, 120])
TRAINING = ["dense", "--ranks=16", "--tp=2", "--dp=4", "--pp=2", "--layers=2"]
EXPERIMENT = str(REPO_ROOT / "configs" / "quickstart-small.yaml")


@pytest.fixture
def headings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the headings of all tables that are printed."""
    seen: list[str] = []
    render = rich.table.Table.__rich_console__

    def recording(table: rich.table.Table, *rest: object) -> object:
        if table.show_header:
            seen.extend(str(column.header) for column in table.columns)
        return render(table, *rest)  # type: ignore[arg-type] # whatever Rich passes

    monkeypatch.setattr(rich.table.Table, "__rich_console__", recording)
    return seen


def assert_whole(headings: list[str], text: str) -> None:
    assert headings
    words = {word for line in text.splitlines() for word in re.split(r"[\s┃]+", line)}
    assert {word for each in headings for word in each.split()} <= words


@WIDTHS
@pytest.mark.parametrize(
    "arguments",
    [
        ["trace", "show", "TRACES"],
        ["trace", "cut", "TRACES", "cut", "--communication-only", "--force"],
        ["trace", "synth", *TRAINING, "--out", "more", "--force"],
        ["plan", EXPERIMENT],
        ["fabric", "show", EXPERIMENT],
        ["algorithms", "list"],
        ["algorithms", "show", "ring", "--op", "all_reduce", "--ranks", "4"],
        ["dcqcn", "--as", "mlx5"],
        ["doctor"],
    ],
    ids=lambda arguments: "-".join(arguments[:2]),
)
def test_headings_of_verbs_are_not_broken(
    arguments: list[str],
    width: int,
    headings: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    # On a terminal, tables are not wider than it.
    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    if "TRACES" in arguments:
        assert main(["trace", "synth", *TRAINING, "--out", "TRACES"]) == 0
        headings.clear()
        capsys.readouterr()
    main(arguments)
    assert_whole(headings, capsys.readouterr().out)


@WIDTHS
def test_headings_of_a_preflight_are_not_broken(
    width: int, headings: list[str]
) -> None:
    ports = tuple(f"host{number}-eth0" for number in range(12))
    pairs = (
        PairReport(source=source, destination=destination, goodput_bps=12e6)
        for source, destination in permutations(ports, 2)
    )
    report = PreflightReport(
        ports=ports,
        pairs=tuple(pairs),
        findings=(),
        settings=PreflightSettings(path_mtu=4096),
    )
    out = io.StringIO()
    print_report(report, Console(file=out, width=width))
    assert_whole(headings, out.getvalue())
    assert max(map(len, out.getvalue().splitlines())) <= width


def printed(table: Table, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(table, highlight=False)
    return out.getvalue()


def test_columns_that_do_not_fit_follow_below_the_others() -> None:
    table = Table(title="title", caption="caption", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("rank", "collectives", "contributed", "algorithm"):
        table.add_column(name, justify="right")
    table.add_row("0", "1", "2", "ring")
    table.add_row("7", "8", "9", "tree")
    lines = [line.split() for line in printed(table, 34).splitlines()]
    assert [line for line in lines if line and "─" not in line[0]] == [
        ["title"],
        ["rank", "collectives", "contributed"],
        ["0", "1", "2"],
        ["7", "8", "9"],
        ["rank", "algorithm"],
        ["0", "ring"],
        ["7", "tree"],
        ["caption"],
    ]


def test_texts_shrink_before_columns_move() -> None:
    table = Table("name", "finding", box=None)
    table.add_column("n", justify="right")
    table.add_row("short", "a text of some words " * 3, "12345")
    lines = printed(table, 40).splitlines()
    assert lines[0].split() == ["name", "finding", "n"]
    assert len(lines) > 2


def test_a_console_narrower_than_two_columns_gets_all_text() -> None:
    table = Table("name", box=None, pad_edge=False)
    table.add_column("value", overflow="fold")
    table.add_row("abcdefghij", "klmnopqrst")
    text = printed(table, 9)
    assert max(map(len, text.splitlines())) <= 9
    assert set("klmnopqrst") <= set(text)


def test_all_tables_are_ours() -> None:
    uses = [
        path.name
        for path in (REPO_ROOT / "emulator").rglob("*.py")
        if re.search(r"from rich.table import.*\bTable", path.read_text("utf-8"))
    ]
    assert uses == []

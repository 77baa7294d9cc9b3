"""Control characters become visible on every stream and page."""

from __future__ import annotations

import io
import json
import sys

import pytest

from chakram.cli import main
from chakram.cli.common.escaping_console import Console
from chakram.console.text_table import Column, fitted
from chakram.foundation.text_escaping import (
    code_block,
    code_span,
    from_file_name,
    one_line,
    plain,
    plain_output,
    to_file_name,
)
from chakram.report import plots
from chakram.report.page import Plot, Section, render_page

CR = "\r"
EVIL = "\x1b[31m\u202egnp\x9b\x7f\ud800\r\U000e0041"
SHOWN = r"\u001b[31m\u202egnp\u009b\u007f\ud800\u000d\U000e0041"


@pytest.mark.parametrize("text", ["gpu1.example", "rack 1/gpu1", "../%2F%25", "a%b"])
def test_any_name_makes_a_file_name(text: str) -> None:
    assert "/" not in to_file_name(text)
    assert from_file_name(to_file_name(text)) == text


def test_control_characters_are_escaped() -> None:
    assert plain(EVIL) == SHOWN
    assert (
        plain("a\tb\nc é 😀 \u200d 漢字 \\u001b") == "a\tb\nc é 😀 \u200d 漢字 \\u001b"
    )
    assert one_line("a\tb\nc") == r"a\u0009b\u000ac"
    assert json.loads(f'"{plain(chr(0x7F))}"') == "\x7f"


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("", ""),
        ("a", "`a`"),
        ("a`b", "``a`b``"),
        ("`a", "`` `a ``"),
        ("a|b\n", r"`a\|b\u000a`"),
    ],
)
def test_a_code_span_holds_any_text(text: str, span: str) -> None:
    assert code_span(text) == span


def test_a_code_block_holds_any_lines() -> None:
    assert code_block("a\n\x1b") == "```text\na\n\\u001b\n```"
    assert code_block("````") == "`````text\n````\n`````"


def test_printed_text_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    with plain_output():
        sys.stdout.write(EVIL)
        sys.stderr.write(EVIL)
    told = capsys.readouterr()
    assert (told.out, told.err) == (SHOWN, SHOWN)
    assert main(["show", "no\x1b]0;evil\x07"]) == 2
    assert r"no\u001b]0;evil\u0007" in capsys.readouterr().err


def test_a_console_styles_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with plain_output():
        console = Console(force_terminal=True, width=200, color_system="standard")
        console.print(
            f"{EVIL.replace(CR, '')} [/red] [bold]x[/bold]",
            style="red",
            highlight=False,
        )
    shown = SHOWN.replace(plain(CR), "")  # Rich drops it
    assert stream.getvalue() == f"\x1b[31m{shown} [/red] [bold]x[/bold]\x1b[0m\n"


def test_cells_of_tables_are_plain_and_of_one_line() -> None:
    _, rows = fitted([Column(heading="name")], [[f"{EVIL}\n"]], width=None)
    assert rows == [rf" {SHOWN}\u000a"]


def test_pages_and_plots_are_plain() -> None:
    figure = plots.bars({"s": [1, 2]}, names=[EVIL, r"\u202e"], title=EVIL, unit="B")
    page = render_page(
        title=EVIL,
        lead="",
        groups=[Section(title="t", blocks=(Plot(figure=figure),))],
        document={"name": EVIL},
    )
    assert plain(page) == page
    assert f"<title>{SHOWN}</title>" in page
    # A string of JavaScript that holds JSON: each backslash is there four times.
    escaped = SHOWN.replace("\\", "\\" * 4)
    assert escaped.partition(r"\\\\ud800")[0] in page
    assert r"[31m\\u202e" not in page

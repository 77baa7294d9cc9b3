"""Texts that the prose linter finds in Python modules, and words that it reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tools import lint_prose

if TYPE_CHECKING:
    from pathlib import Path


def findings(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(lint_prose, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(source)
    return list(lint_prose.findings(path))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""The colour of a line."""', ["1: 'colour'"]),
        ('x = 1\nfail("there is somebody else")', ["2: 'somebody'"]),
        ('fail(f"rank {rank} sends it anew")', ["1: 'anew'"]),
        ('fail(f"{x[0]}: " "was analysed " f"by {x}")', ["1: 'analysed'"]),
        ('option(help="Whether to serialise all.")', ["1: 'serialise'"]),
        (f'fail(f"{"a word " * 16}{{x}}")', ["1: sentence of 33 words"]),
        (f'fail("{"a word " * 15}: {"a word " * 15}")', []),
        ('COLORS = {"grey": "colour"}', []),
        ('PATTERN = re.compile(r"somebody|grey")', []),
        ('fail("likely to rise: promises of precise noise")', []),
        ('run("chakram trace cut traces/moe shared --anonymize")', []),
    ],
)
def test_prose_in_literals_is_checked(
    source: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = findings(source, tmp_path, monkeypatch)
    assert len(told) == len(found)
    for line, start in zip(told, found, strict=True):
        assert line.startswith(f"module.py:{start}")

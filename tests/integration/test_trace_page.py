"""The page of a trace set, in a browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from chakram.chakra.summary.summary import summarize
from chakram.report.trace.page import trace_page
from chakram.synth.settings.training import MoeTrace
from chakram.synth.synthesize import synthesize, synthesized_trace_set
from tests.axe import axe_violations
from tests.chromium import open_page, require_chromium

if TYPE_CHECKING:
    from pathlib import Path


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.slow
def test_page_draws_all_plots_offline_without_errors(
    tmp_path: Path,
) -> None:
    require_chromium()
    trace = MoeTrace(synth="moe", ranks=8, ep=4, dp=2, layers=2)
    traces = synthesized_trace_set(synthesize(trace))
    summary = summarize(traces.graphs, traces.groups)
    text = trace_page(traces, summary, bytes_per_element=None)
    assert not re.search(r'<(script|link|img)[^>]*(src|href)="(?!data:)', text)
    page = open_page(written(tmp_path / "page.html", text), profile=tmp_path / "p")
    assert page.complaints == []
    assert axe_violations(tmp_path / "page.html", tmp_path / "axe", dark=True) == []
    assert any("document idle" in line for line in page.console)
    plots = text.count("data-root-id")
    assert plots == 4
    assert len(re.findall(r'data-root-id="[^"]*"[^>]*><div class="bk-', page.dom)) == 4


@pytest.mark.slow
def test_page_with_a_script_error_is_detected(tmp_path: Path) -> None:
    require_chromium()
    faulty = "<!DOCTYPE html><title>x</title><script>nothing.here()</script>"
    page = open_page(written(tmp_path / "x.html", faulty), profile=tmp_path / "p")
    assert any("nothing is not defined" in text for text in page.complaints)


@pytest.mark.slow
def test_page_that_some_cannot_read_is_detected(tmp_path: Path) -> None:
    require_chromium()
    faulty = """<!DOCTYPE html><html lang="en"><title>x</title><body>
        <h1 style="color: #ccc; background: #fff">Pale</h1><img src="data:,"></body>"""
    found = axe_violations(written(tmp_path / "x.html", faulty), tmp_path / "axe")
    assert {each.partition(":")[0] for each in found} == {"color-contrast", "image-alt"}

"""What guides show as output of a command is its output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chakram.cli import main
from chakram_agent.cli import parser, serve_options

HOWTO = Path(__file__).parents[2] / "docs/howto"


@pytest.mark.slow
def test_the_guide_to_traces_shows_what_trace_show_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (HOWTO / "look-at-a-trace.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (synth,) = re.findall(r"^chakram (trace synth .+)$", text, flags=re.MULTILINE)
    assert main(synth.split()) == 0
    capsys.readouterr()
    assert main(["trace", "show", "demo/"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    excerpts = re.findall(r"^```text\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(excerpts) == 3
    for excerpt in excerpts:
        left_out = {"...", ""}
        assert set(excerpt.splitlines()) - left_out <= set(printed)


def test_the_guide_to_incast_shows_the_columns_of_its_tables() -> None:
    text = (HOWTO / "incast.md").read_text(encoding="utf-8")
    shown = {line for line in text.splitlines() if line.startswith("#  ")}
    # Every line of the excerpts is as wide as the columns, but for paths behind them.
    receivers = {len(line) for line in shown if ">" not in line and "pair" not in line}
    tables = (Path(__file__).parent / "messages/incast.txt").read_text()
    headings = [line for line in tables.splitlines() if "FCT min" in line]
    assert receivers == {len(headings[0])}
    assert set(headings) <= shown


def test_services_start_agents_with_limits_and_make_their_folder() -> None:
    text = (HOWTO / "agents-as-services.md").read_text(encoding="utf-8")
    found = re.findall(
        r"chakram-agent (serve --listen 192(?:[^\n]*\\\n)*.*)$", text, re.M
    )
    assert len(found) == 1
    for each in found:
        words = each.replace("\\\n", " ").split()
        options = serve_options(parser().parse_args(words))
        assert [str(prefix) for prefix in options.policy.allow] == ["198.18.0.0/15"]
        assert options.policy.max_rate_bps == 50_000_000_000
    made = text.find("install -d -m 700 /etc/chakram")
    assert 0 <= made < text.index("/etc/chakram/")

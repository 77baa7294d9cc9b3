"""What guides show as output of a command is its output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chakram.cli import main
from chakram_agent.cli import parser, serve_options
from tests.documented import Place, fences

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


@pytest.mark.slow
def test_the_guide_to_incast_shows_what_simulations_print(tmp_path: Path) -> None:
    # The long runs of the page are left to the soak tests.
    chosen = [
        fence
        for fence in fences("docs/howto/incast.md")
        if fence.text.startswith("chakram simulate") or "output" in fence.tags
    ]
    assert sum("output" in fence.tags for fence in chosen) == 3
    assert Place(tmp_path, None).run(chosen, soak=True, timeout_s=300) == 3


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

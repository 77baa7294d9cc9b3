"""``chakram gate``: rules hold, do not, or cannot be judged."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
import yaml

from chakram import simulate
from chakram.analysis import run_causes
from chakram.analysis.lost_time_causes import Cause
from chakram.cli import main
from tests.support import REPO_ROOT
from tests.unit.cli.common.test_help_examples import found
from tests.unit.cli.results.test_compare import experiment, simulated

__all__ = ["experiment"]  # a fixture

GOOD = """\
version: 1
rules:
  - name: it came to its end
    check: run.status == "complete" and unfinished_collectives == 0
  - name: nothing was sent again
    check: retransmitted_packets <= 0.1% * packets
  - name: no collective is slower than before
    each: results
    where: collective != "barrier"
    check: slower <= 5%
  - each: iterations
    check: mean_ns <= 1.05 * baseline.mean_ns
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD)
    return path


def test_a_slower_link_fails_and_is_told(
    experiment: Path,
    rules: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = simulated(experiment)
    same = simulated(experiment)
    slow = simulated(experiment, fabric__links__host__rate="80Gbit")
    baseline = tmp_path / "baseline.json"
    capsys.readouterr()
    assert main(["show", str(before.path), "--json"]) == 0
    baseline.write_text(capsys.readouterr().out)

    options = [str(rules), "--baseline", str(baseline)]
    assert main(["gate", str(same.path), *options]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "passed: 5 of 5 checks hold"

    junit, summary = tmp_path / "gate.xml", tmp_path / "gate.md"
    written = ["--junit", str(junit), "--markdown", str(summary)]
    assert main(["gate", str(slow.path), *options, *written]) == 6
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "FAILED: 2 of 5 checks hold"
    failed = [line for line in lines if line.startswith("FAILED ")]
    assert "[j: all_reduce of 1MiB, 4 ranks]  (slower = 2" in "\n".join(failed)
    assert " %)" in failed[0]
    told = "A is the baseline, B the run. Iteration of j takes 2"
    assert lines[5].startswith(told)
    assert "mean_ns <= 1.05 * baseline.mean_ns [iterations of j]" in "\n".join(failed)

    suite = Xml.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("5", "3")
    cases = {case.get("name"): case.find("failure") for case in suite}
    assert cases["it came to its end"] is None
    failure = cases[
        "no collective is slower than before: j: all_reduce of 1MiB, 4 ranks"
    ]
    assert failure is not None
    message = failure.get("message") or ""
    assert message.startswith("does not hold: slower = 2")
    assert told in (failure.text or "")
    text = summary.read_text()
    assert text.startswith("## `chakram gate rules.yaml`: FAILED\n")
    assert "| **FAILED** | `no collective is slower than before` |" in text
    assert text.index(told) < text.index("| | rule |")

    assert main(["gate", str(slow.path), *options, "--json"]) == 6
    document = json.loads(capsys.readouterr().out)
    assert document["passed"] is False
    assert document["comparison"][0].startswith(told)
    assert [each["holds"] for each in document["verdicts"]] == [
        True, True, False, False, False,
    ]  # fmt: skip


def test_the_baseline_of_the_rules_lies_beside_them(
    experiment: Path, rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = simulated(experiment)
    rules.write_text(GOOD.replace("rules:", "baseline: runs/first\nrules:", 1))
    before.path.rename(before.path.parent / "first")
    assert main(["gate", str(before.path.parent / "first"), str(rules)]) == 0
    assert "passed" in capsys.readouterr().out


def test_what_is_not_known_does_not_pass(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = simulated(experiment)
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "version: 1\nrules:\n"
        "  - check: generator_bound.collectives == 0\n"  # a simulation has none
        "  - {each: results, where: nranks == 77, check: cv < 1}\n"
    )
    assert main(["gate", str(results.path), str(rules)]) == 6
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("UNKNOWN generator_bound.collectives == 0")
    assert second == "UNKNOWN cv < 1  (there are no results where nranks == 77)"
    assert last == "FAILED: 0 of 2 checks hold"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: 1\nrules: []\n", "rules"),
        ("version: 1\nrules:\n  - {chek: 'cv < 1'}\n", "unknown key"),
        (
            "version: 1\nrules:\n  - {check: 'cv <'}\n",
            "rules[0].check: 'cv <' is not a condition",
        ),
        ("version: 1\nrules:\n  - {check: 'cv < 1'}\n", "there is no 'cv' (use one of"),
        (
            "version: 1\nrules:\n  - {check: 'slower < 1'}\n",
            "'slower' needs a baseline (give",
        ),
        (
            "version: 1\nrules:\n  - {check: 'results.cv < 1'}\n",
            "yields a list of truth values (use all(...) or any(...))",
        ),
    ],
)
def test_wrong_rules_are_told(
    experiment: Path,
    tmp_path: Path,
    text: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = simulated(experiment)
    rules = tmp_path / "rules.yaml"
    rules.write_text(text)
    capsys.readouterr()
    assert main(["gate", str(results.path), str(rules)]) == 2
    assert message in capsys.readouterr().err


def test_every_mistake_of_conditions_has_its_line(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(simulated(experiment).path)
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "version: 1\nrules:\n"
        "  - check: busbwx > 1\n"
        "  - {name: sound, check: unfinished_collectives == 0}\n"
        "  - each: results\n    where: size <\n    check: cv < 1\n"
    )
    capsys.readouterr()
    assert main(["gate", run, str(rules)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("rules.yaml: 2 mistakes")
    assert lines[1].startswith("  - line 3: rules[0].check: there is no 'busbwx'")
    assert lines[2].startswith("  - line 6: rules[2].where: 'size <' is not")


def test_the_command_in_the_example_works(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(simulated(experiment).path)
    rules = REPO_ROOT / "docs/examples/gate/rules.yaml"
    (command,) = re.findall("`(chakram gate .*)`", rules.read_text())
    words = command.replace("docs/examples/gate/rules.yaml", str(rules)).split()[1:]
    capsys.readouterr()
    assert main([run if word.endswith("RUN") else word for word in words]) == 0


def test_an_empty_file_is_not_compared_with_an_experiment(
    experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(simulated(experiment).path)
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    capsys.readouterr()
    for verb in (["gate", run], ["sweep"]):
        assert main([*verb, str(empty)]) == 2
        assert capsys.readouterr().err.endswith("empty.yaml: is empty\n")
    assert main(["simulate", str(empty)]) == 2
    assert "is empty (see configs/quickstart.yaml)" in capsys.readouterr().err


def test_what_is_no_run_is_told(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "x.json"
    other.write_text('{"schema": "chakram.plan/1"}')
    assert main(["gate", str(other), str(rules)]) == 2
    assert (
        "is not the JSON output of a run (name a run directory"
        in capsys.readouterr().err
    )


def test_the_example_rules_and_workflow_are_right(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = REPO_ROOT / "docs/examples/gate"
    run = str(simulated(experiment).path)
    rules = str(folder / "rules.yaml")
    capsys.readouterr()
    assert main(["gate", run, rules, "--baseline", run]) == 0
    # A folder with one run is that run.
    runs = str(experiment.parent / "runs")
    assert main(["gate", runs, rules, "--baseline", runs]) == 0
    simulated(experiment)
    capsys.readouterr()
    assert main(["gate", runs, rules, "--baseline", run]) == 2
    assert "contains 2 runs (name one of them)" in capsys.readouterr().err
    workflow = yaml.safe_load((folder / "workflow.yaml").read_text())
    steps = workflow["jobs"]["gate"]["steps"]
    commands = [
        words
        for step in steps
        for line in step.get("run", "").splitlines()
        if (words := line.strip().partition(" > ")[0].split())[:1] == ["chakram"]
    ]
    assert [words[1] for words in commands] == [
        "simulate", "simulate", "gate", "report",
    ]  # fmt: skip
    for words in commands:
        command, _, rest = found(words[1:])
        command.make_context(words[1], rest)


def test_a_planted_slow_link_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one fifth less, in a lab whose links are shaped."""
    small = {
        "jobs[0].trace.layers": "1",
        "iterations.measured": "1",
        "iterations.warmup": "0",
    }
    fault = "[{kind: degrade, link: h3-leaf0, rate: 20Mbit}]"
    for folder, more in (("before", {}), ("after", {"faults.links": fault})):
        simulate(
            REPO_ROOT / "configs/quickstart-small.yaml",
            set=small | more,
            runs=tmp_path / folder,
        )
    rules = REPO_ROOT / "docs/examples/gate/rules.yaml"
    capsys.readouterr()
    before, after = str(tmp_path / "before"), str(tmp_path / "after")
    assert main(["gate", after, str(rules), "--baseline", before]) == 6
    told = capsys.readouterr().out
    assert " more is charged to slow link, most at h3-leaf0 up " in told
    assert "fault: link h3-leaf0 has 20Mbit at 0ns" in told
    assert main(["gate", before, str(rules), "--baseline", before]) == 0


def test_no_fault_is_unproven_if_the_generator_took_much_of_the_time(
    experiment: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = simulated(experiment, simulation__level="packet")
    rules = tmp_path / "rules.yaml"
    rules.write_text("{version: 1, rules: [{check: no confirmed fault}]}")
    assert main(["gate", str(run.path), str(rules)]) == 0
    why = run_causes.why_of(run)
    late = Cause(
        cause="generator slow",
        place="h0",
        lost_ns=why.time_ns // 5,
        share=0.2,
    )
    monkeypatch.setattr(run_causes, "why_of", lambda _: replace(why, causes=(late,)))
    capsys.readouterr()
    assert main(["gate", str(run.path), str(rules)]) == 6
    (line, _) = capsys.readouterr().out.splitlines()
    assert line.startswith("UNKNOWN no confirmed fault  (The traffic generator took 20")

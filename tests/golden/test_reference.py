"""The reference says all that programs print, and nothing else."""

from __future__ import annotations

import re
from dataclasses import fields

from chakram.chakra.lint.lint_trace_set import Finding
from chakram.chakra.lint.rule_table import RULES
from chakram.chakra.summary.summary import summarize
from chakram.chakra.write.message_list import P2P_COLUMNS
from chakram.cli.common.options import DOCUMENTS
from chakram.console.collective_tables import render_table
from chakram.report.trace.document import trace_document
from chakram.summary.run_summary import Measurements, RunFacts
from chakram.summary.summarize_run import summarize_run
from chakram.synth.settings.training import MoeTrace
from chakram.synth.synthesize import synthesize, synthesized_trace_set
from tests.support import REPO_ROOT

REFERENCE = REPO_ROOT / "docs" / "reference"


def first_cells(page: str, *, heading: str) -> set[str]:
    """Return the code words in the first column of the table below *heading*."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    lines = iter(text.partition(heading)[2].splitlines())
    words: set[str] = set()
    seen = False
    for line in lines:
        if line.startswith("|"):
            seen = True
            words.update(re.findall(r"`([^`]+)`", line.split("|")[1]))
        elif seen:
            break
    return words


def test_every_key_of_a_shown_trace_is_in_the_reference() -> None:
    trace = MoeTrace(synth="moe", ranks=4, ep=2, dp=2, layers=1)
    traces = synthesized_trace_set(synthesize(trace))
    document = trace_document(
        traces, summarize(traces.graphs, traces.groups), bytes_per_element=None
    )
    page = "trace-show.md"
    assert first_cells(page, heading="## Keys of `--json`") == document.keys()
    rank, row = document["per_rank"][0], document["communication"][0]
    assert first_cells(page, heading="\nEach object in `per_rank`") == rank.keys()
    assert first_cells(page, heading="\nEach object in `communication`") == row.keys()
    for key in document["messages"]:
        assert f"`{key}`" in (REFERENCE / page).read_text(encoding="utf-8")


def test_every_column_of_the_list_of_messages_is_in_the_reference() -> None:
    heading = "## Messages as CSV"
    assert first_cells("trace-convert.md", heading=heading) == set(P2P_COLUMNS)


def test_the_reference_has_every_rule_of_lint_as_it_stands_in_the_code() -> None:
    page = "lint-rules.md"
    text = (REFERENCE / page).read_text(encoding="utf-8")
    for title, severity in (
        ("Problems", "problem"),
        ("Warnings", "warning"),
        ("Corrections", "correction"),
    ):
        section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
        assert [line for line in section.splitlines() if line.startswith("| `")] == [
            f"| `{rule.name}` | {rule.means} | {rule.remedy} |"
            for rule in RULES.values()
            if rule.severity == severity
        ]
    keys = {field.name for field in fields(Finding)}
    assert first_cells(page, heading="\nEach finding has these keys:") == keys


def test_every_document_of_json_is_in_the_reference_with_its_version() -> None:
    written = first_cells("command-line.md", heading="| `schema` |")
    assert written == {
        f"chakram.{kind}/{version}" for kind, version in DOCUMENTS.items()
    }


def test_every_column_of_the_table_of_a_run_is_in_the_reference() -> None:
    facts = RunFacts(run_id="r", name="n", world="namespaces")
    text = render_table(summarize_run(Measurements(facts=facts, collectives=[])))
    (heading,) = (line for line in text.splitlines() if "#wrong" in line)
    columns = set(heading.removeprefix("#").replace("FCT ", "").split())
    written = first_cells("table.md", heading="## Collectives")
    assert columns == {name.removeprefix("FCT ") for name in written}

"""The committed dashboards are what the generator makes, and lint finds mistakes."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from chakram.metrics.catalogue import SERIES
from tests.support import REPO_ROOT

lint = pytest.importorskip("dashboards.lint", exc_type=ImportError)

FILES = sorted((REPO_ROOT / "dashboards/grafana").glob("*.json"))
DASHBOARDS: dict[str, Any] = {
    file.stem: json.loads(file.read_text(encoding="utf-8")) for file in FILES
}
RULES: dict[str, Any] = yaml.safe_load(
    (REPO_ROOT / "dashboards/rules/chakram.yaml").read_text(encoding="utf-8")
)
EVERY = pytest.mark.parametrize("name", DASHBOARDS)


def test_committed_files_are_what_the_generator_makes() -> None:
    build = pytest.importorskip("dashboards.build", exc_type=ImportError)
    texts: dict[Path, str] = build.texts()
    assert sorted(texts) == FILES
    for file, text in texts.items():
        found = file.read_text(encoding="utf-8")
        assert found == text, "run `python -m dashboards.build`"


def test_lint_finds_nothing() -> None:
    assert list(lint.check_all()) == []


@EVERY
def test_panels_are_numbered_and_do_not_overlap(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]
    numbers = [panel["id"] for panel in panels]
    assert numbers == list(range(1, len(numbers) + 1))
    covered: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not covered & cells, panel["title"]
        covered |= cells


@EVERY
def test_titles_and_references_are_unique(name: str) -> None:
    panels = list(lint.panels_of(DASHBOARDS[name]))
    titles = [panel["title"] for panel in panels]
    assert len(set(titles)) == len(titles)
    for panel in panels:
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


@EVERY
def test_rates_look_back_as_far_as_grafana_says(name: str) -> None:
    for query in lint.queries_of(DASHBOARDS[name]):
        windows = set(re.findall(r"\[([^\]]*)\]", query.expr))
        assert windows <= {"$__rate_interval", "$__range"}


@EVERY
def test_variables_follow_each_other(name: str) -> None:
    variables = {item["name"]: item for item in DASHBOARDS[name]["templating"]["list"]}
    assert next(iter(variables)) == "datasource"
    assert set(variables) - {"datasource"} <= set(lint.VARIABLES)
    for own, variable in list(variables.items())[1:]:
        assert variable["refresh"] == 2
        is_one = own in ("run_a", "run_b")
        assert variable.get("multi", False) == (not is_one)
        assert is_one or variable["allValue"] == ".+"
        found = re.match(
            r"label_values\((\w+)(?:{.*})?, (\w+)\)", variable["definition"]
        )
        assert found is not None
        labels = {*lint.OF_SCRAPE, *SERIES[found[1]].label_names}
        assert found[2] in labels
        used = re.findall(r"(\w+)=~", variable["definition"])
        assert set(used) <= labels, "what has no such label is not found by it"
    # What a query asks for is there to be chosen.
    text = json.dumps(DASHBOARDS[name]["panels"])
    assert set(re.findall(r"\$(\w+)", text)) - {"__rate_interval", "__range"} <= set(
        variables
    )


@EVERY
def test_dashboards_are_found_by_uid_and_can_be_edited(name: str) -> None:
    assert DASHBOARDS[name]["uid"] == name
    assert DASHBOARDS[name]["editable"] is True
    assert DASHBOARDS[name]["tags"] == ["chakram"]


@EVERY
def test_runs_iterations_and_faults_are_annotated(name: str) -> None:
    found = {
        each["name"]: each["expr"]
        for each in DASHBOARDS[name]["annotations"]["list"]
        if "expr" in each
    }
    assert list(found) == ["Start", "End", "Iterations", "Faults"]
    assert "chakram_iteration_end_time_seconds" in found["Iterations"]
    assert "chakram_injected_drops_total" in found["Faults"]


# ---- planted mistakes --------------------------------------------------------------


def planted(
    change: Callable[[dict[str, Any]], None], name: str = "chakram-run"
) -> list[str]:
    """Return what lint says of a dashboard with a mistake."""
    document = copy.deepcopy(DASHBOARDS[name])
    change(document)
    assert document != DASHBOARDS[name]
    found: list[str] = list(lint.check_dashboard(document, "f"))
    return found


def panel(document: dict[str, Any], title: str) -> dict[str, Any]:
    return next(each for each in document["panels"] if each.get("title") == title)


def replace(title: str, old: str, new: str) -> Callable[[dict[str, Any]], None]:
    """Return what changes the first query of a panel."""

    def change(document: dict[str, Any]) -> None:
        target = panel(document, title)["targets"][0]
        assert old in target["expr"]
        target["expr"] = target["expr"].replace(old, new)

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            replace("Delivered", "chakram_delivered_bytes_total", "chakram_payload"),
            "f: Delivered: there is no metric chakram_payload",
        ),
        (
            replace("Links", "by (link, direction)", "by (link, way)"),
            "f: Links: no metric in this query has a label way",
        ),
        (
            replace("Agents", "run_id=~", 'rank="3", run_id=~'),
            "f: Agents: chakram_agent_up has no label rank",
        ),
        (
            replace(
                "Losses and retransmissions",
                "chakram_retransmitted_packets_total",
                "chakram_flows_active",
            ),
            "f: Losses and retransmissions: rate over chakram_flows_active, which is a "
            "gauge",
        ),
        (
            replace("Agents", 'job=~"$job", ', ""),
            "f: Agents: chakram_agent_up is not selected by job",
        ),
        (
            replace("Sent and received", "8 * ", ""),
            "f: Sent and received: is in bytes seconds^-1, and shown as 'bps'",
        ),
        (
            lambda document: panel(document, "Iteration time").pop("title"),
            "has no title",
        ),
        (
            lambda document: panel(document, "Links")["targets"][0].update(
                datasource={"type": "prometheus", "uid": "P1809F7CD0C75ACF3"}
            ),
            "its data source is not the variable datasource",
        ),
        (
            replace("Sent and received", "rate(", "avg_over_time("),
            "chakram_tx_bytes_total is a counter, but is shown without a rate",
        ),
        (
            replace("Links", "topk(", "topk(("),
            "f: Links: ",
        ),
    ],
    ids=[
        "unknown metric",
        "unknown label",
        "unknown label of a selector",
        "rate over a gauge",
        "no job",
        "wrong unit",
        "no title",
        "data source",
        "counter without rate",
        "syntax",
    ],
)
def test_planted_mistakes_are_found(
    change: Callable[[dict[str, Any]], None], said: str
) -> None:
    problems = planted(change)
    assert any(said in each for each in problems), problems


def test_without_its_package_lint_says_what_installs_it(tmp_path: Path) -> None:
    (tmp_path / "promql_parser.py").write_text("raise ImportError\n")
    done = subprocess.run(
        [sys.executable, "-m", "dashboards.lint", "--live", "http://127.0.0.1:9"],
        cwd=REPO_ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "dashboards.lint needs the package promql-parser: run make dashboards"
    ]


def test_a_query_that_nothing_answers_is_found() -> None:
    queries = list(lint.queries_of(DASHBOARDS["chakram-run"], "f"))
    silent = next(query for query in queries if query.title == "Links")
    asked = silent.measured({}, window="1m")

    def ask(expr: str) -> list[int]:
        return [] if expr == asked else [1]

    (problem,) = lint.check_live(queries, ask)
    assert problem == f"f: Links: no data for {asked}"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("chakram_agent_up == 0", "chakram_agent_gone == 0", "there is no metric"),
        ("run_id) (rate(chakram_del", "run) (rate(chakram_del", "has a label run"),
        ("rate(chakram_tx_packets", "rate(chakram_flows_active", "which is a gauge"),
        ("severity: critical", "severity: loud", "has no severity"),
    ],
)
def test_planted_mistakes_of_rules_are_found(old: str, new: str, said: str) -> None:
    file = REPO_ROOT / "dashboards/rules/chakram.yaml"
    text = file.read_text(encoding="utf-8")
    if "flows_active" in new:
        text = text.replace("chakram_tx_packets_total", "chakram_tx_packets")
    assert old in text
    document = yaml.safe_load(text.replace(old, new, 1))
    problems = list(lint.check_rules(document, "f"))
    assert any(said in each for each in problems), problems


def test_what_a_rule_compares_with_is_no_part_of_what_it_measures() -> None:
    found = {
        query.title: query.measured({}, window="1m") for query in lint.rules_of(RULES)
    }
    assert found["ChakramAgentDown"] == "chakram_agent_up"
    goodput = "run:chakram_goodput_bytes_per_second:rate10s"
    assert found["ChakramStalled"] == goodput
    assert "> 0" not in found["ChakramSwitchOverloaded"]

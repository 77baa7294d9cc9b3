"""The committed dashboard is what the generator makes, and asks only what exists."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.prometheus import (
    BY_SERIES,
    PanelQuery,
    annotation_queries,
    panel_queries,
)
from tests.support import REPO_ROOT

promql_parser = pytest.importorskip("promql_parser")

FILE = REPO_ROOT / "dashboards/grafana/chakram-run.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = panel_queries(DASHBOARD) + annotation_queries(DASHBOARD)
OF_SCRAPE = {"instance", "le"}
COUNTED_AS_THEY_ARE = {"Iterations", "Delivered", "What makes numbers doubtful"}
"""Panels that show totals: the exporter counts from the start of the run."""


def selectors(expression: Any) -> list[Any]:
    """Return all vector selectors of a parsed query."""
    if isinstance(expression, promql_parser.VectorSelector):
        return [expression]
    if isinstance(expression, promql_parser.MatrixSelector):
        return [expression.vector_selector]
    if isinstance(expression, promql_parser.Call):
        return [found for each in expression.args for found in selectors(each)]
    parts = [
        getattr(expression, name, None) for name in ("expr", "lhs", "rhs", "param")
    ]
    return [found for part in parts if part is not None for found in selectors(part)]


def test_committed_file_is_what_the_generator_makes() -> None:
    build = pytest.importorskip("dashboards.build", exc_type=ImportError)
    assert FILE.read_text(encoding="utf-8") == build.text(), (
        "run `python -m dashboards.build`"
    )


def test_panels_are_numbered_and_do_not_overlap() -> None:
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert numbers == list(range(1, len(numbers) + 1))
    covered: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not covered & cells, panel["title"]
        covered |= cells


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panels_have_what_readers_need(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["targets"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    references = [target["refId"] for target in panel["targets"]]
    assert len(set(references)) == len(references)
    if panel["type"] == "heatmap":
        assert panel["options"]["yAxis"]["unit"] == "s"
        assert [target["format"] for target in panel["targets"]] == ["heatmap"]
    else:
        assert panel["fieldConfig"]["defaults"]["unit"]


def test_titles_are_unique() -> None:
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    "query", QUERIES, ids=lambda query: f"{query.panel}: {query.expr[:40]}"
)
def test_queries_parse_and_name_only_what_is_exported(query: PanelQuery) -> None:
    text = query.substituted()
    assert "$" not in text
    expression = promql_parser.parse(text)
    found = selectors(expression)
    named = re.findall(r"\b(chakram_\w+)\{", text)
    assert sorted(selector.name for selector in found) == sorted(named) != []
    for selector in found:
        metric = BY_SERIES[selector.name]
        allowed = OF_SCRAPE | set(metric.label_names)
        used = {matcher.name for matcher in selector.matchers.matchers}
        assert used <= allowed, selector.name
        # Every query obeys the variables that it can obey.
        assert {"instance", "run_id"} <= used, selector.name
        variables = {"collective", "chakram_job"}
        assert variables & set(metric.label_names) == variables & used, selector.name
    for grouped in re.findall(r"(?:by|on) \(([^)]*)\)", query.expr):
        labels = {label.strip() for label in grouped.split(",") if label.strip()}
        allowed = OF_SCRAPE.union(
            *(BY_SERIES[selector.name].label_names for selector in found)
        )
        assert labels <= allowed


@pytest.mark.parametrize("query", panel_queries(DASHBOARD), ids=lambda q: q.panel)
def test_rates_look_back_as_far_as_grafana_says(query: PanelQuery) -> None:
    assert set(re.findall(r"\[([^\]]*)\]", query.expr)) <= {"$__rate_interval"}
    if query.panel not in COUNTED_AS_THEY_ARE:
        totals = re.findall(r"(?<!rate\()\bchakram_\w+_total\b", query.expr)
        assert totals == []


def test_variables_follow_each_other() -> None:
    variables = {item["name"]: item for item in DASHBOARD["templating"]["list"]}
    assert list(variables) == [
        "datasource",
        "instance",
        "run_id",
        "collective",
        "chakram_job",
    ]
    for name, variable in list(variables.items())[1:]:
        assert variable["multi"]
        assert variable["includeAll"]
        assert variable["allValue"] == ".+"
        assert variable["refresh"] == 2
        metric = re.match(r"label_values\((\w+)", variable["definition"])
        assert metric is not None
        labels = {*OF_SCRAPE, *BY_SERIES[metric[1]].label_names}
        assert name in labels
        used = re.findall(r"(\w+)=~", variable["definition"])
        assert set(used) <= labels, "what has no such label is not found by it"


def test_dashboard_is_found_by_its_uid_and_not_edited_in_place() -> None:
    assert DASHBOARD["uid"] == "chakram-run"
    assert DASHBOARD["editable"] is False

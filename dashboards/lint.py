"""Find mistakes in dashboards and rules: ``make dashboards [LIVE=URL]``.

The checks against the catalog of metrics need no server. With a URL, the tool also runs
every query on a Prometheus that scrapes, or has scraped, a run.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

try:
    import promql_parser as promql
except ImportError:
    if __name__ == "__main__":
        sys.exit("dashboards.lint needs the package promql-parser: run make dashboards")
    raise
import yaml

from chakram.metrics.catalog import COUNTER, HISTOGRAM, SERIES
from dashboards.expressions import (
    COUNTED,
    OF_SCRAPE,
    labels,
    nodes,
    selectors,
)
from dashboards.fabric_counters import ANY_FABRIC
from dashboards.live_check import api_of, check_live
from dashboards.query_files import (
    DASHBOARDS,
    RULES,
    all_queries,
    panels_of,
    queries_of,
    rules_of,
)
from dashboards.query_units import SHOWN, Mistake, unit_of, unit_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dashboards.query_files import Query

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
TOTALS = frozenset(
    {
        "ChakramStalled",
        "Delivered",
        "Generator-bound collectives",
        "Iterations",
        "Iterations done",
        "Lost frames",
        "Progress",
        "Samples dropped",
    }
)
"""Titles of panels and rules that use totals since the start of the run."""

TWO_AXES = frozenset({"unit", "custom.axisPlacement"})
"""Overrides that give a panel a second axis."""

# ---- dashboards --------------------------------------------------------------------


def check_dashboard(document: Mapping[str, Any], file: str) -> Iterator[str]:
    """Yield the mistakes in a dashboard."""
    for panel in panels_of(document):
        where = f"{file}: panel {panel.get('id')}"
        if not panel.get("title"):
            yield f"{where}: has no title"
        if not panel.get("description", "").endswith("."):
            yield f"{where}: has no description"
        if not panel.get("targets"):
            yield f"{where}: has no query"
        for each in (panel, *panel.get("targets", ())):
            if each.get("datasource", DATASOURCE) != DATASOURCE:
                yield f"{where}: its data source is not the variable datasource"
        overridden = {
            each["id"]
            for override in panel["fieldConfig"].get("overrides", ())
            for each in override["properties"]
        }
        if overridden & TWO_AXES:
            yield f"{where}: has two axes"
    for variable in document["templating"]["list"]:
        if variable["type"] == "query" and variable["datasource"] != DATASOURCE:
            name = variable["name"]
            yield f"{file}: variable {name}: its data source is not the variable"
    for query in queries_of(document, file):
        yield from check_query(query)


# ---- rules -------------------------------------------------------------------------


def check_rules(document: Mapping[str, Any], file: str) -> Iterator[str]:
    """Yield the mistakes in a file of rules."""
    for query in rules_of(document, file):
        yield from check_query(query)
    for group in document["groups"]:
        for rule in group["rules"]:
            if "alert" not in rule:
                continue
            where = f"{file}: {rule['alert']}"
            if not {"summary", "description"} <= rule.get("annotations", {}).keys():
                yield f"{where}: has no summary or no description"
            if rule.get("labels", {}).get("severity") not in ("warning", "critical"):
                yield f"{where}: has no severity"


# ---- queries -----------------------------------------------------------------------


def check_query(query: Query) -> Iterator[str]:
    """Yield the mistakes in a query."""
    try:
        expression = promql.parse(query.substituted())
    except ValueError as error:
        yield f"{query.where}: {error}"
        return
    known = query.known
    for selector, function in selectors(expression):
        name = selector.name
        if name not in SERIES and name not in known:
            yield f"{query.where}: there is no metric {name}"
            continue
        metric = SERIES.get(name)
        allowed = OF_SCRAPE | (
            known[name].labels if metric is None else set(metric.label_names)
        )
        matchers = {each.name for each in selector.matchers.matchers}
        for label in sorted(matchers - allowed):
            yield f"{query.where}: {name} has no label {label}"
        if query.kind != "rule":
            if "job" not in matchers:
                yield f"{query.where}: {name} is not selected by job"
            wanted = {"run_id"} & allowed
            if "$chakram_job" in query.expr or "$collective" in query.expr:
                wanted |= {"chakram_job", "collective"} & allowed
            for label in sorted(wanted - matchers):
                yield f"{query.where}: {name} is not selected by {label}"
        if metric is None:
            continue
        is_counter = metric.kind in (COUNTER, HISTOGRAM)
        if function in COUNTED and not is_counter:
            yield f"{query.where}: {function} over {name}, which is a gauge"
        is_rate = function in COUNTED | {"last_over_time", "changes"}
        if is_counter and not is_rate and query.title not in TOTALS:
            yield f"{query.where}: {name} is a counter, but is shown without a rate"
    yield from _check_labels(query, expression)
    if query.tags is not None:
        for need in sorted(query.needs - query.tags - {ANY_FABRIC}):
            yield f"{query.where}: needs {need}, but the dashboard has no such tag"
    try:
        unit = unit_of(expression, known)
    except Mistake as error:
        yield f"{query.where}: {error}"
        return
    if query.unit is not None and unit is not None:
        if query.unit not in SHOWN:
            yield f"{query.where}: its unit {query.unit!r} is unknown"
        elif unit not in SHOWN[query.unit]:
            yield f"{query.where}: is in {unit_text(unit)}, and shown as {query.unit!r}"
    if query.unit == "Bps" and "_bus_bytes_total" not in query.expr:
        yield f"{query.where}: only bus bandwidths are shown in bytes per second"


def _check_labels(query: Query, expression: Any) -> Iterator[str]:
    """Yield mistakes in labels that the query groups by or matches on."""
    for each in nodes(expression):
        asked: list[str] = []
        if isinstance(each, promql.AggregateExpr) and each.modifier is not None:
            asked = each.modifier.labels
            found = labels(each.expr, query.known)
        elif isinstance(each, promql.BinaryExpr) and each.modifier is not None:
            matching = each.modifier.matching
            asked = [] if matching is None else matching.labels
            found = labels(each.lhs, query.known) | labels(each.rhs, query.known)
        else:
            continue
        for label in sorted(set(asked) - found):
            yield f"{query.where}: no metric in this query has a label {label}"


# ---- files -------------------------------------------------------------------------


def check_all() -> Iterator[str]:
    """Yield the mistakes in the dashboards and rules in this folder."""
    for file in sorted(DASHBOARDS.glob("*.json")):
        document = json.loads(file.read_text(encoding="utf-8"))
        yield from check_dashboard(document, file.name)
    for file in sorted(RULES.glob("*.yaml")):
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        yield from check_rules(document, file.name)


def main() -> int:
    """Print the mistakes and return 1 if there are any, else 0."""
    parser = argparse.ArgumentParser(prog="python -m dashboards.lint")
    parser.add_argument("--live", metavar="URL", help="URL of a Prometheus to query")
    live = parser.parse_args().live
    problems = list(check_all())
    if live:
        problems += check_live(all_queries(), api_of(live))
    sys.stderr.write("\n".join([*problems, f"{len(problems)} problems", ""]))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())

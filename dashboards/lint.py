"""Find mistakes in dashboards and rules: ``make dashboards [LIVE=URL]``.

Checks against the catalog of metrics need no server. With a URL, every query also runs
on a Prometheus that scrapes, or has scraped, a run.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    import promql_parser as promql
except ImportError:
    if __name__ == "__main__":
        sys.exit("dashboards.lint needs the package promql-parser: run make dashboards")
    raise
import yaml

from chakram.metrics.catalogue import COUNTER, HISTOGRAM, SERIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FOLDER = Path(__file__).parent
DASHBOARDS = FOLDER / "grafana"
RULES = FOLDER / "rules"

OF_SCRAPE = frozenset({"job", "instance", "le"})
"""Labels that any series may have in addition to those of its metric."""

VARIABLES = ("job", "instance", "run_id", "run_a", "run_b", "collective", "chakram_job")
ALL = ".+"
"""Value of a variable when everything is selected."""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COUNTED = frozenset({"rate", "irate", "increase", "resets"})
_OVER_TIME = "_over_time"
COUNTED_AS_THEY_ARE = frozenset(
    {"Iterations", "Delivered", "Data quality", "Iterations done", "Progress"}
)
"""Panels that show totals since the start of the run."""

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")

Unit = tuple[int, int, int]
"""Exponents of bytes, bits and seconds; plain counts have none."""

_ONE, _SECONDS, _BYTES = (0, 0, 0), (0, 0, 1), (1, 0, 0)
_UNITS: dict[str, frozenset[Unit]] = {
    "s": frozenset({_SECONDS}),
    "decbytes": frozenset({_BYTES}),
    "Bps": frozenset({(1, 0, -1)}),
    "bps": frozenset({(0, 1, -1)}),
    "percentunit": frozenset({_ONE}),
    "pps": frozenset({(0, 0, -1)}),
    "ops": frozenset({(0, 0, -1)}),
    "none": frozenset({_ONE}),
    "short": frozenset({_ONE, (0, 0, -1)}),
}
"""Units that a value may have, by the unit that Grafana shows."""

_KEEP = frozenset({"sum", "avg", "min", "max", "topk", "bottomk", "quantile"})
_AS_ARGUMENT = frozenset(
    {"clamp_min", "clamp_max", "abs", "round", "sort", "sort_desc"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of a panel, an annotation or a rule.

    Attributes:
        where: File and panel, or rule.
        title: Title of the panel.
        expr: The query, with variables.
        kind: ``panel``, ``annotation`` or ``rule``.
        unit: Grafana unit that the panel shows; None: none.
        known: Series that recording rules create, with their labels and units.
    """

    where: str
    title: str
    expr: str
    kind: str = "panel"
    unit: str | None = None
    known: Mapping[str, Recorded] = field(default_factory=dict)

    def substituted(
        self, variables: Mapping[str, str] | None = None, *, window: str = "4s"
    ) -> str:
        """Return the query with Grafana's variables replaced.

        Args:
            variables: Values by name; the other variables match everything.
            window: Value of ``$__rate_interval`` and ``$__range``.
        """
        values = {
            **dict.fromkeys(VARIABLES, ALL),
            "__rate_interval": window,
            "__range": window,
            **(variables or {}),
        }

        def value(match: re.Match[str]) -> str:
            return values.get(match[1] or match[2], match[0])

        return _VARIABLE.sub(value, self.expr)

    def measured(self, variables: Mapping[str, str], *, window: str) -> str:
        """Return the query without comparisons: healthy runs raise no alerts."""
        expression = promql.parse(self.substituted(variables, window=window))
        return _left_of_comparisons(expression).prettify()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The series that a recording rule creates."""

    labels: frozenset[str]
    unit: Unit | None


class Mistake(ValueError):
    """Units that do not match."""


# ---- dashboards --------------------------------------------------------------------


def panels_of(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield all panels of a dashboard except rows, including those inside rows."""
    for panel in document["panels"]:
        for own in (panel, *panel.get("panels", ())):
            if own["type"] != "row":
                yield own


def queries_of(document: Mapping[str, Any], file: str = "") -> Iterator[Query]:
    """Yield the queries of all panels and annotations of a dashboard."""
    for panel in panels_of(document):
        title = panel.get("title") or f"panel {panel.get('id')}"
        for target in panel.get("targets", ()):
            yield Query(
                where=f"{file}: {title}",
                title=title,
                expr=target["expr"],
                unit=_unit_of(panel, target["refId"]),
            )
    for annotation in document["annotations"]["list"]:
        if "expr" in annotation:
            name = annotation["name"]
            yield Query(
                where=f"{file}: annotation {name}",
                title=name,
                expr=annotation["expr"],
                kind="annotation",
            )


def _unit_of(panel: Mapping[str, Any], reference: str) -> str | None:
    """Return the unit in which a panel shows the results of one of its queries."""
    if panel["type"] == "table":
        return None
    for override in panel["fieldConfig"].get("overrides", ()):
        if override["matcher"] == {"id": "byFrameRefID", "options": reference}:
            for each in override["properties"]:
                if each["id"] == "unit":
                    return str(each["value"])
    found = panel["fieldConfig"]["defaults"].get("unit")
    # A heat map shows counts; only its axis has a unit.
    return None if panel["type"] == "heatmap" else found or ""


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
    for variable in document["templating"]["list"]:
        if variable["type"] == "query" and variable["datasource"] != DATASOURCE:
            name = variable["name"]
            yield f"{file}: variable {name}: its data source is not the variable"
    for query in queries_of(document, file):
        yield from check_query(query)


# ---- rules -------------------------------------------------------------------------


def rules_of(document: Mapping[str, Any], file: str = "") -> Iterator[Query]:
    """Yield the expressions of the rules in a file."""
    known: dict[str, Recorded] = {}
    for group in document["groups"]:
        for rule in group["rules"]:
            name = rule.get("record") or rule["alert"]
            query = Query(
                where=f"{file}: {name}",
                title=name,
                expr=rule["expr"],
                kind="rule",
                known=known,
            )
            yield query
            if "record" in rule:
                known[name] = _recorded(query)


def _recorded(query: Query) -> Recorded:
    expression = promql.parse(query.expr)
    try:
        unit = _unit(expression, query.known)
    except Mistake:
        unit = None
    return Recorded(labels=frozenset(_labels(expression, query.known)), unit=unit)


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
    for selector, function in _selectors(expression):
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
        if function in _COUNTED and not is_counter:
            yield f"{query.where}: {function} over {name}, which is a gauge"
        is_rate = function in _COUNTED | {"last_over_time", "changes"}
        if is_counter and not is_rate and query.title not in COUNTED_AS_THEY_ARE:
            yield f"{query.where}: {name} is a counter, but is shown without a rate"
    yield from _check_labels(query, expression)
    try:
        unit = _unit(expression, known)
    except Mistake as error:
        yield f"{query.where}: {error}"
        return
    if query.unit is not None and unit is not None:
        if query.unit not in _UNITS:
            yield f"{query.where}: its unit {query.unit!r} is unknown"
        elif unit not in _UNITS[query.unit]:
            yield f"{query.where}: is in {_named(unit)}, and shown as {query.unit!r}"


def _check_labels(query: Query, expression: Any) -> Iterator[str]:
    """Yield mistakes in labels that the query groups by or matches on."""
    for each in _nodes(expression):
        asked: list[str] = []
        if isinstance(each, promql.AggregateExpr) and each.modifier is not None:
            asked = each.modifier.labels
            found = _labels(each.expr, query.known)
        elif isinstance(each, promql.BinaryExpr) and each.modifier is not None:
            matching = each.modifier.matching
            asked = [] if matching is None else matching.labels
            found = _labels(each.lhs, query.known) | _labels(each.rhs, query.known)
        else:
            continue
        for label in sorted(set(asked) - found):
            yield f"{query.where}: no metric in this query has a label {label}"


def _children(expression: Any) -> list[Any]:
    if isinstance(expression, promql.Call):
        return list(expression.args)
    names = ("expr", "lhs", "rhs", "param", "vector_selector")
    found = (getattr(expression, name, None) for name in names)
    return [each for each in found if isinstance(each, promql.Expr)]


def _nodes(expression: Any) -> Iterator[Any]:
    yield expression
    for each in _children(expression):
        yield from _nodes(each)


def _selectors(expression: Any, function: str = "") -> Iterator[tuple[Any, str]]:
    """Yield selectors, each with the function over its window, or an empty string."""
    if isinstance(expression, promql.VectorSelector):
        yield expression, function
    elif isinstance(expression, promql.MatrixSelector):
        yield expression.vector_selector, function
    else:
        inner = function
        if isinstance(expression, promql.Call):
            name = expression.func.name
            inner = name if name in _COUNTED or name.endswith(_OVER_TIME) else function
            inner = name if name == "changes" else inner
        for each in _children(expression):
            yield from _selectors(each, inner)


def _labels(expression: Any, known: Mapping[str, Recorded]) -> set[str]:
    """Return the labels that the result of an expression may have."""
    if isinstance(expression, promql.AggregateExpr):
        inner = _labels(expression.expr, known)
        modifier = expression.modifier
        if str(expression.op) in ("topk", "bottomk"):
            return inner
        if modifier is None:
            return set()
        names = set(modifier.labels)
        is_by = modifier.type == promql.AggModifierType.By
        return inner & names if is_by else inner - names
    if isinstance(expression, promql.VectorSelector):
        name = expression.name
        if name in known:
            return set(known[name].labels)
        return OF_SCRAPE | set(SERIES[name].label_names) if name in SERIES else set()
    found: set[str] = set()
    for each in _children(expression):
        found |= _labels(each, known)
    return found


def _left_of_comparisons(expression: Any) -> Any:
    while isinstance(expression, (promql.BinaryExpr, promql.ParenExpr)):
        if isinstance(expression, promql.ParenExpr):
            inner = expression.expr
            if not isinstance(inner, promql.BinaryExpr) or not _is_filter(inner):
                return expression
            expression = inner
        elif _is_filter(expression):
            expression = expression.lhs
        else:
            return expression
    return expression


def _is_filter(expression: Any) -> bool:
    operator = str(expression.op).split()[0]
    is_bool = expression.modifier is not None and expression.modifier.return_bool
    return operator in _FILTERS and not is_bool


_FILTERS = frozenset({"==", "!=", ">", "<", ">=", "<=", "and", "unless"})

# ---- units -------------------------------------------------------------------------


def _unit(expression: Any, known: Mapping[str, Recorded]) -> Unit | None:
    """Return the unit of an expression; None if it is arbitrary or unknown.

    Raises:
        Mistake: If the expression adds or compares values with different units.
    """
    if isinstance(expression, promql.VectorSelector):
        if expression.name in known:
            return known[expression.name].unit
        return _unit_of_series(expression.name)
    if isinstance(expression, promql.Call):
        return _unit_of_call(expression, known)
    if isinstance(expression, promql.BinaryExpr):
        return _unit_of_pair(expression, known)
    if isinstance(expression, promql.AggregateExpr):
        inner = _unit(expression.expr, known)
        return inner if str(expression.op) in _KEEP else _ONE
    found = _children(expression)
    return _unit(found[0], known) if found else None


def _unit_of_series(name: str) -> Unit:
    if name.endswith(("_bucket", "_count")):
        return _ONE
    metric = SERIES.get(name)
    base = name if metric is None else metric.name
    base = base.removesuffix("_total")
    if base.endswith("_bytes_per_second"):
        return (1, 0, -1)
    if base.endswith("_seconds"):
        return _SECONDS
    return _BYTES if base.endswith("_bytes") else _ONE


def _unit_of_call(expression: Any, known: Mapping[str, Recorded]) -> Unit | None:
    name = expression.func.name
    arguments = expression.args
    if name == "histogram_quantile":
        for selector, _ in _selectors(arguments[1]):
            return _unit_of_series(selector.name.removesuffix("_bucket"))
    if name in ("vector", "scalar", "time"):
        return None
    inner = _unit(arguments[0], known)
    if name in ("rate", "irate"):
        return None if inner is None else _times(inner, _SECONDS, -1)
    is_kept = name in _AS_ARGUMENT or name.endswith(_OVER_TIME) or name == "increase"
    return inner if is_kept else None


def _unit_of_pair(expression: Any, known: Mapping[str, Recorded]) -> Unit | None:
    operator = str(expression.op).split()[0]
    left, right = _unit(expression.lhs, known), _unit(expression.rhs, known)
    numbers = [_number(each) for each in (expression.lhs, expression.rhs)]
    modifier = expression.modifier
    if operator in ("*", "/"):
        sign = 1 if operator == "*" else -1
        if 8 in numbers and sign > 0:
            inner = right if numbers[0] == 8 else left
            return None if inner is None else (0, inner[1] + inner[0], inner[2])
        if any(number is not None for number in numbers):
            is_scaled = any(number not in (None, 1) for number in numbers)
            if is_scaled:  # 1000 converts a time to Grafana's milliseconds
                return None
        left, right = left or _ONE, right or _ONE
        return _times(left, right, sign)
    if modifier is not None and modifier.return_bool:
        return _ONE
    if operator in ("and", "or", "unless"):
        return left
    both = left is not None and right is not None
    if both and left != right and numbers == [None, None]:
        raise Mistake(f"{_named(left)} {operator} {_named(right)}: not of one unit")
    return left if left is not None else right


def _number(expression: Any) -> float | None:
    return expression.val if isinstance(expression, promql.NumberLiteral) else None


def _times(left: Unit, right: Unit, sign: int) -> Unit:
    first, second, third = (a + sign * b for a, b in zip(left, right, strict=True))
    return first, second, third


def _named(unit: Unit | None) -> str:
    names = ("bytes", "bits", "seconds")
    parts = [
        name if exponent == 1 else f"{name}^{exponent}"
        for name, exponent in zip(names, unit or _ONE, strict=True)
        if exponent
    ]
    return " ".join(parts) or "no unit"


# ---- a running Prometheus ----------------------------------------------------------


def check_live(queries: list[Query], ask: Callable[[str], object]) -> Iterator[str]:
    """Yield queries for which a Prometheus returns no result.

    Args:
        queries: All queries.
        ask: Returns the result of a query; empty if there is none.
    """
    for query in queries:
        expr = query.measured({}, window="1m")
        if not ask(expr):
            yield f"{query.where}: no data for {expr}"


def _ask(url: str) -> Callable[[str], object]:
    def ask(expr: str) -> object:
        parameters = urllib.parse.urlencode({"query": expr})
        with urllib.request.urlopen(f"{url}/api/v1/query?{parameters}") as answer:
            return json.load(answer)["data"]["result"]

    return ask


# ---- files -------------------------------------------------------------------------


def all_queries() -> list[Query]:
    """Return the queries of all dashboards and rules in this folder."""
    found: list[Query] = []
    for file in sorted(DASHBOARDS.glob("*.json")):
        found += queries_of(json.loads(file.read_text(encoding="utf-8")), file.name)
    for file in sorted(RULES.glob("*.yaml")):
        found += rules_of(yaml.safe_load(file.read_text(encoding="utf-8")), file.name)
    return found


def check_all() -> Iterator[str]:
    """Yield the mistakes in the dashboards and rules in this folder."""
    for file in sorted(DASHBOARDS.glob("*.json")):
        document = json.loads(file.read_text(encoding="utf-8"))
        yield from check_dashboard(document, file.name)
    for file in sorted(RULES.glob("*.yaml")):
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        yield from check_rules(document, file.name)


def main() -> int:
    """Print the mistakes; return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m dashboards.lint")
    parser.add_argument("--live", metavar="URL", help="URL of a Prometheus to query")
    live = parser.parse_args().live
    problems = list(check_all())
    if live:
        problems += check_live(all_queries(), _ask(live))
    sys.stderr.write("\n".join([*problems, f"{len(problems)} problems", ""]))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())

"""The queries in the files of dashboards and rules."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import promql_parser as promql
import yaml

from dashboards.expressions import Recorded, labels, left_of_comparisons, needs_of
from dashboards.query_units import Mistake, unit_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER = Path(__file__).parent
DASHBOARDS = FOLDER / "grafana"
RULES = FOLDER / "rules"

VARIABLES = ("job", "instance", "run_id", "run_a", "run_b", "collective", "chakram_job")
ALL = ".+"
"""Value of a variable that selects everything."""

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of a panel, an annotation or a rule.

    Attributes:
        where: File, and title of the panel, annotation or rule.
        title: Title of the panel, annotation or rule.
        expr: The query, with variables.
        kind: ``panel``, ``annotation`` or ``rule``.
        unit: Grafana unit that the panel shows. None if it shows no unit.
        tags: Tags of the dashboard. None for a rule.
        known: Series that recording rules create, with their labels and units.
    """

    where: str
    title: str
    expr: str
    kind: str = "panel"
    unit: str | None = None
    tags: frozenset[str] | None = None
    known: Mapping[str, Recorded] = field(default_factory=dict)

    @property
    def needs(self) -> frozenset[str]:
        """What a fabric must provide for the query to have an answer."""
        return needs_of(promql.parse(self.substituted()), self.known)

    def substituted(
        self, variables: Mapping[str, str] | None = None, *, window: str = "4s"
    ) -> str:
        """Return the query with values instead of Grafana's variables.

        Args:
            variables: Values by name. The other variables match everything.
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
        """Return the query without comparisons, so that healthy runs have a result."""
        expression = promql.parse(self.substituted(variables, window=window))
        return left_of_comparisons(expression).prettify()


def panels_of(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield all panels of a dashboard except rows, including those inside rows."""
    for panel in document["panels"]:
        for own in (panel, *panel.get("panels", ())):
            if own["type"] != "row":
                yield own


def queries_of(document: Mapping[str, Any], file: str = "") -> Iterator[Query]:
    """Yield the queries of all panels and annotations of a dashboard."""
    tags = frozenset(document["tags"])
    for panel in panels_of(document):
        title = panel.get("title") or f"panel {panel.get('id')}"
        for target in panel.get("targets", ()):
            yield Query(
                where=f"{file}: {title}",
                title=title,
                expr=target["expr"],
                unit=_unit_of(panel),
                tags=tags,
            )
    for annotation in document["annotations"]["list"]:
        if "expr" in annotation:
            name = annotation["name"]
            yield Query(
                where=f"{file}: annotation {name}",
                title=name,
                expr=annotation["expr"],
                kind="annotation",
                tags=tags,
            )


def _unit_of(panel: Mapping[str, Any]) -> str | None:
    """Return the unit in which a panel shows the results of its queries."""
    if panel["type"] == "table":
        return None
    found = panel["fieldConfig"]["defaults"].get("unit")
    # A heat map shows counts. Only its axis has a unit.
    return None if panel["type"] == "heatmap" else found or ""


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
        unit = unit_of(expression, query.known)
    except Mistake:
        unit = None
    return Recorded(
        labels=frozenset(labels(expression, query.known)),
        unit=unit,
        needs=query.needs,
    )


def all_queries() -> list[Query]:
    """Return the queries of all dashboards and rules in this folder."""
    found: list[Query] = []
    for file in sorted(DASHBOARDS.glob("*.json")):
        found += queries_of(json.loads(file.read_text(encoding="utf-8")), file.name)
    for file in sorted(RULES.glob("*.yaml")):
        found += rules_of(yaml.safe_load(file.read_text(encoding="utf-8")), file.name)
    return found

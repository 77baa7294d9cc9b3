"""Functions that walk through parsed PromQL, and return parts, series and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import promql_parser as promql

from chakram.metrics.catalog import SERIES
from dashboards.fabric_counters import ANY_FABRIC, needed_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OF_SCRAPE = frozenset({"job", "instance", "le"})
"""Labels that any series may have in addition to the labels of its metric."""

COUNTED = frozenset({"rate", "irate", "increase", "resets"})
"""PromQL functions that apply to counters only."""

OVER_TIME = "_over_time"
"""Suffix of PromQL functions that keep the unit of their argument."""
_FILTERS = frozenset({"==", "!=", ">", "<", ">=", "<=", "and", "unless"})

Unit = tuple[int, int, int]
"""Exponents of bytes, bits and seconds. For plain counts, all are 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The series that a recording rule creates.

    Attributes:
        labels: Labels of the series.
        unit: Unit of the series. None if unknown.
        needs: What a fabric must provide for the series to exist.
    """

    labels: frozenset[str]
    unit: Unit | None
    needs: frozenset[str]


def children(expression: Any) -> list[Any]:
    """Return the expressions directly inside an expression."""
    if isinstance(expression, promql.Call):
        return list(expression.args)
    names = ("expr", "lhs", "rhs", "param", "vector_selector")
    found = (getattr(expression, name, None) for name in names)
    return [each for each in found if isinstance(each, promql.Expr)]


def nodes(expression: Any) -> Iterator[Any]:
    """Yield an expression and all expressions inside it."""
    yield expression
    for each in children(expression):
        yield from nodes(each)


def selectors(expression: Any, function: str = "") -> Iterator[tuple[Any, str]]:
    """Yield selectors, each with the function that applies to it, or an empty string.

    Only functions for counters and functions over time count.
    """
    if isinstance(expression, promql.VectorSelector):
        yield expression, function
    elif isinstance(expression, promql.MatrixSelector):
        yield expression.vector_selector, function
    else:
        inner = function
        if isinstance(expression, promql.Call):
            name = expression.func.name
            inner = name if name in COUNTED or name.endswith(OVER_TIME) else function
            inner = name if name == "changes" else inner
        for each in children(expression):
            yield from selectors(each, inner)


def labels(expression: Any, known: Mapping[str, Recorded]) -> set[str]:
    """Return the labels that the result of an expression may have."""
    if isinstance(expression, promql.AggregateExpr):
        inner = labels(expression.expr, known)
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
    for each in children(expression):
        found |= labels(each, known)
    return found


def left_of_comparisons(expression: Any) -> Any:
    """Return the left side of an expression's comparison, or the whole expression."""
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


def needs_of(expression: Any, known: Mapping[str, Recorded]) -> frozenset[str]:
    """Return what a fabric must provide for an expression to have a value."""
    found = {ANY_FABRIC}
    for selector, _ in selectors(expression):
        if selector.name in known:
            found |= known[selector.name].needs
        else:
            values = {each.name: each.value for each in selector.matchers.matchers}
            found.add(needed_for(selector.name, values.get("source")))
    return frozenset(found)

"""Units of PromQL expressions, derived from the names of metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import promql_parser as promql

from chakram.metrics.catalog import SERIES
from dashboards.expressions import OVER_TIME, Unit, children, selectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dashboards.expressions import Recorded

_ONE, _SECONDS, _BYTES = (0, 0, 0), (0, 0, 1), (1, 0, 0)
SHOWN: dict[str, frozenset[Unit]] = {
    "s": frozenset({_SECONDS}),
    "decbytes": frozenset({_BYTES}),
    "Bps": frozenset({(1, 0, -1)}),
    "bps": frozenset({(0, 1, -1)}),
    "percentunit": frozenset({_ONE}),
    "pps": frozenset({(0, 0, -1)}),
    "eps": frozenset({(0, 0, -1)}),
    "none": frozenset({_ONE}),
    "short": frozenset({_ONE, (0, 0, -1)}),
}
"""Units of values that fit a unit of Grafana, by Grafana's unit."""

_KEEP = frozenset({"sum", "avg", "min", "max", "topk", "bottomk", "quantile"})
_AS_ARGUMENT = frozenset(
    {"clamp_min", "clamp_max", "abs", "round", "sort", "sort_desc"}
)


class Mistake(ValueError):
    """An expression adds or compares values with different units."""


def unit_of(expression: Any, known: Mapping[str, Recorded]) -> Unit | None:
    """Return the unit of an expression, or None if it is arbitrary or unknown.

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
        inner = unit_of(expression.expr, known)
        return inner if str(expression.op) in _KEEP else _ONE
    found = children(expression)
    return unit_of(found[0], known) if found else None


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
        for selector, _ in selectors(arguments[1]):
            return _unit_of_series(selector.name.removesuffix("_bucket"))
    if name in ("vector", "scalar", "time"):
        return None
    inner = unit_of(arguments[0], known)
    if name in ("rate", "irate"):
        return None if inner is None else _times(inner, _SECONDS, -1)
    is_kept = name in _AS_ARGUMENT or name.endswith(OVER_TIME) or name == "increase"
    return inner if is_kept else None


def _unit_of_pair(expression: Any, known: Mapping[str, Recorded]) -> Unit | None:
    operator = str(expression.op).split()[0]
    left, right = unit_of(expression.lhs, known), unit_of(expression.rhs, known)
    numbers = [_number(each) for each in (expression.lhs, expression.rhs)]
    modifier = expression.modifier
    if operator in ("*", "/"):
        sign = 1 if operator == "*" else -1
        if 8 in numbers and sign > 0:
            inner = right if numbers[0] == 8 else left
            return None if inner is None else (0, inner[1] + inner[0], inner[2])
        if any(number is not None for number in numbers):
            is_scaled = any(number not in (None, 1) for number in numbers)
            if is_scaled:  # e.g. by 1000, which converts a time to milliseconds
                return None
        left, right = left or _ONE, right or _ONE
        return _times(left, right, sign)
    if modifier is not None and modifier.return_bool:
        return _ONE
    if operator in ("and", "or", "unless"):
        return left
    both = left is not None and right is not None
    if both and left != right and numbers == [None, None]:
        raise Mistake(
            f"{unit_text(left)} {operator} {unit_text(right)}: not of one unit"
        )
    return left if left is not None else right


def _number(expression: Any) -> float | None:
    return expression.val if isinstance(expression, promql.NumberLiteral) else None


def _times(left: Unit, right: Unit, sign: int) -> Unit:
    first, second, third = (a + sign * b for a, b in zip(left, right, strict=True))
    return first, second, third


def unit_text(unit: Unit | None) -> str:
    """Return a unit in words."""
    names = ("bytes", "bits", "seconds")
    parts = [
        name if exponent == 1 else f"{name}^{exponent}"
        for name, exponent in zip(names, unit or _ONE, strict=True)
        if exponent
    ]
    return " ".join(parts) or "no unit"

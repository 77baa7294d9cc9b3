"""Conditions over results, as written in the rules of a gate.

The syntax is a small subset of Python expressions.  This module evaluates the syntax
tree itself and never executes a condition as Python.  Names and ``a.b`` access plain
data only.  If ``a`` is a list, ``a.b`` is the list of its members' values.  A
comparison with a list compares each member.  Numbers may have a unit: ``5ms`` (in ns),
``64KiB`` (in bytes), ``5%`` (0.05).

An unknown value (null) makes every result that depends on it unknown.  The exceptions
are ``known(x)``, and results that other operands decide (``false and x``).  An empty
list also makes results unknown, except for its ``len``.  A condition that ends with
``or nothing`` holds if a list is empty.

Limits on the text bound the cost: at most 1,000 characters and 200 parts.  There are no
powers, no rounding beyond 30 digits, and no operations that lengthen text or lists.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import compress
from statistics import fmean
from typing import Any

from chakram.foundation.errors import ConfigError
from chakram.foundation.units import SIZE_UNITS, TIME_UNITS
from chakram.summary.bandwidth import percentile

_MOST_CHARACTERS = 1000
_MOST_PARTS = 200
_MOST_DIGITS = 30
_EXAMPLE = "e.g. time_ns <= 1.05 * baseline.time_ns"

_UNITS: dict[str, Fraction | int] = {"%": Fraction(1, 100), **TIME_UNITS, **SIZE_UNITS}
_QUANTITY = re.compile(
    r"(?<![\w.])([0-9]+(?:\.[0-9]+)?) ?("
    + "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
    + r")(?![\w(])"
)
_OR_NOTHING = re.compile(r"\s+or\s+nothing\s*\Z")
_TEXT = re.compile(r"""("[^"]*"|'[^']*')""")

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def _rounded(value: Any, digits: Any = None) -> Any:
    """Round *value* to *digits* digits.

    Negative *digits* round to multiples of a power of ten.
    """
    if digits is not None and abs(digits) > _MOST_DIGITS:
        # Python's ``round`` would compute a power of ten with this number of digits.
        raise ValueError(f"round accepts from -{_MOST_DIGITS} to {_MOST_DIGITS} digits")
    return round(value, digits)


def _percentile(samples: Any, percent: Any) -> Any:
    """Return a percentile.  Refuse text, because '1e-999999999' is a huge fraction."""
    return percentile(samples, _number(percent))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "len": len,
    "max": max,
    "mean": fmean,
    "min": min,
    "percentile": _percentile,
    "round": _rounded,
    "sum": sum,
}
_OF_TRUTHS = ("all", "any")
_CALLED = {*_FUNCTIONS, *_OF_TRUTHS, "known"}
_OPERATORS = {*_ARITHMETIC, *_COMPARISONS}


class Compared(list[Any]):
    """List of values that also records which values violate a comparison."""

    violating: Sequence[Any] = ()


class Expression:
    """A parsed condition.

    Args:
        text: Text of the condition.
        where: Location of the condition, for error messages.

    Attributes:
        or_nothing: Whether the condition holds if a list that it uses is empty.

    Raises:
        ConfigError: If the text is not a condition, or is too long.
    """

    def __init__(self, text: str, *, where: str) -> None:
        self.text = text
        self._where = where
        written = _OR_NOTHING.sub("", text)
        self.or_nothing = written != text
        if len(text) > _MOST_CHARACTERS:
            raise ConfigError(
                where, f"is longer than {_MOST_CHARACTERS} characters", "split the rule"
            )
        try:
            self._tree = ast.parse(_without_units(written), mode="eval").body
        except (
            SyntaxError,
            ValueError,
            ArithmeticError,
            RecursionError,
            MemoryError,
        ) as error:
            raise ConfigError(
                where, f"{text!r} is not a condition: {_why(error)}", _EXAMPLE
            ) from None
        if sum(1 for _ in ast.walk(self._tree)) > _MOST_PARTS:
            raise ConfigError(
                where, f"has more than {_MOST_PARTS} parts", "split the rule"
            )
        self._negated: set[ast.AST] = set()
        for node in ast.walk(self._tree):
            self._check(node)
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                self._negated ^= set(ast.walk(node.operand))

    def _check(self, node: ast.AST) -> None:
        match node:
            case (
                ast.Name()
                | ast.Attribute()
                | ast.BoolOp()
                | ast.BinOp()
                | ast.Compare()
                | ast.List()
                | ast.Tuple()
                | ast.IfExp()
                | ast.Load()
                | ast.boolop()
                | ast.unaryop()
                | ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd())
                | ast.Constant(value=bool() | int() | float() | str() | None)
                | ast.Subscript(slice=ast.Constant(value=int() | str()))
            ):
                return
            case ast.operator() | ast.cmpop() if type(node) in _OPERATORS:
                return
            case ast.Call(func=ast.Name(id=name)) if name not in _CALLED:
                known = ", ".join(sorted(_CALLED))
                raise ConfigError(
                    self._where, f"there is no function {name!r}", f"use one of {known}"
                )
            case ast.Call(func=ast.Name(), keywords=[]):
                return
        raise ConfigError(
            self._where,
            f"{self.text!r} contains a part that is not allowed in conditions "
            f"({type(node).__name__})",
            _EXAMPLE,
        )

    def value(self, names: Mapping[str, Any], used: dict[str, Any]) -> Any:
        """Return the value of the condition, or None if it is unknown.

        Args:
            names: Values of names, as plain data.
            used: Mapping that receives each value that the condition uses.  Keys are
                the names in the condition.

        Raises:
            ConfigError: If a name is undefined, or a value has the wrong type.
        """
        looked_at: dict[str, Any] = {}
        try:
            value = self._value(self._tree, names, looked_at)
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise ConfigError(
                self._where, f"{self.text!r} cannot be computed: {error}", _EXAMPLE
            ) from None
        finally:
            used.update(looked_at)
        if value is None and self.or_nothing and [] in looked_at.values():
            known = not any(
                each is None or (isinstance(each, list) and None in each)
                for each in looked_at.values()
            )
            return True if known else None
        return value

    def _value(
        self, node: ast.AST, names: Mapping[str, Any], used: dict[str, Any]
    ) -> Any:
        def of(inner: ast.AST) -> Any:
            return self._value(inner, names, used)

        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name() | ast.Attribute() | ast.Subscript():
                found = self._looked_up(node, names, used)
                if not isinstance(found, dict):
                    used[ast.unparse(node)] = found
                return found
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [of(each) for each in items]
            case ast.BoolOp(op=how, values=values):
                return _joined(map(of, values), isinstance(how, ast.Or))
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                truth = _truth(of(inner))
                return None if truth is None else not truth
            case ast.UnaryOp(op=how, operand=inner):
                value = _number(of(inner))
                return (
                    -value if value is not None and isinstance(how, ast.USub) else value
                )
            case ast.BinOp(left=left, op=how, right=right):
                a, b = _number(of(left)), _number(of(right))
                return None if a is None or b is None else _ARITHMETIC[type(how)](a, b)
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                truth = _truth(of(test))
                return None if truth is None else of(body if truth else otherwise)
            case ast.Compare(left=left, ops=ops, comparators=others):
                values = [of(left), *map(of, others)]
                truths = _all_hold(
                    [
                        _compared(_COMPARISONS[type(how)], values[at], values[at + 1])
                        for at, how in enumerate(ops)
                    ]
                )
                if isinstance(truths, list):
                    for name in {ast.unparse(each) for each in (left, *others)}:
                        found = used.get(name)
                        if isinstance(found, list) and len(found) == len(truths):
                            used[name] = Compared(found)
                            kept = [
                                truth is (node in self._negated) for truth in truths
                            ]
                            used[name].violating = [*compress(found, kept)]
                return truths
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return _called(name, [of(each) for each in arguments])
        raise AssertionError("what can be written was checked")

    def _looked_up(
        self, node: ast.AST, names: Mapping[str, Any], used: dict[str, Any]
    ) -> Any:
        match node:
            case ast.Name(id=name):
                return self._member(names, name, "")
            case ast.Attribute(value=inner, attr=name):
                return self._member(
                    self._held(inner, names, used), name, ast.unparse(inner)
                )
            case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
                held = self._held(inner, names, used)
                if held is not None and isinstance(held, list) and isinstance(key, int):
                    return held[key]
                return self._member(held, str(key), ast.unparse(inner))
        raise AssertionError("is one of the three")

    def _held(
        self, node: ast.AST, names: Mapping[str, Any], used: dict[str, Any]
    ) -> Any:
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            return self._looked_up(node, names, used)
        return self._value(node, names, used)

    def _member(self, held: Any, name: str, of: str) -> Any:
        if held is None:
            return None
        if isinstance(held, list):
            return [self._member(each, name, of) for each in held]
        if isinstance(held, Mapping) and name in held:
            return held[name]
        if not of and name in ("baseline", "slower"):
            raise ConfigError(
                self._where, f"{name!r} needs a baseline", "give --baseline RUN"
            )
        known = sorted(held) if isinstance(held, Mapping) else []
        raise ConfigError(
            self._where,
            f"there is no {name!r}" + (f" in {of}" if of else ""),
            f"use one of {', '.join(map(str, known))}"
            if known
            else f"{of} is a value without members",
        )


def _without_units(text: str) -> str:
    """Replace quantities with units in an expression by plain numbers."""

    def plain(match: re.Match[str]) -> str:
        value = Fraction(match[1]) * _UNITS[match[2]]
        return repr(int(value) if value.denominator == 1 else float(value))

    parts = _TEXT.split(text.strip())
    return "".join(
        part if at % 2 else _QUANTITY.sub(plain, part) for at, part in enumerate(parts)
    )


def _why(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)


def _number(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    raise TypeError(f"{str(value)[:40]!r} is not a number")


def _truth(value: Any) -> bool | None:
    """Return whether a value is true, or None if it is unknown."""
    if isinstance(value, list) and any(
        each is None or isinstance(each, bool | list) for each in value
    ):
        raise TypeError(
            "a list of truth values is neither true nor false; use all(...) or any(...)"
        )
    return None if value is None else bool(value)


def _joined(values: Iterable[Any], decisive: bool) -> bool | None:
    """Return the ``or`` of some values, or their ``and`` if *decisive* is False."""
    unknown = False
    for value in values:
        truth = _truth(value)
        if truth is None:
            unknown = True
        elif truth is decisive:
            return decisive
    return None if unknown else not decisive


def _all_hold(compared: list[Any]) -> Any:
    """Return the ``and`` of comparisons, for each member if some are lists."""
    if len(compared) == 1:
        return compared[0]
    lengths = {len(each) for each in compared if isinstance(each, list)}
    if not lengths:
        return _joined(compared, False)
    if len(lengths) > 1:
        raise TypeError("it compares with lists of different lengths")
    (length,) = lengths
    columns = [each if isinstance(each, list) else [each] * length for each in compared]
    return [_joined(row, False) for row in zip(*columns, strict=True)]


def _compared(how: Callable[[Any, Any], bool], a: Any, b: Any) -> Any:
    is_membership = how in (_COMPARISONS[ast.In], _COMPARISONS[ast.NotIn])
    if isinstance(a, list) and (is_membership or not isinstance(b, list)):
        return [_compared(how, each, b) for each in a] or None
    if is_membership:
        return None if a is None or b is None or b == [] else how(a, b)
    if isinstance(b, list) and not isinstance(a, list):
        return [_compared(how, a, each) for each in b] or None
    if isinstance(a, list):
        if how not in (_COMPARISONS[ast.Eq], _COMPARISONS[ast.NotEq]):
            raise TypeError(
                "it compares two lists; use `each`, which compares each member with "
                "the same member of the baseline"
            )
        if None in a or None in b:
            return None
    return None if a is None or b is None else how(a, b)


def _called(name: str, arguments: list[Any]) -> Any:
    if name == "known":
        return all(each is not None for each in arguments)
    values = arguments[0] if arguments and isinstance(arguments[0], list) else arguments
    if values == [] and arguments and name != "len":
        return None
    if name in _OF_TRUTHS:
        return _joined(values, name == "any")
    if None in arguments or None in values:
        return None
    return _FUNCTIONS[name](*arguments)

"""Conditions of gates: meaning, unknown values, and refused texts."""

from __future__ import annotations

from typing import Any

import pytest

from chakram.analysis.rule_expressions import Expression
from chakram.foundation.errors import ConfigError

NAMES: dict[str, Any] = {
    "time_ns": 2_000_000,
    "cv": 0.04,
    "nothing": None,
    "name": "all_reduce",
    "run": {"status": "complete", "banners": []},
    "results": [{"cv": 0.01, "fct": {"p99": 5}}, {"cv": 0.2, "fct": None}],
    "baseline": {"time_ns": 1_900_000},
    "links": [],
}


def value(text: str) -> Any:
    return Expression(text, where="rule").value(NAMES, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time_ns <= 2ms", True),
        ("time_ns < 1.9 ms", False),
        ("cv <= 5%", True),
        ("cv <= 3.5%", False),
        ("time_ns <= 1.10 * baseline.time_ns", True),
        ("time_ns / baseline.time_ns - 1 > 6%", False),
        ("run.status == 'complete' and not run.banners", True),
        ('run["status"] != "complete"', False),
        ("name == '5ms'", False),
        ("name in ['all_reduce', 'barrier']", True),
        ("name not in ['barrier']", True),
        ("max(results.cv) == 20%", True),
        ("results.cv < 10%", [True, False]),
        ("all(results.cv < 10%)", False),
        ("any(0.1 < results.cv)", True),
        ("0 < results.cv < 0.1", [True, False]),
        ("all(0 < results.cv < 0.1)", False),
        ("cv < 1 > results.cv", [True, True]),
        ("all(results.cv in [0.01, 0.2])", True),
        ("all(results.cv not in [0.01])", False),
        ("results.cv == [0.01, 0.2]", True),
        ("results.fct == results.fct", None),
        ("results[0].fct.p99 == 5", True),
        ("len(results) == 2 and mean(results.cv) > 0.1", True),
        ("percentile([3, 1, 2], 50) == 2", True),
        ("0 < cv < 1", True),
        ("round(cv, 1)", 0.0),
        ("round(time_ns, -6) == 2000000 and round(cv) == 0", True),
        ("1 if cv > 1 else -2", -2),
        ("64KiB == 65536 and 64K == 65536 and 1MB == 1000000", True),
        # What is not known decides nothing, and what is decided needs no more.
        ("nothing", None),
        ("nothing < 5", None),
        ("nothing.more == 1", None),
        ("not nothing", None),
        ("nothing + 1", None),
        ("max(nothing, 1)", None),
        ("results.fct.p99 > 1", [True, None]),
        ("all(results.fct.p99 > 1)", None),
        ("any(results.fct.p99 > 1)", True),
        ("cv > 1 and nothing > 1", False),
        ("nothing > 1 or cv < 1", True),
        ("known(cv)", True),
        ("known(nothing)", False),
        ("not known(nothing) or nothing < 1", True),
        # Of a list without members only its length is known.
        ("all(links.drops == 0)", None),
        ("any(links.drops == 0)", None),
        ("not any(links.drops > 0)", None),
        ("not links.drops > 0", None),
        ("0 < links.drops < 1", None),
        ("max(links.drops) < 1", None),
        ("sum(links.drops) == 0", None),
        ("percentile(links.drops, 99) == 0", None),
        ("'a' not in links.link", None),
        ("len(links) == 0", True),
        ("cv > 1 and all(links.drops == 0)", False),
        ("all(links.drops == 0) or nothing", True),
        ("max(links.drops) < 1 and cv < 1 or nothing", True),
        ("all(links.drops == 0) and nothing < 1 or nothing", None),
        ("all(results.cv > 1) or nothing", False),
        ("cv > 1 or nothing", False),
    ],
)
def test_conditions_are_evaluated(text: str, expected: object) -> None:
    found = value(text)
    if isinstance(expected, bool) or expected is None:
        assert found is expected
    else:
        assert found == expected


def test_evaluated_values_are_reported() -> None:
    used: dict[str, Any] = {}
    Expression("cv < 5% and run.status == 'x'", where="rule").value(NAMES, used)
    assert used == {"cv": 0.04, "run.status": "complete"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cv <", "is not a condition"),
        ("cv = 5", "is not a condition"),
        ("", "is not a condition"),
        (
            "__import__('os').system('true')",
            "contains a part that is not allowed in conditions",
        ),
        ("open('/etc/passwd')", "there is no function 'open'"),
        (
            "[x for x in results]",
            "contains a part that is not allowed in conditions (ListComp)",
        ),
        ("(lambda: 1)()", "contains a part that is not allowed in conditions"),
        ("9 ** 9 ** 9", "contains a part that is not allowed in conditions (Pow)"),
        ("1 << 99", "contains a part that is not allowed in conditions (LShift)"),
        ("f'{cv}'", "contains a part that is not allowed in conditions (JoinedStr)"),
        (
            "max(results, key=cv)",
            "contains a part that is not allowed in conditions (Call)",
        ),
        (
            "results[0:1]",
            "contains a part that is not allowed in conditions (Subscript)",
        ),
        (
            "b'x' == name",
            "contains a part that is not allowed in conditions (Constant)",
        ),
        ("cv" + " + cv" * 400, "is longer than 1000 characters"),
        ("cv" + "+cv" * 150, "has more than 200 parts"),
        ("9" * 400 + ".0000000001ns > 1", "is not a condition"),
    ],
)
def test_invalid_condition_is_refused(text: str, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Expression(text, where="rules[0].check")
    assert caught.value.where == "rules[0].check"
    assert found in caught.value.found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cvv < 1", "there is no 'cvv'"),
        ("run.state == 1", "there is no 'state' in run"),
        ("cv.real == 1", "there is no 'real' in cv"),
        ("name.upper == 1", "there is no 'upper' in name"),
        ("run.__class__ == 1", "there is no '__class__' in run"),
        ("name * 1000000000 == 1", "'all_reduce' is not a number"),
        ("results + results", "is not a number"),
        ("cv < 'a'", "cannot be computed"),
        ("cv / 0 > 1", "cannot be computed"),
        ("results[7].cv > 1", "cannot be computed"),
        ("round(5, -1000000000) == 0", "round accepts from -30 to 30 digits"),
        ("round(time_ns, -31) == 0", "round accepts from -30 to 30 digits"),
        (
            "results.cv > 1 and cv < 1",
            "a list of truth values is neither true nor false",
        ),
        ("cv > 1 or results.cv > 1", "use all(...) or any(...)"),
        ("not results.cv > 1", "use all(...) or any(...)"),
        ("1 if results.cv > 1 else 0", "use all(...) or any(...)"),
        ("all([results.cv > 1, cv > 0])", "use all(...) or any(...)"),
        ("results.cv <= results.cv", "it compares two lists; use `each`"),
        ("0 < results.cv < [1, 2]", "it compares two lists; use `each`"),
        ("[1] > cv < [1, 2]", "lists of different lengths"),
        ("round(0.5, 31) == 0", "round accepts from -30 to 30 digits"),
        ("round(5, '1') == 0", "cannot be computed"),
        ("percentile([1], '1e-999999999') == 0", "is not a number"),
    ],
)
@pytest.mark.timeout(10)
def test_condition_that_cannot_be_computed_is_reported(text: str, found: str) -> None:
    with pytest.raises(ConfigError) as caught:
        value(text)
    assert found in caught.value.found

"""The page of limits has the values of the code."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from tests.support import REPO_ROOT

PAGE = REPO_ROOT / "docs/reference/scale.md"
ROWS = re.findall(
    r"^\| `(chakram\.[\w.]+)` \| ([\d,]+) \| (.+) \|$", PAGE.read_text("utf-8"), re.M
)


@pytest.mark.parametrize(("name", "value", "reason"), ROWS)
def test_a_limit_has_its_value_and_a_reason(name: str, value: str, reason: str) -> None:
    module, _, constant = name.rpartition(".")
    assert getattr(import_module(module), constant) == int(value.replace(",", ""))
    assert len(reason) > 10


def test_the_page_lists_the_limits() -> None:
    assert len(ROWS) >= 14

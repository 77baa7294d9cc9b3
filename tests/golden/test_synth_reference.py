"""The reference of synthetic traces has every model and distribution.

``CHAKRAM_UPDATE_GOLDEN=1`` writes the tables anew.
"""

from __future__ import annotations

import os
import re

import pytest

from chakram.synth.models import MODELS
from chakram.synth.settings.patterns import SIZE_DISTRIBUTIONS
from tests.random_traces import (
    mean_size,
)
from tests.support import REPO_ROOT

PAGE = REPO_ROOT / "docs/reference/synth.md"


def models() -> list[str]:
    rows = [
        "| model | parameters | layers | hidden | heads | experts | source |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, shape in MODELS.items():
        heads = f"{shape.heads}, latent" if shape.latent else str(shape.heads)
        if shape.kv_heads != shape.heads:
            heads = f"{shape.heads} on {shape.kv_heads}"
        experts = f"{shape.top_k} of {shape.experts}" if shape.experts else ""
        rows.append(
            f"| `{name}` | {shape.parameters / 1e9:.1f} billion | {shape.layers} | "
            f"{shape.hidden} | {heads} | {experts} | {shape.source} |"
        )
    return rows


def distributions() -> list[str]:
    rows = ["| name | mean | bytes: percent not larger |", "|---|---|---|"]
    for name, points in SIZE_DISTRIBUTIONS.items():
        listed = ", ".join(f"{size:,}: {percent:g}" for size, percent in points[1:])
        rows.append(f"| `{name}` | {mean_size(points):,.0f} B | {listed} |")
    return rows


TABLES = {
    "models": models(),
    "distributions": distributions(),
}


@pytest.mark.parametrize("table", TABLES)
def test_the_reference_has_what_there_is(table: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    pattern = rf"(<!-- {re.escape(table)} -->\n)(.*?)(<!-- end -->)"
    found = re.search(pattern, text, flags=re.DOTALL)
    assert found is not None, f"no place for {table}"
    rows = "\n".join(TABLES[table]) + "\n"
    if os.environ.get("CHAKRAM_UPDATE_GOLDEN"):
        text = text[: found.start(2)] + rows + text[found.end(2) :]
        PAGE.write_text(text, encoding="utf-8")
    else:
        assert found.group(2) == rows

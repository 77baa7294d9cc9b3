"""The reference of made-up traces has every key, model and distribution.

``CHAKRAM_UPDATE_GOLDEN=1`` writes the tables anew.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter

from chakram.config.schema import descriptions
from chakram.synth.models import MODELS
from chakram.synth.settings import KINDS, SIZE_DISTRIBUTIONS
from chakram.synth.settings.base import ModelTrace, Routing
from chakram.synth.settings.patterns import PatternTrace, StreamSettings
from chakram.synth.settings.training import TrainingTrace
from tests.random_traces import (
    mean_size,
)
from tests.support import REPO_ROOT

PAGE = REPO_ROOT / "docs/reference/synth.md"

SECTIONS: list[type[Any]] = [
    ModelTrace,
    TrainingTrace,
    Routing,
    PatternTrace,
    StreamSettings,
    *(kind for kind in KINDS.values() if kind.__name__ != "DenseTrace"),
]


def keys_of(model: type[Any]) -> list[str]:
    """Return the rows of the keys that no table of a parent of *model* has."""
    schema = model.model_json_schema(by_alias=True)["properties"]
    texts = descriptions(model)
    inherited = {"synth"}
    for parent in model.__mro__[1:]:
        if parent in SECTIONS:
            inherited |= parent.model_fields.keys()
    rows = ["| key | means | default |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        if name in inherited:
            continue
        key = field.alias or name
        entry = schema[key]
        default = entry.get("default")
        if isinstance(default, bool):
            default = "true" if default else "false"
        elif isinstance(default, list | tuple):
            default = f"[{', '.join(default)}]"
        elif isinstance(default, dict):
            default = "see below"
        elif default is None:
            default = "must be given" if field.is_required() else ""
        elif name.endswith(("_bytes", "_ns")):
            kind: Any = Annotated[field.annotation, *field.metadata]
            default = TypeAdapter(kind).dump_python(field.default, mode="json")
        text = " ".join(texts.get(name, "").split())
        rows.append(f"| `{key}` | {text} | {default} |")
    return rows


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
    **{f"keys of {model.__name__}": keys_of(model) for model in SECTIONS},
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

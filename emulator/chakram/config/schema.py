"""JSON Schemas of experiment and inventory files.

The schema of experiments lists the worlds in which each key applies. ``configs/schema``
has copies of the schemas, which ``tools/generate_reference.py`` writes and a test
compares. ``python -m chakram.config.schema`` prints the schema of experiments.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from chakram.config.experiment import Experiment
from chakram.fabric.fabric_types import KINDS
from chakram.fabric.fabric_types.base import SIMULATE, KeyUse
from chakram.fabric.fabric_types.inventory_file import Inventory
from chakram.settings.field_types import Model

if TYPE_CHECKING:
    from pydantic_core import core_schema

__all__ = [
    "RESTRICTED",
    "SIMULATE",
    "WORLDS",
    "descriptions",
    "experiment_schema",
    "inventory_schema",
    "schema_text",
    "sections",
    "worlds_of",
]


WORLDS = (SIMULATE, *KINDS)
"""All worlds. ``simulate`` covers ``chakram simulate``, and the bounds and simulated
times in the results of a run. The other worlds are runs, one for each fabric type."""

_RUNS = tuple(KINDS)

_OF_ALL_KINDS: KeyUse = {
    ("Experiment", "preflight"): _RUNS,
    ("Preflight", ""): _RUNS,
    ("Experiment", "simulation"): (SIMULATE,),
    ("Simulation", ""): (SIMULATE,),
    ("Experiment", "metrics"): _RUNS,
    ("Metrics", ""): _RUNS,
    ("Experiment", "hang_timeout"): _RUNS,
    ("Experiment", "stop_if"): _RUNS,
    ("StopIf", ""): _RUNS,
    # These keys affect only real packets.
    ("Transport", "icrc"): _RUNS,
    ("Transport", "verify"): _RUNS,
    ("Transport", "icrc_check"): _RUNS,
}


def _with_kinds() -> dict[tuple[str, str], tuple[str, ...]]:
    """Return ``_OF_ALL_KINDS`` and the keys of fabrics.

    The keys of a fabric apply to its own world and to ``simulate``. Entries in its
    ``key_use`` override this.
    """
    used: dict[tuple[str, str], set[str]] = {}
    for name, kind in KINDS.items():
        for place, worlds in {
            (kind.__name__, ""): (SIMULATE, name),
            **kind.key_use,
        }.items():
            used.setdefault(place, set()).update(worlds)
    ordered = {
        place: tuple(world for world in WORLDS if world in worlds)
        for place, worlds in used.items()
    }
    return _OF_ALL_KINDS | ordered


RESTRICTED: Mapping[tuple[str, str], tuple[str, ...]] = _with_kinds()
"""Worlds by section and key, for keys that have no effect in some worlds. An empty key
represents all other keys of the section."""


def worlds_of(section: str, key: str) -> tuple[str, ...]:
    """Return the worlds that use *key* of *section*, the name of a model class."""
    found = RESTRICTED.get((section, key))
    return RESTRICTED.get((section, ""), WORLDS) if found is None else found


class _Generator(GenerateJsonSchema):
    """Schema generator that writes defaults as in a file, with units."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        result = super().default_schema(schema)
        default = schema.get("default")
        inner: Any = schema["schema"]
        # Bounds wrap the type that has the serializer.
        while isinstance(inner, dict) and default is not None:
            serialization = inner.get("serialization", {})
            plain = serialization.get("type") == "function-plain"
            if plain and not serialization.get("info_arg"):
                result["default"] = serialization["function"](default)
                break
            inner = inner.get("schema")
        return result


def experiment_schema() -> dict[str, Any]:
    """Return the JSON Schema of the experiment file.

    The description of a key lists the worlds in which the key applies, unless it
    applies in all worlds.
    """
    schema = _schema_of(Experiment, "Chakram experiment")
    for name, section in {Experiment.__name__: schema, **schema["$defs"]}.items():
        for key, entry in section.get("properties", {}).items():
            worlds = worlds_of(name, key)
            if worlds != WORLDS:
                entry["description"] += f" (used in: {', '.join(worlds)})"
    return schema


def inventory_schema() -> dict[str, Any]:
    """Return the JSON Schema of the inventory file."""
    return _schema_of(Inventory, "Chakram inventory")


def _schema_of(model: type[Model], title: str) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **model.model_json_schema(by_alias=True, schema_generator=_Generator),
        "title": title,
    }
    models = sections()
    for name, section in {model.__name__: schema, **schema["$defs"]}.items():
        if name in models:
            _describe(section, models[name])
    return schema


def _describe(section: dict[str, Any], model: type[Model]) -> None:
    """Describe the keys of a section with the docstrings below its fields."""
    for name, text in descriptions(model).items():
        entries = section["properties"]
        key = model.model_fields[name].alias or name
        entries[key] = dict(sorted({**entries[key], "description": text}.items()))


def sections() -> dict[str, type[Model]]:
    """Return all sections that have been imported, by class name."""

    def below(model: type[Model]) -> Iterator[type[Model]]:
        for each in model.__subclasses__():
            yield each
            yield from below(each)

    return {each.__name__: each for each in below(Model)}


def descriptions(model: type[Model]) -> dict[str, str]:
    """Return the docstrings below the fields of a section, by Python name.

    This function replaces pydantic's ``use_attribute_docstrings``, which would parse
    the source of every section at every program start.

    If a subclass declares a field again, only the docstring in the subclass applies.
    """
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if not issubclass(each, Model):
            continue
        for name, text in _texts(each):
            found.pop(name, None)
            if text:
                found[name] = text
    return {
        name: said
        for name, field in model.model_fields.items()
        if (said := field.description or found.get(name))
    }


def _texts(model: type[Model]) -> Iterator[tuple[str, str]]:
    """Yield name and docstring of the fields that a section itself declares."""
    described_by = vars(model).get("described_by")
    if described_by is None:
        yield from _own_texts(model)
        return
    for each in reversed(described_by.__mro__[:-1]):
        for name, text in _own_texts(each):
            yield name, " ".join(text.split())


def _own_texts(declares: type) -> Iterator[tuple[str, str]]:
    """Yield name and docstring of the fields that a class itself declares."""
    try:
        source = textwrap.dedent(inspect.getsource(declares))
    except (OSError, TypeError):
        return  # created at run time
    (declared,) = ast.parse(source).body
    if not isinstance(declared, ast.ClassDef):
        return
    for statement, after in zip(declared.body, [*declared.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(
            statement.target, ast.Name
        ):
            text = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = inspect.cleandoc(str(after.value.value))
            yield statement.target.id, text


def schema_text(schema: dict[str, Any]) -> str:
    """Return a schema as the text of a file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text(experiment_schema()))

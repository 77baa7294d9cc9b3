"""The JSON Schema of the experiment file, for editors.

``python -m chakram.config.schema`` prints it; ``configs/schema/experiment.schema.json``
is what it printed last, and a test compares the two.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema

from chakram.config.experiment import Experiment
from chakram.config.worlds import WORLDS, worlds_of
from chakram.settings.descriptions import descriptions, sections

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema

    from chakram.settings.quantities import Model


class _Generator(GenerateJsonSchema):
    """Writes defaults as a file would, with their units."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        result = super().default_schema(schema)
        default = schema.get("default")
        inner: Any = schema["schema"]
        # Bounds stand around the type that knows how it is written.
        while isinstance(inner, dict) and default is not None:
            serialization = inner.get("serialization", {})
            plain = serialization.get("type") == "function-plain"
            if plain and not serialization.get("info_arg"):
                result["default"] = serialization["function"](default)
                break
            inner = inner.get("schema")
        return result


def experiment_schema() -> dict[str, Any]:
    """Return the schema; keys that some worlds do not use say so."""
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Experiment.model_json_schema(by_alias=True, schema_generator=_Generator),
        "title": "Chakram experiment",
    }
    models = sections()
    for name, section in {Experiment.__name__: schema, **schema["$defs"]}.items():
        if name in models:
            _describe(section, models[name])
        for key, entry in section.get("properties", {}).items():
            worlds = worlds_of(name, key)
            if worlds != WORLDS:
                entry["description"] += f" (used in: {', '.join(worlds)})"
    return schema


def _describe(section: dict[str, Any], model: type[Model]) -> None:
    """Add to the keys of a section what the text below their fields says."""
    for name, text in descriptions(model).items():
        entries = section["properties"]
        key = model.model_fields[name].alias or name
        entries[key] = dict(sorted({**entries[key], "description": text}.items()))


def schema_text() -> str:
    """Return the schema as JSON."""
    return json.dumps(experiment_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())

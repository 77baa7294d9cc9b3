"""What the text below a field says of its key: read when somebody asks, not at import.

Pydantic could do it (``use_attribute_docstrings``), and parses the source of every
section whenever a program starts.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import TYPE_CHECKING

from chakram.settings.quantities import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["descriptions", "sections"]


def sections() -> dict[str, type[Model]]:
    """Return all sections that have been imported, by the names of their classes."""

    def below(model: type[Model]) -> Iterator[type[Model]]:
        for each in model.__subclasses__():
            yield each
            yield from below(each)

    return {each.__name__: each for each in below(Model)}


def descriptions(model: type[Model]) -> dict[str, str]:
    """Return by Python name what describes the fields of a section, for those it does.

    A field that is declared anew is described anew.
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
    """Yield name and text of the fields that a class declares itself."""
    try:
        declares = vars(model).get("described_by") or model
        source = textwrap.dedent(inspect.getsource(declares))
    except (OSError, TypeError):
        return  # made at run time
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
                if declares is not model:
                    text = " ".join(text.split())
            yield statement.target.id, text

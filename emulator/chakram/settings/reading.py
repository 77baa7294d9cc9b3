"""Reads a YAML file of settings that is one model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from chakram.settings.document import read_document
from chakram.settings.mistakes import from_validation, report

if TYPE_CHECKING:
    from chakram.settings.quantities import Model


M = TypeVar("M", bound="Model")


def read_model(path: Path, model: type[M]) -> M:
    """Return what stands in the file at *path*.

    Raises:
        ConfigError: With every mistake of the file: its line, what was found and what
            to do.
    """
    document = read_document(path)
    mistakes = list(document.mistakes)
    found: M | None = None
    try:
        found = model.model_validate(document.data)
    except ValidationError as error:
        mistakes += from_validation(error, model=model, data=document.data)
    if mistakes or found is None:
        raise report(str(path), mistakes, document.line)
    return found

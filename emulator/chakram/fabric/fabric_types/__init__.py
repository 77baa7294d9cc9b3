"""Fabric types that an experiment can name.

Each type is a module of this package. The module has the name of the type, and exports
the type's class as ``KIND``. ``chakram.fabric.fabric_traits`` lists the names.
"""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Tag

from chakram.fabric.fabric_traits import FABRIC_TRAITS
from chakram.settings.located_errors import tag_of

if TYPE_CHECKING:
    from chakram.fabric.fabric_types.base import FabricKind


KINDS: dict[str, type[FabricKind]] = {
    name: import_module(f"{__name__}.{name}").KIND for name in FABRIC_TRAITS
}
"""All fabric types by name."""


def _fabric_tag(value: Any) -> str | None:
    kind = (
        value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    )
    if not isinstance(kind, str) or kind not in KINDS:
        return None
    return tag_of(KINDS[kind])


if TYPE_CHECKING:
    Fabric = FabricKind
else:
    Fabric = Annotated[
        reduce(or_, [Annotated[kind, Tag(tag_of(kind))] for kind in KINDS.values()]),
        Discriminator(
            _fabric_tag,
            custom_error_type="kind",
            custom_error_message="unknown kind",
            custom_error_context={"kinds": ", ".join(KINDS)},
        ),
    ]
    """The fabric section of an experiment."""

"""What one unit of a size in a trace is worth, by who wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from chakram.chakra.read.options import ReadOptions, WarningKind
from chakram.chakra.read.producers import STAGE_SCHEMA
from chakram.errors import TraceError

if TYPE_CHECKING:
    from chakram.chakra.et_messages import Metadata

Oddity: TypeAlias = tuple[WarningKind, str]


def check_unit_of_sizes(
    metadata: Metadata | None, options: ReadOptions, where: str
) -> Oddity | None:
    """Return what there is to say of the unit of sizes that the options give.

    Args:
        metadata: That of the file; None if it has none.
        options: How to read it.
        where: Place of the metadata.

    Raises:
        TraceError: At *where*, if sizes are elements and nobody said what one is worth.
    """
    unit = options.bytes_per_element
    stage = metadata is not None and metadata.attributes.get("schema") == STAGE_SCHEMA
    uncorrected = WarningKind.ELEMENT_SIZES in options.uncorrected
    if stage and (unit == 1 or (unit is None and uncorrected)):
        return (
            WarningKind.ELEMENTS_AS_BYTES,
            "sizes are taken for bytes, but STAGE is known to store elements",
        )
    if stage and unit is None:
        raise TraceError(
            where,
            "STAGE stores sizes as numbers of elements, and nobody said how many "
            "bytes one has",
            "say `bytes_per_element: 2` (or --bytes-per-element 2) for bf16",
        )
    if unit is None or unit == 1:
        return None
    if stage:
        return (
            WarningKind.ELEMENT_SIZES,
            "STAGE stores sizes as numbers of elements; they are multiplied by "
            f"{unit} bytes",
        )
    return (
        WarningKind.SCALED_BYTES,
        f"sizes are multiplied by {unit} bytes per element, although this producer is "
        "not known to store elements",
    )

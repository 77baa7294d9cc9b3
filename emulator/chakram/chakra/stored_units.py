"""What one unit of a size or a duration in a trace is worth, by who wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from chakram.chakra.options import WarningKind
from chakram.chakra.producers import STAGE_SCHEMA, is_text_converter
from chakram.errors import TraceError

if TYPE_CHECKING:
    from chakram.chakra.messages import Metadata
    from chakram.chakra.options import ReadOptions

_MICROSECOND_NS = 1_000
_CYCLE_NS = 1
"""The text files are those of ASTRA-sim 1.0, whose clock has 1 GHz."""

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


def unit_of_durations(
    metadata: Metadata | None, first_name: str, options: ReadOptions
) -> tuple[int, Oddity | None]:
    """Return what one unit of a duration is in ns, and what there is to say of it.

    Args:
        metadata: That of the file; None if it has none.
        first_name: The name of the first node then.
        options: How to read it.
    """
    if options.duration_unit_ns is not None:
        return options.duration_unit_ns, None
    if (
        not is_text_converter(metadata, first_name)
        or WarningKind.CYCLE_DURATIONS in options.uncorrected
    ):
        return _MICROSECOND_NS, None
    return _CYCLE_NS, (
        WarningKind.CYCLE_DURATIONS,
        "the text converter copies cycles into durations; one is taken for "
        f"{_CYCLE_NS} ns",
    )

"""Recognition of the tool that wrote a trace, and of the unit of its sizes.

No field states the tool or the unit. ``docs/reference/traces.md`` describes the
differences between the tools and how they are handled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from chakram.chakra.read.reader_options import ReadOptions
from chakram.chakra.trace_warning import WarningKind
from chakram.foundation.errors import TraceError
from chakram.trace.graph import TraceGraph

if TYPE_CHECKING:
    from chakram.chakra.et_codec import Metadata

STAGE_SCHEMA: Final = "symbolic_tensor_network"
"""The schema that STAGE states. STAGE stores sizes as numbers of elements."""


class Producer(StrEnum):
    """Tools whose traces Chakram recognizes."""

    STAGE = "STAGE"
    PYTORCH = "PyTorch converter"
    PYTORCH_HOST = "PyTorch"
    TEXT = "text converter"
    MSCCL = "MSCCL converter"
    GENERATOR = "Chakra generator"
    ASTRA_SIM = "ASTRA-sim example"
    DEEPFLOW = "DeepFlow"
    FLINT = "Flint"
    FEEDER = "feeder JSON"
    UNKNOWN = "unknown"


ONE_RANK_PER_FILE: Final = frozenset(
    {
        Producer.STAGE,
        Producer.PYTORCH,
        Producer.PYTORCH_HOST,
        Producer.FLINT,
        Producer.FEEDER,
    }
)
"""Producers that write one file per rank, so a single file is part of a larger set."""

_PYTORCH_SCHEMA: Final = re.compile(r"1\.0\.1|[0-9.]+-chakra\.[0-9.]+")
_TEXT_NAME: Final = re.compile(r"COMP_NODE_.+_(FWD|BWD|IG|WG)|COMM_COLL_NODE_.+_[A-Z]+")
_GENERATOR_NAME: Final = re.compile(
    r"(METADATA|MEM_LOAD|MEM_STORE|COMP|COMM_SEND|COMM_RECV)_NODE|BARRIER|BROADCAST"
    r"|ALL_REDUCE|ALL_GATHER|ALL_TO_ALL|REDUCE_SCATTER"
)
_EXAMPLE_NAME: Final = re.compile(r"[a-z_]+_[0-9]+npus_[0-9]+[KMG]?B")
_DEEPFLOW_NAME: Final = re.compile(r".+_dp[0-9]+")
_NAMES_LOOK: Final = 512


def is_pytorch(metadata: Metadata) -> bool:
    """Return whether PyTorch's converter wrote the file."""
    schema = metadata.attributes.get("schema")
    return (
        isinstance(schema, str)
        and _PYTORCH_SCHEMA.fullmatch(schema) is not None
        and "input_file" not in metadata.attributes
    )


def is_chakram(metadata: Metadata) -> bool:
    """Return whether Chakram wrote the file."""
    return str(metadata.attributes.get("producer", "")).startswith("chakram")


def is_own_body(metadata: Metadata | None) -> bool:
    """Return whether the file is the body of a collective that Chakram exported."""
    return (
        metadata is not None
        and is_chakram(metadata)
        and "collective" in metadata.attributes
    )


def is_text_converter(metadata: Metadata | None, first_name: str) -> bool:
    """Return whether the converter of ASTRA-sim's text files wrote the file.

    Args:
        metadata: The metadata of the file. None if the first record is a node.
        first_name: The name of the first node, for files of the 2023 converter, which
            wrote no metadata.
    """
    if metadata is None:
        return _TEXT_NAME.fullmatch(first_name) is not None
    text = metadata.attributes.get("input_file")
    return text is not None and not _is_msccl(metadata)


def producer_of(
    metadata: Metadata | None,
    graph: TraceGraph,
    *,
    control_only: bool,
    counts_groups: bool,
) -> str:
    """Return the tool that wrote a file, as far as it can be recognized.

    Args:
        metadata: The metadata of the file, or None if the file has none.
        graph: The graph that was read from the file.
        control_only: Whether all dependencies are control dependencies.
        counts_groups: Whether collectives state the size and number of groups.
    """
    if metadata is None:
        old_text = bool(len(graph)) and is_text_converter(None, graph.name(0))
        return Producer.TEXT if old_text else Producer.UNKNOWN
    attributes = metadata.attributes
    if "producer" in attributes:
        return str(attributes["producer"])[:80]
    if attributes.get("schema") == STAGE_SCHEMA:
        return Producer.STAGE
    if _is_msccl(metadata):
        return Producer.MSCCL
    if "input_file" in attributes:
        return Producer.TEXT
    if is_pytorch(metadata):
        return Producer.PYTORCH
    if counts_groups:
        return Producer.FLINT
    if not len(graph) or attributes:
        return Producer.UNKNOWN
    if all(map(_GENERATOR_NAME.fullmatch, _names(graph))):
        return Producer.GENERATOR
    if all(map(_EXAMPLE_NAME.fullmatch, _names(graph))):
        return Producer.ASTRA_SIM
    if control_only and any(map(_DEEPFLOW_NAME.fullmatch, _names(graph))):
        return Producer.DEEPFLOW
    return Producer.UNKNOWN


def _names(graph: TraceGraph) -> Iterator[str]:
    """Yield the first node names lazily, because one name is usually enough."""
    return map(graph.name, range(min(len(graph), _NAMES_LOOK)))


def _is_msccl(metadata: Metadata) -> bool:
    """Return whether the embedded input is an MSCCL algorithm, which is XML."""
    text = metadata.attributes.get("input_file")
    is_xml = isinstance(text, str) and text.lstrip().startswith("<algo")
    return is_xml or (text is not None and "collective" in metadata.attributes)


Oddity: TypeAlias = tuple[WarningKind, str]


def check_unit_of_sizes(
    metadata: Metadata | None, options: ReadOptions, where: str
) -> Oddity | None:
    """Return a warning about the unit of sizes in the options, or None.

    Args:
        metadata: The metadata of the file, or None if the file has none.
        options: Reader options.
        where: Location of the metadata.

    Raises:
        TraceError: If sizes are in elements and the element size is unknown. *where* is
            the error's location.
    """
    unit = options.bytes_per_element
    stage = metadata is not None and metadata.attributes.get("schema") == STAGE_SCHEMA
    uncorrected = WarningKind.ELEMENT_SIZES in options.uncorrected
    if stage and (unit == 1 or (unit is None and uncorrected)):
        return (
            WarningKind.ELEMENTS_AS_BYTES,
            "sizes are read as bytes, but STAGE is known to store elements",
        )
    if stage and unit is None:
        raise TraceError(
            where,
            "STAGE stores sizes as numbers of elements, but the element size is "
            "unknown",
            "set `bytes_per_element: 2` (or --bytes-per-element 2) for bf16",
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

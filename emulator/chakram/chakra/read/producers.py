"""Which tool wrote a trace, from its marks, and what a unit of its sizes is worth.

No field says it.  What each tool is known to write differently, and what is made of it,
stands in ``docs/reference/traces.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from chakram.chakra.read.reader_options import ReadOptions, WarningKind
from chakram.foundation.errors import TraceError

if TYPE_CHECKING:
    from chakram.chakra.et_codec import Metadata
    from chakram.trace.graph import TraceGraph

STAGE_SCHEMA: Final = "symbolic_tensor_network"
"""What STAGE writes as schema.  Its sizes are numbers of elements."""


class Producer(StrEnum):
    """The tools that are recognised."""

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
"""Those that write the ranks of a job: one file alone is a part of a set."""

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
    """Say whether PyTorch's converter wrote the file."""
    schema = metadata.attributes.get("schema")
    return (
        isinstance(schema, str)
        and _PYTORCH_SCHEMA.fullmatch(schema) is not None
        and "input_file" not in metadata.attributes
    )


def is_chakram(metadata: Metadata) -> bool:
    """Say whether Chakram wrote the file."""
    return str(metadata.attributes.get("producer", "")).startswith("chakram")


def is_own_body(metadata: Metadata | None) -> bool:
    """Say whether the file is the body of a collective that Chakram exported."""
    return (
        metadata is not None
        and is_chakram(metadata)
        and "collective" in metadata.attributes
    )


def is_text_converter(metadata: Metadata | None, first_name: str) -> bool:
    """Say whether the converter of ASTRA-sim's text files wrote the file.

    Args:
        metadata: Its metadata; None if the first record is a node.
        first_name: The name of that node.  The converter of 2023 wrote no metadata.
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
    """Return the tool that wrote a file, as far as one can tell.

    Args:
        metadata: The metadata of the file; None if it has none.
        graph: What was read from it.
        control_only: Whether all its dependencies are control dependencies.
        counts_groups: Whether its collectives state size and number of groups.
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
    """Yield the first names: whoever asks has seen enough after one, mostly."""
    return map(graph.name, range(min(len(graph), _NAMES_LOOK)))


def _is_msccl(metadata: Metadata) -> bool:
    """Say whether the embedded input is an algorithm of MSCCL, which is XML."""
    text = metadata.attributes.get("input_file")
    is_xml = isinstance(text, str) and text.lstrip().startswith("<algo")
    return is_xml or (text is not None and "collective" in metadata.attributes)


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

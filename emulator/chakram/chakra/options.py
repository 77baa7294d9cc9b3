"""What a reader may be told about a trace, and what it tells about one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from chakram.chakra.framing import DEFAULT_RECORD_LIMIT_BYTES


class DependencyPolicy(StrEnum):
    """Which edges of a trace order its nodes.

    The two reference readers disagree about it: one follows data dependencies only, the
    other wants both kinds done.  Producers disagree too: PyTorch writes callers as
    control dependencies, others write all their order as such.
    """

    AUTO = "auto"
    """Data dependencies; control dependencies in a file that has no others."""
    DATA = "data"
    CONTROL = "control"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read a trace.

    Args:
        bytes_per_element: What one unit of ``comm_size`` and ``tensor_size`` is worth.
            None means bytes, and is refused for the producers that write elements.
        dependencies: Which edges count.
        drop_missing_dependencies: Go on where a data dependency names a node that
            is not in the file, instead of refusing the file.
        duration_unit_ns: What one unit of ``duration_micros`` is worth.  1000 by its
            name, but the text converter copies cycles into it.
        record_limit_bytes: Length of a record above which a file is refused.
        node_limit: Number of nodes of one rank above which a file is refused.
    """

    bytes_per_element: int | None = None
    dependencies: DependencyPolicy = DependencyPolicy.AUTO
    drop_missing_dependencies: bool = False
    duration_unit_ns: int = 1_000
    record_limit_bytes: int = DEFAULT_RECORD_LIMIT_BYTES
    node_limit: int = 10_000_000

    def __post_init__(self) -> None:
        if self.bytes_per_element is not None and self.bytes_per_element < 1:
            raise ValueError(f"bytes_per_element is {self.bytes_per_element}, not > 0")
        if self.duration_unit_ns < 1:
            raise ValueError(f"duration_unit_ns is {self.duration_unit_ns}, not > 0")


class WarningKind(StrEnum):
    """What a trace has that a replay may trip over."""

    NO_METADATA = "no-metadata"
    NO_NODES = "no-nodes"
    MISSING_CONTROL_DEPENDENCY = "missing-control-dependency"
    SELF_CONTROL_DEPENDENCY = "self-control-dependency"
    MISSING_DATA_DEPENDENCY = "missing-data-dependency"
    CONTROL_ONLY = "control-dependencies-only"
    COLLECTIVE_LABEL = "collective-label"
    UNKNOWN_NODE_TYPE = "unknown-node-type"
    NO_SIZE = "no-size"
    NO_PEER = "no-peer"
    SCALED_BYTES = "scaled-bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWarning:
    """One kind of oddity in one rank's file: the first place, and how many."""

    kind: WarningKind
    rank: int
    where: str
    found: str
    count: int = 1

    def __str__(self) -> str:
        text = f"{self.where}: {self.found}"
        return text if self.count == 1 else f"{text} (and {self.count - 1} more)"

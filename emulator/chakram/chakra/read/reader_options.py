"""What a reader may be told about a trace, and what it tells about one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from chakram.chakra.read.framing import DEFAULT_RECORD_LIMIT_BYTES

if TYPE_CHECKING:
    from chakram.chakra.trace_warning import Remark


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
    COLLECTIVE_BODY = "collective-body"
    ELEMENT_SIZES = "element-sizes"
    DIVIDED_SIZES = "divided-sizes"
    UNTYPED_COLLECTIVE = "untyped-collective"
    UNORDERED_KERNELS = "unordered-kernels"
    NO_TIMES = "no-times"
    PROFILE_LEFT_OUT = "profile-left-out"
    GROUP_OF_POINTER = "group-of-pointer"
    GROUP_INFERRED = "group-inferred"
    WAIT_INFERRED = "wait-inferred"
    WAIT_UNKNOWN = "wait-unknown"
    UNKNOWN_COMMUNICATION = "unknown-communication"
    ELEMENTS_AS_BYTES = "elements-as-bytes"
    GROUP_DIFFERS = "group-differs"


CORRECTIONS: Final = frozenset(
    {
        WarningKind.ELEMENT_SIZES,
        WarningKind.DIVIDED_SIZES,
        WarningKind.CONTROL_ONLY,
        WarningKind.MISSING_CONTROL_DEPENDENCY,
        WarningKind.SELF_CONTROL_DEPENDENCY,
        WarningKind.COLLECTIVE_LABEL,
        WarningKind.UNTYPED_COLLECTIVE,
        WarningKind.UNORDERED_KERNELS,
    }
)
"""The warnings that something was corrected; each correction can be switched off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read a trace.

    Args:
        bytes_per_element: What one unit of ``comm_size`` and ``tensor_size`` is worth.
            None means bytes, and is refused for the producers that write elements.
        dependencies: Which edges count.
        drop_missing_dependencies: Go on where a data dependency names a node that
            is not in the file, instead of refusing the file.
        duration_unit_ns: What one unit of ``duration_micros`` is worth.  None means
            1000, as the name says.
        uncorrected: What is left as the file has it, of what producers are known to
            write differently; see ``CORRECTIONS``.
        unnamed_groups: Process groups of operations that name none, as those of gloo
            in host traces of PyTorch: by operation (``all_reduce``, ``send``, ...;
            ``ANY_OPERATION`` for all others) the name of a group, or a pattern of what
            it is for.  An all_to_all_v is an ``all_to_all`` where it is not named
            itself.
        dimensions: How many ranks there are along each dimension of the job, the one
            in which neighbours differ first: what ``involved_dim`` of collectives
            refers to; none: they are not known.
        nranks: Number of ranks of the set, for hints; 0: it is not known.
        record_limit_bytes: Length of a record above which a file is refused.
        node_limit: Number of nodes of one rank above which a file is refused.
    """

    bytes_per_element: int | None = None
    dependencies: DependencyPolicy = DependencyPolicy.AUTO
    drop_missing_dependencies: bool = False
    duration_unit_ns: int | None = None
    uncorrected: frozenset[WarningKind] = frozenset()
    unnamed_groups: Mapping[str, str] = field(default_factory=dict)
    dimensions: tuple[int, ...] = ()
    nranks: int = 0
    record_limit_bytes: int = DEFAULT_RECORD_LIMIT_BYTES
    node_limit: int = 10_000_000

    def __post_init__(self) -> None:
        if self.bytes_per_element is not None and self.bytes_per_element < 1:
            raise ValueError(f"bytes_per_element is {self.bytes_per_element}, not > 0")
        if self.duration_unit_ns is not None and self.duration_unit_ns < 1:
            raise ValueError(f"duration_unit_ns is {self.duration_unit_ns}, not > 0")
        if any(size < 1 for size in self.dimensions):
            raise ValueError(f"dimensions are {self.dimensions}, not all > 0")
        if not self.uncorrected <= CORRECTIONS:
            raise ValueError(
                f"{set(self.uncorrected - CORRECTIONS)} are no corrections"
            )


def merge_warnings(warnings: Iterable[Remark]) -> dict[StrEnum, str]:
    """Return a sentence for each kind of warning: the first, and how many there are."""
    by_kind: dict[StrEnum, list[Remark]] = {}
    for warning in warnings:
        by_kind.setdefault(warning.kind, []).append(warning)
    return {kind: _sentence(kind, alike) for kind, alike in by_kind.items()}


def _sentence(kind: StrEnum, alike: list[Remark]) -> str:
    count = sum(warning.count for warning in alike)
    counted = counted_name(kind, count=count, ranks=len(alike))
    return f"{alike[0].where}: {alike[0].found} {counted}"


def counted_name(name: str, *, count: int, ranks: int) -> str:
    """Return a name in brackets, with how many there are of it in how many ranks."""
    times = f": {count} times" if count > 1 else ""
    of_ranks = f" in {ranks} ranks" if ranks > 1 else ""
    return f"[{name}{times}{of_ranks}]"

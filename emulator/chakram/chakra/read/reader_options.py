"""Options for reading traces, and summaries of the reader's warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from chakram.chakra.read.framing import DEFAULT_RECORD_LIMIT_BYTES
from chakram.chakra.trace_warning import TraceWarning, WarningKind


class DependencyPolicy(StrEnum):
    """The kinds of edges that order the nodes of a trace.

    The two reference readers disagree: one follows only data dependencies, and the
    other waits for both kinds. Producers disagree too. PyTorch writes callers as
    control dependencies, and other tools write their complete order as control
    dependencies.
    """

    AUTO = "auto"
    """Use data dependencies. If the file has none, use control dependencies."""
    DATA = "data"
    CONTROL = "control"
    BOTH = "both"


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
"""The warnings about corrections. Each correction can be switched off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options for reading a trace.

    Args:
        bytes_per_element: Bytes per unit of ``comm_size`` and ``tensor_size``. None
            means that sizes are bytes. The reader refuses None for producers that write
            elements.
        dependencies: The edges that order nodes.
        drop_missing_dependencies: Whether to drop a data dependency on a node that is
            not in the file. Otherwise, the reader refuses the file.
        duration_unit_ns: Nanoseconds per unit of ``duration_micros``. None means 1000,
            because the name states microseconds.
        uncorrected: Kinds of known producer deviations that are not corrected (see
            ``CORRECTIONS``).
        unnamed_groups: Process groups of operations that name no group, such as those
            of gloo in PyTorch host traces. The key is an operation (``all_reduce``,
            ``send``, ...), or ``ANY_OPERATION`` for all others. The value is the name
            of a group, or a pattern for its purpose. An ``all_to_all_v`` without its
            own key uses the key ``all_to_all``.
        dimensions: Number of ranks along each dimension of the job, innermost first:
            consecutive ranks differ in the first dimension. ``involved_dim`` of
            collectives refers to these dimensions. Empty if unknown.
        nranks: Number of ranks in the set, for hints, or 0 if unknown.
        record_limit_bytes: Maximum length of a record. The reader refuses files with
            longer records.
        node_limit: Maximum number of nodes of one rank. The reader refuses files with
            more nodes.
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
        for name in ("bytes_per_element", "duration_unit_ns"):
            unit = getattr(self, name)
            if unit is not None and unit < 1:
                raise ValueError(f"{name} is {unit}, but must be at least 1")
        if any(size < 1 for size in self.dimensions):
            raise ValueError(
                f"dimensions are {self.dimensions}, but must all be at least 1"
            )
        if not self.uncorrected <= CORRECTIONS:
            raise ValueError(
                f"{set(self.uncorrected - CORRECTIONS)} are not corrections"
            )


def merge_warnings(warnings: Iterable[TraceWarning]) -> dict[StrEnum, str]:
    """Return one sentence per kind: its first warning and the number of warnings."""
    by_kind: dict[StrEnum, list[TraceWarning]] = {}
    for warning in warnings:
        by_kind.setdefault(warning.kind, []).append(warning)
    return {kind: _sentence(kind, alike) for kind, alike in by_kind.items()}


def _sentence(kind: StrEnum, alike: list[TraceWarning]) -> str:
    count = sum(warning.count for warning in alike)
    counted = counted_name(kind, count=count, ranks=len(alike))
    return f"{alike[0].where}: {alike[0].found} {counted}"


def counted_name(name: str, *, count: int, ranks: int) -> str:
    """Return a name in brackets, with the numbers of occurrences and of ranks."""
    times = f": {count} times" if count > 1 else ""
    of_ranks = f" in {ranks} ranks" if ranks > 1 else ""
    return f"[{name}{times}{of_ranks}]"

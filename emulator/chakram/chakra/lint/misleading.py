"""What results of a trace set must say of it: what can be replayed, and yet misleads.

``chakram trace lint`` tells every warning.  A table of times is read by people who
never saw that: it says the same on top, in a few sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from chakram.chakra.lint.rules import RULES
from chakram.chakra.lint.traffic_warnings import check_traffic
from chakram.chakra.lint.warnings import LintWarningKind, check_computation
from chakram.chakra.read.options import WarningKind, counted_name
from chakram.chakra.read.producers import ONE_RANK_PER_FILE

if TYPE_CHECKING:
    from chakram.chakra.remark import Remark
    from chakram.chakra.sets.trace_set import TraceSet


KINDS_TOLD: Final = 3
"""Kinds of warnings that have a sentence of their own; further ones share one."""


def warnings_of(traces: TraceSet) -> list[Remark]:
    """Return all warnings about a set that can be replayed.

    The bodies of custom collectives are no workloads: there is nothing to mislead.
    """
    if any(each.kind is WarningKind.COLLECTIVE_BODY for each in traces.warnings):
        return []
    recorded = traces.producer in ONE_RANK_PER_FILE
    return [
        *check_computation(traces.graphs),
        *check_traffic(traces.graphs, traces.groups, recorded=recorded),
    ]


def misleading(warnings: Sequence[Remark]) -> tuple[str, ...]:
    """Return what misleads in at most ``KINDS_TOLD + 1`` sentences.

    Every kind has one: its first warning, what to do or not to do, and how many there
    are. What concerns all times comes first, as in ``LintWarningKind``.
    """
    kinds = [
        (kind, [warning for warning in warnings if warning.kind is kind])
        for kind in LintWarningKind
    ]
    told = [(kind, alike) for kind, alike in kinds if alike]
    sentences = [
        f"MISLEADING: {alike[0].where}: {alike[0].found} "
        f"({RULES[kind].remedy}) {_counted(kind, alike)}"
        for kind, alike in told[:KINDS_TOLD]
    ]
    if others := told[KINDS_TOLD:]:
        names = ", ".join(_counted(kind, alike) for kind, alike in others)
        sentences.append(f"MISLEADING: also {names}; see chakram trace lint")
    return tuple(sentences)


def _counted(kind: LintWarningKind, alike: Sequence[Remark]) -> str:
    return counted_name(
        kind,
        count=sum(warning.count for warning in alike),
        ranks=len({warning.rank for warning in alike} - {None}),
    )

"""What results of a trace set must say of it: what can be replayed, and yet misleads.

``chakram trace lint`` tells every doubt.  A table of times is read by people who never
saw that: it says the same on top, in a few sentences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chakram.chakra.doubts import Doubt, DoubtKind, check_computation
from chakram.chakra.lint_rules import RULES
from chakram.chakra.options import WarningKind, counted_name
from chakram.chakra.producers import ONE_RANK_PER_FILE
from chakram.chakra.traffic_doubts import check_traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.chakra.trace_set import TraceSet

__all__ = ["KINDS_TOLD", "doubts_of", "misleading"]

KINDS_TOLD: Final = 3
"""Kinds of doubts that have a sentence of their own; further ones share one."""


def doubts_of(traces: TraceSet) -> list[Doubt]:
    """Return all doubts about a set that can be replayed.

    The bodies of custom collectives are no workloads: there is nothing to mislead.
    """
    if any(each.kind is WarningKind.COLLECTIVE_BODY for each in traces.warnings):
        return []
    recorded = traces.producer in ONE_RANK_PER_FILE
    return [
        *check_computation(traces.graphs),
        *check_traffic(traces.graphs, traces.groups, recorded=recorded),
    ]


def misleading(doubts: Sequence[Doubt]) -> tuple[str, ...]:
    """Return what misleads in at most ``KINDS_TOLD + 1`` sentences.

    Every kind has one: its first doubt, what to do or not to do, and how many there
    are. What concerns all times comes first, as in ``DoubtKind``.
    """
    kinds = [
        (kind, [doubt for doubt in doubts if doubt.kind is kind]) for kind in DoubtKind
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


def _counted(kind: DoubtKind, alike: Sequence[Doubt]) -> str:
    return counted_name(
        kind,
        count=sum(doubt.count for doubt in alike),
        ranks=len({doubt.rank for doubt in alike} - {None}),
    )

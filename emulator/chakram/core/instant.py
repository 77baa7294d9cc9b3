"""What of a matched job takes no time: collectives of one rank, and the unselected."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chakram.core.collectives import CollectiveOp
from chakram.core.matching import CollectiveId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chakram.core.matching import Matching
    from chakram.core.trace import TraceGraph

__all__ = ["without_instant"]


def without_instant(
    graphs: Mapping[int, TraceGraph],
    matching: Matching,
    select: frozenset[CollectiveOp] | None,
) -> Matching:
    """Return the matching without what moves nothing; the rest is counted anew."""

    def kept(identity: CollectiveId, rank: int, position: int) -> bool:
        if len(matching.groups[identity.group].ranks) == 1:
            return False
        if select is None:
            return True
        if identity in matching.splits:
            return CollectiveOp.ALL_TO_ALL_V in select
        return graphs[rank].op(position) in select

    remaining = {
        rank: {
            position: identity
            for position, identity in collectives.items()
            if kept(identity, rank, position)
        }
        for rank, collectives in matching.collectives.items()
    }
    counts: dict[str, int] = {}
    number_of: dict[CollectiveId, CollectiveId] = {}
    for identity in sorted({each for of in remaining.values() for each in of.values()}):
        number = counts.get(identity.group, 0)
        counts[identity.group] = number + 1
        number_of[identity] = CollectiveId(identity.group, number)
    messages = matching.messages
    if select is not None and CollectiveOp.SEND_RECV not in select:
        messages = {rank: {} for rank in messages}
    return replace(
        matching,
        collectives={
            rank: {position: number_of[each] for position, each in of_rank.items()}
            for rank, of_rank in remaining.items()
        },
        messages=messages,
        splits={
            number_of[identity]: rows
            for identity, rows in matching.splits.items()
            if identity in number_of
        },
    )

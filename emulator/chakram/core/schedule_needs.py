"""Which transfers of a schedule wait for which others."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.core.schedule import Transfer

__all__ = ["schedule_needs"]


def schedule_needs(
    transfers: Sequence[Transfer], *, stepwise: bool
) -> tuple[list[int], list[list[int]]]:
    """Return how many transfers each one waits for, and which ones wait for it."""
    into: dict[tuple[int, int], list[int]] = {}
    # By position: the transfers that come to it in the last step that brings any.
    last: dict[int, list[int]] = {}
    missing = [0] * len(transfers)
    dependents: list[list[int]] = [[] for _ in transfers]
    for _, same_step in groupby(enumerate(transfers), key=lambda item: item[1].step):
        step = list(same_step)
        for index, transfer in step:
            needed = set(into.get((transfer.src, transfer.chunk), ()))
            if transfer.further or transfer.after:
                needed.update(
                    earlier
                    for chunk in transfer.awaited
                    for earlier in into.get((transfer.src, chunk), ())
                )
            if stepwise:
                needed.update(last.get(transfer.src, ()))
            missing[index] = len(needed)
            for earlier in needed:
                dependents[earlier].append(index)
        arriving: dict[int, list[int]] = {}
        for index, transfer in step:
            arriving.setdefault(transfer.dst, []).append(index)
            for chunk in transfer.chunks:
                into.setdefault((transfer.dst, chunk), []).append(index)
        last.update(arriving)
    return missing, dependents

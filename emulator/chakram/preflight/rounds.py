"""Rounds of disjoint pairs, so that no pair disturbs another.

The circle method of round-robin tournaments: all stay on a circle but one, which
stands in the middle; pairs face each other, and after every round the circle turns by
one place.  So *n* ports meet each other once in n - 1 rounds (n, if n is odd: then one
port rests in every round).
"""

from __future__ import annotations

from collections.abc import Sequence

Pair = tuple[int, int]
"""Two positions, the lower one first."""


def all_rounds(count: int) -> list[list[Pair]]:
    """Return every pair of *count* positions exactly once, in rounds of disjoint pairs.

    Raises:
        ValueError: If there is a negative number of positions.
    """
    if count < 0:
        raise ValueError(f"{count} positions")
    if count < 2:
        return []
    # An odd number gets a guest; who meets the guest rests.
    even = count + count % 2
    rounds = []
    for turn in range(even - 1):
        pairs = []
        for place in range(even // 2):
            a = (turn + place) % (even - 1)
            b = (turn - place) % (even - 1) if place else even - 1
            if max(a, b) < count:
                pairs.append((min(a, b), max(a, b)))
        rounds.append(sorted(pairs))
    return rounds


def chosen_rounds(count: int, most: int | None) -> list[list[Pair]]:
    """Return at most *most* of all rounds, spread evenly; None: all of them.

    In every round (nearly) all positions take part, so a few of them still test every
    port, if not every pair.
    """
    rounds = all_rounds(count)
    if most is None or most >= len(rounds):
        return rounds
    return [rounds[index * len(rounds) // most] for index in range(most)]


def apart(
    rounds: Sequence[Sequence[Pair]], switch_of: Sequence[str]
) -> list[list[Pair]]:
    """Return the same pairs in more rounds, so that none share the links of a switch.

    Equal-cost paths are chosen by hashing: of pairs that leave one switch at the same
    time, several may get the same uplink although there is room for all.

    Args:
        rounds: Rounds of disjoint pairs.
        switch_of: By position, the switch that it hangs on.
    """
    split = []
    for pairs in rounds:
        parts: list[tuple[list[Pair], set[str]]] = []
        for pair in pairs:
            ends = {switch_of[position] for position in pair}
            needed = ends if len(ends) > 1 else set()
            for part, busy in parts:
                if not needed & busy:
                    part.append(pair)
                    busy |= needed
                    break
            else:
                parts.append(([pair], set(needed)))
        split += [part for part, _ in parts]
    return split


def shifted(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Return a permutation without fixed points: each sends half of the way around.

    Empty if there are fewer than two positions.
    """
    count = len(positions)
    if count < 2:
        return []
    shift = count // 2
    return [
        (position, positions[(index + shift) % count])
        for index, position in enumerate(positions)
    ]

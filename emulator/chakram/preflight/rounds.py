"""Rounds of disjoint pairs, so that no pair disturbs another.

The rounds follow the circle method of round-robin tournaments. One position is in the
middle of a circle, and all others are on the circle. Opposite positions form pairs, and
the circle turns by one position after every round. So *n* ports meet each other once in
n - 1 rounds. If n is odd, there are n rounds, and one port is idle in each round.
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
        raise ValueError(f"{count} positions, but must be at least 0")
    if count < 2:
        return []
    # An odd count gets a dummy position.  The position paired with the dummy is idle.
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
    """Return at most *most* of all rounds, spread evenly, or all if *most* is None.

    Almost all positions take part in every round.  So a few rounds test every port, but
    not every pair.
    """
    rounds = all_rounds(count)
    if most is None or most >= len(rounds):
        return rounds
    return [rounds[index * len(rounds) // most] for index in range(most)]


def apart(
    rounds: Sequence[Sequence[Pair]], switch_of: Sequence[str]
) -> list[list[Pair]]:
    """Split rounds so that no two pairs in a round share the uplinks of a switch.

    Hashing selects among equal-cost paths.  If several pairs leave one switch at the
    same time, they may get the same uplink although others are free.

    Args:
        rounds: Rounds of disjoint pairs.
        switch_of: Switch that each position is connected to, by position.
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
    """Return a permutation that shifts positions by half of their number.

    The permutation is empty if there are fewer than two positions.
    """
    count = len(positions)
    if count < 2:
        return []
    shift = count // 2
    return [
        (position, positions[(index + shift) % count])
        for index, position in enumerate(positions)
    ]

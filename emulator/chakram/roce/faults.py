"""Faults that a port makes on purpose: packets dropped at random when they arrive."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

__all__ = ["PacketFaults"]


class PacketFaults:
    """Drops a share of the packets, each independently, from a seeded generator.

    The distance to the next drop is drawn at once (it has a geometric distribution), so
    packets that pass cost nothing.
    """

    def __init__(self, *, drop_ratio: float, rng: Random) -> None:
        """Drop each packet with probability *drop_ratio*.

        Raises:
            ValueError: If *drop_ratio* is not in 0..1.
        """
        if not 0.0 <= drop_ratio <= 1.0:
            raise ValueError(f"drop ratio {drop_ratio} is not in 0..1")
        self._drop_ratio = drop_ratio
        self._rng = rng
        self._until_drop = self._draw()

    def passing(self, packets: int) -> int:
        """Return how many of the next *packets* pass before one is dropped.

        The one that is dropped counts as seen: call again for what follows it. If all
        pass, *packets* is returned.
        """
        if self._until_drop is None:
            return packets
        if self._until_drop >= packets:
            self._until_drop -= packets
            return packets
        passing = self._until_drop
        self._until_drop = self._draw()
        return passing

    def _draw(self) -> int | None:
        if self._drop_ratio <= 0.0:
            return None
        if self._drop_ratio >= 1.0:
            return 0
        # 1 - random() is in (0, 1], so the logarithm exists.
        return int(math.log(1.0 - self._rng.random()) / math.log1p(-self._drop_ratio))

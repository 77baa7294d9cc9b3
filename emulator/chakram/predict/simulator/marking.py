# cython: language_level=3, annotation_typing=False
"""ECN marking at a queue: the congestion point of DCQCN.

A packet that finds *q* bytes in the queue is marked with probability 0 up to Kmin,
rising linearly to Pmax at Kmax, and 1 beyond: what switches call RED or WRED without
averaging. Source: Zhu et al., Congestion Control for Large-Scale RDMA Deployments
(SIGCOMM 2015), section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from chakram.fabric.topology import EcnThresholds

__all__ = ["EcnMarker"]


class EcnMarker:
    """Marks packets at one queue.

    Attributes:
        marked_packets: How many so far.
    """

    __slots__ = ("_draw", "_kmax_bytes", "_kmin_bytes", "_slope", "marked_packets")

    def __init__(self, thresholds: EcnThresholds, draw: Callable[[], float]) -> None:
        """Mark as *thresholds* say; *draw* returns random numbers in [0, 1)."""
        self._kmin_bytes = thresholds.kmin_bytes
        self._kmax_bytes = thresholds.kmax_bytes
        width = thresholds.kmax_bytes - thresholds.kmin_bytes
        self._slope = thresholds.probability / width if width else 0.0
        self._draw = draw
        self.marked_packets = 0

    def marks(self, queue_bytes: int, count: int, packet_bytes: int) -> int:
        """Return how many packets of a burst are marked.

        Args:
            queue_bytes: What waits in the queue before its first packet.
            count: Packets of the burst; each of them waits for those before it.
            packet_bytes: Of each of them.
        """
        last_bytes = queue_bytes + (count - 1) * packet_bytes
        if last_bytes <= self._kmin_bytes:
            return 0
        marked = 0
        for _ in range(count):
            if queue_bytes > self._kmax_bytes or (
                queue_bytes > self._kmin_bytes
                and self._draw() < self._slope * (queue_bytes - self._kmin_bytes)
            ):
                marked += 1
            queue_bytes += packet_bytes
        self.marked_packets += marked
        return marked

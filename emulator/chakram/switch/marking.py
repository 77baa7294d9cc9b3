# cython: annotation_typing=False, language_level=3, cdivision=True
"""Marking at a queue: the congestion point of DCQCN.

What finds, or leaves behind, *q* bytes is chosen with probability 0 up to Kmin, rising
linearly to Pmax at Kmax, and 1 beyond: WRED, by default on the queue as it is, as
switches of data centres are set. Source: Y. Zhu et al., "Congestion Control for
Large-Scale RDMA Deployments" (SIGCOMM 2015), section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.switch.keyed_random import draw, share_of_draws

if TYPE_CHECKING:
    from chakram.switch.settings import WredSettings

__all__ = ["Marker"]


class Marker:
    """Chooses packets at one queue.

    Attributes:
        at_dequeue: Whether what a packet leaves behind counts.
        average_bytes: The queue as it counts.
    """

    __slots__ = (
        "_average_scaled",
        "_kmax_bytes",
        "_kmin_bytes",
        "_seed",
        "_share",
        "_shift",
        "_stream",
        "at_dequeue",
        "average_bytes",
    )

    def __init__(self, settings: WredSettings, *, seed: int, stream: int) -> None:
        """Choose as *settings* say, with the draws of a *stream*."""
        self._kmin_bytes = settings.kmin_bytes
        self._kmax_bytes = settings.kmax_bytes
        self._share = share_of_draws(settings.probability)
        self._shift = settings.average_shift
        self.at_dequeue = settings.at == "dequeue"
        self._seed = seed
        self._stream = stream
        self._average_scaled = 0
        self.average_bytes = 0

    def chooses(self, queue_bytes: int, number: int) -> bool:
        """Tell whether a packet is chosen, at a queue of so many bytes.

        Args:
            queue_bytes: Without the packet.
            number: Of the packet, see ``packet_number``.
        """
        average_bytes = queue_bytes
        if self._shift > 0:
            # Scaled by 2^shift, so that the remainders of all packets count.
            self._average_scaled += queue_bytes - (self._average_scaled >> self._shift)
            average_bytes = self._average_scaled >> self._shift
        self.average_bytes = average_bytes
        if average_bytes <= self._kmin_bytes:
            return False
        if average_bytes > self._kmax_bytes:
            return True
        # A share is at most 2^32 and a width less than 2^31: the product fits.
        width = self._kmax_bytes - self._kmin_bytes
        share = (average_bytes - self._kmin_bytes) * self._share // width
        drawn = draw(self._seed, self._stream, number)
        return drawn < share

# cython: annotation_typing=False, language_level=3, cdivision=True
"""ECN marking at a queue: the congestion point of DCQCN.

WRED selects a packet with a probability that depends on the queue length when the
packet arrives, or when it leaves. The probability is 0 up to Kmin, rises linearly to
Pmax at Kmax, and is 1 above Kmax. By default, WRED uses the instantaneous queue length,
as data-center switches usually do.

Source: Y. Zhu et al., "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM
2015), section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.switch.keyed_random import draw, share_of_draws

if TYPE_CHECKING:
    from chakram.switch.settings import WredSettings

__all__ = ["Marker"]


class Marker:
    """WRED of one queue, which selects the packets to mark.

    Attributes:
        at_dequeue: Whether WRED uses the queue length when a packet leaves, instead of
            when it arrives.
        average_bytes: Instantaneous or average queue length at the last decision.
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
        """Create a marker from *settings* that draws random numbers from *stream*."""
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
        """Return whether WRED selects a packet at a queue length of *queue_bytes*.

        The caller marks the packet, or drops it if its sender does not support ECN.

        Args:
            queue_bytes: Queue length without the packet.
            number: Number of the packet (see ``packet_number``).
        """
        average_bytes = queue_bytes
        if self._shift > 0:
            # The average is scaled by 2^shift, so that no remainder is lost.
            self._average_scaled += queue_bytes - (self._average_scaled >> self._shift)
            average_bytes = self._average_scaled >> self._shift
        self.average_bytes = average_bytes
        if average_bytes <= self._kmin_bytes:
            return False
        if average_bytes > self._kmax_bytes:
            return True
        # A share is at most 2^32 and a width is less than 2^31, so the product fits.
        width = self._kmax_bytes - self._kmin_bytes
        share = (average_bytes - self._kmin_bytes) * self._share // width
        drawn = draw(self._seed, self._stream, number)
        return drawn < share

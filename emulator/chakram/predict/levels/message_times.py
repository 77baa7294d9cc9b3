"""How long whole messages take: on a link, and at their receiver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakram.plan.wire_cost import (
    PACKET_OVERHEAD_BYTES,
    packets_of,
    serialisation_ns,
    wire_bytes,
)

if TYPE_CHECKING:
    from chakram.predict.levels.network import LevelLink


class LevelTimes(ABC):
    """The times of one cost model, in whole nanoseconds.

    Attributes:
        start_ns: How long after its rank has begun a share may send.
        is_shared: Whether messages share links; else each has its path to itself.
    """

    start_ns: int = 0
    is_shared: bool = True

    @abstractmethod
    def hold_ns(self, link: LevelLink, size_bytes: int) -> int:
        """Return how long a message keeps a link from the next one."""

    @abstractmethod
    def reach_ns(self, link: LevelLink, size_bytes: int) -> int:
        """Return how long after it begins to leave all of it is at the other end."""

    def path_ns(self, links: Sequence[LevelLink], size_bytes: int) -> int:
        """Return how long it takes along a path that it has to itself."""
        return sum(self.reach_ns(link, size_bytes) for link in links)

    def take_ns(self, size_bytes: int, reduced_bytes: int) -> int:
        """Return how long its receiver needs to take it up.

        Args:
            size_bytes: Of the message.
            reduced_bytes: What of it is added up.
        """
        return 0

    def wire_bytes(self, size_bytes: int) -> int:
        """Return what of it crosses a link, headers included."""
        return size_bytes

    def packets(self, size_bytes: int) -> int:
        """Return how many packets it is."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WireTimes(LevelTimes):
    """Ours: every packet of a message has its headers, and hosts take no time.

    Times are rounded up, message by message.

    Attributes:
        path_mtu: Payload of a full packet.
        verb: ``write`` or ``send``.
        overhead_bytes: What each packet has beside its payload.
    """

    path_mtu: int
    verb: str = "write"
    overhead_bytes: int = PACKET_OVERHEAD_BYTES

    def hold_ns(self, link: LevelLink, size_bytes: int) -> int:
        """Return its bytes at the rate of the link."""
        return serialisation_ns(self.wire_bytes(size_bytes), rate_bps=link.rate_bps)

    def reach_ns(self, link: LevelLink, size_bytes: int) -> int:
        """Return that and the propagation."""
        return self.hold_ns(link, size_bytes) + link.delay_ns

    def wire_bytes(self, size_bytes: int) -> int:
        """Return the layer-2 bytes of all its packets."""
        return wire_bytes(
            size_bytes,
            path_mtu=self.path_mtu,
            verb=self.verb,
            overhead_bytes=self.overhead_bytes,
        )

    def packets(self, size_bytes: int) -> int:
        """Return how many packets of the path MTU it is."""
        return packets_of(size_bytes, path_mtu=self.path_mtu)

"""Times of whole messages on a link and at their receiver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from chakram.plan.wire_cost import (
    PACKET_OVERHEAD_BYTES,
    packets_of,
    serialisation_ns,
    wire_bytes,
)
from chakram.predict.levels.level_network import LevelLink


class LevelTimes(ABC):
    """The times of one cost model, in whole nanoseconds.

    Attributes:
        start_ns: Delay from the start of a rank's share to its first send.
        is_shared: Whether messages share links. If not, each has a dedicated path.
    """

    start_ns: int = 0
    is_shared: bool = True

    @abstractmethod
    def hold_ns(self, link: LevelLink, size_bytes: int) -> int:
        """Return the time for which a message occupies a link."""

    @abstractmethod
    def reach_ns(self, link: LevelLink, size_bytes: int) -> int:
        """Return the time from the first bit's departure to the last bit's arrival."""

    def path_ns(self, links: Sequence[LevelLink], size_bytes: int) -> int:
        """Return the time of a message on a dedicated path."""
        return sum(self.reach_ns(link, size_bytes) for link in links)

    def take_ns(self, size_bytes: int, reduced_bytes: int) -> int:
        """Return the processing time at the receiver.

        Args:
            size_bytes: Size of the message.
            reduced_bytes: Number of message bytes that the receiver reduces.
        """
        return 0

    def wire_bytes(self, size_bytes: int) -> int:
        """Return the size of a message on a link in bytes, headers included."""
        return size_bytes

    def packets(self, size_bytes: int) -> int:
        """Return the number of packets of a message."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WireTimes(LevelTimes):
    """Chakram's cost model: every packet has headers, and hosts take no time.

    Messages within a host are not divided into packets. Times are rounded up for each
    message.

    Attributes:
        path_mtu: Payload bytes of a full packet.
        verb: ``write`` or ``send``.
        overhead_bytes: Size of each packet in addition to its payload.
    """

    path_mtu: int
    verb: str = "write"
    overhead_bytes: int = PACKET_OVERHEAD_BYTES

    def hold_ns(self, link: LevelLink, size_bytes: int) -> int:
        """Return the serialization delay of the message."""
        carried = size_bytes if link.is_local else self.wire_bytes(size_bytes)
        return serialisation_ns(carried, rate_bps=link.rate_bps)

    def reach_ns(self, link: LevelLink, size_bytes: int) -> int:
        """Return the serialization delay plus the propagation delay."""
        return self.hold_ns(link, size_bytes) + link.delay_ns

    def wire_bytes(self, size_bytes: int) -> int:
        """Return the layer-2 bytes of all packets of the message."""
        return wire_bytes(
            size_bytes,
            path_mtu=self.path_mtu,
            verb=self.verb,
            overhead_bytes=self.overhead_bytes,
        )

    def packets(self, size_bytes: int) -> int:
        """Return the number of packets at the path MTU."""
        return packets_of(size_bytes, path_mtu=self.path_mtu)

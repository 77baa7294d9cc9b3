"""What ideal and ceiling know of the fabric: ports, paths, uplinks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chakram.plan.wire_cost import PACKET_OVERHEAD_BYTES, serialisation_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FabricModel", "PathModel", "PortModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PortModel:
    """A port: its rate in each direction (None: unlimited), and its switch."""

    rate_bps: int | None
    switch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PathModel:
    """A path between two ports: propagation in all, and the rate of each link."""

    delay_ns: int
    rates_bps: tuple[int | None, ...]

    def latency_ns(self, packet_bytes: int) -> int:
        """Return how long one packet takes over all links, stored at each hop."""
        return self.delay_ns + sum(
            serialisation_ns(packet_bytes, rate_bps=rate) for rate in self.rates_bps
        )

    def slowest_bps(self) -> int | None:
        """Return the lowest rate, None where no link has one."""
        return min((rate for rate in self.rates_bps if rate), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricModel:
    """What the ideal knows of the fabric under the ranks of one job.

    Attributes:
        port_of: The port of every rank, an index into ``ports``.
        ports: The ports.
        uplinks_bps: By switch, the rate of all its links to other switches together;
            None where one of them is unlimited.
        path: The path between two different ports.
        local_bps: Rates of messages that stay within a host, 0: no time; by source and
            destination.
        overhead_bytes: What each packet has beside its payload.
    """

    port_of: Mapping[int, int]
    ports: tuple[PortModel, ...]
    uplinks_bps: Mapping[str, int | None]
    path: Callable[[int, int], PathModel]
    local_bps: Mapping[tuple[int, int], int] = field(default_factory=dict)
    overhead_bytes: int = PACKET_OVERHEAD_BYTES

"""What bound and ceiling know of the fabric: ports, and what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from chakram.plan.wire_cost import PACKET_OVERHEAD_BYTES


class Hop(NamedTuple):
    """One of the links between two ports, or the equal ones that a path may choose.

    Attributes:
        line: Number of the link, or of all those of which every path takes one.
        rate_bps: Rate of the fastest of them; None: unlimited.
        together_bps: Rate of all of them together; likewise.
        delay_ns: Propagation of the shortest.
        ahead_ns: What a port may be ahead of its rate by, as time; 0: it is a wire,
            which packets have left when their last bit has.
        slowest_bps: Rate of the slowest of them; None: unlimited, or as the fastest.
    """

    line: int
    rate_bps: int | None
    together_bps: int | None
    delay_ns: int
    ahead_ns: float = 0.0
    slowest_bps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricModel:
    """What the bound knows of the fabric under the ranks of one job.

    Attributes:
        port_of: The port of every rank, an index into ``ports_bps``.
        ports_bps: Rates of the ports, in each direction; None: unlimited.
        hops: What lies between two different ports, in order.
        ahead_ns: By port what its link may be ahead of its rate by, as time, in either
            direction; empty: none is.
        local_bps: Rates of messages that stay within a host, 0: no time; by source and
            destination.
        overhead_bytes: What each packet has beside its payload.
        cuts_through: Whether switches pass packets on before they are there whole, to a
            link that is no faster than the one they come by.
    """

    port_of: Mapping[int, int]
    ports_bps: tuple[int | None, ...]
    hops: Callable[[int, int], tuple[Hop, ...]]
    ahead_ns: tuple[float, ...] = ()
    local_bps: Mapping[tuple[int, int], int] = field(default_factory=dict)
    overhead_bytes: int = PACKET_OVERHEAD_BYTES
    cuts_through: bool = False

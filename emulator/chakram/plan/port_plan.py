"""The ports of a plan.

Readers of run directories need only this part of a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from chakram.foundation.field_bounds import HostAddress, Name, UdpPort, Within

MAX_MTU = 65535
MAX_RATE_BPS = 10**15

HEARS_PAUSES = ",pauses"
"""Suffix of a port specification: the port obeys the PFC pause frames it receives."""

HUGE_PAGES = ",huge-pages"
"""Suffix of a port on an RDMA NIC whose memory consists of huge pages."""


def interface_of(specification: str) -> str:
    """Return the part of a port specification between its kind and its suffix."""
    details = specification.partition(":")[2]
    return details.removesuffix(HEARS_PAUSES).removesuffix(HUGE_PAGES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortPlan:
    """One port through which packets of ranks leave and enter.

    ``open`` is a port specification such as ``udp:eth0`` or ``memory:``. ``netns`` is
    the path of the network namespace in which the port is opened (None: the agent's
    namespace). A ``rate_bps`` of None means unlimited. ``host`` is the port's name in
    the topology.
    """

    number: int
    agent: Name
    host: Name
    open: Name
    netns: Name | None
    address: HostAddress
    udp_port: UdpPort
    rate_bps: Annotated[int, Within(1, MAX_RATE_BPS)] | None
    mtu: Annotated[int, Within(68, MAX_MTU)]

    @property
    def interface(self) -> str:
        """The part of the specification after its kind, without a suffix."""
        return interface_of(self.open)

    @property
    def obeys_pauses(self) -> bool:
        """Whether the port obeys PFC pause frames."""
        return self.open.endswith(HEARS_PAUSES)

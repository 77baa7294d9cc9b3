"""What simulated switches are like, as an experiment file says it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from chakram.settings.quantities import Model, Size
from chakram.switch.profiles import Profile, ProfileName
from chakram.switch.settings import Balancing

if TYPE_CHECKING:
    from chakram.fabric.kinds.links import LinksSettings
    from chakram.fabric.topology import Topology

__all__ = ["SwitchesSettings", "with_given_queues"]

_ETHERNET_BYTES = 14


class SwitchesSettings(Model):
    """What all switches of a simulation are like."""

    profile: ProfileName = "fifo"
    """fifo: a queue per port, limited by its link; ns3: the RDMA switch model of
    ns-3; sonic: a switch with two lossless classes, which pauses who sends to it."""
    buffer_bytes: Size = Field(default=32 << 20, alias="buffer", examples=["32MiB"])
    """Memory of a switch, for packets of all ports; not of fifo."""
    mark_at: Literal["enqueue", "dequeue"] | None = None
    """Whether what a packet finds counts for ECN, or what it leaves behind. Without it
    as such switches do: enqueue for fifo, else dequeue."""
    balancing: Balancing = "hash"
    """How they choose among equal-cost next hops: by a hash of the flow, at random or
    in turn for every packet, or the one with the shortest queue."""

    def to_profile(self, mtu: int) -> Profile:
        """Return the profile; *mtu* is that of IP packets."""
        return Profile(
            name=self.profile,
            buffer_bytes=self.buffer_bytes,
            mark_at=self.mark_at,
            balancing=self.balancing,
            mtu=mtu + _ETHERNET_BYTES,
        )


def with_given_queues(topology: Topology, links: LinksSettings) -> Topology:
    """Return a topology whose queues have limits only where they are given.

    A kernel's queue always has one; nobody knows those of real switches.
    """
    uplinks = set(topology.uplinks())
    return replace(
        topology,
        links=tuple(
            replace(
                link,
                queue_bytes=(
                    links.uplink if link in uplinks else links.host
                ).queue_bytes,
            )
            for link in topology.links
        ),
    )

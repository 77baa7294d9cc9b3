"""What simulated switches are like, as an experiment file says it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from chakram.settings.mistakes import Mistake
from chakram.settings.quantities import Model, Size, Time, Whole
from chakram.switch.profiles import Profile, ProfileName
from chakram.switch.settings import Balancing, WatchdogAction, WatchdogSettings

if TYPE_CHECKING:
    from chakram.fabric.kinds.links import LinksSettings
    from chakram.fabric.topology import Topology


_ETHERNET_BYTES = 14


class Watchdog(Model):
    """What a switch does about a queue that stays paused."""

    detection_ns: Time = Field(default=200_000_000, alias="detection", gt=0)
    """How long a queue with packets must have been paused, and sent nothing."""
    restoration_ns: Time = Field(default=200_000_000, alias="restoration", gt=0)
    """Time without a pause frame after which it is as before."""
    action: WatchdogAction = "drop"
    """drop: what is in it and comes is dropped; forward: it sends in spite of the
    pause; alert: that is only counted."""
    poll_ns: Time = Field(default=100_000_000, alias="poll", gt=0)
    """How often it looks."""


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
    latency: Literal["store_and_forward", "cut_through"] = "store_and_forward"
    """When a packet begins to leave: once all of it is there, or, where its egress is
    idle and no faster than its ingress, as soon as it begins to come."""

    quanta: Whole = Field(default=65_535, ge=1, le=65_535)
    """Of sonic: how long a pause lasts that is not refreshed, in 512 bit times of the
    port."""
    watchdog: Watchdog | None = Field(
        default=None, examples=[{"detection": "200ms", "action": "drop"}]
    )
    """Of sonic: what ends storms of pauses; without it nothing does."""

    @property
    def cuts_through(self) -> bool:
        """Whether packets may begin to leave before they are there whole."""
        return self.latency == "cut_through"

    def check(self) -> list[Mistake]:
        """Refuse what its profile does not have."""
        if self.profile == "sonic":
            return []
        return [
            Mistake(
                location=("fabric", "switches", name),
                found=f"means nothing for switches of profile {self.profile}",
                hint="write profile: sonic, or remove it",
            )
            for name in ("quanta", "watchdog")
            if name in self.model_fields_set
        ]

    def to_profile(self, mtu: int) -> Profile:
        """Return the profile; *mtu* is that of IP packets."""
        return Profile(
            name=self.profile,
            buffer_bytes=self.buffer_bytes,
            mark_at=self.mark_at,
            balancing=self.balancing,
            cut_through=self.cuts_through,
            quanta=self.quanta,
            watchdog=None
            if self.watchdog is None
            else WatchdogSettings(**self.watchdog.model_dump()),
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

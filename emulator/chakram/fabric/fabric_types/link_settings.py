"""Links of a fabric and modelled switches, as an experiment file has them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from chakram.settings.located_errors import Mistake
from chakram.settings.quantities import (
    Model,
    Number,
    Rate,
    Size,
    Time,
    Whole,
    ZeroableSize,
    problem,
)
from chakram.switch.profiles import Profile, ProfileName
from chakram.switch.settings import Balancing, WatchdogAction, WatchdogSettings
from chakram.topology.common_topologies import LinkKind
from chakram.topology.topology import EcnThresholds

if TYPE_CHECKING:
    from chakram.topology.topology import Topology

# Seven senders with windows of 128 KiB each, towards one port, fit without loss.
DEFAULT_QUEUE_BYTES = 2 << 20
"""Queue of a port with a rate, where the experiment names none."""


class EcnSettings(Model):
    """From which queue on a switch marks packets."""

    kmin_bytes: ZeroableSize = Field(alias="kmin")
    """Queue up to which no packet is marked."""
    kmax_bytes: ZeroableSize = Field(alias="kmax")
    """Queue beyond which every packet is marked."""
    pmax: Number = Field(ge=0.0, le=1.0, examples=[0.2])
    """Share of the packets that is marked at kmax; from kmin on it rises linearly."""


_ECN_EXAMPLE = "e.g. 400KB/1600KB/0.2 or {kmin: 400KB, kmax: 1600KB, pmax: 0.2}"


def _ecn_parts(value: object) -> object:
    """Turn ``400KB/1600KB/0.2`` into its three parts."""
    if not isinstance(value, str):
        return value
    try:
        kmin, kmax, pmax = value.split("/")
        return {"kmin": kmin.strip(), "kmax": kmax.strip(), "pmax": float(pmax)}
    except ValueError:
        raise problem(f"{value!r} is not Kmin/Kmax/Pmax", _ECN_EXAMPLE) from None


def _ecn_in_order(value: EcnSettings | None) -> EcnSettings | None:
    if value is not None and value.kmax_bytes < value.kmin_bytes:
        raise problem("kmax is below kmin", _ECN_EXAMPLE)
    return value


class LinkSettings(Model):
    """One kind of link; each direction has this rate, delay and queue."""

    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Rate of each direction; without it as fast as it goes."""
    delay_ns: Time = Field(default=0, alias="delay")
    """Propagation delay; fabrics of this machine add none, and say so."""
    queue_bytes: Size | None = Field(default=None, alias="queue")
    """Longest queue of a switch before this link: what finds it full is dropped.
    Without it 2 MiB; none in the simulation of an external fabric."""
    ecn: Annotated[
        EcnSettings | None,
        BeforeValidator(_ecn_parts, json_schema_input_type=EcnSettings | str | None),
        AfterValidator(_ecn_in_order),
    ] = None
    """From which queue on switches mark packets: a section, or Kmin/Kmax/Pmax. Without
    it they mark nothing; switches of this machine's kernel never do."""

    @property
    def kind(self) -> LinkKind:
        """These links as a topology has them."""
        return LinkKind(
            rate_bps=self.rate_bps,
            delay_ns=self.delay_ns,
            queue_bytes=self.longest_queue_bytes,
            ecn=self.ecn_thresholds,
        )

    @property
    def longest_queue_bytes(self) -> int | None:
        """The queue, or that of a link with a rate that names none."""
        if self.queue_bytes is not None or self.rate_bps is None:
            return self.queue_bytes
        return DEFAULT_QUEUE_BYTES

    @property
    def ecn_thresholds(self) -> EcnThresholds | None:
        """From which queue on it marks."""
        if self.ecn is None:
            return None
        return EcnThresholds(
            kmin_bytes=self.ecn.kmin_bytes,
            kmax_bytes=self.ecn.kmax_bytes,
            probability=self.ecn.pmax,
        )


class LinksSettings(Model):
    """The links of hosts and those between switches."""

    host: LinkSettings = LinkSettings.unsaid()
    """Links between hosts and their switch. Of nodes that forward: what a node can
    send and receive in all."""
    uplink: LinkSettings = LinkSettings.unsaid()
    """Links between switches, or between nodes that forward."""
    core: LinkSettings | None = None
    """Links between the spines and cores of a fat tree; without it as uplink."""

    @property
    def all(self) -> tuple[LinkSettings, ...]:
        """What is said of links, of every kind."""
        return tuple(each for each in (self.host, self.uplink, self.core) if each)


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

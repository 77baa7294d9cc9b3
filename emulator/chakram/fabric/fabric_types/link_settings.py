"""Settings of links and of modeled switches."""

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

# Seven senders with windows of 128 KiB can send to one port without loss.
DEFAULT_QUEUE_BYTES = 2 << 20
"""Default queue limit of a port with a rate."""


class EcnSettings(Model):
    """Queue lengths at which a switch sets ECN marks."""

    kmin_bytes: ZeroableSize = Field(alias="kmin")
    """Queue length up to which no packet is marked."""
    kmax_bytes: ZeroableSize = Field(alias="kmax")
    """Queue length above which every packet is marked."""
    pmax: Number = Field(ge=0.0, le=1.0, examples=[0.2])
    """Fraction of packets marked at kmax, rising linearly from 0 at kmin."""


_ECN_EXAMPLE = "e.g. 400KB/1600KB/0.2 or {kmin: 400KB, kmax: 1600KB, pmax: 0.2}"


def _ecn_parts(value: object) -> object:
    """Split ``400KB/1600KB/0.2`` into its three parts."""
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
    """One kind of link. Rate, delay and queue apply to each direction."""

    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Rate of each direction. Default: unlimited."""
    delay_ns: Time = Field(default=0, alias="delay")
    """Propagation delay. Runs with kernel switches do not apply it and warn."""
    queue_bytes: Size | None = Field(default=None, alias="queue")
    """Queue limit of a switch port that sends over this link; packets that exceed it
    are dropped. Default: 2 MiB if the link has a rate, but no limit in simulations of
    an external fabric."""
    ecn: Annotated[
        EcnSettings | None,
        BeforeValidator(_ecn_parts, json_schema_input_type=EcnSettings | str | None),
        AfterValidator(_ecn_in_order),
    ] = None
    """Queue lengths at which switches set ECN marks: a section, or Kmin/Kmax/Pmax.
    Default: no marks. Kernel switches never mark."""

    @property
    def kind(self) -> LinkKind:
        """Properties of these links for a topology."""
        return LinkKind(
            rate_bps=self.rate_bps,
            delay_ns=self.delay_ns,
            queue_bytes=self.longest_queue_bytes,
            ecn=self.ecn_thresholds,
        )

    @property
    def longest_queue_bytes(self) -> int | None:
        """The queue limit, or the default if the link has a rate."""
        if self.queue_bytes is not None or self.rate_bps is None:
            return self.queue_bytes
        return DEFAULT_QUEUE_BYTES

    @property
    def ecn_thresholds(self) -> EcnThresholds | None:
        """The ECN thresholds, or None for no marks."""
        if self.ecn is None:
            return None
        return EcnThresholds(
            kmin_bytes=self.ecn.kmin_bytes,
            kmax_bytes=self.ecn.kmax_bytes,
            probability=self.ecn.pmax,
        )


class LinksSettings(Model):
    """Links of hosts and links between switches."""

    host: LinkSettings = LinkSettings.section_defaults()
    """Links between hosts and their switch. In shapes without switches: total rate at
    which a node can send and receive."""
    uplink: LinkSettings = LinkSettings.section_defaults()
    """Links between switches, or between the nodes of shapes without switches."""
    core: LinkSettings | None = None
    """Links between the spines and cores of a fat tree. Default: same as uplink."""

    @property
    def all(self) -> tuple[LinkSettings, ...]:
        """The settings of every kind of link that is set."""
        return tuple(each for each in (self.host, self.uplink, self.core) if each)


_ETHERNET_BYTES = 14


class Watchdog(Model):
    """Watchdog of a switch for queues that stay paused."""

    detection_ns: Time = Field(default=200_000_000, alias="detection", gt=0)
    """Time after which the watchdog acts on a nonempty queue that is paused and sends
    nothing."""
    restoration_ns: Time = Field(default=200_000_000, alias="restoration", gt=0)
    """Time without a pause frame after which the queue returns to normal."""
    action: WatchdogAction = "drop"
    """Action on such a queue. drop: drop queued and new packets; forward: send despite
    the pause; alert: only count."""
    poll_ns: Time = Field(default=100_000_000, alias="poll", gt=0)
    """Interval between checks."""


class SwitchesSettings(Model):
    """Switch model of simulations, and of runs with modeled switches."""

    profile: ProfileName = "fifo"
    """fifo: one queue per port, limited by its link; ns3: the RDMA switch model of
    ns-3; sonic: a switch with two lossless classes that pauses its senders."""
    buffer_bytes: Size = Field(default=32 << 20, alias="buffer", examples=["32MiB"])
    """Packet memory of a switch, shared by all ports. Not used by fifo."""
    mark_at: Literal["enqueue", "dequeue"] | None = None
    """Queue length that determines ECN marks: the length when a packet arrives
    (enqueue), or the length that remains when it leaves (dequeue). Default: enqueue for
    fifo, else dequeue."""
    balancing: Balancing = "hash"
    """Choice among equal-cost next hops. hash: by a hash of the flow; random,
    round_robin: independently for each packet; adaptive: the shortest queue."""
    latency: Literal["store_and_forward", "cut_through"] = "store_and_forward"
    """When a packet starts to leave. store_and_forward: after the whole packet has
    arrived; cut_through: with its first bits, if the egress port is idle and no faster
    than the ingress port."""

    quanta: Whole = Field(default=65_535, ge=1, le=65_535)
    """sonic only: duration of a pause that is not refreshed, in units of 512 bit times
    of the port."""
    watchdog: Watchdog | None = Field(
        default=None, examples=[{"detection": "200ms", "action": "drop"}]
    )
    """sonic only: watchdog that ends pause storms. Default: none."""

    @property
    def cuts_through(self) -> bool:
        """Whether packets may start to leave before they have arrived completely."""
        return self.latency == "cut_through"

    def check(self) -> list[Mistake]:
        """Reject settings that the profile does not support."""
        if self.profile == "sonic":
            return []
        return [
            Mistake(
                location=("fabric", "switches", name),
                found=f"has no effect for switches of profile {self.profile}",
                hint="write profile: sonic, or remove it",
            )
            for name in ("quanta", "watchdog")
            if name in self.model_fields_set
        ]

    def to_profile(self, mtu: int) -> Profile:
        """Return the profile. *mtu* is the size of the largest IP packet."""
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
    """Return *topology* with queue limits only where *links* sets them.

    Kernel queues always have a limit, but the queue limits of real switches are
    unknown.
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

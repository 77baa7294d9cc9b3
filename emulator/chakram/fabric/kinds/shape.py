"""The shape of a fabric and its links, as an experiment file has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from chakram.errors import ConfigError
from chakram.fabric.shapes import clos, single_switch
from chakram.fabric.topology import EcnThresholds, Topology
from chakram.settings.mistakes import Mistake
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

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "DEFAULT_QUEUE_BYTES",
    "MAX_HOSTS",
    "ClosShape",
    "EcnSettings",
    "LinkSettings",
    "LinksSettings",
    "SingleSwitchShape",
    "TopologySettings",
]

MAX_HOSTS = 16_384

# Seven senders with windows of 128 KiB each, towards one port, fit without loss.
DEFAULT_QUEUE_BYTES = 2 << 20
"""Queue of a port with a rate, where the experiment names none."""


class SingleSwitchShape(Model):
    """Hosts on one switch."""

    hosts: Whole = Field(ge=1, le=MAX_HOSTS, examples=[8])
    """Number of hosts, with one port each."""


class ClosShape(Model):
    """Leaves and spines, each leaf with one link to each spine."""

    leaves: Whole = Field(ge=1, le=1024, examples=[2])
    """Number of leaf switches."""
    spines: Whole = Field(ge=1, le=1024, examples=[2])
    """Number of spine switches; every leaf has one link to each."""
    hosts_per_leaf: Whole = Field(ge=1, le=1024, examples=[4])
    """Hosts of each leaf, with one port each."""

    @property
    def hosts(self) -> int:
        """Hosts of all leaves."""
        return self.leaves * self.hosts_per_leaf


class TopologySettings(Model):
    """The shape of a fabric: exactly one of its keys."""

    single_switch: SingleSwitchShape | None = None
    """All hosts on one switch."""
    clos: ClosShape | None = None
    """A leaf-spine fabric of two tiers."""

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        shape = self.single_switch or self.clos
        return shape.hosts if shape is not None else 0

    @property
    def tiers(self) -> int:
        """Tiers of switches."""
        return 1 if self.clos is None else 2

    def describe(self) -> str:
        """Return the shape in words."""
        if self.clos is None:
            return f"single switch, {self.hosts} hosts"
        return (
            f"Clos of {self.clos.leaves} leaves x {self.clos.spines} spines "
            f"x {self.clos.hosts_per_leaf} hosts"
        )

    def check(self) -> list[Mistake]:
        """Check that it is one shape."""
        given = [self.single_switch, self.clos]
        if sum(each is not None for each in given) == 1:
            return []
        return [
            Mistake(
                location=("fabric", "topology"),
                found="names two shapes" if all(given) else "names no shape",
                hint="write either single_switch or clos",
            )
        ]

    def to_topology(
        self, links: LinksSettings, names: Sequence[str] | None = None
    ) -> Topology:
        """Return the topology of this shape with these links.

        Args:
            links: What its links are like.
            names: Of its hosts; None: h0, h1, ...

        Raises:
            ConfigError: If it has no shape.
            FabricError: If the shape is impossible.
        """
        host = links.host
        if self.single_switch is not None:
            return single_switch(
                self.single_switch.hosts,
                host.rate_bps,
                host_delay_ns=host.delay_ns,
                host_queue_bytes=host.longest_queue_bytes,
                host_ecn=host.ecn_thresholds,
                names=names,
            )
        if self.clos is None:
            raise ConfigError(
                "fabric.topology", "names no shape", "write single_switch or clos"
            )
        uplink = links.uplink
        return clos(
            self.clos.leaves,
            self.clos.spines,
            self.clos.hosts_per_leaf,
            host.rate_bps,
            uplink.rate_bps,
            host_delay_ns=host.delay_ns,
            uplink_delay_ns=uplink.delay_ns,
            host_queue_bytes=host.longest_queue_bytes,
            uplink_queue_bytes=uplink.longest_queue_bytes,
            host_ecn=host.ecn_thresholds,
            uplink_ecn=uplink.ecn_thresholds,
            names=names,
        )


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
    Without it 2 MiB. Simulated queues have no limit."""
    ecn: Annotated[
        EcnSettings | None,
        BeforeValidator(_ecn_parts, json_schema_input_type=EcnSettings | str | None),
        AfterValidator(_ecn_in_order),
    ] = None
    """From which queue on switches mark packets: a section, or Kmin/Kmax/Pmax. Without
    it they mark nothing; switches of this machine's kernel never do."""

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

    host: LinkSettings = LinkSettings()
    """Links between hosts and their switch."""
    uplink: LinkSettings = LinkSettings()
    """Links between leaves and spines."""

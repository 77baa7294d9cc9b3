"""The links of a fabric, as an experiment file has them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from chakram.fabric.shapes import LinkKind
from chakram.fabric.topology import EcnThresholds
from chakram.settings.quantities import (
    Model,
    Number,
    Rate,
    Size,
    Time,
    ZeroableSize,
    problem,
)

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

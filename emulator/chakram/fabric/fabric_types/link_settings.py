"""Settings of links and of modeled switches."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    model_validator,
)

from chakram.foundation.bounded_reading import read_bounded
from chakram.foundation.errors import ConfigError
from chakram.settings.declared_sections import field_values, section_of
from chakram.settings.field_types import (
    Model,
    Number,
    Rate,
    Size,
    Time,
    ZeroableSize,
    problem,
    resolved_path,
)
from chakram.settings.located_errors import Mistake
from chakram.switch.profiles import Profile
from chakram.switch.sonic_config import (
    CONFIG_DB,
    checked_tables,
    parse_config_db,
    port_names,
)
from chakram.topology.topology import EcnThresholds
from chakram.topology.topology_helpers import LinkKind

if TYPE_CHECKING:
    from chakram.topology.topology import Link, Topology

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
    """Fraction of packets marked at kmax; it rises linearly from 0 at kmin."""


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
    """A link. Values apply to each direction."""

    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Rate of each direction. Default: unlimited."""
    delay_ns: Time = Field(default=0, alias="delay")
    """Propagation delay. Kernel switches do not apply it."""
    queue_bytes: Size | None = Field(default=None, alias="queue")
    """Queue limit of a switch port; further packets are dropped. Default: 2MiB if the
    link has a rate, but no limit in simulations of an external fabric."""
    ecn: Annotated[
        EcnSettings | None,
        BeforeValidator(_ecn_parts, json_schema_input_type=EcnSettings | str | None),
        AfterValidator(_ecn_in_order),
    ] = None
    """Queue lengths for ECN marks: a section, or Kmin/Kmax/Pmax. Default: no marks.
    Kernel switches never mark packets."""

    @property
    def kind(self) -> LinkKind:
        """Properties of links with these settings, for a topology."""
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
    """Settings of links, by their place in the fabric."""

    host: LinkSettings = LinkSettings.section_defaults()
    """Links of hosts. In shapes without switches, rate is the total rate of a node."""
    uplink: LinkSettings = LinkSettings.section_defaults()
    """Links between switches, or between nodes without switches."""
    core: LinkSettings | None = None
    """Links between spines and cores of a fat tree. Default: same as uplink."""

    @property
    def all(self) -> tuple[LinkSettings, ...]:
        """The settings of all kinds of links, without ``core`` if it is not set."""
        return tuple(each for each in (self.host, self.uplink, self.core) if each)


_ETHERNET_BYTES = 14
_CONFIG_DB_LIMIT_BYTES = 16 << 20


def _config_db(value: object, info: ValidationInfo) -> str:
    """Return the tables of a SONiC switch as JSON, from a file name or the tables."""
    where, tables = CONFIG_DB, value
    try:
        if isinstance(value, str):
            where = value
            text = read_bounded(
                resolved_path(value, info),
                limit_bytes=_CONFIG_DB_LIMIT_BYTES,
                error=ConfigError,
                size_hint="use the config_db.json of a SONiC switch",
            )
            tables = parse_config_db(text, where=where)
        if not isinstance(tables, dict):
            raise problem("is not a file or its tables", f"e.g. {CONFIG_DB}")
        return json.dumps(checked_tables(tables, where=where).used)
    except ConfigError as error:
        raise problem(f"{error.where}: {error.found}", error.hint or "") from None


ConfigDb = Annotated[
    str,
    PlainValidator(_config_db, json_schema_input_type=str | dict[str, Any]),
    PlainSerializer(json.loads, return_type=dict[str, Any], when_used="json"),
]
"""JSON with the tables in a SONiC switch's ``config_db.json`` that the model uses."""


class SwitchesSettings(section_of(Profile)):  # type: ignore[misc] # a made class
    """Switch model for simulations, and for runs with modeled switches."""

    sonic: ConfigDb | None = Field(default=None, examples=["config_db.json"])
    """config_db.json of a SONiC switch, as a file name or as its tables. Its buffers,
    classes, marks, pauses, queues and watchdog replace those of the profile. Implies
    profile: sonic."""

    @model_validator(mode="before")
    @classmethod
    def _take_from_file(cls, data: object) -> object:
        if isinstance(data, dict) and data.get("sonic") is not None:
            return {"profile": "sonic", "buffer": None, **data}
        return data

    @property
    def cuts_through(self) -> bool:
        """Whether packets may start to leave before they have arrived completely."""
        return bool(field_values(self, Profile)["cut_through"])

    @property
    def marks(self) -> bool:
        """Whether the configuration of a SONiC switch has queues that mark packets."""
        return self.sonic is not None and '"wred_profile"' in self.sonic

    def check(self, topology: Topology | None) -> list[Mistake]:
        """Reject settings that the profile or the shape does not support."""
        if self.name == "sonic":
            return [] if self.sonic is None else _check_ports(self.sonic, topology)
        return [
            Mistake(
                location=("fabric", "switches", name),
                found=f"has no effect for switches of profile {self.name}",
                hint="write profile: sonic, or remove it",
            )
            for name in ("quanta", "watchdog", "sonic")
            if name in self.model_fields_set and getattr(self, name) is not None
        ]

    def to_profile(self, mtu: int) -> Profile:
        """Return the profile. *mtu* is the size of the largest IP packet."""
        return Profile(
            **field_values(self, Profile),
            mtu=mtu + _ETHERNET_BYTES,
            config_db=self.sonic,
        )


def _check_ports(config_db: str, topology: Topology | None) -> list[Mistake]:
    """Check that *config_db* has enough ports for every switch of the topology."""
    if topology is None:
        return []
    nports = len(port_names(json.loads(config_db), where=CONFIG_DB))
    return [
        Mistake(
            location=("fabric", "switches", "sonic"),
            found=f"has {nports} entries in PORT, but {switch} has {nlinks} links",
            hint="use the config_db.json of a switch with enough ports",
        )
        for switch in topology.switches
        if (nlinks := len(topology.links_of(switch))) > nports
    ][:1]


def with_given_queues(
    topology: Topology, links: LinksSettings, *, has_cores: bool
) -> Topology:
    """Return *topology* with queue limits only where *links* sets them.

    Kernel queues always have a limit, but the queue limits of real switches are
    unknown.

    Args:
        topology: The topology of a shape.
        links: Settings of the links in *topology*.
        has_cores: Whether links above the second tier use the ``core`` settings.
    """
    uplinks = set(topology.uplinks())
    leaves = {topology.switch_of(host) for host in topology.hosts}

    def settings(link: Link) -> LinkSettings:
        if link not in uplinks:
            return links.host
        is_core = has_cores and leaves.isdisjoint((link.a.node, link.b.node))
        return links.core if links.core and is_core else links.uplink

    return replace(
        topology,
        links=tuple(
            replace(link, queue_bytes=settings(link).queue_bytes)
            for link in topology.links
        ),
    )

"""The fabric of an experiment: where its packets run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from chakram.config.addresses import (
    AgentAddress,
    InterfaceAddress,
    Prefix,
    prefix,
)
from chakram.config.mistakes import tag_of
from chakram.config.quantities import (
    FilePath,
    Model,
    Name,
    Number,
    PortSpecification,
    Rate,
    Size,
    Time,
    Whole,
    ZeroableSize,
    problem,
)

ROCE_UDP_PORT = 4791
"""Registered for RoCEv2."""

MAX_HOSTS = 4096


def _undilated(value: object) -> Literal[1]:
    if value != 1 or isinstance(value, bool):
        raise problem(
            "the time of an external fabric cannot be stretched",
            "real switches and NICs run at their own speed; remove dilation",
        )
    return 1


Dilation = Annotated[int, Field(strict=True, ge=1, le=100_000)]
"""Factor by which time is stretched, as ``chakram.config.dilation`` does it."""

NoDilation = Annotated[Literal[1], BeforeValidator(_undilated)]
"""The dilation of what runs at its own speed."""

Addressing = Literal["ipv4", "ipv6"]
"""Address family of all ports."""


class SingleSwitchShape(Model):
    """Hosts on one switch."""

    hosts: Whole = Field(ge=1, le=MAX_HOSTS)


class ClosShape(Model):
    """Leaves and spines, each leaf with one link to each spine."""

    leaves: Whole = Field(ge=1, le=1024)
    spines: Whole = Field(ge=1, le=1024)
    hosts_per_leaf: Whole = Field(ge=1, le=1024)

    @property
    def hosts(self) -> int:
        """Hosts of all leaves."""
        return self.leaves * self.hosts_per_leaf


class TopologySettings(Model):
    """The shape of a fabric: exactly one of its keys."""

    single_switch: SingleSwitchShape | None = None
    clos: ClosShape | None = None

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        shape = self.single_switch or self.clos
        return shape.hosts if shape is not None else 0


class EcnSettings(Model):
    """From which queue on a switch marks packets."""

    kmin_bytes: ZeroableSize = Field(alias="kmin")
    """Up to this queue, none."""
    kmax_bytes: ZeroableSize = Field(alias="kmax")
    """Beyond this queue, all."""
    pmax: Number = Field(ge=0.0, le=1.0)
    """Share that is marked at ``kmax``; from ``kmin`` it rises linearly."""


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
    """None: as fast as it goes."""
    delay_ns: Time = Field(default=0, alias="delay")
    """Propagation; only the simulator has it, kernel fabrics add none."""
    queue_bytes: Size | None = Field(default=None, alias="queue")
    ecn: Annotated[
        EcnSettings | None,
        BeforeValidator(_ecn_parts, json_schema_input_type=EcnSettings | str | None),
        AfterValidator(_ecn_in_order),
    ] = None
    """When switches mark what they send into it; only the simulator does."""


class LinksSettings(Model):
    """The links of hosts and those between switches."""

    host: LinkSettings = LinkSettings()
    uplink: LinkSettings = LinkSettings()


class NamespaceFabric(Model):
    """Hosts and switches as network namespaces of this machine."""

    kind: Literal["namespaces"]
    dilation: Dilation = 1
    """Factor by which time is stretched; the file says what it was before."""
    switch: Literal["kernel"] = "kernel"
    topology: TopologySettings
    links: LinksSettings = LinksSettings()
    addressing: Addressing = "ipv4"
    mtu: Whole = Field(default=4200, ge=576, le=65_535)
    udp_port: Whole = Field(default=ROCE_UDP_PORT, ge=1, le=65_535)
    capture: tuple[Name, ...] = Field(default=(), max_length=64)
    """Hosts whose packets are captured into the run directory."""


class LoopbackFabric(Model):
    """Ports are addresses of this machine's loopback interface."""

    kind: Literal["loopback"]
    dilation: Dilation = 1
    """Factor by which time is stretched; the file says what it was before."""
    ports: Whole | None = Field(default=None, ge=1, le=MAX_HOSTS)
    """None: as many as the jobs need."""
    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Rate that each port paces itself to."""
    addressing: Addressing = "ipv4"
    """IPv6 has one loopback address, so ports have the UDP ports from ``udp_port`` on
    there."""
    mtu: Whole = Field(default=65_535, ge=576, le=65_535)
    udp_port: Whole = Field(default=ROCE_UDP_PORT, ge=1, le=65_535)


class PortSettings(Model):
    """One port of a host."""

    open: PortSpecification
    """``udp:ens1f0``, ``packet:ens1f0``, ``verbs:mlx5_0`` or ``memory:``."""
    address: InterfaceAddress
    """Of IPv4 or of IPv6, like those of all ports."""
    netns: FilePath | None = None
    """Network namespace that the interface lies in; None: the agent's own."""
    rate_bps: Rate | None = Field(default=None, alias="rate")
    mtu: Whole | None = Field(default=None, ge=576, le=65_535)


class HostSettings(Model):
    """A host under an agent's control."""

    name: Name
    agent: AgentAddress
    """``address:port`` or ``unix:/path``."""
    ports: tuple[PortSettings, ...] = Field(min_length=1, max_length=64)


class PortDefaults(Model):
    """What ports have that do not say otherwise."""

    rate_bps: Rate | None = Field(default=None, alias="rate")
    mtu: Whole = Field(default=1500, ge=576, le=65_535)
    isolate: Literal["none", "namespace"] = "none"
    """``namespace``: every port names the network namespace it lies in."""
    udp_port: Whole = Field(default=ROCE_UDP_PORT, ge=1, le=65_535)


class TlsSettings(Model):
    """Certificates for mutual TLS with the agents."""

    ca: FilePath
    cert: FilePath
    key: FilePath


class ExternalFabric(Model):
    """Real hosts, real NICs, real switches."""

    kind: Literal["external"]
    dilation: NoDilation = 1
    """1: real switches and NICs run at their own speed."""
    defaults: PortDefaults = PortDefaults()
    hosts: tuple[HostSettings, ...] = Field(min_length=1, max_length=MAX_HOSTS)
    allow: tuple[Prefix, ...] = Field(
        default=tuple(
            map(prefix, ("198.18.0.0/15", "127.0.0.0/8", "2001:2::/48", "::1/128"))
        ),
        min_length=1,
        max_length=64,
    )
    """Prefixes that hold every port; the agents must allow them as well."""
    tls: TlsSettings | None = None
    topology: TopologySettings | None = None
    """Shape of the fabric under test, for predictions; ports in order are its hosts."""
    links: LinksSettings = LinksSettings()
    """Links of ``topology``."""

    @property
    def udp_port(self) -> int:
        """UDP port that all ports receive on."""
        return self.defaults.udp_port


_KINDS: dict[str, type[Model]] = {
    "namespaces": NamespaceFabric,
    "loopback": LoopbackFabric,
    "external": ExternalFabric,
}


def _fabric_tag(value: Any) -> str | None:
    kind = (
        value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    )
    if not isinstance(kind, str) or kind not in _KINDS:
        return None
    return tag_of(_KINDS[kind])


Fabric = Annotated[
    Annotated[NamespaceFabric, Tag(tag_of(NamespaceFabric))]
    | Annotated[LoopbackFabric, Tag(tag_of(LoopbackFabric))]
    | Annotated[ExternalFabric, Tag(tag_of(ExternalFabric))],
    Discriminator(
        _fabric_tag,
        custom_error_type="kind",
        custom_error_message="unknown kind",
        custom_error_context={"kinds": ", ".join(_KINDS)},
    ),
]

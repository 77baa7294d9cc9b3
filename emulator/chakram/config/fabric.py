"""The fabric of an experiment: where its packets run."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from chakram.config.addresses import (
    AgentAddress,
    InterfaceAddress,
    Prefix,
    prefix,
)
from chakram.settings.mistakes import tag_of
from chakram.settings.quantities import (
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


class LinksSettings(Model):
    """The links of hosts and those between switches."""

    host: LinkSettings = LinkSettings()
    """Links between hosts and their switch."""
    uplink: LinkSettings = LinkSettings()
    """Links between leaves and spines."""


class NamespaceFabric(Model):
    """Hosts and switches as network namespaces of this machine."""

    kind: Literal["namespaces"]
    """Hosts and switches are network namespaces of this machine."""
    dilation: Dilation = 1
    """Factor by which time is stretched; the file says what it was before."""
    switch: Literal["kernel"] = "kernel"
    """What switches: the kernel's bridges and routes."""
    topology: TopologySettings = Field(examples=[{"single_switch": {"hosts": 8}}])
    """Shape of the fabric: exactly one of its keys."""
    links: LinksSettings = LinksSettings()
    """Rates and queues of the links."""
    addressing: Addressing = "ipv4"
    """Address family of all ports."""
    mtu: Whole = Field(default=4200, ge=576, le=65_535)
    """Largest IP packet of every interface, in bytes; over IPv6 at least 1280."""
    udp_port: Whole = Field(default=ROCE_UDP_PORT, ge=1, le=65_535)
    """UDP port that all ports receive on."""
    capture: tuple[Name, ...] = Field(default=(), max_length=64, examples=[["h0"]])
    """Hosts whose packets are captured into the run directory."""


class LoopbackFabric(Model):
    """Ports are addresses of this machine's loopback interface."""

    kind: Literal["loopback"]
    """Ports are addresses of this machine's loopback interface."""
    dilation: Dilation = 1
    """Factor by which time is stretched; the file says what it was before."""
    ports: Whole | None = Field(default=None, ge=1, le=MAX_HOSTS, examples=[8])
    """Number of ports; without it as many as the jobs need."""
    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Rate that each port paces itself to; without it as fast as it goes."""
    addressing: Addressing = "ipv4"
    """Address family of all ports. IPv6 has one loopback address, so ports have the UDP
    ports from udp_port on there."""
    mtu: Whole = Field(default=65_535, ge=576, le=65_535)
    """Largest IP packet, in bytes."""
    udp_port: Whole = Field(default=ROCE_UDP_PORT, ge=1, le=65_535)
    """UDP port that all ports receive on; over IPv6 that of the first."""


class PortSettings(Model):
    """One port of a host."""

    open: PortSpecification
    """How the port is opened: kind and interface. Agents of today open udp."""
    address: InterfaceAddress
    """Address of the interface with its prefix length; all ports of a fabric are of one
    family."""
    netns: FilePath | None = Field(default=None, examples=["/run/netns/port0"])
    """Network namespace that the interface lies in; without it that of the agent."""
    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Rate of the port; without it that of defaults."""
    mtu: Whole | None = Field(default=None, ge=576, le=65_535, examples=[9000])
    """Largest IP packet of the port, in bytes; without it that of defaults."""


class HostSettings(Model):
    """A host under an agent's control."""

    name: Name
    """Name of the host, in all results. Its port is called like it; of several ports
    each has what it is opened as behind it, e.g. h1:udp:ens1f0."""
    agent: AgentAddress
    """Where its agent listens: address:port, or unix:/path on this machine."""
    ports: tuple[PortSettings, ...] = Field(min_length=1, max_length=64)
    """Its ports under test, in the order in which ranks are placed on them."""


class PortDefaults(Model):
    """What ports have that do not say otherwise."""

    rate_bps: Rate | None = Field(default=None, alias="rate")
    """Rate that each port paces itself to; without it as fast as it goes."""
    mtu: Whole = Field(default=1500, ge=576, le=65_535)
    """Largest IP packet of a port, in bytes."""
    isolate: Literal["none", "namespace"] = "none"
    """namespace: every port must name the network namespace that it lies in, so that
    ports of one server reach each other through the fabric only."""
    udp_port: Whole = Field(default=ROCE_UDP_PORT, ge=1, le=65_535)
    """UDP port that all ports receive on."""


class TlsSettings(Model):
    """Certificates for mutual TLS with the agents."""

    ca: FilePath = Field(examples=["certs/ca.pem"])
    """Certificate of the authority that signed those of the agents."""
    cert: FilePath = Field(examples=["certs/controller.pem"])
    """The controller's certificate, signed by the same authority."""
    key: FilePath = Field(examples=["certs/controller.key"])
    """Key of the controller's certificate."""


class ExternalFabric(Model):
    """Real hosts, real NICs, real switches."""

    kind: Literal["external"]
    """Real hosts, real NICs, real switches."""
    dilation: NoDilation = 1
    """Always 1: real switches and NICs run at their own speed."""
    defaults: PortDefaults = PortDefaults()
    """Settings of all ports that do not say otherwise."""
    hosts: tuple[HostSettings, ...] = Field(min_length=1, max_length=MAX_HOSTS)
    """The hosts, with an agent each; ranks are placed on their ports in this order."""
    allow: tuple[Prefix, ...] = Field(
        default=tuple(
            map(prefix, ("198.18.0.0/15", "127.0.0.0/8", "2001:2::/48", "::1/128"))
        ),
        min_length=1,
        max_length=64,
    )
    """Prefixes that hold every port; agents must allow them as well, with --allow."""
    tls: TlsSettings | None = None
    """Certificates for mutual TLS; agents on TCP addresses of other hosts need them."""
    topology: TopologySettings | None = Field(
        default=None, examples=[{"single_switch": {"hosts": 8}}]
    )
    """Shape of the fabric under test, for ideal times and simulation; ports in order
    are its hosts, and keep their names. Without it there are neither."""
    links: LinksSettings = LinksSettings()
    """Links of that topology."""

    @property
    def udp_port(self) -> int:
        """UDP port that all ports receive on."""
        return self.defaults.udp_port

    def port_names(self) -> tuple[str, ...]:
        """Return what results call the ports, in order: no two are called alike.

        That of a host with one port has the host's name; of several, how each is
        opened is behind it, and the address where that does not tell them apart.
        """
        names: list[str] = []
        for host in self.hosts:
            opened = Counter(port.open for port in host.ports)
            for port in host.ports:
                name = host.name
                if len(host.ports) > 1:
                    name += f":{port.open}"
                if opened[port.open] > 1:
                    # One interface with two addresses, or namespaces that each have it.
                    name += f"@{port.address.ip}"
                names.append(name)
        return tuple(names)


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

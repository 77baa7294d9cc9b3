"""Fabric type ``external``: real hosts, NICs and switches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from chakram.fabric.fabric_types.base import (
    SIMULATE,
    SWITCHED_SECTIONS,
    AgentPlace,
    FabricKind,
    KeyUse,
    TlsSettings,
    World,
    WorldRequest,
    check_mtu,
    rate_text,
    used_in,
)
from chakram.fabric.fabric_types.inventory_file import (
    HostSettings,
    PortDefaults,
    PortSettings,
    check_hosts,
    located_ports,
    read_inventory,
)
from chakram.fabric.fabric_types.link_settings import (
    LinksSettings,
    SwitchesSettings,
    with_given_queues,
)
from chakram.fabric.fabric_types.telemetry_settings import TelemetrySettings
from chakram.fabric.fabric_types.topology_settings import MAX_HOSTS, TopologySettings
from chakram.foundation.errors import ConfigError
from chakram.foundation.ip_addresses import family_of, is_loopback
from chakram.plan.nic_queue_pairs import VERBS
from chakram.plan.port_plan import PortPlan
from chakram.settings.addresses import Prefix, prefix
from chakram.settings.field_types import problem, resolved_path
from chakram.settings.located_errors import Location, Mistake
from chakram.switch.ecmp import DrawnPaths, EcmpHash
from chakram.switch.ecmp_hashes import CrcPaths, Ns3Paths

if TYPE_CHECKING:
    from chakram.topology.topology import Topology


_EXTERNAL = ("external",)


def _undilated(value: object) -> Literal[1]:
    if value != 1 or isinstance(value, bool):
        raise problem(
            "an external fabric cannot be dilated",
            "remove dilation: real switches and NICs run at their own speed",
        )
    return 1


def _or_file(schema: dict[str, Any]) -> None:
    """Make the schema of a list also accept the name of a file."""
    described = {key: schema.pop(key) for key in ("title",) if key in schema}
    both = [
        dict(schema),
        {"type": "string", "minLength": 1, "examples": ["hosts.yaml"]},
    ]
    schema.clear()
    schema |= {**described, "anyOf": both}


NoDilation = Annotated[Literal[1], BeforeValidator(_undilated)]
"""Dilation of a fabric that runs at its native speed."""


class ExternalFabric(FabricKind):
    """Real hosts, NICs and switches."""

    on_this_machine: ClassVar[bool] = False
    key_use: ClassVar[KeyUse] = {
        ("ExternalFabric", "allow"): _EXTERNAL,
        ("ExternalFabric", "tls"): _EXTERNAL,
        ("PortDefaults", "isolate"): _EXTERNAL,
        ("HostSettings", "agent"): _EXTERNAL,
        ("HostSettings", "login"): _EXTERNAL,
        ("PortSettings", "open"): _EXTERNAL,
        ("PortSettings", "netns"): _EXTERNAL,
        ("ExternalFabric", "telemetry"): _EXTERNAL,
        ("ExternalFabric", "topology"): (SIMULATE,),
        ("ExternalFabric", "links"): (SIMULATE,),
        ("ExternalFabric", "ecmp"): (SIMULATE,),
        ("ExternalFabric", "switches"): (SIMULATE,),
        ("Faults", "links"): (SIMULATE,),
        **used_in(_EXTERNAL, "TlsSettings"),
        **used_in(
            ("external", "namespaces"),
            "TelemetrySettings",
            "TargetSettings",
            "OtlpSettings",
        ),
        **used_in(
            (SIMULATE, *_EXTERNAL), "PortDefaults", "HostSettings", "PortSettings"
        ),
        **used_in(
            (SIMULATE,),
            *SWITCHED_SECTIONS,
            "RingShape",
            "TorusShape",
            "FullyConnectedShape",
        ),
    }

    kind: Literal["external"]
    """Real hosts, NICs and switches."""
    dilation: NoDilation = 1
    """Always 1."""
    defaults: PortDefaults = PortDefaults.section_defaults()
    """Defaults for the settings of ports."""
    hosts: tuple[HostSettings, ...] = Field(
        min_length=1, max_length=MAX_HOSTS, json_schema_extra=_or_file
    )
    """The hosts, with one agent each, in the order of placement, or an inventory file.
    The file may also set defaults, allow and tls, which the experiment can replace."""
    allow: tuple[Prefix, ...] = Field(
        default=tuple(
            map(prefix, ("198.18.0.0/15", "127.0.0.0/8", "2001:2::/48", "::1/128"))
        ),
        min_length=1,
        max_length=64,
    )
    """Prefixes that must contain every port address. Agents need the same prefixes in
    --allow."""
    tls: TlsSettings | None = None
    """Mutual TLS, required for agents at TCP addresses of other hosts."""
    topology: TopologySettings | None = Field(
        default=None, examples=[{"single_switch": {"hosts": 8}}]
    )
    """Shape of the fabric under test, for bounds and simulation. Its hosts are the
    ports, in order."""
    links: LinksSettings = LinksSettings.section_defaults()
    """Links of the topology."""
    switches: SwitchesSettings | None = None
    """Simulated switches. Default: one queue per port."""
    ecmp: Literal["drawn", "crc16", "crc32", "ns3"] = "drawn"
    """Choice among equal-cost paths in simulated switches. drawn: at random for each
    flow; crc16, crc32: by a CRC of addresses and ports, as in switch chips; ns3: by the
    ns-3 hash."""

    telemetry: TelemetrySettings | None = None
    """Counters to read from the switches. Needs topology."""

    @model_validator(mode="before")
    @classmethod
    def _read_inventory(cls, data: Any, info: ValidationInfo) -> Any:
        """Replace the name of an inventory file with the contents of the file."""
        if not isinstance(data, dict) or not isinstance(data.get("hosts"), str):
            return data
        inventory = read_inventory(resolved_path(data["hosts"], info))
        found = {name: getattr(inventory, name) for name in inventory.model_fields_set}
        del found["version"]
        if inventory.allow is not None:
            found["allow"] = list(map(str, inventory.allow))
        return {**found, **data, "hosts": inventory.hosts}

    @property
    def udp_port(self) -> int:
        """UDP port that ports receive on."""
        return self.defaults.udp_port

    @property
    def udp_port_key(self) -> Location:
        """Location of the key that sets the UDP port."""
        return "fabric", "defaults", "udp_port"

    def port_names(self) -> tuple[str, ...]:
        """Return the unique names of the ports in results, in order.

        The only port of a host has the host's name. If a host has several ports, the
        ``open`` value is appended. If several of them have the same ``open`` value, the
        address is appended as well.
        """
        names: list[str] = []
        for host in self.hosts:
            opened = Counter(port.open for port in host.ports)
            for port in host.ports:
                name = host.name
                if len(host.ports) > 1:
                    name += f":{port.open}"
                if opened[port.open] > 1:
                    # The host has one interface with two addresses, or several
                    # namespaces with the same interface name.
                    name += f"@{port.address.ip}"
                names.append(name)
        return tuple(names)

    def check(self) -> list[Mistake]:
        """Check the shape, hosts, addresses, isolation and certificates."""
        mistakes = [] if self.topology is None else self._check_shape(self.topology)
        mistakes += check_hosts(self.hosts, ("fabric",))
        mistakes += _check_addresses(self)
        mistakes += _check_mtus(self)
        mistakes += _check_isolation(self)
        mistakes += _check_tls(self)
        topology = None if mistakes else self.to_topology()
        if self.switches is not None:
            mistakes += self.switches.check(topology)
        return mistakes + self._check_telemetry(topology)

    def _check_telemetry(self, topology: Topology | None) -> list[Mistake]:
        if self.telemetry is None:
            return []
        needed = ("topology", self.topology), ("targets", self.telemetry.targets)
        mistakes = [
            Mistake(
                location=("fabric", "telemetry"),
                found=f"needs {key}",
                hint="so that the counters of a port belong to a link",
            )
            for key, value in needed
            if not value
        ]
        return mistakes + self.telemetry.check(topology)

    def _check_shape(self, topology: TopologySettings) -> list[Mistake]:
        mistakes = topology.check()
        if mistakes or topology.hosts == self.nports:
            return mistakes
        return [
            Mistake(
                location=("fabric", "topology"),
                found=f"has {topology.hosts} hosts, but fabric.hosts has "
                f"{self.nports} ports",
                hint="use one host of the topology for each port, in order",
            )
        ]

    @property
    def family(self) -> str:
        """Address family of all ports."""
        return family_of(str(self.hosts[0].ports[0].address.ip))

    @property
    def smallest_mtu(self) -> int:
        """The smallest MTU of all ports."""
        return min(port.mtu or self.defaults.mtu for _, _, port in _ports(self))

    @property
    def port_rate_bps(self) -> int | None:
        """Lowest rate of all ports, or None if no port has a rate."""
        rates = [port.rate_bps or self.defaults.rate_bps for _, _, port in _ports(self)]
        return min((rate for rate in rates if rate is not None), default=None)

    @property
    def nports(self) -> int:
        """Number of ports."""
        return sum(len(host.ports) for host in self.hosts)

    @property
    def is_simulated(self) -> bool:
        """Whether the section has a topology."""
        return self.topology is not None

    @property
    def tiers(self) -> int | None:
        """Number of tiers of switches, or None if unknown."""
        return None if self.topology is None else self.topology.tiers

    @property
    def has_uplinks(self) -> bool:
        """Whether packets between two ports may cross several switches."""
        return self.topology is None or self.topology.has_uplinks

    @property
    def may_mark(self) -> bool:
        """Whether switches may set ECN marks. Unknown switches may, so this is true."""
        return True

    def details(self) -> str:
        """Return the numbers of hosts and ports, and the rate, as text."""
        return (
            f"{len(self.hosts)} hosts, {self.nports} ports, "
            f"{rate_text(self.defaults.rate_bps)}"
        )

    def to_topology(self, nports: int | None = None) -> Topology | None:
        """Return the topology, or None if not set. Its hosts have the port names."""
        if self.topology is None:
            return None
        topology = self.topology.to_topology(self.links, self.port_names())
        return replace(
            with_given_queues(topology, self.links, has_cores=self.topology.has_cores),
            cuts_through=self.switches is not None and self.switches.cuts_through,
        )

    def warnings(self) -> list[str]:
        """Return warnings about settings with no effect, at least in simulations."""
        topology = self.to_topology()
        if self.topology is None or topology is None:
            return []
        warnings = self.topology.warnings(self.links)
        rates = [
            (name, paced_bps, topology.host_link(name).rate_bps)
            for name, (_, _, port) in zip(self.port_names(), _ports(self), strict=True)
            if (paced_bps := port.rate_bps or self.defaults.rate_bps) is not None
        ]
        others = [each for each in rates if each[1] != each[2]]
        if others:
            name, paced_bps, link_bps = others[0]
            warnings.append(
                f"fabric.links: the links of {len(others)} of {len(rates)} ports have "
                f"another rate than the port, e.g. {name}: {rate_text(link_bps)} "
                f"instead of {rate_text(paced_bps)}; simulations and bounds use the "
                "rate of the link"
            )
        return warnings

    @property
    def simulated_switches(self) -> SwitchesSettings | None:
        """The switch settings of this section."""
        return self.switches

    def ecmp_hash(self, seed: int) -> EcmpHash:
        """Return the configured ECMP hash."""
        match self.ecmp:
            case "crc16":
                return CrcPaths(bits=16, seed=seed)
            case "crc32":
                return CrcPaths(bits=32, seed=seed)
            case "ns3":
                return Ns3Paths(first_switch=len(self.port_names()))
            case "drawn":
                return DrawnPaths(seed=seed)

    def addresses(self, topology: Topology) -> tuple[str, ...]:
        """Return the addresses of all ports."""
        return tuple(str(port.address.ip) for _, _, port in _ports(self))

    def planned_ports(self, nports: int) -> tuple[PortPlan, ...]:
        """Return the ports, in file order."""
        return tuple(
            PortPlan(
                number=number,
                agent=host.name,
                host=name,
                open=port.open,
                netns=None if port.netns is None else str(port.netns),
                address=str(port.address.ip),
                udp_port=self.udp_port,
                rate_bps=port.rate_bps or self.defaults.rate_bps,
                mtu=port.mtu or self.defaults.mtu,
            )
            for number, ((_, host, port), name) in enumerate(
                zip(_ports(self), self.port_names(), strict=True)
            )
        )

    def host_names(self, nports: int) -> list[str]:
        """Return the host of every port."""
        return [host.name for _, host, _ in _ports(self)]

    def data_plane_processes(self, nports: int, cores: Collection[int]) -> int:
        """Return the number of ports, because each port has one data-plane process."""
        return nports

    def agent_addresses(self) -> dict[str, list[str]]:
        """Return the addresses of agents reached over the network, by host."""
        return {
            host.name: [host.agent.rpartition(":")[0].strip("[]")]
            for host in self.hosts
            if host.agent is not None and not host.agent.startswith("unix:")
        }

    def launched_allow(self) -> Sequence[str]:
        """Return the allowed prefixes."""
        return [str(each) for each in self.allow]

    def only_hosts(self, names: Collection[str]) -> Self:
        """Return the fabric with only the hosts in *names*.

        Raises:
            ConfigError: If no host remains, or the remaining hosts do not fit the
                topology.
        """
        hosts = tuple(host for host in self.hosts if host.name in names)
        if not hosts:
            raise ConfigError(
                "fabric.hosts",
                "none of the hosts is available",
                "names of hosts must be those of the launcher's nodes",
            )
        reduced = self.model_copy(update={"hosts": hosts})
        if mistakes := reduced.check():
            raise ConfigError(
                f"fabric, with the {len(hosts)} of {len(self.hosts)} hosts that are "
                "available",
                mistakes[0].found,
                mistakes[0].hint,
            )
        return reduced

    async def bring_up(self, stack: AsyncExitStack, request: WorldRequest) -> World:
        """Return the ports and agents of the existing fabric."""
        topology = self.to_topology()
        return World(
            ports=self.planned_ports(self.nports),
            agents=tuple(
                AgentPlace(
                    name=host.name,
                    target=host.agent,
                    login=host.login,
                    tls=None if (host.agent or "").startswith("unix:") else self.tls,
                )
                for host in self.hosts
            ),
            topology=topology,
            # Without equal-cost paths, any hash selects the right paths.
            ecmp=None
            if topology is None or any(map(topology.has_choice, topology.switches))
            else self.ecmp_hash(request.seed),
            telemetry=None
            if self.telemetry is None or topology is None
            else self.telemetry.to_plan(topology),
        )


KIND = ExternalFabric


def _check_addresses(fabric: ExternalFabric) -> Iterator[Mistake]:
    allowed = ", ".join(str(each) for each in fabric.allow)
    for location, _, port in _ports(fabric):
        address = port.address.ip
        if not any(address in prefix for prefix in fabric.allow):
            yield Mistake(
                location=(*location, "address"),
                found=f"{address} is outside the allowed prefixes {allowed}",
                hint=(
                    "add its prefix to fabric.allow, and start the agents with it as "
                    "--allow"
                ),
            )


def _check_mtus(fabric: ExternalFabric) -> Iterator[Mistake]:
    """Check that the address family allows the MTUs."""
    for location, _, port in _ports(fabric):
        if port.mtu is not None:
            yield from check_mtu(port.mtu, fabric.family, (*location, "mtu"))
    yield from check_mtu(
        fabric.defaults.mtu, fabric.family, ("fabric", "defaults", "mtu")
    )


def _check_isolation(fabric: ExternalFabric) -> Iterator[Mistake]:
    """Check that ports of one host can reach each other only through the fabric."""
    for index, host in enumerate(fabric.hosts):
        seen: set[object] = set()
        for number, port in enumerate(host.ports):
            location: Location = ("fabric", "hosts", index, "ports", number)
            if port.address.ip.is_loopback:
                continue
            if port.open.startswith(VERBS):
                # NICs send to each other's addresses without the kernel's routes.
                if port.open in seen:
                    yield Mistake(
                        location=location,
                        found=f"shares the device {port.open.removeprefix(VERBS)} "
                        f"with another port of {host.name}; their traffic would not "
                        "leave the NIC",
                        hint="name another device",
                    )
                seen.add(port.open)
                continue
            if fabric.defaults.isolate == "namespace" and port.netns is None:
                yield Mistake(
                    location=location,
                    found="has no netns, but fabric.defaults.isolate is namespace",
                    hint="e.g. netns: /run/netns/port0",
                )
            elif port.netns in seen:
                yield Mistake(
                    location=location,
                    found=f"shares a network namespace with another port of "
                    f"{host.name}; their traffic would not leave the host",
                    hint=(
                        "move each interface into its own namespace and name it, e.g. "
                        "netns: /run/netns/port1"
                    ),
                )
            seen.add(port.netns)


def _check_tls(fabric: ExternalFabric) -> list[Mistake]:
    if fabric.tls is not None:
        return []
    return [
        Mistake(
            location=("fabric", "hosts", index, "agent"),
            found=f"{host.agent} is on another machine, but there are no certificates",
            hint="create certificates with chakram certs and name them in fabric.tls",
        )
        for index, host in enumerate(fabric.hosts)
        if host.agent is not None
        and not (host.agent.startswith("unix:") or is_loopback(host.agent))
    ]


def _ports(
    fabric: ExternalFabric,
) -> Iterable[tuple[Location, HostSettings, PortSettings]]:
    return located_ports(fabric.hosts, ("fabric",))

"""Interface that all fabric types provide to the rest of the program.

Each fabric type is a module of this package with the class of its ``fabric`` section.
The section defines the ports and links of the fabric, the behavior in simulations, and
how to bring the fabric up. Once the fabric is up, a ``World`` replaces the section. It
contains ports with addresses, reachable agents, and possibly a topology. From then on,
runs are the same on all fabric types.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field

from chakram.fabric.fabric_traits import FABRIC_TRAITS
from chakram.fabric.fabric_types.link_settings import SwitchesSettings
from chakram.foundation.errors import ConfigError
from chakram.foundation.ip_addresses import IPV4, IPV6
from chakram.foundation.units import format_rate
from chakram.plan.port_plan import PortPlan
from chakram.settings.field_types import FilePath, Model
from chakram.settings.located_errors import Location, Mistake
from chakram.summary.run_summary import SIMULATE
from chakram.switch.ecmp import DrawnPaths, EcmpHash
from chakram.switch.faults import FaultKind, LinkFault
from chakram.switch.profiles import Profile, Switching
from chakram.topology.addressing import plan_addresses
from chakram.topology.topology import Topology

if TYPE_CHECKING:
    from chakram.fabric.capture.capture_session import Captures
    from chakram.fabric.labs.lab import LabHandle
    from chakram.fabric.labs.lab_spec import LabState
    from chakram.fabric.labs.link_counters import LabCounters
    from chakram.telemetry.targets import TelemetryPlan

__all__ = [
    "ROCE_UDP_PORT",
    "SIMULATE",
    "SIMULATED_AGENT",
    "SIMULATED_PORT",
    "Addressing",
    "AgentPlace",
    "Dilation",
    "FabricKind",
    "KeyUse",
    "LocalFabric",
    "TlsSettings",
    "World",
    "WorldRequest",
    "check_mtu",
    "rate_text",
    "used_in",
]

ROCE_UDP_PORT = 4791
"""UDP port that IANA assigned to RoCEv2."""

SIMULATED_AGENT = "simulated"
"""Name of the agent of all simulated ports."""

SIMULATED_PORT = "memory:"
"""``open`` value of simulated ports."""

LOCAL_AGENT = "local"
"""Name of the agent that a run starts on its own machine."""

_IPV6_LEAST_MTU = 1280
"""Minimum MTU of an IPv6 link (RFC 8200, section 5)."""

Dilation = Annotated[int, Field(strict=True, ge=1, le=100_000)]
"""Factor by which time is dilated: see ``chakram.config.dilation``."""

Addressing = Literal["ipv4", "ipv6"]
"""Address family of all ports."""

KeyUse = dict[tuple[str, str], tuple[str, ...]]
"""Worlds in which a key has an effect, by section and key.

A world is the fabric type of a run, or ``SIMULATE``. An empty key applies to all other
keys of the section.
"""


SWITCHED_SECTIONS = (
    "TopologySettings",
    "SingleSwitchShape",
    "ClosShape",
    "FatTreeShape",
    "RailShape",
    "GraphShape",
    "GraphLink",
    "SwitchesSettings",
    "WatchdogSettings",
    "LinkFaultSettings",
    "LinksSettings",
    "LinkSettings",
    "EcnSettings",
)
"""Sections of an experiment that describe the switches and links of a fabric."""


def used_in(worlds: tuple[str, ...], *sections: str) -> KeyUse:
    """Return a ``KeyUse`` that limits all keys of *sections* to *worlds*."""
    return {(section, ""): worlds for section in sections}


class TlsSettings(Model):
    """Certificates for mutual TLS with the agents."""

    ca: FilePath = Field(examples=["certs/ca.pem"])
    """Certificate of the certificate authority."""
    cert: FilePath = Field(examples=["certs/controller.pem"])
    """Certificate of the controller."""
    key: FilePath = Field(examples=["certs/controller.key"])
    """Private key of the controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlace:
    """Name and target of an agent, and certificates for connecting to it.

    Attributes:
        name: Name of the agent in the plan.
        target: ``unix:/path`` or ``host:port``. None if only a launcher can start the
            agent.
        login: Address of the agent's host for launchers. None to use the name.
        tls: Certificates, or None for an agent on this machine.
    """

    name: str
    target: str | None
    login: str | None = None
    tls: TlsSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldRequest:
    """A run's requirements for its fabric.

    Attributes:
        seed: Seed of the experiment.
        nports: Number of ports that the jobs need.
        processes: Number of data-plane processes of each agent; None to use the result
            of ``data_plane_processes``.
        lab_name: Prefix of the names of everything created, or the name of a running
            lab.
        logs: Directory for the logs of local agents, and for captures.
    """

    seed: int
    nports: int
    processes: int | None = None
    lab_name: str
    logs: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A running fabric, with its agents.

    Attributes:
        ports: All ports, in the order in which ranks are placed on them.
        agents: All agents.
        topology: Topology of the fabric, or None if unknown.
        ecmp: How the switches choose among equal-cost paths, or None if unknown.
        notes: Facts that readers of the results should know, one sentence each.
        lab: The lab of fabric type ``namespaces``, or None.
        captures: Packet captures in the lab, or None.
        telemetry: Switches whose counters a run reads, or None.
    """

    ports: tuple[PortPlan, ...]
    agents: tuple[AgentPlace, ...]
    topology: Topology | None
    ecmp: EcmpHash | None = None
    notes: tuple[str, ...] = ()
    lab: LabState | None = field(default=None, repr=False)
    captures: Captures | None = field(default=None, repr=False)
    telemetry: TelemetryPlan | None = None

    async def counters(self) -> LabCounters:
        """Return the counters of the lab, which are empty if there is no lab."""
        from chakram.fabric.labs.link_counters import LabCounters, read_counters

        if self.lab is None:
            return LabCounters()
        import asyncio

        return await asyncio.to_thread(read_counters, self.lab)

    async def disturb_links(self, faults: Sequence[LinkFault]) -> None:
        """Inject more link faults. An empty sequence ends all faults.

        Args:
            faults: Faults with times on the clock of this machine.

        Raises:
            FabricError: If the lab cannot inject the faults.
        """
        import asyncio

        from chakram.fabric.labs.link_counters import disturb_links

        if self.lab is not None:
            await asyncio.to_thread(disturb_links, self.lab, faults)

    async def sample_links(self, bin_ns: int) -> None:
        """Sample the links of modeled switches every *bin_ns*. 0 stops sampling.

        Raises:
            FabricError: If the lab has no modeled switches, or they do not answer.
        """
        import asyncio

        from chakram.fabric.labs.link_counters import sample_links

        if self.lab is not None:
            await asyncio.to_thread(sample_links, self.lab, bin_ns)

    async def link_samples(self) -> array[int]:
        """Return the samples since the last call, and delete them.

        Raises:
            FabricError: If the lab has no modeled switches, or they do not answer.
        """
        import asyncio

        from chakram.fabric.labs.link_counters import link_samples

        if self.lab is None:
            return array("q")
        return await asyncio.to_thread(link_samples, self.lab)


class FabricKind(Model, ABC):
    """The ``fabric`` section of an experiment, for one fabric type.

    Attributes:
        on_this_machine: Whether this machine carries all packets of the fabric.
        has_switches: Whether packets between two ports cross a switch.
        key_use: Worlds in which a key has an effect, for keys without an effect in some
            worlds.
    """

    on_this_machine: ClassVar[bool] = True
    has_switches: ClassVar[bool] = True
    key_use: ClassVar[KeyUse] = {}

    kind: str
    dilation: Dilation = 1
    """Factor that multiplies all times and divides all rates in the file."""

    if TYPE_CHECKING:

        @property
        def udp_port(self) -> int:
            """UDP port that ports receive on: a key, or computed from other keys."""

    @property
    def receiving_udp_ports(self) -> range:
        """UDP ports that ports receive on, as far as they are known."""
        return range(self.udp_port, self.udp_port + 1)

    @property
    def udp_port_key(self) -> Location:
        """Location of the key that sets the UDP port."""
        return "fabric", "udp_port"

    @property
    def rate_key(self) -> str:
        """Key of the experiment file that sets the port rate."""
        return FABRIC_TRAITS[self.kind].rate_key

    # ---- ports and links -------------------------------------------------------------

    @property
    @abstractmethod
    def family(self) -> str:
        """Address family of all ports, ``ipv4`` or ``ipv6``."""

    @property
    @abstractmethod
    def smallest_mtu(self) -> int:
        """The smallest MTU of all ports."""

    @property
    @abstractmethod
    def port_rate_bps(self) -> int | None:
        """Lowest rate of all ports, or None if no port has a rate."""

    @property
    @abstractmethod
    def nports(self) -> int | None:
        """Number of ports, or None if the fabric has as many as the jobs need."""

    @property
    def tiers(self) -> int | None:
        """Number of tiers of switches, or None if unknown."""
        return 1

    @property
    def has_uplinks(self) -> bool:
        """Whether packets between two ports may cross several switches."""
        return self.tiers != 1

    @property
    def may_mark(self) -> bool:
        """Whether switches may set ECN marks, in runs or in simulations."""
        return False

    @property
    def is_modeled(self) -> bool:
        """Whether runs on the fabric use modeled switches."""
        return False

    @property
    def fault_kinds(self) -> Collection[FaultKind]:
        """Kinds of link faults that runs on the fabric can inject."""
        return ()

    @property
    def is_simulated(self) -> bool:
        """Whether there is a topology to simulate."""
        return True

    @abstractmethod
    def to_topology(self, nports: int | None = None) -> Topology | None:
        """Return the hosts, switches and links, or None if they are unknown.

        Args:
            nports: Number of ports that the jobs need, for a fabric of variable size.

        Raises:
            ConfigError: If the number of ports is unknown.
            FabricError: If the shape is impossible.
        """

    def addresses(self, topology: Topology) -> Sequence[str]:
        """Return the addresses of the hosts of *topology*, in host order."""
        planned = plan_addresses(topology, self.family)
        return [planned.host(host).address for host in topology.hosts]

    def simulated_ports(self, topology: Topology) -> tuple[PortPlan, ...]:
        """Return one port for every host of *topology*, for a simulation."""
        return tuple(
            PortPlan(
                number=number,
                agent=SIMULATED_AGENT,
                host=host,
                open=SIMULATED_PORT,
                netns=None,
                address=address,
                udp_port=self.udp_port,
                rate_bps=topology.host_link(host).rate_bps,
                mtu=self.smallest_mtu,
            )
            for number, (host, address) in enumerate(
                zip(topology.hosts, self.addresses(topology), strict=True)
            )
        )

    def ecmp_hash(self, seed: int) -> EcmpHash:
        """Return how simulated switches choose among equal-cost paths.

        The default is a random draw per flow, for fabrics whose hash is unknown.
        """
        return DrawnPaths(seed=seed)

    def switching(self, seed: int) -> Switching:
        """Return the switch model for simulating the fabric."""
        switches = self.simulated_switches
        return Switching(
            ecmp=self.ecmp_hash(seed),
            profile=Profile()
            if switches is None
            else switches.to_profile(self.smallest_mtu),
        )

    @property
    def simulated_switches(self) -> SwitchesSettings | None:
        """Settings of simulated switches, or None for the default profile."""
        return None

    def neighbors(self, host: str) -> list[tuple[str, str]] | None:
        """Return IP and MAC addresses of the neighbors that a lab gives to a host.

        None means that the fabric is not a lab. Its hosts then find their neighbors
        themselves.
        """
        del host
        return None

    def planned_ports(self, nports: int) -> tuple[PortPlan, ...]:
        """Return the ports that a run would have, as far as they are known in advance.

        Raises:
            FabricError: If the shape is impossible.
        """
        topology = self.to_topology(nports)
        if topology is None:
            raise ConfigError("fabric.topology", "names no shape", "e.g. single_switch")
        # Runs use sockets, which several processes may share.
        return tuple(
            replace(port, open="udp:") for port in self.simulated_ports(topology)
        )

    def host_names(self, nports: int) -> Sequence[str]:
        """Return the host of each port. By default, each port is a separate host."""
        return [str(number) for number in range(nports)]

    def data_plane_processes(self, nports: int, cores: Collection[int]) -> int:
        """Return the number of data-plane processes for an agent with *nports* ports.

        Args:
            nports: Number of ports of the agent.
            cores: Cores of this machine that Chakram may use.
        """
        return max(1, len(cores) - 1)

    # ---- description -----------------------------------------------------------------

    @abstractmethod
    def check(self) -> list[Mistake]:
        """Return the mistakes within the section."""

    @abstractmethod
    def details(self) -> str:
        """Return the shape and rates of the fabric as text."""

    def describe(self) -> str:
        """Return a one-line description of the fabric."""
        family = ", IPv6" if self.family == IPV6 else ""
        dilated = "" if self.dilation == 1 else f", dilated by {self.dilation}"
        return f"{self.kind}{family}, {self.details()}{dilated}"

    def warnings(self) -> list[str]:
        """Return warnings about keys that have no effect or an unexpected effect."""
        return []

    # ---- bringing up the fabric ------------------------------------------------------

    def launched_allow(self) -> Sequence[str] | None:
        """Return the prefixes that launched agents may send to.

        None means that the fabric starts its agents itself.
        """
        return None

    def only_hosts(self, names: Collection[str]) -> Self:
        """Return the fabric with only the hosts in *names*.

        Raises:
            ConfigError: If no host remains, or the remaining hosts do not fit the
                topology.
        """
        return self

    @abstractmethod
    async def bring_up(self, stack: AsyncExitStack, request: WorldRequest) -> World:
        """Bring up the fabric and agents, and register their removal with *stack*."""

    @asynccontextmanager
    async def open(self, request: WorldRequest) -> AsyncIterator[World]:
        """Bring up the fabric and its agents, and take both down after the block.

        Raises:
            PrivilegeError: If this user may not create the fabric on this machine.
            FabricError: If the fabric cannot be created, or if the running lab is a
                different fabric or is used by another run.
            PortInUse: If a socket address is taken.
            AgentError: If an agent does not start.
        """
        async with AsyncExitStack() as stack:
            yield await self.bring_up(stack, request)

    async def start_lab(
        self, lab_name: str, *, seed: int, lifetime: str
    ) -> LabHandle | None:
        """Build the fabric without a run. Return None if there is nothing to build."""
        return None

    def agent_addresses(self) -> dict[str, list[str]] | None:
        """Return each agent's addresses, or None if all agents are on this machine."""
        return None


class LocalFabric(FabricKind):
    """A fabric on this machine whose ports share one MTU and one address family.

    Subclasses have the keys ``mtu``, ``addressing`` and ``udp_port``.
    """

    if TYPE_CHECKING:
        mtu: int
        addressing: Addressing
        udp_port: int

    @property
    def family(self) -> str:
        """Address family of all ports."""
        return self.addressing

    @property
    def smallest_mtu(self) -> int:
        """The MTU of all ports."""
        return self.mtu

    def check(self) -> list[Mistake]:
        """Check the MTU."""
        return check_mtu(self.mtu, self.addressing, ("fabric", "mtu"))

    async def start_agent(
        self,
        stack: AsyncExitStack,
        request: WorldRequest,
        socket: Path,
        *,
        prefix: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> tuple[AgentPlace, int]:
        """Start the agent of all ports, and return it and its process ID.

        Delays in the agent distort results. The agent therefore gets the highest
        priority if that leaves a core for the controller. This does not apply if this
        process itself runs at reduced priority (niceness above 0).

        See ``chakram.fabric.local_agent`` for the arguments.
        """
        from chakram.fabric.local_agent import local_agent

        cores = os.sched_getaffinity(0)
        processes = request.processes
        if processes is None:
            processes = self.data_plane_processes(request.nports, cores)
        is_niced = os.getpriority(os.PRIO_PROCESS, 0) > 0
        target, pid = await stack.enter_async_context(
            local_agent(
                name=LOCAL_AGENT,
                socket=socket,
                log=request.logs / f"agent-{LOCAL_AGENT}.log",
                prefix=prefix,
                options=options,
                niceness=-20 if processes < len(cores) and not is_niced else None,
            )
        )
        return AgentPlace(name=LOCAL_AGENT, target=target), pid


def check_mtu(mtu: int, family: str, location: Location) -> list[Mistake]:
    """Check that the address family allows an MTU."""
    if family == IPV4 or mtu >= _IPV6_LEAST_MTU:
        return []
    return [
        Mistake(
            location=location,
            found=f"{mtu} is less than the smallest MTU of IPv6",
            hint=f"use at least {_IPV6_LEAST_MTU}",
        )
    ]


def rate_text(rate_bps: int | None) -> str:
    """Return a rate as text. None means no rate limit."""
    return "without rate" if rate_bps is None else format_rate(rate_bps)

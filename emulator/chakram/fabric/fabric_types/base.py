"""What every kind of fabric is: the interface that all else of the program asks.

A kind is one module of this package: the class of its ``fabric`` section, which says
what ports and links there are, what of it is simulated, and how it is brought up.  A
``World`` is what remains of the section once the fabric stands: ports with addresses,
agents that can be reached, and perhaps a topology.  From there on a run is the same in
all of them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from chakram.foundation.errors import ConfigError
from chakram.foundation.ip_addresses import IPV4, IPV6
from chakram.foundation.units import format_rate
from chakram.plan.plan import PortPlan
from chakram.settings.located_errors import Location, Mistake
from chakram.settings.quantities import Model
from chakram.summary.run_summary import SIMULATE
from chakram.switch.ecmp import DrawnPaths, EcmpHash
from chakram.switch.profiles import Profile, Switching
from chakram.topology.addressing import plan_addresses

if TYPE_CHECKING:
    from chakram.fabric.capture.capture_session import Captures
    from chakram.fabric.fabric_types.external import TlsSettings
    from chakram.fabric.fabric_types.link_settings import SwitchesSettings
    from chakram.fabric.labs.description import LabState
    from chakram.fabric.labs.lab import LabHandle
    from chakram.fabric.labs.link_counters import LabCounters
    from chakram.switch.faults import FaultKind, LinkFault
    from chakram.topology.topology import Topology

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
    "World",
    "WorldRequest",
    "check_mtu",
    "rate_text",
    "used_in",
]

ROCE_UDP_PORT = 4791
"""Registered for RoCEv2."""

SIMULATED_AGENT = "simulated"
"""Agent of the ports of a simulation."""

SIMULATED_PORT = "memory:"
"""What these ports are opened by."""

LOCAL_AGENT = "local"
"""Name of the agent that a run starts on its own machine."""

_IPV6_LEAST_MTU = 1280
"""RFC 8200, section 5."""

Dilation = Annotated[int, Field(strict=True, ge=1, le=100_000)]
"""Factor by which time is stretched, as ``chakram.config.dilation`` does it."""

Addressing = Literal["ipv4", "ipv6"]
"""Address family of all ports."""

KeyUse = dict[tuple[str, str], tuple[str, ...]]
"""By section and key the worlds in which it does something: runs on a kind of fabric,
or ``SIMULATE``; an empty key stands for all others of the section."""


SWITCHED_SECTIONS = (
    "TopologySettings",
    "SingleSwitchShape",
    "ClosShape",
    "FatTreeShape",
    "RailShape",
    "GraphShape",
    "GraphLink",
    "SwitchesSettings",
    "Watchdog",
    "LinkFaultSettings",
    "LinksSettings",
    "LinkSettings",
    "EcnSettings",
)
"""Sections of the experiment that say what switches and links of a fabric are."""


def used_in(worlds: tuple[str, ...], *sections: str) -> KeyUse:
    """Return that all keys of some sections do something in these worlds alone."""
    return {(section, ""): worlds for section in sections}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlace:
    """Where an agent is reached."""

    name: str
    target: str
    tls: TlsSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldRequest:
    """What a run wants of its fabric.

    Attributes:
        seed: Of the experiment.
        nports: Ports that its jobs need.
        processes: Data-plane processes that each agent is to have; None: as many as
            ``data_plane_processes`` says.
        lab_name: Prefix of whatever is made, or the name of a lab that is up.
        logs: Folder for what agents say that are started here, and for captures.
    """

    seed: int
    nports: int
    processes: int | None
    lab_name: str
    logs: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A fabric that stands, with its agents.

    Attributes:
        ports: All ports, in the order in which ranks are placed on them.
        agents: All agents.
        topology: None where nobody told it.
        ecmp: How its switches choose among equal-cost paths; None: nobody knows.
        notes: What a reader of the results should know, one sentence each.
        lab: The lab of ``namespaces``.
        captures: What is captured in it, if anything.
    """

    ports: tuple[PortPlan, ...]
    agents: tuple[AgentPlace, ...]
    topology: Topology | None
    ecmp: EcmpHash | None = None
    notes: tuple[str, ...] = ()
    lab: LabState | None = field(default=None, repr=False)
    captures: Captures | None = field(default=None, repr=False)

    async def counters(self) -> LabCounters:
        """Return what the fabric has counted; nothing where nobody counts."""
        from chakram.fabric.labs.link_counters import LabCounters, read_counters

        if self.lab is None:
            return LabCounters()
        import asyncio

        return await asyncio.to_thread(read_counters, self.lab)

    async def disturb_links(self, faults: Sequence[LinkFault]) -> None:
        """Let more faults of links happen; none: let all of them end.

        Args:
            faults: On the clock of this machine.

        Raises:
            FabricError: If nobody can do that here.
        """
        import asyncio

        from chakram.fabric.labs.link_counters import disturb_links

        if self.lab is not None:
            await asyncio.to_thread(disturb_links, self.lab, faults)

    async def sample_links(self, bin_ns: int) -> None:
        """Take samples of the links of modelled switches from now on; 0: none.

        Raises:
            FabricError: If its switches do not answer.
        """
        import asyncio

        from chakram.fabric.labs.link_counters import sample_links

        if self.lab is not None:
            await asyncio.to_thread(sample_links, self.lab, bin_ns)

    async def link_samples(self) -> array[int]:
        """Return the samples taken since, and forget them.

        Raises:
            FabricError: If its switches do not answer.
        """
        import asyncio

        from chakram.fabric.labs.link_counters import link_samples

        if self.lab is None:
            return array("q")
        return await asyncio.to_thread(link_samples, self.lab)


class FabricKind(Model, ABC):
    """The ``fabric`` section of an experiment, of one kind.

    Attributes:
        rate_key: The key of the experiment file that states the rate of ports.
        stretches: Whether its time can be stretched.
        on_this_machine: Whether this machine carries all its packets.
        has_switches: Whether packets between two ports cross a switch.
        key_use: Which of its keys do not do something both in its runs and simulated.
    """

    rate_key: ClassVar[str]
    stretches: ClassVar[bool] = True
    on_this_machine: ClassVar[bool] = True
    has_switches: ClassVar[bool] = True
    key_use: ClassVar[KeyUse] = {}

    kind: str
    dilation: Dilation = 1
    """Factor by which time is stretched; the file says what it was before."""

    if TYPE_CHECKING:

        @property
        def udp_port(self) -> int:
            """UDP port that ports receive on: a key, or made of others."""

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
        """The rate of the slowest port that has one."""

    @property
    @abstractmethod
    def nports(self) -> int | None:
        """How many ports there are; None: as many as are needed."""

    @property
    def tiers(self) -> int | None:
        """Tiers of switches; None: nobody knows."""
        return 1

    @property
    def may_mark(self) -> bool:
        """Whether switches may mark packets, be it in simulations only."""
        return False

    @property
    def is_modelled(self) -> bool:
        """Whether the switches of its runs are modelled."""
        return False

    @property
    def fault_kinds(self) -> Collection[FaultKind]:
        """What can happen to its links in a run."""
        return ()

    @property
    def is_simulated(self) -> bool:
        """Whether there is a topology to simulate."""
        return True

    @abstractmethod
    def to_topology(self, nports: int | None = None) -> Topology | None:
        """Return hosts, switches and links; None where nobody told them.

        Args:
            nports: Ports that the jobs need, for a fabric that has as many as that.

        Raises:
            ConfigError: If the number of ports is known from nowhere.
            FabricError: If the shape is impossible.
        """

    def addresses(self, topology: Topology) -> Sequence[str]:
        """Return the addresses of the hosts of *topology*, in their order."""
        planned = plan_addresses(topology, self.family)
        return [planned.host(host).address for host in topology.hosts]

    def simulated_ports(self, topology: Topology) -> tuple[PortPlan, ...]:
        """Return a port for every host of *topology*, as a simulation has them."""
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

        They draw, where a kind does not know what its switches do.
        """
        return DrawnPaths(seed=seed)

    def switching(self, seed: int) -> Switching:
        """Return how packets cross the fabric in a simulation."""
        switches = self.simulated_switches
        return Switching(
            ecmp=self.ecmp_hash(seed),
            profile=Profile()
            if switches is None
            else switches.to_profile(self.smallest_mtu),
        )

    @property
    def simulated_switches(self) -> SwitchesSettings | None:
        """What simulated switches are like; None: as those of the fabric."""
        return None

    def planned_ports(self, nports: int) -> tuple[PortPlan, ...]:
        """Return the ports that a run would have, as far as one knows before it.

        Raises:
            FabricError: If the fabric cannot have that shape.
        """
        topology = self.to_topology(nports)
        if topology is None:
            raise ConfigError("fabric.topology", "names no shape", "e.g. single_switch")
        # They will have sockets, which processes may share.
        return tuple(
            replace(port, open="udp:") for port in self.simulated_ports(topology)
        )

    def host_names(self, nports: int) -> Sequence[str]:
        """Return what tells the hosts of *nports* ports: each is one, if not said."""
        return [str(number) for number in range(nports)]

    def data_plane_processes(self, nports: int, cores: Collection[int]) -> int:
        """Return how many processes an agent may start for *nports* ports of its own.

        Args:
            nports: Ports of the agent.
            cores: Those that this machine has for us.
        """
        return max(1, len(cores) - 1)

    # ---- what is said of it ----------------------------------------------------------

    @abstractmethod
    def check(self) -> list[Mistake]:
        """Return what is wrong in the section by itself."""

    @abstractmethod
    def details(self) -> str:
        """Return its shape and rates in words."""

    def describe(self) -> str:
        """Return the fabric in one line."""
        family = ", IPv6" if self.family == IPV6 else ""
        dilated = "" if self.dilation == 1 else f", dilated by {self.dilation}"
        return f"{self.kind}{family}, {self.details()}{dilated}"

    def warnings(self) -> list[str]:
        """Return what of the section does not mean what one may think."""
        return []

    # ---- bringing it up --------------------------------------------------------------

    @abstractmethod
    async def bring_up(self, stack: AsyncExitStack, request: WorldRequest) -> World:
        """Bring fabric and agents up; whatever is made is given to *stack*."""

    @asynccontextmanager
    async def open(
        self,
        *,
        seed: int,
        nports: int,
        lab_name: str,
        logs: Path,
        processes: int | None = None,
    ) -> AsyncIterator[World]:
        """Bring the fabric up, and its agents; both end with the block.

        See ``WorldRequest`` for the arguments.

        Raises:
            PrivilegeError: If this user may not make that fabric here.
            FabricError: If it cannot be made, or the lab that is up is another fabric
                or has another run in it.
            PortInUse: If a socket address is taken.
            AgentError: If an agent does not start.
        """
        async with AsyncExitStack() as stack:
            request = WorldRequest(
                seed=seed,
                nports=nports,
                processes=processes,
                lab_name=lab_name,
                logs=logs,
            )
            yield await self.bring_up(stack, request)

    async def start_lab(
        self, lab_name: str, *, seed: int, lifetime: str
    ) -> LabHandle | None:
        """Build the fabric apart from a run; None: there is nothing to build."""
        return None

    def agent_addresses(self) -> dict[str, list[str]] | None:
        """Return by agent what it is reached by; None: all are on this machine."""
        return None


class LocalFabric(FabricKind):
    """A fabric of this machine, whose ports have one MTU and one address family.

    A kind has the keys ``mtu``, ``addressing`` and ``udp_port`` for that.
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
        """Start the agent of all ports; return it and its process.

        It goes before everything else on this machine, since all that it is late is
        missing in the results, where that leaves a core to the controller.  What runs
        niced stays so.

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
    """Check that an MTU is one that the family of addresses has."""
    if family == IPV4 or mtu >= _IPV6_LEAST_MTU:
        return []
    return [
        Mistake(
            location=location,
            found=f"{mtu} is less than any link of IPv6 has",
            hint=f"at least {_IPV6_LEAST_MTU}",
        )
    ]


def rate_text(rate_bps: int | None) -> str:
    """Return a rate in words."""
    return "without rate" if rate_bps is None else format_rate(rate_bps)

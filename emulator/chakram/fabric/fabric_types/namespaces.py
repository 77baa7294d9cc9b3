"""The fabric ``namespaces``: hosts and switches as network namespaces here."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from chakram.fabric.core_assignment import data_plane_cores
from chakram.fabric.fabric_types.base import (
    ROCE_UDP_PORT,
    SIMULATE,
    SWITCHED_SECTIONS,
    Addressing,
    KeyUse,
    LocalFabric,
    World,
    WorldRequest,
    rate_text,
    used_in,
)
from chakram.fabric.fabric_types.link_settings import LinksSettings, SwitchesSettings
from chakram.fabric.fabric_types.topology_settings import TopologySettings
from chakram.foundation.errors import FabricError
from chakram.plan.plan import HEARS_PAUSES, PortPlan
from chakram.settings.located_errors import Location, Mistake
from chakram.settings.quantities import Name, Whole
from chakram.switch.ecmp import KernelPaths
from chakram.switch.faults import FAULT_KINDS, FaultKind
from chakram.topology.addressing import (
    plan_addresses,
    room_for_links,
    room_for_switches,
)

if TYPE_CHECKING:
    from chakram.fabric.labs.description import LabState
    from chakram.fabric.labs.lab import LabHandle
    from chakram.topology.topology import Topology


_RUN = ("namespaces",)
_LAB_LIMIT_BPS = 10 * 10**9


class NamespaceFabric(LocalFabric):
    """Hosts and switches as network namespaces of this machine."""

    rate_key: ClassVar[str] = "fabric.links.host.rate"
    key_use: ClassVar[KeyUse] = {
        ("Experiment", "lab"): _RUN,
        ("NamespaceFabric", "switch"): _RUN,
        ("NamespaceFabric", "capture"): _RUN,
        **used_in((SIMULATE, *_RUN), *SWITCHED_SECTIONS),
        **used_in(
            (SIMULATE,), "RingShape", "TorusShape", "FullyConnectedShape", "Moment"
        ),
        ("NamespaceFabric", "switches"): (SIMULATE, *_RUN),
        ("Faults", "links"): (SIMULATE, *_RUN),
        ("Moment", "iteration"): (SIMULATE, *_RUN),
        ("Moment", "job"): (SIMULATE, *_RUN),
    }

    kind: Literal["namespaces"]
    """Hosts and switches are network namespaces of this machine."""
    switch: Literal["kernel", "model"] = "kernel"
    """What switches in a run: the kernel's bridges and routes, or the switch model in
    a process of its own."""
    topology: TopologySettings = Field(examples=[{"single_switch": {"hosts": 8}}])
    """Shape of the fabric: exactly one of its keys."""
    links: LinksSettings = LinksSettings.unsaid()
    """Rates and queues of the links."""
    switches: SwitchesSettings | None = None
    """What modelled switches are like: in simulations, and in runs whose switch is
    model. Without it a queue per port, as the kernel has it."""
    addressing: Addressing = "ipv4"
    """Address family of all ports."""
    mtu: Whole = Field(default=4200, ge=576, le=65_535)
    """Largest IP packet of every interface, in bytes; over IPv6 at least 1280."""
    udp_port: Whole = Field(default=ROCE_UDP_PORT, ge=1, le=65_535)
    """UDP port that all ports receive on."""
    capture: tuple[Name, ...] = Field(default=(), max_length=64, examples=[["h0"]])
    """Hosts whose packets are captured into the run directory."""

    def check(self) -> list[Mistake]:
        """Check shape, addresses, captures and MTU."""
        mistakes = self.topology.check()
        if not mistakes:
            mistakes = _check_room(self)
        if self.switches is not None:
            mistakes += self.switches.check()
        return mistakes + _check_captures(self) + super().check()

    @property
    def port_rate_bps(self) -> int | None:
        """The rate of hosts' links."""
        return self.links.host.rate_bps

    @property
    def nports(self) -> int | None:
        """How many hosts there are; None of a shape that is missing."""
        return self.topology.hosts or None

    @property
    def tiers(self) -> int:
        """Tiers of switches."""
        return self.topology.tiers

    @property
    def may_mark(self) -> bool:
        """Whether a link marks, in simulations."""
        return any(each.ecn for each in self.links.all)

    @property
    def is_modelled(self) -> bool:
        """Whether the switches of its runs are modelled."""
        return self.switch == "model"

    @property
    def fault_kinds(self) -> Collection[FaultKind]:
        """What can happen to its links in a run: the kernel obeys no pauses."""
        if self.is_modelled:
            return FAULT_KINDS
        return tuple(kind for kind in FAULT_KINDS if kind != "pause_storm")

    def details(self) -> str:
        """Return shape, rates and MTU in words."""
        text = f"{self.topology.describe()}, hosts {rate_text(self.port_rate_bps)}"
        shape = self.topology.shape
        if shape is not None and shape.has_uplinks:
            text += f", uplinks {rate_text(self.links.uplink.rate_bps)}"
        return f"{text}, MTU {self.mtu}"

    def warnings(self) -> list[str]:
        """Return what is simulated only."""
        if self.switch == "model":
            return []
        warnings = []
        if self.switches is not None:
            warnings.append(
                "fabric.switches: simulated only; a run has the kernel's, unless "
                "fabric.switch is model"
            )
        if any(each.delay_ns for each in self.links.all):
            warnings.append(
                "fabric.links: delays are simulated only; the links of a kernel fabric "
                "have none beside the kernel's own"
            )
        if self.may_mark:
            warnings.append(
                "fabric.links: ECN marks are simulated only; the links of a kernel "
                "fabric mark nothing"
            )
        return warnings

    def to_topology(self, nports: int | None = None) -> Topology:
        """Return the topology."""
        topology = self.topology.to_topology(self.links)
        # Nothing marks in a kernel, none is that fast, and no host of a lab forwards:
        # other switches are meant.
        shape = self.topology.shape
        is_other = (
            self.switch != "kernel"
            or self.switches is not None
            or self.may_mark
            or (shape is not None and not shape.is_built)
        )
        is_lab = all((link.rate_bps or 0) <= _LAB_LIMIT_BPS for link in topology.links)
        return replace(
            topology,
            is_shaped=is_lab and not is_other,
            cuts_through=self.switches is not None and self.switches.cuts_through,
        )

    def host_names(self, nports: int) -> Sequence[str]:
        """Return the server of every port."""
        shape = self.topology.shape
        if shape is None:
            return super().host_names(nports)
        return [str(shape.server_of(port)) for port in range(nports)]

    @property
    def simulated_switches(self) -> SwitchesSettings | None:
        """What the section says of them."""
        return self.switches

    def ecmp_hash(self, seed: int) -> KernelPaths:
        """Return what the kernel does with the seed of a lab."""
        return KernelPaths(seed=seed)

    def data_plane_processes(self, nports: int, cores: Collection[int]) -> int:
        """Return how many cores the switches of a lab leave."""
        return len(data_plane_cores(cores))

    async def start_lab(self, lab_name: str, *, seed: int, lifetime: str) -> LabHandle:
        """Build the fabric."""
        from chakram.fabric.labs.lab import start_lab

        shape = self.topology.shape
        if shape is not None and not shape.is_built:
            raise FabricError(
                "fabric.topology",
                f"a {shape.describe()} is simulated only: its nodes forward, and hosts "
                "of a lab do not",
                "chakram simulate; or a shape with switches",
            )
        return await start_lab(
            self.to_topology(),
            lab_name=lab_name,
            seed=seed,
            addressing=self.addressing,
            mtu=self.mtu,
            capture_hosts=self.capture,
            forwarding=self.switch,
            profile=self.switching(seed).profile,
            lifetime=lifetime,
        )

    async def bring_up(self, stack: AsyncExitStack, request: WorldRequest) -> World:
        """Build a lab, or use the one of that name that is up, which then stays."""
        from chakram.fabric.capture.capture_session import capturing
        from chakram.fabric.enter_lab import enter_command
        from chakram.fabric.labs.lab_files import (
            register_process,
            sockets_directory,
            unregister,
        )
        from chakram.fabric.labs.namespaces import takes_hash_seeds

        lab_name = request.lab_name
        state = await self._lab(stack, request)
        captures = None
        if self.capture:
            # Before the agent, so that the capture ends after the last packet.
            captures = await stack.enter_async_context(
                capturing(state, self.capture, folder=request.logs)
            )
        agent, pid = await self.start_agent(
            stack,
            request,
            sockets_directory(lab_name) / "agent.sock",
            # Root's labs need not be entered.
            prefix=enter_command(state.holder_pid, []) if state.rootless else (),
            options=("--pin",),
        )
        register_process(lab_name, pid, "agent")
        stack.callback(unregister, lab_name, pid)
        topology = self.to_topology()
        # Neither the kernel's switches pause anybody, nor those that are like them.
        profile = self.switching(request.seed).profile
        pauses = self.switch == "model" and profile.name != "fifo"
        hears = HEARS_PAUSES if pauses else ""
        return World(
            ports=tuple(
                PortPlan(
                    number=number,
                    agent=agent.name,
                    host=host.name,
                    open=f"udp:{host.interface}{hears}",
                    netns=host.netns,
                    address=host.address,
                    udp_port=self.udp_port,
                    rate_bps=topology.host_link(host.name).rate_bps,
                    mtu=host.mtu,
                )
                for number, host in enumerate(state.hosts)
            ),
            agents=(agent,),
            topology=topology,
            ecmp=self.ecmp_hash(request.seed)
            if self.switch == "model" or takes_hash_seeds()
            else None,
            notes=state.notes,
            lab=state,
            captures=captures,
        )

    async def _lab(self, stack: AsyncExitStack, request: WorldRequest) -> LabState:
        """Return the lab of that name that is up, or one that ends with the run."""
        from chakram.fabric.labs.lab_files import (
            CONTROLLER,
            register_process,
            unregister,
        )
        from chakram.fabric.labs.running_labs import (
            check_lab,
            claimed,
            lab_differences,
            standing_lab,
        )

        lab_name = request.lab_name
        standing = standing_lab(lab_name)
        if standing is not None:
            differences = lab_differences(
                standing,
                topology=self.to_topology(),
                seed=request.seed,
                addressing=self.addressing,
                mtu=self.mtu,
                capture_hosts=self.capture,
                forwarding=self.switch,
                profile=self.switching(request.seed).profile,
            )
            check_lab(standing, differences)
            stack.enter_context(claimed(lab_name, os.getpid()))
            return standing
        lab = await stack.enter_async_context(
            await self.start_lab(lab_name, seed=request.seed, lifetime="run")
        )
        register_process(lab_name, os.getpid(), CONTROLLER)
        stack.callback(unregister, lab_name, os.getpid())
        return lab.state


KIND = NamespaceFabric


def _check_room(fabric: NamespaceFabric) -> list[Mistake]:
    """Check that there are addresses for all leaves, hosts and links of a lab."""
    clos = fabric.topology.clos
    if clos is None:
        try:
            plan_addresses(fabric.to_topology(), fabric.addressing)
        except FabricError as error:
            return [
                Mistake(
                    location=("fabric", "topology"),
                    found=error.found,
                    hint=error.hint or "use fewer switches",
                )
            ]
        return []
    where: Location = ("fabric", "topology", "clos")
    leaves = room_for_switches(clos.hosts_per_leaf, fabric.addressing)
    links = room_for_links(fabric.addressing)
    if clos.leaves > leaves:
        return [
            Mistake(
                location=(*where, "leaves"),
                found=f"there are addresses for {leaves} leaves with "
                f"{clos.hosts_per_leaf} hosts each",
                hint=f"at most {leaves}, or fewer hosts_per_leaf",
            )
        ]
    uplinks = clos.uplinks or clos.spines
    if clos.leaves * uplinks > links:
        return [
            Mistake(
                location=(*where, "uplinks" if clos.uplinks else "spines"),
                found=f"there are addresses for {links} links between switches",
                hint=f"at most {links // clos.leaves} with so many leaves",
            )
        ]
    return []


def _check_captures(fabric: NamespaceFabric) -> list[Mistake]:
    count = fabric.topology.hosts
    graph = fabric.topology.graph
    hosts = set(graph.hosts) if graph else {f"h{number}" for number in range(count)}
    return [
        Mistake(
            location=("fabric", "capture", index),
            found=f"there is no host {name!r}",
            hint="hosts are those of graph"
            if graph
            else f"hosts are h0 to h{count - 1}",
        )
        for index, name in enumerate(fabric.capture)
        if count and name not in hosts
    ]

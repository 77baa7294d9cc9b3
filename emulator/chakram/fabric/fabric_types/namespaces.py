"""Fabric type ``namespaces``: hosts and switches as network namespaces."""

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
from chakram.fabric.fabric_types.telemetry_settings import (
    TelemetrySettings,
    lab_plan,
)
from chakram.fabric.fabric_types.topology_settings import TopologySettings
from chakram.foundation.errors import FabricError
from chakram.foundation.ip_addresses import IPV4
from chakram.plan.port_plan import HEARS_PAUSES, PortPlan
from chakram.settings.field_types import Name, Whole
from chakram.settings.located_errors import Location, Mistake
from chakram.switch.ecmp import KernelPaths
from chakram.switch.faults import FAULT_KINDS, FaultKind
from chakram.topology.addressing import (
    plan_addresses,
    room_for_links,
    room_for_switches,
)

if TYPE_CHECKING:
    from chakram.fabric.labs.lab import LabHandle
    from chakram.fabric.labs.lab_spec import LabState
    from chakram.telemetry.targets import TelemetryPlan
    from chakram.topology.topology import Topology


_RUN = ("namespaces",)
_LAB_LIMIT_BPS = 10 * 10**9


class NamespaceFabric(LocalFabric):
    """Hosts and switches as network namespaces of this machine."""

    key_use: ClassVar[KeyUse] = {
        ("Experiment", "lab"): _RUN,
        ("NamespaceFabric", "switch"): (SIMULATE, *_RUN),
        ("NamespaceFabric", "capture"): _RUN,
        ("NamespaceFabric", "telemetry"): _RUN,
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
    """Switches of a run. kernel: bridges and routes of the kernel; model: the switch
    model in a separate process. Simulations always use the switch model. With model,
    simulated hosts may run ahead of the link rate, as hosts of runs do."""
    topology: TopologySettings = Field(examples=[{"single_switch": {"hosts": 8}}])
    """Shape of the fabric: exactly one of its keys."""
    links: LinksSettings = LinksSettings.section_defaults()
    """Rates and queues of the links."""
    switches: SwitchesSettings | None = None
    """Switches for simulations, and for runs with switch: model. Default: one queue per
    port."""
    addressing: Addressing = "ipv4"
    """Address family of all ports."""
    mtu: Whole = Field(default=4200, ge=576, le=65_535)
    """Largest IP packet, in bytes. With IPv6, at least 1280."""
    udp_port: Whole = Field(default=ROCE_UDP_PORT, ge=1, le=65_535)
    """UDP port that ports receive on."""
    capture: tuple[Name, ...] = Field(default=(), max_length=64, examples=[["h0"]])
    """Hosts on which to capture packets."""
    telemetry: TelemetrySettings | None = None
    """Counters to read from the switches through gNMI. Needs switch: model."""

    def check(self) -> list[Mistake]:
        """Check the shape, addresses, captures and MTU."""
        mistakes = self.topology.check()
        if not mistakes:
            mistakes = _check_room(self)
        if self.switches is not None:
            mistakes += self.switches.check(None if mistakes else self.to_topology())
        mistakes += _check_telemetry(self)
        return mistakes + _check_captures(self) + super().check()

    @property
    def port_rate_bps(self) -> int | None:
        """The usual rate of the hosts' links."""
        shape = self.topology.shape
        if shape is None:
            return self.links.host.rate_bps
        return shape.port_rate_bps(self.links)

    @property
    def nports(self) -> int | None:
        """Number of hosts, or None without a shape."""
        return self.topology.hosts or None

    @property
    def tiers(self) -> int:
        """Number of tiers of switches."""
        return self.topology.tiers

    @property
    def has_uplinks(self) -> bool:
        """Whether packets between two ports may cross several switches."""
        return self.topology.has_uplinks

    @property
    def may_mark(self) -> bool:
        """Whether any link has ECN thresholds, or a SONiC switch marks packets."""
        marks = self.switches is not None and self.switches.marks
        return marks or any(each.ecn for each in self.links.all)

    @property
    def is_modeled(self) -> bool:
        """Whether runs on the fabric use modeled switches."""
        return self.switch == "model"

    def neighbors(self, host: str) -> list[tuple[str, str]]:
        """Return IP and MAC addresses of the neighbors that a lab gives to a host."""
        topology = self.to_topology()
        plan = plan_addresses(topology, self.addressing)
        switch = topology.switch_of(host)
        near = topology.hosts if self.is_modeled else topology.hosts_of(switch)
        own = plan.host(host)
        found = [
            (each.address, each.mac)
            for each in map(plan.host, near)
            if each.host != host
        ]
        if own.gateway is not None and not self.is_modeled:
            macs = {each.switch: each.gateway_mac for each in plan.subnets}
            found.append((own.gateway, macs[switch]))
        return found

    @property
    def fault_kinds(self) -> Collection[FaultKind]:
        """Kinds of link faults that runs can inject. Kernels cannot pause links."""
        if self.is_modeled:
            return FAULT_KINDS
        return tuple(kind for kind in FAULT_KINDS if kind != "pause_storm")

    def details(self) -> str:
        """Return the shape, rates and MTU as text."""
        text = f"{self.topology.describe()}, hosts {rate_text(self.port_rate_bps)}"
        shape = self.topology.shape
        if shape is not None and shape.has_uplinks:
            text += f", uplinks {rate_text(self.links.uplink.rate_bps)}"
        return f"{text}, MTU {self.mtu}"

    def warnings(self) -> list[str]:
        """Return warnings about settings with no effect, at least in runs."""
        warnings = self.topology.warnings(self.links)
        if self.switch == "model":
            return warnings
        if self.switches is not None:
            warnings.append(
                "fabric.switches: simulated only; a run uses the kernel's switches "
                "unless fabric.switch is model"
            )
        if any(each.delay_ns for each in self.links.all):
            warnings.append(
                "fabric.links: delays are simulated only; the links of a kernel fabric "
                "have only the kernel's own delay"
            )
        if self.may_mark:
            warnings.append(
                "fabric.links: ECN marks are simulated only; the links of a kernel "
                "fabric do not mark packets"
            )
        return warnings

    def to_topology(self, nports: int | None = None) -> Topology:
        """Return the topology."""
        topology = self.topology.to_topology(self.links)
        # Only kernel labs shape links with token buckets. Kernel labs have no ECN
        # marks, no rates above 10 Gbit/s and no forwarding hosts. Settings with any of
        # these therefore describe other switches than the kernel's.
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
        """The switch settings of this section."""
        return self.switches

    def ecmp_hash(self, seed: int) -> KernelPaths:
        """Return the kernel's ECMP hash with the seed of a lab."""
        return KernelPaths(seed=seed)

    def data_plane_processes(self, nports: int, cores: Collection[int]) -> int:
        """Return the number of cores that the switches of a lab leave free."""
        return len(data_plane_cores(cores))

    async def start_lab(self, lab_name: str, *, seed: int, lifetime: str) -> LabHandle:
        """Build the fabric as a lab."""
        from chakram.fabric.labs.lab import start_lab

        shape = self.topology.shape
        if shape is not None and not shape.is_built:
            raise FabricError(
                "fabric.topology",
                f"a {shape.describe()} can only be simulated: its nodes forward "
                "packets, but hosts of a lab do not",
                "use chakram simulate, or a shape with switches",
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
        """Use the running lab with the requested name and keep it, or build a lab."""
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
            # Start the capture before the agent, so that it ends after the last packet.
            captures = await stack.enter_async_context(
                capturing(state, self.capture, folder=request.logs)
            )
        agent, pid = await self.start_agent(
            stack,
            request,
            sockets_directory(lab_name) / "agent.sock",
            # Only rootless labs have a user namespace to enter.
            prefix=enter_command(state.holder_pid, []) if state.rootless else (),
            options=("--pin",),
        )
        register_process(lab_name, pid, "agent")
        stack.callback(unregister, lab_name, pid)
        topology = self.to_topology()
        # Kernel switches and fifo switches send no PFC pauses.
        profile = self.switching(request.seed).profile
        pauses = self.switch == "model" and profile.name != "fifo"
        hears = HEARS_PAUSES if pauses else ""
        telemetry = await self._telemetry(stack, request, state, topology)
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
            telemetry=telemetry,
        )

    async def _telemetry(
        self,
        stack: AsyncExitStack,
        request: WorldRequest,
        state: LabState,
        topology: Topology,
    ) -> TelemetryPlan | None:
        """Start the gNMI servers of the switches, if their counters are to be read."""
        if self.telemetry is None:
            return None
        from chakram.fabric.modeled_switch.gnmi_session import serving
        from chakram.telemetry.mapping import read_mapping

        addresses = await stack.enter_async_context(
            serving(
                state,
                dict.fromkeys(topology.switches, "127.0.0.1:0"),
                {
                    "platform": "chakram switch model",
                    "profile": self.switching(request.seed).profile.name,
                },
                request.logs / "gnmi.log",
            )
        )
        mapping = read_mapping("sonic")
        return lab_plan(mapping, addresses, topology, self.telemetry.interval_ns)

    async def _lab(self, stack: AsyncExitStack, request: WorldRequest) -> LabState:
        """Return the running lab with the requested name, or build one for the run."""
        from chakram.fabric.labs.lab_files import (
            CONTROLLER,
            register_process,
            unregister,
        )
        from chakram.fabric.labs.running_labs import (
            check_lab,
            claimed,
            find_running_lab,
            lab_differences,
        )

        lab_name = request.lab_name
        standing = find_running_lab(lab_name)
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
    larger = ", or addressing: ipv6" * (fabric.addressing == IPV4)
    if clos.leaves > leaves:
        return [
            Mistake(
                location=(*where, "leaves"),
                found=(
                    f"there are addresses for only {leaves} leaves with "
                    f"{clos.hosts_per_leaf} hosts each"
                ),
                hint=f"use at most {leaves}, fewer hosts_per_leaf{larger}",
            )
        ]
    uplinks = clos.uplinks or clos.spines
    if clos.leaves * uplinks > links:
        return [
            Mistake(
                location=(*where, "uplinks" if clos.uplinks else "spines"),
                found=f"there are addresses for only {links} links between switches",
                hint=f"use at most {links // clos.leaves}, fewer leaves{larger}",
            )
        ]
    return []


def _check_telemetry(fabric: NamespaceFabric) -> list[Mistake]:
    """Check that telemetry reads modeled switches, without ``targets`` or ``otlp``."""
    telemetry = fabric.telemetry
    if telemetry is None:
        return []
    where: Location = ("fabric", "telemetry")
    if not fabric.is_modeled:
        return [
            Mistake(
                location=where,
                found="needs switch: model; the kernel's switches have no gNMI server",
                hint="remove telemetry, or set switch: model",
            )
        ]
    return [
        Mistake(
            location=(*where, key),
            found="is not used in a lab, because Chakram reads the switches of the lab",
            hint=f"remove {key}",
        )
        for key, value in (("targets", telemetry.targets), ("otlp", telemetry.otlp))
        if value
    ]


def _check_captures(fabric: NamespaceFabric) -> list[Mistake]:
    count = fabric.topology.hosts
    graph = fabric.topology.graph
    hosts = set(graph.hosts) if graph else {f"h{number}" for number in range(count)}
    mistakes = []
    for index, name in enumerate(fabric.capture):
        location = ("fabric", "capture", index)
        if count and name not in hosts:
            hint = "use hosts of graph" if graph else f"use h0 to h{count - 1}"
            mistakes.append(Mistake(location, f"there is no host {name!r}", hint))
        elif name in fabric.capture[:index]:
            # Two captures would write to the same file.
            found = f"host {name!r} is listed twice"
            mistakes.append(Mistake(location, found, "name every host once"))
    return mistakes

"""The worlds that a run can take place in: where its ports and agents come from.

A ``World`` is what remains of the fabric section once the fabric stands: ports with
addresses, agents that can be reached, and perhaps a topology.  From there on a run is
the same in all of them.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.config.fabric import ExternalFabric, LoopbackFabric, NamespaceFabric
from chakram.config.topology import topology_from_config
from chakram.control.service import TlsFiles
from chakram.controller.capturing import capturing
from chakram.controller.local_agent import local_agent
from chakram.controller.port_plans import external_ports
from chakram.errors import FabricError
from chakram.fabric.counters import read_link_counters
from chakram.fabric.enter import enter_command
from chakram.fabric.lab import (
    register_process,
    sockets_directory,
    start_lab,
    unregister,
)
from chakram.fabric.loopback import check_ports_free, loopback_ports
from chakram.fabric.standing import (
    check_lab,
    claimed,
    lab_differences,
    standing_lab,
)
from chakram.fabric.state import CONTROLLER
from chakram.plan.plan import PortPlan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from chakram.config.experiment import Experiment
    from chakram.controller.capturing import Captures
    from chakram.fabric.counters import LinkCounters
    from chakram.fabric.description import LabState
    from chakram.fabric.topology import Topology

__all__ = ["LOCAL_AGENT", "AgentAddress", "World", "open_world"]

LOCAL_AGENT = "local"
"""Name of the agent that a run starts on its own machine."""

_LOG = f"agent-{LOCAL_AGENT}.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAddress:
    """Where an agent is reached."""

    name: str
    target: str
    tls: TlsFiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A fabric that stands, with its agents.

    Attributes:
        kind: ``namespaces``, ``loopback`` or ``external``.
        ports: All ports, in the order in which ranks are placed on them.
        agents: All agents.
        topology: None where nobody told it.
        notes: What a reader of the results should know, one sentence each.
        lab: The lab of ``namespaces``.
        captures: What is captured in it, if anything.
    """

    kind: str
    ports: tuple[PortPlan, ...]
    agents: tuple[AgentAddress, ...]
    topology: Topology | None
    notes: tuple[str, ...] = ()
    lab: LabState | None = field(default=None, repr=False)
    captures: Captures | None = field(default=None, repr=False)

    async def link_counters(self) -> Mapping[str, LinkCounters]:
        """Return the counters of all links by name; empty where nobody counts."""
        if self.lab is None:
            return {}
        return await asyncio.to_thread(read_link_counters, self.lab)


@asynccontextmanager
async def open_world(
    experiment: Experiment, *, nports: int, lab_name: str, logs: Path
) -> AsyncIterator[World]:
    """Bring the fabric of an experiment up, and its agents; both end with the block.

    A lab of that name that is up is used as it stands, and stays.

    Args:
        experiment: Its fabric section says which kind.
        nports: Ports that its jobs need.
        lab_name: Prefix of whatever is made, or the name of a lab that is up.
        logs: Folder for what agents say that are started here, and for captures.

    Raises:
        PrivilegeError: If this user may not make that fabric here.
        FabricError: If it cannot be made, or the lab that is up is another fabric or
            has another run in it.
        PortInUse: If a socket address is taken.
        AgentError: If an agent does not start.
    """
    fabric = experiment.fabric
    async with AsyncExitStack() as stack:
        if isinstance(fabric, NamespaceFabric):
            yield await _namespaces(stack, experiment, fabric, lab_name, logs)
        elif isinstance(fabric, LoopbackFabric):
            yield await _loopback(stack, fabric, nports, logs)
        else:
            yield _external(fabric)


async def _namespaces(
    stack: AsyncExitStack,
    experiment: Experiment,
    fabric: NamespaceFabric,
    lab_name: str,
    logs: Path,
) -> World:
    topology = topology_from_config(fabric)
    if topology is None:
        raise FabricError("fabric.topology", "names no shape")
    state = await _lab(stack, experiment, fabric, topology, lab_name)
    captures = None
    if fabric.capture:
        # Before the agent, so that the capture ends after the last packet.
        captures = await stack.enter_async_context(
            capturing(state, fabric.capture, folder=logs)
        )
    target, pid = await stack.enter_async_context(
        local_agent(
            name=LOCAL_AGENT,
            socket=sockets_directory(lab_name) / "agent.sock",
            log=logs / _LOG,
            prefix=_entering(state),
            options=("--pin",),
        )
    )
    register_process(lab_name, pid, "agent")
    stack.callback(unregister, lab_name, pid)
    return World(
        kind="namespaces",
        ports=tuple(
            PortPlan(
                number=number,
                agent=LOCAL_AGENT,
                host=host.name,
                open=f"udp:{host.interface}",
                netns=host.netns,
                address=host.address,
                udp_port=fabric.udp_port,
                rate_bps=topology.host_link(host.name).rate_bps,
                mtu=host.mtu,
            )
            for number, host in enumerate(state.hosts)
        ),
        agents=(AgentAddress(name=LOCAL_AGENT, target=target),),
        topology=topology,
        notes=state.notes,
        lab=state,
        captures=captures,
    )


async def _lab(
    stack: AsyncExitStack,
    experiment: Experiment,
    fabric: NamespaceFabric,
    topology: Topology,
    lab_name: str,
) -> LabState:
    """Return the lab of that name that is up, or one that ends with the run."""
    standing = standing_lab(lab_name)
    if standing is not None:
        differences = lab_differences(
            standing,
            topology=topology,
            seed=experiment.seed,
            addressing=fabric.addressing,
            mtu=fabric.mtu,
            capture_hosts=fabric.capture,
        )
        check_lab(standing, differences)
        stack.enter_context(claimed(lab_name, os.getpid()))
        return standing
    lab = await stack.enter_async_context(
        await start_lab(
            topology,
            lab_name=lab_name,
            seed=experiment.seed,
            addressing=fabric.addressing,
            mtu=fabric.mtu,
            capture_hosts=fabric.capture,
        )
    )
    register_process(lab_name, os.getpid(), CONTROLLER)
    stack.callback(unregister, lab_name, os.getpid())
    return lab.state


def _entering(state: LabState) -> list[str]:
    """Return the command that enters a rootless lab; root's labs need none."""
    return enter_command(state.holder_pid, []) if state.rootless else []


async def _loopback(
    stack: AsyncExitStack, fabric: LoopbackFabric, nports: int, logs: Path
) -> World:
    ports = loopback_ports(
        fabric.ports or nports, udp_port=fabric.udp_port, family=fabric.addressing
    )
    check_ports_free(ports)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chakram-")))
    target, _ = await stack.enter_async_context(
        local_agent(name=LOCAL_AGENT, socket=folder / "agent.sock", log=logs / _LOG)
    )
    return World(
        kind="loopback",
        ports=tuple(
            PortPlan(
                number=number,
                agent=LOCAL_AGENT,
                host=port.host,
                open="udp:",
                netns=None,
                address=port.address,
                udp_port=port.udp_port,
                rate_bps=fabric.rate_bps,
                mtu=fabric.mtu,
            )
            for number, port in enumerate(ports)
        ),
        agents=(AgentAddress(name=LOCAL_AGENT, target=target),),
        topology=topology_from_config(fabric, nports=nports),
        notes=("loopback has no switch: what limits it is this machine",),
    )


def _external(fabric: ExternalFabric) -> World:
    tls = None
    if fabric.tls is not None:
        tls = TlsFiles(
            ca=Path(fabric.tls.ca), cert=Path(fabric.tls.cert), key=Path(fabric.tls.key)
        )
    topology = topology_from_config(fabric)
    return World(
        kind="external",
        ports=external_ports(fabric),
        agents=tuple(
            AgentAddress(
                name=host.name,
                target=host.agent,
                tls=None if host.agent.startswith("unix:") else tls,
            )
            for host in fabric.hosts
        ),
        topology=topology,
    )

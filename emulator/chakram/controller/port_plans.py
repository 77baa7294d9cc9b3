"""The ports of a plan: which ones there are, and where."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from chakram.config.fabric import ExternalFabric
from chakram.config.fabric_checks import address_family, smallest_mtu
from chakram.core.plan import PortPlan
from chakram.errors import ConfigError
from chakram.fabric.addressing import plan_addresses
from chakram.fabric.from_config import topology_from_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.config.experiment import Experiment
    from chakram.controller.job_loading import LoadedJob
    from chakram.fabric.topology import Topology

__all__ = [
    "SIMULATED_AGENT",
    "external_ports",
    "planned_ports",
    "ports_needed",
    "simulated_ports",
]

SIMULATED_AGENT = "simulated"
"""Agent of the ports of a simulation."""

SIMULATED_PORT = "memory:"
"""What these ports are opened by."""


def ports_needed(jobs: Sequence[LoadedJob]) -> int:
    """Return how many ports the ranks of all jobs need.

    Of patterns it is what they need at least: where a fabric has as many ports as are
    needed, they have no others to choose from.
    """
    needed = 0
    for job in jobs:
        placement = job.placement
        count = -(-job.nranks // placement.ranks_per_port)
        if placement.ports is not None:
            numbers = [port for port in placement.ports if isinstance(port, int)]
            needed = max(needed, max(numbers, default=-1) + 1)
            continue
        first = needed if placement.first_port is None else placement.first_port
        needed = max(needed, first + count)
    return needed


def simulated_ports(experiment: Experiment, topology: Topology) -> tuple[PortPlan, ...]:
    """Return a port for every host of *topology*, as a simulation has them."""
    addresses = plan_addresses(topology, address_family(experiment.fabric))
    mtu = smallest_mtu(experiment.fabric)
    return tuple(
        PortPlan(
            number=number,
            agent=SIMULATED_AGENT,
            host=host,
            open=SIMULATED_PORT,
            netns=None,
            address=addresses.host(host).address,
            udp_port=experiment.udp_port,
            rate_bps=topology.host_link(host).rate_bps,
            mtu=mtu,
        )
        for number, host in enumerate(topology.hosts)
    )


def external_ports(
    fabric: ExternalFabric, topology: Topology | None
) -> tuple[PortPlan, ...]:
    """Return the ports of an external fabric, in the order of the file.

    Args:
        fabric: Its hosts and their ports.
        topology: What the ports are the hosts of, in order; None if nobody told.
    """
    ports: list[PortPlan] = []
    for host in fabric.hosts:
        named = Counter(port.open for port in host.ports)
        for port in host.ports:
            name = f"{host.name}:{port.open}"
            if named[port.open] > 1:
                # One interface with two addresses, or two namespaces that each have it.
                name += f"@{port.address.ip}"
            number = len(ports)
            ports.append(
                PortPlan(
                    number=number,
                    agent=host.name,
                    host=name if topology is None else topology.hosts[number],
                    open=port.open,
                    netns=None if port.netns is None else str(port.netns),
                    address=str(port.address.ip),
                    udp_port=fabric.udp_port,
                    rate_bps=port.rate_bps or fabric.defaults.rate_bps,
                    mtu=port.mtu or fabric.defaults.mtu,
                )
            )
    return tuple(ports)


def planned_ports(
    experiment: Experiment, jobs: Sequence[LoadedJob]
) -> tuple[PortPlan, ...]:
    """Return the ports that a run would have, as far as one knows before it.

    Raises:
        FabricError: If the fabric cannot have that shape.
    """
    fabric = experiment.fabric
    topology = topology_from_config(fabric, nports=ports_needed(jobs))
    if isinstance(fabric, ExternalFabric):
        return external_ports(fabric, topology)
    if topology is None:
        raise ConfigError("fabric.topology", "names no shape", "e.g. single_switch")
    # They will have sockets, which processes may share.
    return tuple(
        replace(port, open="udp:") for port in simulated_ports(experiment, topology)
    )

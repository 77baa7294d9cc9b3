"""The ports of a plan: which ones there are, and where."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chakram.config.fabric import ExternalFabric
from chakram.config.fabric_checks import address_family, smallest_mtu
from chakram.config.topology import topology_from_config
from chakram.errors import ConfigError
from chakram.fabric.addressing import plan_addresses
from chakram.plan.plan import PortPlan

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
    fabric = experiment.fabric
    if isinstance(fabric, ExternalFabric):
        addresses = [port.address for port in external_ports(fabric)]
    else:
        planned = plan_addresses(topology, address_family(fabric))
        addresses = [planned.host(host).address for host in topology.hosts]
    mtu = smallest_mtu(fabric)
    return tuple(
        PortPlan(
            number=number,
            agent=SIMULATED_AGENT,
            host=host,
            open=SIMULATED_PORT,
            netns=None,
            address=address,
            udp_port=experiment.udp_port,
            rate_bps=topology.host_link(host).rate_bps,
            mtu=mtu,
        )
        for number, (host, address) in enumerate(
            zip(topology.hosts, addresses, strict=True)
        )
    )


def external_ports(fabric: ExternalFabric) -> tuple[PortPlan, ...]:
    """Return the ports of an external fabric, in the order of the file."""
    ports = [(host, port) for host in fabric.hosts for port in host.ports]
    return tuple(
        PortPlan(
            number=number,
            agent=host.name,
            host=name,
            open=port.open,
            netns=None if port.netns is None else str(port.netns),
            address=str(port.address.ip),
            udp_port=fabric.udp_port,
            rate_bps=port.rate_bps or fabric.defaults.rate_bps,
            mtu=port.mtu or fabric.defaults.mtu,
        )
        for number, ((host, port), name) in enumerate(
            zip(ports, fabric.port_names(), strict=True)
        )
    )


def planned_ports(
    experiment: Experiment, jobs: Sequence[LoadedJob]
) -> tuple[PortPlan, ...]:
    """Return the ports that a run would have, as far as one knows before it.

    Raises:
        FabricError: If the fabric cannot have that shape.
    """
    fabric = experiment.fabric
    if isinstance(fabric, ExternalFabric):
        return external_ports(fabric)
    topology = topology_from_config(fabric, nports=ports_needed(jobs))
    if topology is None:
        raise ConfigError("fabric.topology", "names no shape", "e.g. single_switch")
    # They will have sockets, which processes may share.
    return tuple(
        replace(port, open="udp:") for port in simulated_ports(experiment, topology)
    )

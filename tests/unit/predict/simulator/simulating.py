"""Simulated runs of small plans."""

from chakram.plan.plan import Plan
from chakram.plan.transport import TransportPlan
from chakram.plan.wire_cost import AETH_BYTES, PACKET_OVERHEAD_BYTES
from chakram.predict.simulator.run_plan import SimulationResult, simulate_plan
from chakram.topology.topology import Topology

MTU = TransportPlan().path_mtu
ACK_BYTES = PACKET_OVERHEAD_BYTES + AETH_BYTES


def simulate(
    plan: Plan,
    topology: Topology,
    *,
    seed: int | None = None,
    burst_packets: int | None = None,
) -> SimulationResult:
    return simulate_plan(plan, topology, seed=seed, burst_packets=burst_packets)


SIZE = 16 << 20

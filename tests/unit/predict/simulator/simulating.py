"""Simulated runs of small plans."""

import random

from chakram.fabric.topology import Topology
from chakram.plan.plan import Plan
from chakram.plan.transport import TransportPlan
from chakram.plan.wire_cost import AETH_BYTES, PACKET_OVERHEAD_BYTES
from chakram.predict.simulator.job import SimulationResult, simulate_plan

MTU = TransportPlan().path_mtu
ACK_BYTES = PACKET_OVERHEAD_BYTES + AETH_BYTES


def simulate(
    plan: Plan, topology: Topology, *, seed: int = 1, burst_packets: int | None = None
) -> SimulationResult:
    rng = random.Random(seed)
    return simulate_plan(plan, topology, rng=rng, burst_packets=burst_packets)


SIZE = 16 << 20

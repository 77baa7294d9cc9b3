"""The section of a run's page about source ports that would balance the uplinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.diagnosis.source_port_advice import DIVIDE, EVEN, source_port_advice
from chakram.report.blocks import facts, table
from chakram.report.page import Absent, Parts, section

if TYPE_CHECKING:
    from chakram.report.run.data import RunData


_PAIRS_SHOWN = 16


@section("Balancing source ports", "m")
def source_ports(data: RunData) -> Parts:
    """Return the section of proposed source ports, which would balance the uplinks."""
    topology, fabric = data.topology, data.fabric
    if isinstance(topology, str) or isinstance(fabric, str):
        raise Absent("none are proposed: the topology is unknown.")
    advice = source_port_advice(data.results, fabric, topology, data.transport)
    if isinstance(advice, str):
        raise Absent(f"none are proposed: {advice}.")
    turn = ", ".join(map(str, advice.source_ports))
    more = max(advice.after.values())
    said = "; ".join(
        f"{direction} {advice.before[direction]:.3f} now, {after:.3f} with the proposal"
        for direction, after in advice.after.items()
    )
    yield facts(
        ("busiest uplink over the mean (MMR)", said),
        ("for the experiment", f"transport: {{source_ports: [{turn}]}}"),
        *([("remaining imbalance", DIVIDE)] if more > EVEN else []),
    )
    yield table(
        "Source ports by queue pair",
        "ranks | group and channel | now | proposed",
        ((ranks, what, str(a), str(b)) for ranks, what, a, b in advice.pairs),
        left=2,
        note="Queue pairs take the listed ports round robin. The proposal applies to "
        "this placement, these bytes and this seed, which determines the hash of the "
        "switches. Both ends of a queue pair use the same port.",
        limit=_PAIRS_SHOWN,
    )

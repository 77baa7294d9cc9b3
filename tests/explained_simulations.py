"""Simulations in run directories, with their explanations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chakram.analysis.critical_path import Part, critical_path, message_parts
from chakram.analysis.run_causes import iterations_of
from chakram.predict.routing import PathFinder
from chakram.predict.simulator.run_plan import simulate_plan
from chakram.predict.simulator.switch_fabric import port_names
from chakram.run_directory.added_flow_columns import MessageColumns
from chakram.run_directory.manifest import RunManifest
from chakram.run_directory.reader import RunResults, open_run
from chakram.run_directory.writer import RunDirectory
from chakram.simulation.common import ended
from chakram.switch.ecmp import DrawnPaths
from chakram.switch.profiles import Switching

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chakram.plan.plan import Plan
    from chakram.switch.faults import LinkFault
    from chakram.topology.topology import Topology

STARTED = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def simulated_run(
    parent: Path,
    plan: Plan,
    topology: Topology,
    *,
    switching: Switching | None = None,
    faults: Sequence[LinkFault] = (),
    seed: int = 1,
    burst_packets: int | None = None,
) -> RunResults:
    """Simulate *plan* as ``chakram simulate`` does."""
    how = switching or Switching(ecmp=DrawnPaths(seed=seed))
    chosen = plan.agents[0].settings
    manifest = RunManifest(
        run_id="r1",
        name="explained",
        world="simulate",
        started_at=STARTED.isoformat(),
        warmup=chosen.warmup,
        measured=chosen.measured,
    )
    directory = RunDirectory.create(parent, manifest=manifest, started=STARTED)
    directory.begin(plan, ports=port_names(topology))
    result = simulate_plan(
        plan,
        topology,
        seed=seed,
        switching=how,
        faults=faults,
        burst_packets=burst_packets,
    )
    directory.add(result.records)
    ends = [end for link in topology.links for end in (link.a, link.b)]
    ended(
        directory,
        topology,
        [result.link_bytes[str(end)] for end in ends],
        counted={
            "drops": result.drops,
            "marked": result.marked_packets,
            "paused_ns": result.pauses,
            "down_ns": result.down_ns,
        },
        messages=MessageColumns(None, PathFinder(plan, topology, how.ecmp)),
    )
    return open_run(directory.path)


def assert_exact(results: RunResults) -> int:
    """Hold all parts to the times that they are parts of; return how many messages."""
    count = 0
    for job, iteration, records in iterations_of(results):
        for message in records.messages():
            count += 1
            parts = message_parts(message, is_virtual=True)
            assert min(time_ns for _, time_ns in parts) >= 0
            assert Part.UNKNOWN not in dict(parts)
            assert message.received_ns is not None
            total_ns = sum(time_ns for _, time_ns in parts)
            assert total_ns == message.received_ns - message.ready_ns
        last = records.last()
        assert last is not None
        path = critical_path(records, job=job, iteration=iteration, last=last)
        assert {piece.part for piece in path.pieces}.isdisjoint(
            {Part.UNKNOWN, Part.SCHEDULE}
        )
        assert sum(piece.time_ns for piece in path.pieces) == (
            last.end_ns - records.first_start_ns()
        )
    return count

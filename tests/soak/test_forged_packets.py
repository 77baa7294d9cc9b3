"""200,000 forged packets at 10,000 per second do not affect a run."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from chakram_agent.shard import build_plane
from tests.integration.test_dataplane_loop import LOOPBACK
from tests.integration.test_foreign_packets import STRANGER, counts, forge, plan
from tests.made_plans import share_rows
from tests.process_priority import before_others

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan
    from chakram_agent.dataplane.loop import DataPlane

PACKETS = 200_000
PER_S = 10_000
KINDS = 2_000
SENDER = """
import pickle, socket, sys, time
packets, (source, per_s, count) = pickle.load(sys.stdin.buffer)
stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
stranger.bind((source, 0xC001))
began = time.monotonic()
for number in range(count):
    data, where = packets[number % len(packets)]
    stranger.sendto(data, where)
    ahead = number / per_s - (time.monotonic() - began)
    if ahead > 0.001:
        time.sleep(ahead)
"""
TURNS = 4
"""Alternately with and without forged packets, because others use the machine. The cost
of an iteration is CPU time, because the forger needs a core, too."""


def serve(plane: DataPlane, until_s: float) -> None:
    while time.monotonic() < until_s and not plane.finished():
        plane.round()
        assert plane.failure() is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A run with or without an attacker.

    Attributes:
        cost_ns: What an iteration costs, of a core.
        iteration_ns: The median time of an iteration.
        arrived: Packets that came from elsewhere.
    """

    cost_ns: float
    iteration_ns: float
    arrived: int


def turn(agent: AgentPlan, *, forged: int) -> Turn:
    """Run for as long as *forged* packets take, or as many as in other turns."""
    rng = random.Random(forged)
    packets = []
    while len(packets) < KINDS:
        data, port = forge(agent, rng)
        packets.append((data, (port.address, port.udp_port)))
    plane = build_plane(agent, LOOPBACK)
    seconds = max(forged, PACKETS // TURNS) / PER_S
    try:
        plane.arm(time.monotonic_ns())
        stranger = subprocess.Popen(
            [sys.executable, "-c", SENDER], stdin=subprocess.PIPE
        )
        assert stranger.stdin is not None
        stranger.stdin.write(pickle.dumps((packets, (STRANGER, PER_S, forged))))
        stranger.stdin.close()
        began_s = time.process_time()
        with before_others():
            serve(plane, time.monotonic() + seconds)
            while stranger.poll() is None:
                serve(plane, time.monotonic() + 0.1)
            serve(plane, time.monotonic() + 0.2)
        spent_s = time.process_time() - began_s
        drops = sum(line.port.socket_drops for line in plane.lines)
        for line in plane.lines:
            for pair in line.endpoint.engine.queue_pairs():
                now = pair.statistics()
                assert now.acks_invalid == now.naks_received == now.cnps_received == 0
        iterations = sum(line.endpoint.iterations_done() for line in plane.lines)
        return Turn(
            cost_ns=1e9 * spent_s * len(plane.lines) / iterations,
            iteration_ns=median(
                row.end_ns - row.start_ns
                for line in plane.lines
                for row in share_rows(line.endpoint.records)
            ),
            arrived=sum(counts(plane)) + drops,
        )
    finally:
        plane.close()


def turns(agent: AgentPlan) -> tuple[list[Turn], list[Turn]]:
    """Return the turns without forged packets, and with all of them."""
    quiet, attacked = [], []
    for _ in range(TURNS):
        quiet.append(turn(agent, forged=0))
        attacked.append(turn(agent, forged=PACKETS // TURNS))
    assert sum(each.arrived for each in quiet) == 0
    assert sum(each.arrived for each in attacked) == PACKETS
    return quiet, attacked


def endless(rate_bps: int | None) -> AgentPlan:
    """Return a plan that does not end by itself while packets are forged."""
    base = plan()
    return replace(
        base,
        settings=replace(base.settings, measured=10**6),
        ports=tuple(replace(port, rate_bps=rate_bps) for port in base.ports),
    )


def test_forged_packets_do_not_lengthen_iterations() -> None:
    quiet, attacked = turns(endless(rate_bps=100_000_000))
    before_ns = min(each.iteration_ns for each in quiet)
    after_ns = min(each.iteration_ns for each in attacked)
    assert after_ns < 1.05 * before_ns, (quiet, attacked)


def test_forged_packets_cost_an_iteration_almost_no_time() -> None:
    quiet, attacked = turns(endless(rate_bps=None))
    before_ns = min(each.cost_ns for each in quiet)
    after_ns = min(each.cost_ns for each in attacked)
    assert after_ns < 1.05 * before_ns, (quiet, attacked)

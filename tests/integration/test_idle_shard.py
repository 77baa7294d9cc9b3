"""An idle data-plane process uses almost no CPU time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from chakram.control.protobuf_messages import pb
from chakram.plan.plan import AgentPlan, RunSettings
from chakram.records.counter_slots import slot
from chakram_agent.fork_server import STATUS, spawn_fork_server
from chakram_agent.pipe import ShardPipe
from chakram_agent.shared_counters import SharedCounters
from tests.integration.test_agent_shard import Talk
from tests.made_plans import compute
from tests.plans import rewritten, ring_plan
from tests.waiting import PATIENCE_S

IDLE_S = 1.0
ATTEMPTS = 5
"""Something else may share its caches for a while."""

MOST_OF_A_CORE = 0.03
"""It looks up 20 times a second, in case its agent wants something."""

HOUR_NS = 3600 * 10**9


@contextmanager
def shard_process() -> Iterator[tuple[Talk, int]]:
    """Start a shard as agents do; yield its agent's end and its process id."""
    ours, theirs = socket.socketpair()
    status, its_status = socket.socketpair()
    status.settimeout(PATIENCE_S)
    counters = SharedCounters.create("test")
    pipe = ShardPipe(ours)
    server = spawn_fork_server()
    with its_status, theirs:
        own = (its_status.fileno(), theirs.fileno(), counters.descriptor)
        server.request(0, None, own)
    try:
        yield Talk(pipe, counters), read_status(status)
    finally:
        pipe.close()
        assert read_status(status) == 0
        status.close()
        server.end()
        counters.close()


def read_status(status: socket.socket) -> int:
    return int(STATUS.unpack(status.recv(STATUS.size))[0])


def cpu_ns(process: int) -> int:
    """Return the CPU time of a process of one thread."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0])


def share_of_a_core(process: int) -> float:
    """Return the share of a core that a process uses in the next second."""
    before_ns, began_ns = cpu_ns(process), time.monotonic_ns()
    threading.Event().wait(IDLE_S)
    return (cpu_ns(process) - before_ns) / (time.monotonic_ns() - began_ns)


def plan_that_computes() -> AgentPlan:
    """One small all-reduce, and then compute for longer than anybody looks."""
    plan = ring_plan(nranks=4, settings=RunSettings(warmup=0, measured=1))
    return replace(
        plan,
        ranks=tuple(
            replace(
                rank,
                program=rewritten(
                    rank.program,
                    [*rank.program.operations, compute(HOUR_NS, after=[0])],
                ),
            )
            for rank in plan.ranks
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize("after_traffic", [False, True])
def test_idle_shard_uses_almost_no_cpu(after_traffic: bool) -> None:
    with shard_process() as (talk, process):
        talk.set_up(plan_that_computes())
        talk.wait_for("ready")
        start_ns = time.monotonic_ns() + (10**6 if after_traffic else HOUR_NS)
        talk.counters.stamp_ns = time.monotonic_ns() + HOUR_NS  # its agent lives
        talk.say(pb.ShardCommand(arm=pb.ShardArm(start_ns=start_ns)))
        if after_traffic:
            flows = 4 * 6
            talk.wait_for(
                "progress",
                lambda _: talk.counters.snapshot()[slot("flows_completed")] == flows,
            )
        shares = []
        while min(shares, default=1) >= MOST_OF_A_CORE:
            assert len(shares) < ATTEMPTS, shares
            shares.append(share_of_a_core(process))
        talk.stop()
        talk.wait_for("stopped")

"""A preflight without an agent or a launcher ends, and passes no judgment."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from chakram.config.experiment import parse_experiment
from chakram.control.clock_track import ClockTrack
from chakram.control.events import AgentEvent, Finished, RecordBatch
from chakram.execution.interrupts import Interrupts
from chakram.execution.observer import Silent
from chakram.execution.preflight_session import Preflight
from chakram.foundation.errors import AgentError, RunFailed
from chakram.plan.nic_queue_pairs import Bindings
from chakram.plan.probes import ProbeEvent
from chakram.preparation.resolved_run import resolve
from chakram.records.row_layout import RecordRows
from tests.unit.execution.test_session import PlayedAgent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from chakram.plan.plan import AgentPlan
    from chakram.plan.probes import ProbePlan

EXPERIMENT = """
version: 1
name: two-hosts
jobs: [{name: a, trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}}]
fabric:
  kind: external
  hosts:
    - {name: h0, ports: [{open: "udp:eth0", address: 198.18.0.1/24}]}
    - {name: h1, ports: [{open: "udp:eth0", address: 198.18.0.2/24}]}
"""
LAUNCHER = "the launcher of agents has ended: h0, h1: srun ended with exit status 1"


def all_arrive(probes: ProbePlan) -> RecordRows:
    """Return rows of a fabric that loses no probe and changes none."""
    rows = RecordRows()
    for target in probes.targets:
        for path in range(len(probes.source_ports)):
            for number, packet in enumerate(probes.packets):
                where = target.source, target.destination, number, path
                rows.probes.extend((ProbeEvent.SENT, *where, probes.copies, 0, 0))
                arrived = probes.copies, packet.tos, 0
                rows.probes.extend((ProbeEvent.ARRIVED, *where, *arrived))
    return rows


class ProbingAgent(PlayedAgent):
    """An agent whose probes all arrive, and which does not send the messages.

    Args:
        name: Its name.
        on_messages: Called instead of sending messages. Its error ends the session.
    """

    def __init__(self, name: str, on_messages: Callable[[], None] = int) -> None:
        super().__init__(name)
        self.where = f"agent {name} (ssh)"
        self.description = SimpleNamespace(max_rate_bps=None)
        self._on_messages = on_messages
        self._probes: ProbePlan | None = None

    async def prepare(self, plan: AgentPlan) -> Bindings:
        self._probes = plan.probes
        return await super().prepare(plan)

    async def reset(self) -> None:
        self._armed.clear()
        await super().reset()

    async def events(self) -> AsyncIterator[AgentEvent]:
        await self._armed.wait()
        if self._probes is not None:
            yield RecordBatch(time_ns=1, rows=all_arrive(self._probes))
            yield Finished(time_ns=2)
        else:
            self._on_messages()
        await asyncio.Event().wait()


def preflight_of(*agents: ProbingAgent) -> Preflight:
    experiment = parse_experiment(EXPERIMENT)
    clients: Any = {agent.name: agent for agent in agents}
    return Preflight(
        resolve(experiment),
        ports=experiment.fabric.planned_ports(2),
        clients=clients,
        clocks={name: ClockTrack() for name in clients},
        progress=Silent(),
        interrupts=Interrupts(),
        run_id="r",
    )


def lose() -> None:
    raise AgentError("agent h1 (ssh)", "the connection was lost")


@pytest.mark.asyncio
async def test_a_lost_agent_ends_a_preflight_even_without_rates() -> None:
    preflight = preflight_of(ProbingAgent("h0"), ProbingAgent("h1", lose))
    with pytest.raises(RunFailed, match="agent h1: the connection was lost"):
        await preflight.run()


@pytest.mark.asyncio
async def test_packets_whose_counts_are_missing_do_not_count_as_lost() -> None:
    class Busy(ProbingAgent):
        async def reset(self) -> None:
            await super().reset()
            raise AgentError(self.where, "it does not answer in time")

    preflight = preflight_of(ProbingAgent("h0"), Busy("h1"))
    with pytest.raises(RunFailed, match="records of agent h1 are missing: it does not"):
        await preflight.run()


@pytest.mark.asyncio
async def test_the_end_of_a_launcher_ends_the_measurement_of_messages() -> None:
    first = ProbingAgent("h0", lambda: preflight.abort(LAUNCHER))
    second = ProbingAgent("h1")
    preflight = preflight_of(first, second)
    with pytest.raises(RunFailed, match=LAUNCHER):
        await preflight.run()
    assert f"abort: {LAUNCHER}" in second.calls


@pytest.mark.asyncio
async def test_the_end_of_a_launcher_between_two_tests_ends_the_next_one() -> None:
    agents = ProbingAgent("h0"), ProbingAgent("h1")
    preflight = preflight_of(*agents)
    preflight.abort(LAUNCHER)
    with pytest.raises(RunFailed, match=LAUNCHER):
        await preflight.run()
    assert "prepare" not in agents[0].calls + agents[1].calls

"""Agents that probe, also before and after runs in one session."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from chakram.control.events import Failed, Finished, PhaseChanged, RecordBatch
from chakram.foundation.errors import PlanError
from chakram.plan.plan import AgentPlan
from chakram.preflight.probe_plan import plan_probes, read_probes
from chakram.preflight.report import PreflightSettings
from chakram.records.row_layout import RecordRows
from chakram_agent.dataplane.probe_packets import ProbeName, probe_datagram, token_of
from tests.agents import agent_in, start, until_the_end
from tests.udp_ports import free_udp_ports
from tests.unit.preflight.ports import TRANSPORT, ports
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.asyncio

UDP_PORT = free_udp_ports()
SETTINGS = PreflightSettings(path_mtu=1024, paths=2)


def probes() -> AgentPlan:
    found = [
        replace(port, agent="a", open="udp:", udp_port=UDP_PORT)
        for port in ports(3, address="127.0.6.{}")
    ]
    return plan_probes(found, TRANSPORT, SETTINGS, run_id="r").agents[0]


async def test_agent_reports_the_outcome_of_probes(tmp_path: Path) -> None:
    plan = probes()
    assert plan.probes is not None
    async with agent_in(tmp_path) as client:
        await start(client, plan)
        events = await until_the_end(client)

    assert isinstance(events[-1], Finished)
    rows = RecordRows()
    for event in events:
        if isinstance(event, RecordBatch):
            rows.extend(event.rows)
    reports = read_probes(rows.probes, plan.probes.packets, paths=2)
    assert len(reports) == 6
    for report in reports.values():
        assert report.arrived == report.sent
        assert report.sent.total() == plan.probes.packets_per_target


async def test_late_probes_count_after_an_agent_has_finished(
    tmp_path: Path,
) -> None:
    plan = probes()
    assert plan.probes is not None
    first = plan.probes.targets[0]
    silent = replace(plan, probes=replace(plan.probes, targets=(), end_ns=0))
    late = probe_datagram(
        ProbeName(first.source, first.destination, 0, 0),
        token=token_of(plan.run_id),
        size_bytes=128,
        local=("127.0.6.1", 0xC000),
        remote=(first.address, first.udp_port),
    )
    async with agent_in(tmp_path) as client:
        await start(client, silent)
        async with asyncio.timeout(PATIENCE_S):
            async for event in client.events():
                if isinstance(event, Finished):
                    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                        sender.sendto(late, (first.address, first.udp_port))
                if isinstance(event, RecordBatch):
                    rows = event.rows
                    break

    reports = read_probes(rows.probes, plan.probes.packets, paths=2)
    assert reports[first.source, first.destination].arrived.total() == 1


async def test_probes_are_sent_to_allowed_prefixes_only(tmp_path: Path) -> None:
    plan = probes()
    assert plan.probes is not None
    far = replace(plan.probes.targets[0], address="192.0.2.1")
    async with agent_in(tmp_path) as client:
        with pytest.raises(PlanError, match=r"does not send to 192\.0\.2\.1"):
            await client.prepare(
                replace(
                    plan,
                    peers=(*plan.peers, far.address),
                    probes=replace(plan.probes, targets=(far,)),
                )
            )


async def test_reset_discards_all_results_of_an_aborted_run(tmp_path: Path) -> None:
    async with agent_in(tmp_path) as client:
        await client.prepare(probes())
        # No client reads its events.
        await client.abort("something else has failed")
        await client.reset()

        await start(client, probes())
        events = await until_the_end(client)

    assert not any(isinstance(event, Failed) for event in events)
    phases = [event.phase for event in events if isinstance(event, PhaseChanged)]
    assert phases[0] == "PREPARING"
    assert isinstance(events[-1], Finished)

"""Ports in a lab with a full kernel queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.fabric.labs.lab import start_lab
from chakram.foundation.errors import AgentError
from chakram.roce.constants import BurstKind
from chakram.topology.topology_helpers import single_switch
from chakram_agent.dataplane import udp_port as udp
from chakram_agent.dataplane.open_port import open_port
from chakram_agent.dataplane.port_base import Port
from chakram_agent.dataplane.port_options import PortOptions
from tests.leaks import own_lab
from tests.support import missing_root, require
from tests.waiting import PATIENCE_S, Stopwatch

pytestmark = pytest.mark.asyncio

RATE_BPS = 10**7
FAMILIES = pytest.mark.parametrize("family", ["ipv4", "ipv6"])
BURST = memoryview(bytes(4 * 4112))


@pytest.fixture(autouse=True, params=["fast", "plain"])
def _form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    require("root", missing_root())
    if request.param == "plain":
        monkeypatch.setattr(udp, "_batch", None)


def options(address: str, peer: str) -> PortOptions:
    return PortOptions(
        address=address,
        udp_port=4791,
        destinations=[(peer, 4791)],
        source_ports=[50_000],
        data_tos=104,
        control_tos=104,
        cnp_tos=104,
        buffer_bytes=200_000,
    )


def send(port: Port) -> bool:
    return port.send_burst(BURST, 4112, 0, 50_000, int(BurstKind.DATA))


@FAMILIES
async def test_full_queue_refuses_packets_without_loss(family: str) -> None:
    async with await start_lab(
        single_switch(2, RATE_BPS),
        lab_name=own_lab("dpport"),
        addressing=family,
        mtu=4200,
    ) as lab:
        near, far = lab.state.hosts
        sender, receiver = (
            run_in_namespace(
                one.netns, open_port, "udp:eth0", options(one.address, two.address)
            )
            for one, two in ((near, far), (far, near))
        )
        try:
            sent = 0
            while send(sender):
                sent += 1
                assert sent < 1000
            assert sender.send_retries == 1
            arrived = 0
            watch = Stopwatch()
            while arrived < sent * len(BURST) and watch.look() < PATIENCE_S:
                if receiver.receive_burst():
                    arrived += receiver.length
            assert arrived == sent * len(BURST)
            assert send(sender)
        finally:
            sender.close()
            receiver.close()


@FAMILIES
async def test_packet_larger_than_the_mtu_is_reported(family: str) -> None:
    async with await start_lab(
        single_switch(2, None), lab_name=own_lab("dpport"), addressing=family, mtu=1500
    ) as lab:
        near, far = lab.state.hosts
        port = run_in_namespace(
            near.netns,
            open_port,
            "udp:eth0",
            replace(options(near.address, far.address), buffer_bytes=1 << 20),
        )
        try:
            with pytest.raises(AgentError, match="lower path_mtu"):
                port.send_burst(BURST[:4112], 4112, 0, 50_000, int(BurstKind.DATA))
        finally:
            port.close()

"""An interface that goes down and up again during a run."""

from __future__ import annotations

import fcntl
import socket
import struct
import time
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest

from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.fabric.labs.lab import start_lab
from chakram.foundation.errors import AgentError
from chakram.plan.transport import TransportPlan
from chakram_agent.dataplane import udp_port as udp
from chakram_agent.dataplane import udp_sockets
from chakram_agent.dataplane.loop import DataPlane
from chakram_agent.send_limits import Policy
from chakram_agent.shard import build_plane
from tests.leaks import own_lab
from tests.netns.labs import star
from tests.plans import moved, ring_plan
from tests.support import missing_root, require
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chakram.fabric.labs.lab_spec import HostState

pytestmark = pytest.mark.asyncio

ROCE_PORT = 4791
OUTAGE_S = 0.2
LABS = Policy(allow=(ip_network("198.18.0.0/15"),))
# It must not be the retries that give up.
TRANSPORT = TransportPlan(retransmit_timeout_ns=20_000_000, retry_limit=1_000)
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


@pytest.fixture(autouse=True, params=["fast", "plain"])
def _form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    require("root", missing_root())
    if request.param == "plain":
        monkeypatch.setattr(udp, "_batch", None)


def set_interface(is_up: bool) -> None:
    """Take eth0 of the calling thread's namespace up or down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("16sh22x", b"eth0", 0)
        _, flags = struct.unpack("16sh22x", fcntl.ioctl(asked, SIOCGIFFLAGS, request))
        flags = flags | IFF_UP if is_up else flags & ~IFF_UP
        fcntl.ioctl(asked, SIOCSIFFLAGS, struct.pack("16sh22x", b"eth0", flags))


def plane_in(hosts: Sequence[HostState]) -> tuple[DataPlane, str]:
    """Return a data plane with a rank on each of two hosts, and where the first is."""
    plan = ring_plan(
        nranks=2,
        iterations=1,
        input_bytes=50_000_000,
        open_spec="udp:eth0",
        udp_port=ROCE_PORT,
        netns=tuple(host.netns for host in hosts),
        transport=TRANSPORT,
    )
    plan = moved(plan, [(host.address, ROCE_PORT) for host in hosts])
    return build_plane(plan, LABS), hosts[0].netns


def serve(plane: DataPlane, seconds: float) -> None:
    """Continue for some time, or until all is done."""
    deadline_s = time.monotonic() + seconds
    while not plane.finished() and time.monotonic() < deadline_s:
        plane.round()
        assert plane.failure() is None


async def test_a_run_outlives_an_interface_that_was_down_for_a_while() -> None:
    async with await start_lab(
        star(2), lab_name=own_lab("dpdown"), seed=1, addressing="ipv4"
    ) as lab:
        plane, netns = plane_in(lab.state.hosts)
        try:
            plane.arm(time.monotonic_ns())
            while plane.lines[0].endpoint.engine.statistics().packets_sent < 100:
                serve(plane, 0.001)
            run_in_namespace(netns, set_interface, False)
            serve(plane, OUTAGE_S)
            assert not plane.finished()
            assert plane.lines[0].port.send_retries > 0
            run_in_namespace(netns, set_interface, True)
            serve(plane, PATIENCE_S)
            assert plane.finished()
            pairs = plane.lines[1].endpoint.engine.queue_pairs()
        finally:
            plane.close()
    assert sum(pair.statistics().timeouts for pair in pairs) > 0


async def test_interface_that_stays_down_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(udp_sockets, "_OUTAGE_LIMIT_S", OUTAGE_S)
    async with await start_lab(
        star(2), lab_name=own_lab("dpdown"), seed=1, addressing="ipv4"
    ) as lab:
        plane, netns = plane_in(lab.state.hosts)
        try:
            plane.arm(time.monotonic_ns())
            run_in_namespace(netns, set_interface, False)
            with pytest.raises(AgentError, match="there is no route to it"):
                serve(plane, PATIENCE_S)
        finally:
            plane.close()

"""Messages with contents between data planes on loopback."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_network
from random import Random

import pytest

from chakram.foundation.errors import PeerError, PlanError
from chakram.plan.plan import QueuePairPlan, RunSettings
from chakram.plan.port_plan import PortPlan
from chakram.plan.transport import TransportPlan
from chakram.replay.endpoint import Endpoint
from chakram.roce.constants import NO_IMMEDIATE
from chakram.roce.events import MessageReceived, SendCompleted
from chakram.roce.receive_memory import MemoryRegion
from chakram_agent.dataplane import udp_port as udp
from chakram_agent.dataplane.loop import DataPlane
from chakram_agent.dataplane.memory_port import MemoryNetwork
from chakram_agent.dataplane.open_port import open_line
from chakram_agent.send_limits import Policy
from tests.port_plans import pair_plan, port_plan
from tests.udp_ports import free_udp_ports
from tests.waiting import PATIENCE_S, Stopwatch

POLICY = Policy(allow=(ip_network("127.0.0.0/8"),))
ADDRESSES = ("127.18.9.1", "127.18.9.2")
UDP_PORT = free_udp_ports()
ADDRESS, KEY = 0x5000, 0xBEEF
SIZES = [1, 4096, 0, 300_000, 5, 5, 70_001]
TRANSPORTS = {
    verb: TransportPlan(path_mtu=1024, verb=verb, retransmit_timeout_ns=20_000_000)
    for verb in ("write", "send")
}
QPNS = {"write": 0x21, "send": 0x22}


@pytest.fixture(params=["memory:", "udp:", "udp: plain"])
def open_spec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name, _, form = request.param.partition(" ")
    if form == "plain":
        monkeypatch.setattr(udp, "_batch", None)
    return str(name)


def port_of(number: int, open_spec: str = "memory:") -> PortPlan:
    return port_plan(
        number,
        open_spec=open_spec,
        address=ADDRESSES[number],
        udp_port=UDP_PORT,
        rate_bps=None,
    )


def pair_of(number: int, qpn: int) -> QueuePairPlan:
    return pair_plan(
        qpn,
        qpn,
        remote=port_of(1 - number),
        source_port=50_000 + qpn,
        send_psn=number,
        receive_psn=1 - number,
    )


def make_endpoint(
    number: int, open_spec: str, memory: dict[str, MemoryRegion]
) -> Endpoint:
    endpoint = Endpoint(
        port=port_of(number, open_spec),
        ranks=(),
        transport=TRANSPORTS["write"],
        settings=RunSettings(),
        rank_numbers={},
    )
    for verb, transport in TRANSPORTS.items():
        endpoint.add_queue_pair(
            pair_of(number, QPNS[verb]),
            transport,
            remote_memory=(ADDRESS, KEY),
            memory=memory.get(verb),
        )
    return endpoint


def run(plane: DataPlane, until: Callable[[], bool]) -> None:
    watch = Stopwatch()
    while not until():
        assert watch.look() < PATIENCE_S
        plane.round()
        plane.wait(1_000_000)


def test_contents_arrive_at_their_addresses(open_spec: str) -> None:
    texts = [Random(number).randbytes(size) for number, size in enumerate(SIZES)]
    kept = {
        verb: MemoryRegion(sum(SIZES), address=ADDRESS, key=KEY) for verb in TRANSPORTS
    }
    network = MemoryNetwork()
    lines = [
        open_line(
            make_endpoint(number, open_spec, kept if number else {}),
            TRANSPORTS["write"],
            policy=POLICY,
            members=ADDRESSES,
            network=network,
        )
        for number in (0, 1)
    ]
    plane = DataPlane(lines)
    try:
        sender, receiver = (line.endpoint for line in lines)
        now_ns = time.monotonic_ns()
        for qpn in QPNS.values():
            offset = 0
            for number, text in enumerate(texts):
                if qpn == QPNS["send"]:
                    kept["send"].post_receive(offset, len(text))
                message_id = number if number % 2 == 0 else NO_IMMEDIATE
                sender.engine.post_send(
                    qpn, message_id, len(text), now_ns, 0, text, offset
                )
                offset += len(text)
        lines[0].wake_ns = 0
        # WRITEs without immediate complete together with the next one that has it.
        told = len(texts) + (len(texts) + 1) // 2
        run(
            plane,
            lambda: (
                len(receiver.events) == told and len(sender.events) == 2 * len(texts)
            ),
        )
    finally:
        plane.close()

    assert all(isinstance(event, SendCompleted) for _, event in sender.events)
    for verb, qpn in QPNS.items():
        assert bytes(kept[verb].buffer) == b"".join(texts)
        events = [event for number, event in receiver.events if number == qpn]
        assert all(isinstance(event, MessageReceived) for event in events)
        assert sum(event.size_bytes for event in events) == sum(SIZES)  # type: ignore[union-attr] # all are of one kind
    assert receiver.finished()
    assert receiver.progress_counter() == 2 * sum(SIZES)


def test_existing_queue_pair_is_not_added_twice() -> None:
    endpoint = make_endpoint(0, "memory:", {})
    with pytest.raises(PlanError, match="port 0: queue pair 33 already exists"):
        endpoint.add_queue_pair(pair_of(0, QPNS["write"]), TRANSPORTS["write"])


def test_peer_outside_of_the_group_is_refused_at_setup() -> None:
    endpoint = make_endpoint(0, "memory:", {})
    with pytest.raises(PeerError, match=r"127\.18\.9\.2 is not a member"):
        open_line(endpoint, TRANSPORTS["write"], policy=POLICY, members=())


def test_destination_that_is_not_allowed_is_refused() -> None:
    endpoint = make_endpoint(0, "memory:", {})
    nowhere = replace(POLICY, allow=())
    with pytest.raises(PlanError, match=r"127\.18\.9\.2"):
        open_line(endpoint, TRANSPORTS["write"], policy=nowhere, members=ADDRESSES)

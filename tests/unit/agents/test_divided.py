from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from chakram.control.protocol_messages import pb
from chakram_agent.divided import DividedPort, DividedPorts


def port(number: int, shards: tuple[int, ...], first_receiver: int) -> DividedPort:
    receivers: Any = tuple(
        SimpleNamespace(fileno=lambda at=at: first_receiver + at)
        for at in range(len(shards))
    )
    return DividedPort(number=number, shards=shards, receivers=receivers, line=number)


def test_a_shard_is_told_of_the_ports_that_it_has_a_part_of() -> None:
    ports = DividedPorts()
    ports._ports += [port(3, (0, 2), 10), port(4, (1, 2), 20)]
    assert ports.parts(2) == [
        pb.PortPart(port=3, receiver=11, line=3, index=1),
        pb.PortPart(port=4, receiver=21, line=4, index=1),
    ]
    assert ports.parts(0) == [pb.PortPart(port=3, receiver=10, line=3, index=0)]
    assert ports.parts(5) == []

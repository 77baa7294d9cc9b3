from __future__ import annotations

import errno
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from chakram.control.protobuf_messages import pb
from chakram.foundation.errors import EnvironmentProblem, PlanError
from chakram.roce.cross_process_pacing import PART_WORDS
from chakram_agent import divided_ports
from chakram_agent.divided_ports import DividedPort, DividedPorts
from tests.plans import ring_plan

if TYPE_CHECKING:
    from chakram.plan.plan import AgentPlan


def port(number: int, shards: tuple[int, ...], first_receiver: int) -> DividedPort:
    receivers: Any = tuple(
        SimpleNamespace(fileno=lambda at=at: first_receiver + at)
        for at in range(len(shards))
    )
    return DividedPort(number=number, shards=shards, receivers=receivers, line=number)


def test_shard_gets_the_ports_that_it_shares() -> None:
    ports = DividedPorts()
    ports._ports += [port(3, (0, 2), 10), port(4, (1, 2), 20)]
    assert ports.parts(2) == [
        pb.PortPart(port=3, receiver=11, line=3, index=1),
        pb.PortPart(port=4, receiver=21, line=4, index=1),
    ]
    assert ports.parts(0) == [pb.PortPart(port=3, receiver=10, line=3, index=0)]
    assert ports.parts(5) == []


class Receiver:
    """A socket that is open until it is closed."""

    def __init__(self, number: int, opened: list[Receiver]) -> None:
        self.number = number
        self.is_open = True
        opened.append(self)

    def fileno(self) -> int:
        return self.number

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Receiver]:
    """Return what is opened instead of sockets, by anybody."""
    made: list[Receiver] = []

    def open_receivers(
        interface: str, address: str, udp_port: int, shards: tuple[int, ...]
    ) -> list[Receiver]:
        return [Receiver(100 + shard, made) for shard in shards]

    monkeypatch.setattr(divided_ports, "open_receivers", open_receivers)
    return made


def plan(*shards: int, open_spec: str = "udp:eth0") -> AgentPlan:
    """Return a plan of two ports, each with every other rank; ranks have *shards*."""
    agent = ring_plan(nranks=len(shards))
    ports = tuple(replace(port, open=open_spec) for port in agent.ports[:2])
    return replace(
        agent,
        ports=ports,
        ranks=tuple(
            replace(rank, shard=shard, port=ports[number % 2].number)
            for number, (rank, shard) in enumerate(
                zip(agent.ranks, shards, strict=True)
            )
        ),
    )


def test_agent_opens_only_ports_with_ranks_in_several_shards(
    opened: list[Receiver],
) -> None:
    ports = DividedPorts()
    ports.open(plan(0, 1, 2, 1))

    assert [each.number for each in opened] == [100, 102]
    assert ports.parts(1) == []
    (first,), (last,) = ports.parts(0), ports.parts(2)
    assert (first.receiver, first.index) == (100, 0)
    assert (last.receiver, last.index) == (102, 1)
    # Both write into the same memory, which has room for as many parts.
    assert first.line == last.line
    assert os.fstat(first.line).st_size == 2 * 8 * PART_WORDS
    ports.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first.line)


def test_ports_stay_open_until_the_last_shard_has_ended(opened: list[Receiver]) -> None:
    ports = DividedPorts()
    ports.open(plan(0, 1, 2, 1))

    for number in (1, 0):
        ports.leave(number)
        assert all(each.is_open for each in opened)
    ports.leave(2)
    assert not any(each.is_open for each in opened)
    assert ports.parts(0) == []
    ports.close()  # nothing is closed twice


def test_a_port_without_sockets_is_not_divided(opened: list[Receiver]) -> None:
    with pytest.raises(PlanError, match="'memory:' has no sockets to divide"):
        DividedPorts().open(plan(0, 1, 2, 1, open_spec="memory:"))


def test_failure_to_open_one_divided_port_closes_all(
    opened: list[Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def refuse_the_second(line: int, size: int) -> None:
        sizes.append(line)
        if len(sizes) == 2:
            raise OSError(errno.ENOMEM, "no room")

    monkeypatch.setattr(os, "ftruncate", refuse_the_second)

    with pytest.raises(EnvironmentProblem, match=r"no memory for its .* \(no room\)"):
        DividedPorts().open(plan(0, 1, 2, 3))
    assert len(opened) == 4
    assert not any(each.is_open for each in opened)
    for line in sizes:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(line)

"""When the switches of a lab are ready, from the states of their ports."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from chakram.fabric.labs import builder
from chakram.fabric.labs.builder import wait_until_ready
from chakram.fabric.labs.namespaces import Namespace
from chakram.foundation.errors import FabricError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

SECOND_NS = 10**9


class Link:
    """An interface as the kernel describes it; *port* is its state in a bridge."""

    def __init__(
        self, state: str, port: int | None = None, *, index: int = 101
    ) -> None:
        self._state = state
        self._port = port
        self._index = index

    def __getitem__(self, name: str) -> int:
        assert name == "index"
        return self._index

    def get_attr(self, name: str) -> str:
        assert name == "IFLA_OPERSTATE"
        return self._state

    def get_nested(self, *names: str) -> int | None:
        assert names[-1] == "IFLA_BRPORT_STATE"
        return self._port


class Kernel:
    """Interfaces of switches, by name, for each reading.

    Attributes:
        least_ns: What a sleep takes at least.
    """

    least_ns = 0

    def __init__(self, **looks: list[list[Link]]) -> None:
        self.looks = looks
        self.asked: list[str] = []
        self.now_ns = 5 * SECOND_NS
        self.slept_s = 0.0

    def ask(
        self, sockets: list[str], question: Callable[[Any], Awaitable[bool]], what: str
    ) -> list[bool]:
        async def each(name: str) -> bool:
            self.asked.append(name)
            looks = self.looks[name]
            links = looks.pop(0) if len(looks) > 1 else looks[0]

            async def dump(command: str) -> AsyncIterator[Link]:
                assert command == "dump"

                async def all_of_them() -> AsyncIterator[Link]:
                    for link in links:
                        yield link

                return all_of_them()

            return await question(SimpleNamespace(link=dump))

        return [asyncio.run(each(name)) for name in sockets]

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        self.now_ns += max(self.least_ns, round(seconds * 1e9))


def waiting(monkeypatch: pytest.MonkeyPatch, **looks: list[list[Link]]) -> Kernel:
    """Return a kernel with these readings, after a wait for all its switches."""
    kernel = Kernel(**looks)
    monkeypatch.setattr(builder, "ask", kernel.ask)
    clock: Any = SimpleNamespace(monotonic_ns=lambda: kernel.now_ns, sleep=kernel.sleep)
    monkeypatch.setattr(builder, "time", clock)
    wait_until_ready(
        Namespace(name=name, descriptor=-1, netlink=name)  # type: ignore[arg-type] # a name is enough
        for name in looks
    )
    return kernel


@pytest.mark.parametrize(
    "links",
    [
        [],
        [Link("UP")],
        [Link("UP", 3), Link("UP")],
        # What modules put into every namespace is none of the lab's.
        [Link("DOWN", index=99), Link("UP", index=100)],
    ],
)
def test_a_switch_is_ready_when_all_its_ports_are(
    links: list[Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = waiting(monkeypatch, s0=[links])

    assert kernel.asked == ["s0"]
    assert kernel.slept_s == 0


@pytest.mark.parametrize(
    "not_yet", [Link("DOWN"), Link("UP", 1), Link("UP", 0), Link("DOWN", 3, index=100)]
)
def test_wait_for_ports_that_are_down_or_not_forwarding(
    not_yet: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = [Link("UP", 3)]
    kernel = waiting(
        monkeypatch,
        s0=[sound],
        s1=[[Link("UP"), not_yet]] * 2 + [sound],
    )

    # Ready switches are not polled again.
    assert kernel.asked == ["s0", "s1", "s1", "s1"]
    assert kernel.slept_s == pytest.approx(0.01)


def test_wait_for_switches_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kernel, "least_ns", SECOND_NS)
    down = [[Link("DOWN")]]
    with pytest.raises(FabricError, match="ports of s0, s2 did not come up"):
        waiting(monkeypatch, s0=down, s1=[[Link("UP")]], s2=down)

"""A preflight on other hosts follows their clocks and their launcher."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from chakram.config.experiment import parse_experiment
from chakram.control import clock_track
from chakram.control.clock_pings import PingTimes
from chakram.execution import preflight_run
from chakram.execution.observer import Silent
from chakram.execution.request import RunRequest
from chakram.preflight.report import PreflightReport, PreflightSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


EXPERIMENT = """
version: 1
name: many-hosts
jobs: [{name: a, trace: {synth: moe, ranks: 2, ep: 2, dp: 1, layers: 1}}]
fabric:
  kind: external
  hosts:
""" + "".join(
    f"  - {{name: h{at}, ports: [{{open: 'udp:eth0', address: 198.18.0.{at}/24}}]}}\n"
    for at in range(1, 101)
)


class Host:
    """A connected agent that answers pings.

    Args:
        name: Its name.
        often: Set after four bursts of pings.
    """

    shares_clock = False

    def __init__(self, name: str, often: asyncio.Event) -> None:
        self.name = name
        self._often = often
        self._bursts = 0

    async def send_pings(self) -> list[PingTimes]:
        await asyncio.sleep(0)
        self._bursts += 1
        if self._bursts == 4:
            self._often.set()
        times = {"remote_received_ns": 7, "remote_sent_ns": 7}
        return [PingTimes(sent_ns=0, answered_ns=0, **times)]

    async def close(self) -> None:
        pass


class Hosts:
    """Launched agents."""

    def __init__(self) -> None:
        self.abort: Callable[[str], None] | None = None
        self.often_pinged = asyncio.Event()
        self.connecting = self.most_connecting = 0

    async def connect(self, place: Any) -> Host:
        self.connecting += 1
        self.most_connecting = max(self.most_connecting, self.connecting)
        await asyncio.sleep(0)
        self.connecting -= 1
        return Host(place.name, self.often_pinged)

    def check(self, clients: object) -> None:
        pass

    @asynccontextmanager
    async def watched(self, abort: Callable[[str], None]) -> AsyncIterator[None]:
        self.abort = abort
        yield
        self.abort = None


@pytest.mark.asyncio
async def test_clocks_and_launchers_are_watched_during_a_preflight(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosts = Hosts()

    @asynccontextmanager
    async def agents_of_run(*_: object, **__: object) -> AsyncIterator[Hosts]:
        yield hosts

    class LongPreflight:
        def __init__(self, *_: object, clocks: Any, **__: object) -> None:
            self.clocks = clocks

        def abort(self, reason: str) -> None:
            pass

        async def run(self) -> PreflightReport:
            assert hosts.abort == self.abort
            async with asyncio.timeout(5):
                await hosts.often_pinged.wait()
            assert all(each.samples for each in self.clocks.values())
            settings = PreflightSettings(path_mtu=1024)
            return PreflightReport(ports=(), pairs=(), findings=(), settings=settings)

    monkeypatch.setattr(clock_track, "_SHORTEST_PAUSE_NS", 0)
    monkeypatch.setattr(preflight_run, "agents_of_run", agents_of_run)
    monkeypatch.setattr(preflight_run, "Preflight", LongPreflight)
    request = RunRequest(
        experiment=parse_experiment(EXPERIMENT),
        text=EXPERIMENT,
        runs_directory=tmp_path,
        progress=Silent(),
        launch=SimpleNamespace(),  # type: ignore[arg-type] # not used here
    )
    outcome = await preflight_run.preflight_experiment(request)
    assert outcome.report.passed
    assert hosts.abort is None
    # If all connected at once, many would time out, and count as absent.
    assert 1 < hosts.most_connecting < 40

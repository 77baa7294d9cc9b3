"""Checks of external agents before a run starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import chakram
from chakram.config.experiment import load_experiment
from chakram.execution.observer import Silent
from chakram.execution.request import RunRequest
from chakram.execution.run_experiment import run_experiment
from chakram.foundation.errors import ConfigError
from chakram.run_directory.manifest import read_manifest
from chakram_agent import grpc_server
from tests.agents import serving, socket_in
from tests.udp_ports import free_udp_ports

if TYPE_CHECKING:
    from chakram.control.events import AgentDescription
    from chakram.control.wall_clock_sync import TimeSource
    from chakram_agent.agent import Agent

pytestmark = pytest.mark.asyncio

EXPERIMENT = """\
version: 1
name: external
jobs:
  - name: j
    trace:
      synth: collectives
      ranks: 2
      streams: {{op: all_reduce, size: 64KiB}}
    compute: {{from: none}}
iterations: {{warmup: 0, measured: 1}}
fabric:
  kind: external
  defaults: {{rate: 100Mbit, udp_port: {udp_port}}}
  topology: {{single_switch: {{hosts: 2}}}}
  hosts:
    - name: h1
      agent: {agent}
      ports:
        - {{open: "udp:lo", address: 127.18.3.1/24}}
        - {{open: "udp:lo", address: 127.18.3.2/24}}
{more}"""


class Phases(Silent):
    """Remembers the phases of a run."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def phase(self, text: str) -> None:
        self.seen.append(text)


def request(folder: Path, agent: str, more: str = "") -> RunRequest:
    text = EXPERIMENT.format(agent=agent, udp_port=free_udp_ports(), more=more)
    (folder / "e.yaml").write_text(text)
    return RunRequest(
        experiment=load_experiment(folder / "e.yaml"),
        text=text,
        runs_directory=folder / "runs",
        progress=Phases(),
    )


async def test_version_of_every_agent_is_recorded_and_differences_are_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(
        agent: Agent, synchronized_by: TimeSource | None = None
    ) -> AgentDescription:
        return replace(describe(agent, synchronized_by), version="9.9")

    describe = grpc_server.describe
    found: list[tuple[Any, list[str]]] = []
    for answer in (describe, other):
        monkeypatch.setattr(grpc_server, "describe", answer)
        async with serving(socket_in(tmp_path)) as target:
            done = await run_experiment(request(tmp_path, target))
        assert done.error is None
        manifest = read_manifest(done.directory)
        warned = [each for each in manifest.banners if "9.9" in each]
        found.append((manifest.agents["h1"]["version"], warned))
    assert found == [
        (chakram.__version__, []),
        (
            "9.9",
            [
                f"agent h1 has chakram 9.9, but the controller has "
                f"{chakram.__version__}: both use the same protocol, but may generate "
                "and measure traffic differently (install the same version on both)"
            ],
        ),
    ]


async def test_missing_certificates_are_reported_before_anything_is_simulated(
    tmp_path: Path,
) -> None:
    files = ", ".join(f"{name}: {tmp_path}/{name}.pem" for name in ("ca", "cert"))
    tls = f"  tls: {{{files}, key: {tmp_path}/controller.key}}\n"
    asked = request(tmp_path, "127.0.0.1:1", tls)
    with pytest.raises(ConfigError, match=r"tls\.ca: .*ca\.pem: cannot be read"):
        await run_experiment(asked)
    assert isinstance(asked.progress, Phases)
    assert asked.progress.seen == ["reading traces", "building the fabric"]

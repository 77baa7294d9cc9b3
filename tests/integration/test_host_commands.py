"""Commands on hosts: how each ended."""

from __future__ import annotations

import asyncio

import pytest

from chakram.launch import agent_installation
from chakram.launch.agent_installation import EndedCommand
from chakram.launch.launchers import LaunchCommand


def ended(*words: str) -> EndedCommand:
    command = LaunchCommand(hosts=("h1",), arguments=words)
    return asyncio.run(agent_installation._run(command, b"data", asyncio.Semaphore(1)))


def test_last_line_and_status_are_kept() -> None:
    found = ended("sh", "-c", "cat; echo; echo second; exit 3")
    assert found == EndedCommand(("h1",), 3, "second")


def test_a_command_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_installation, "LIMIT_S", 0.3)
    found = ended("sleep", "600")
    assert found == EndedCommand(("h1",), 124, "it did not end within 0 s")

"""Results are created once, even if several requests want them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chakram.foundation.errors import InputError, RunDirectoryError
from chakram.service import result_views
from chakram.service.result_views import VIEWS, Renderer


class Commands:
    """Commands that end when a test says so, and the largest number at once."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.started = self.running = self.most = 0
        self.go = asyncio.Semaphore(0)

    async def start(self, *_: str, stderr: int) -> MadeCommand:
        self.started += 1
        self.running += 1
        self.most = max(self.most, self.running)
        return MadeCommand(self)


class MadeCommand:
    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self.returncode: int | None = None

    async def communicate(self) -> tuple[bytes, bytes]:
        await self._commands.go.acquire()
        self._commands.running -= 1
        self.returncode = self._commands.codes.pop(0)
        return (b"" if self.returncode else b"a table"), b"chakram: error: broken"

    async def wait(self) -> int:
        return self.returncode or 0


@pytest.mark.asyncio
async def test_a_result_is_created_by_one_command_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands(2, 0)
    monkeypatch.setattr(result_views, "start_command", commands.start)
    renderer = Renderer(parallel=5)

    def asked() -> asyncio.Task[bytes]:
        made = renderer.make(VIEWS["show"], [tmp_path / "run"], tmp_path)
        return asyncio.create_task(made)

    async with asyncio.timeout(20):
        first, second = asked(), asked()
        commands.go.release()
        with pytest.raises(InputError, match="broken"):
            await first
        # The second request waits for its command when a third one comes.
        third = asked()
        while commands.started < 2:  # noqa: ASYNC110 - no event for this
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert commands.most == 1
        commands.go.release()
        assert await second == await third == b"a table"
    assert commands.started == 2


@pytest.mark.asyncio
async def test_results_of_removed_runs_leave_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands(0)
    monkeypatch.setattr(result_views, "start_command", commands.start)
    gone = tmp_path / "jobs" / "gone"
    with pytest.raises(RunDirectoryError, match="gone"):
        await Renderer().make(VIEWS["show"], [gone / "run"], gone)
    assert commands.started == 0
    assert not gone.exists()


@pytest.mark.asyncio
async def test_texts_are_shown_even_if_they_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    commands = Commands(0)
    commands.go.release()
    monkeypatch.setattr(result_views, "start_command", commands.start)
    monkeypatch.setattr(Path, "write_bytes", full)
    made = await Renderer().make(VIEWS["show"], [tmp_path / "run"], tmp_path)
    assert made == b"a table"

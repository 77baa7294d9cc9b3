"""Names in /run/netns of labs whose directory was deleted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chakram.fabric.labs.lab import down, down_unused, start_lab
from chakram.fabric.labs.lab_spec import LabState
from chakram.fabric.labs.user_namespace import has_net_admin
from chakram.fabric.process_control import is_alive
from chakram.foundation.errors import FabricError
from tests.leaks import own_lab
from tests.netns.labs import names_of, star
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(
    not has_net_admin(), reason="rootless labs have no names in /run/netns"
)
LAB = own_lab("stray")
FOREIGN = f"{LAB}-h9"


@pytest.fixture
def foreign() -> Iterator[None]:
    """Create a foreign namespace with a name like those of the lab."""
    subprocess.run(["ip", "netns", "add", FOREIGN], check=True)
    yield
    subprocess.run(["ip", "netns", "del", FOREIGN], check=True)


def ended(state: LabState) -> bool:
    return not is_alive(state.holder_pid, state.holder_start_ticks)


async def stray_lab(state_root: Path, *, kill: bool = True) -> LabState:
    """Return a lab whose directory was deleted, by default after its holder's death."""
    handle = await start_lab(star(2), lab_name=LAB, lifetime="up")
    state = handle.state
    if kill:
        os.kill(state.holder_pid, signal.SIGKILL)
        wait_until(lambda: ended(state), "its end")
    shutil.rmtree(state_root / LAB)
    assert len(names_of(LAB)) == 4
    return state


@pytest.mark.asyncio
@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("by", ["name", "all"])
async def test_down_removes_only_own_names(by: str, state_root: Path) -> None:
    await stray_lab(state_root)
    if by == "name":
        assert await down(LAB) == [LAB]
    else:
        assert await down_unused() == ([LAB], [])
    assert names_of(LAB) == [FOREIGN]
    assert await down(LAB) == []


@pytest.mark.asyncio
@pytest.mark.usefixtures("foreign")
async def test_new_lab_replaces_leftover_names(state_root: Path) -> None:
    await stray_lab(state_root)
    async with await start_lab(star(2), lab_name=LAB):
        assert len(names_of(LAB)) == 4
    assert names_of(LAB) == [FOREIGN]


@pytest.mark.asyncio
@pytest.mark.usefixtures("foreign")
async def test_a_lab_that_still_runs_is_named_and_can_be_ended(
    state_root: Path,
) -> None:
    state = await stray_lab(state_root, kill=False)
    with pytest.raises(FabricError, match="it is running, but its directory in"):
        await start_lab(star(2), lab_name=LAB)
    assert await down(LAB) == [LAB]
    assert ended(state)
    assert names_of(LAB) == [FOREIGN]


@pytest.mark.asyncio
@pytest.mark.usefixtures("foreign")
async def test_labs_of_another_state_directory_are_kept(
    state_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stray_lab(state_root)
    with monkeypatch.context() as patch:
        patch.setenv("CHAKRAM_STATE_DIR", str(tmp_path / "other"))
        assert await down(LAB) == []
        assert len(names_of(LAB)) == 4
    assert await down(LAB) == [LAB]

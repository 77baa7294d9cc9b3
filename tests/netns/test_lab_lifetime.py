"""Start and end of labs, also after failures, without leftovers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from chakram.fabric.labs.holder_protocol import ask_holder
from chakram.fabric.labs.lab import (
    down,
    down_unused,
    lab_status,
    register_process,
    sockets_directory,
    start_lab,
    status,
    unregister,
)
from chakram.fabric.labs.lab_spec import LabState
from chakram.fabric.labs.link_counters import read_counters
from chakram.fabric.labs.user_namespace import has_net_admin
from chakram.fabric.process_control import is_alive, process_start_ticks
from chakram.foundation.errors import FabricError
from chakram.topology.topology import Topology
from tests.leaks import own_lab
from tests.netns.labs import names_of, star, traffic
from tests.waiting import PATIENCE_S, wait_until


@pytest.mark.asyncio
async def test_two_labs_with_the_same_addresses_are_isolated() -> None:
    async with (
        await start_lab(star(2), lab_name=own_lab("left")) as left,
        await start_lab(star(2), lab_name=own_lab("left") + "-2") as right,
    ):
        assert left.state.host("h0").address == right.state.host("h0").address
        assert traffic(left.state, "flows", "h0", "h1", "5", "100") == 5
        assert read_counters(left.state).links["h0-s0"].tx_packets == 5
        assert read_counters(right.state).links["h0-s0"].tx_packets == 0

        # One lab's name is the beginning of the other's.
        assert await down(own_lab("left")) == [own_lab("left")]
        assert names_of(own_lab("left") + "-2") == names_of(own_lab("left"))
        assert traffic(right.state, "pairs") == 2


@pytest.mark.asyncio
async def test_a_lab_that_runs_is_not_built_twice() -> None:
    once = own_lab("once")
    async with await start_lab(star(2), lab_name=once) as handle:
        with pytest.raises(FabricError, match=f"lab {once}: it is already running"):
            await start_lab(star(2), lab_name=once)
        assert traffic(handle.state, "pairs") == 2


@pytest.mark.asyncio
async def test_stopping_twice_is_harmless() -> None:
    handle = await start_lab(star(2), lab_name=own_lab("twice"))
    await handle.stop()
    await handle.stop()
    assert status() == []


@pytest.mark.asyncio
async def test_running_lab_stays_until_it_is_removed() -> None:
    await start_lab(star(2), lab_name=own_lab("stays"), lifetime="up")

    (found,) = status()
    state = found.state
    assert found.alive
    assert state is not None
    assert os.getsid(state.holder_pid) == state.holder_pid
    assert traffic(state, "pairs") == 2
    assert await down(own_lab("stays")) == [own_lab("stays")]
    assert not is_alive(state.holder_pid, state.holder_start_ticks)
    assert names_of(own_lab("stays")) == []
    assert await down(own_lab("stays")) == []


@pytest.mark.asyncio
async def test_down_without_a_name_ends_all_labs() -> None:
    names = [own_lab("a"), own_lab("b")]
    for name in reversed(names):
        await start_lab(star(2), lab_name=name, lifetime="up")
    assert await down() == names
    assert status() == []


@pytest.mark.asyncio
async def test_labs_in_use_can_be_kept() -> None:
    kept, used = own_lab("kept"), own_lab("used")
    await start_lab(star(2), lab_name=kept, lifetime="up")
    async with await start_lab(star(2), lab_name=used):
        assert await down_unused() == ([kept], [used])
        assert [(each.name, each.in_use) for each in status()] == [(used, True)]
        assert await down(used) == [used]
    assert await down_unused() == ([], [])


@pytest.mark.asyncio
async def test_down_removes_leftovers_of_a_killed_holder(state_root: Path) -> None:
    handle = await start_lab(star(3), lab_name=own_lab("killed"), lifetime="up")
    state = handle.state
    kill(state)

    found = lab_status(own_lab("killed"))
    assert found is not None
    assert not found.alive
    assert not any(each.alive for each in status())
    assert len(names_of(own_lab("killed"))) == (4 if has_net_admin() else 0)
    with pytest.raises(FabricError, match="its holder does not answer"):
        read_counters(state)

    assert await down(own_lab("killed")) == [own_lab("killed")]
    assert names_of(own_lab("killed")) == []
    assert not (state_root / own_lab("killed")).exists()


@pytest.mark.asyncio
async def test_lab_replaces_a_killed_one() -> None:
    first = await start_lab(star(3), lab_name=own_lab("again"), lifetime="up")
    kill(first.state)
    async with await start_lab(star(2), lab_name=own_lab("again")) as handle:
        assert traffic(handle.state, "pairs") == 2
        assert lab_status(own_lab("again")) is not None
    assert names_of(own_lab("again")) == []


def kill(state: LabState) -> None:
    """Kill a lab's holder and wait until it is gone."""
    os.kill(state.holder_pid, signal.SIGKILL)
    wait_until(
        lambda: not is_alive(state.holder_pid, state.holder_start_ticks), "its end"
    )


def test_down_ends_the_processes_of_the_lab_and_no_others() -> None:
    asyncio.run(start_lab(star(2), lab_name=own_lab("owned"), lifetime="up"))
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        subprocess.Popen(sleeping) as ours,
        subprocess.Popen(sleeping) as not_ours,
        subprocess.Popen(sleeping) as left,
    ):
        register_process(own_lab("owned"), ours.pid, "agent")
        register_process(own_lab("owned"), left.pid, "shard")
        register_process(own_lab("owned"), os.getpid(), "controller")
        unregister(own_lab("owned"), left.pid)
        found = lab_status(own_lab("owned"))
        assert found is not None
        assert [(each.pid, each.role) for each in found.processes] == sorted(
            [(ours.pid, "agent"), (os.getpid(), "controller")]
        )

        assert asyncio.run(down(own_lab("owned"))) == [own_lab("owned")]

        assert ours.wait(PATIENCE_S) == -signal.SIGTERM
        assert (not_ours.poll(), left.poll()) == (None, None)
        not_ours.kill()
        left.kill()


@pytest.mark.asyncio
async def test_the_directory_for_sockets_belongs_to_the_user_alone() -> None:
    async with await start_lab(star(2), lab_name=own_lab("priv")) as handle:
        path = sockets_directory(own_lab("priv"))
        assert path.parent == Path(handle.state.directory)
        for each in (path, path.parent, path.parent.parent):
            assert each.stat().st_mode & 0o077 == 0


STARTER = """
import asyncio, os, signal, sys
from chakram.fabric.labs.lab import start_lab
from tests.leaks import own_lab
from tests.netns.labs import star
async def main():
    handle = await start_lab(star(2), lab_name=sys.argv[1])
    print(handle.state.holder_pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


def test_a_lab_ends_with_the_process_that_started_it(state_root: Path) -> None:
    path = [entry or os.getcwd() for entry in sys.path]
    orphan = own_lab("orphan")
    starter = subprocess.run(
        [sys.executable, "-c", STARTER, orphan],
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )
    assert starter.returncode == -signal.SIGKILL
    wait_until(lambda: not (state_root / orphan).exists(), "the end of the lab")
    assert names_of(orphan) == []
    wait_until(lambda: process_start_ticks(int(starter.stdout)) is None, "its end")


@pytest.mark.asyncio
async def test_holder_refuses_unknown_requests() -> None:
    async with await start_lab(star(2), lab_name=own_lab("asks")) as handle:
        with pytest.raises(FabricError, match=r"lab asks-\d+: unknown request 'x'"):
            ask_holder(handle.state.directory, "x")
        assert ask_holder(handle.state.directory, "counters")["links"]


@pytest.mark.asyncio
async def test_a_directory_with_too_long_a_name_is_refused(
    state_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAKRAM_STATE_DIR", str(state_root / ("x" * 100)))
    with pytest.raises(FabricError, match="a directory with a shorter name"):
        await start_lab(star(2), lab_name=own_lab("long"))
    assert names_of(own_lab("long")) == []
    assert status() == []


@pytest.mark.asyncio
async def test_an_impossible_lab_is_refused_with_the_kernels_words() -> None:
    topology: Topology = star(2)
    # A name that the kernel's own loopback interface has already.
    port = replace(topology.links[1].b, port="lo")
    links = (topology.links[0], replace(topology.links[1], b=port))
    with pytest.raises(FabricError, match=r"s0: interface lo: the kernel refused \("):
        await start_lab(replace(topology, links=links), lab_name=own_lab("bad"))
    assert status() == []
    assert names_of(own_lab("bad")) == []


@pytest.mark.asyncio
async def test_a_cancelled_start_leaves_nothing(state_root: Path) -> None:
    name = own_lab("canceled")
    task = asyncio.create_task(start_lab(star(16), lab_name=name))
    # Until it has begun.
    while not (state_root / name).exists():  # noqa: ASYNC110 - nobody tells us
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await down(name)
    assert status() == []
    assert names_of(name) == []

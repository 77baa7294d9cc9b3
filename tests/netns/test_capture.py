"""Captures at hosts of a lab: contents of files, and messages about gaps."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chakram.fabric.capture.capture_process import (
    FILE_HEADER,
    CaptureRequest,
    encode_request,
)
from chakram.fabric.capture.capture_session import capturing
from chakram.fabric.enter_lab import enter_command
from chakram.fabric.labs.lab import lab_status, start_lab
from chakram.fabric.process_control import is_alive, process_start_ticks
from chakram.foundation.errors import FabricError
from tests.leaks import own_lab
from tests.netns.labs import star, traffic
from tests.pcap_files import Frame, ip_packet, read_frames
from tests.waiting import wait_until

if TYPE_CHECKING:
    from chakram.fabric.labs.lab_spec import LabState

pytestmark = pytest.mark.asyncio

_CROSSED_NS = 1_000_000

ATTEMPTS = 5
"""Something else may keep the machine busy for a while."""


def frames_of(path: Path) -> list[Frame]:
    return list(read_frames(path.read_bytes(), where=str(path)))


def ends(frame: Frame) -> tuple[str, str]:
    packet = ip_packet(frame.data)
    if packet[0] >> 4 == 6:
        source, destination = packet[8:24], packet[24:40]
    else:
        source, destination = packet[12:16], packet[16:20]
    return str(ip_address(source)), str(ip_address(destination))


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
async def test_both_directions_of_every_host_are_in_its_file(
    tmp_path: Path, family: str
) -> None:
    before_ns = time.time_ns()
    async with await start_lab(
        star(3), lab_name=own_lab("both"), addressing=family
    ) as handle:
        lab = handle.state
        async with capturing(lab, ["h0", "h2"], folder=tmp_path) as captures:
            status = lab_status(own_lab("both"))
            assert status is not None
            assert "capture" in {each.role for each in status.processes}
            assert traffic(lab, "pairs") == 6
        status = lab_status(own_lab("both"))
        assert status is not None
        assert status.processes == ()

    assert captures.banners() == ()
    assert {each.host: each.packets for each in captures.results} == {"h0": 4, "h2": 4}
    h0, h1, h2 = (host.address for host in lab.hosts)
    pairs = {"h0": (h1, h2), "h2": (h0, h1)}
    for host, others in pairs.items():
        frames = frames_of(tmp_path / f"capture-{host}.pcap")
        own = lab.host(host).address
        expected = {(own, other) for other in others} | {(at, own) for at in others}
        assert {ends(frame) for frame in frames} == expected
        assert len(frames) == 4
        times = [frame.time_ns for frame in frames]
        # Two processors may store frames in another order than they stamp them.
        pairs_of_times = itertools.pairwise(times)
        assert all(later - earlier > -_CROSSED_NS for earlier, later in pairs_of_times)
        assert before_ns < min(times) < max(times) < time.time_ns()
        assert any(time_ns % 1000 for time_ns in times)


async def test_a_file_keeps_to_its_limit_and_stays_whole(tmp_path: Path) -> None:
    limit_bytes = len(FILE_HEADER) + 3 * (16 + 1042) + 1000
    async with (
        await start_lab(star(2), lab_name=own_lab("limit")) as handle,
        capturing(
            handle.state, ["h0", "h1"], folder=tmp_path, limit_bytes=limit_bytes
        ) as captures,
    ):
        assert traffic(handle.state, "flows", "h1", "h0", "10", "1000") == 10

    for host in "h0", "h1":
        assert len(frames_of(tmp_path / f"capture-{host}.pcap")) == 3
    assert [each.is_full for each in captures.results] == [True, True]
    (banner,) = captures.banners()
    assert banner.startswith("captures of h0, h1 end at ")


async def test_full_ring_counts_drops_and_continues() -> None:
    found = []
    async with await start_lab(star(2), lab_name=own_lab("ring")) as handle:
        for _ in range(ATTEMPTS):
            first, second = traffic(handle.state, "ring", "h1", "h0", "300", "20")
            kept, dropped = first
            assert kept == list(range(len(kept)))
            assert len(kept) < 200
            assert len(kept) + dropped == 300
            assert second == [list(range(20)), dropped]
            # A block is closed half empty if its packets are too long in coming.
            found.append(len(kept))
            if found[-1] > 100:
                return
    raise AssertionError(f"{found} kept of 300")


async def test_unknown_capture_host_is_refused(tmp_path: Path) -> None:
    async with await start_lab(star(2), lab_name=own_lab("no")) as handle:
        lab = handle.state
        wrong = replace(lab, hosts=(replace(lab.hosts[0], interface="eth7"),))
        with pytest.raises(FabricError, match=r"h0: cannot capture at eth7 \(No such"):
            async with capturing(wrong, ["h0"], folder=tmp_path):
                pytest.fail("captures")
        with pytest.raises(FabricError, match="there is no host 'h9'"):
            async with capturing(lab, ["h9"], folder=tmp_path):
                pytest.fail("captures")
        (tmp_path / "capture-h1.pcap").touch()
        with pytest.raises(FabricError, match="cannot be written: File exists"):
            async with capturing(lab, ["h1"], folder=tmp_path):
                pytest.fail("captures")


async def test_a_capture_that_dies_leaves_whole_frames_and_a_banner(
    tmp_path: Path,
) -> None:
    path = tmp_path / "capture-h0.pcap"
    async with (
        await start_lab(star(2), lab_name=own_lab("dies")) as handle,
        capturing(handle.state, ["h0"], folder=tmp_path) as captures,
    ):
        assert traffic(handle.state, "flows", "h1", "h0", "10", "1000") == 10
        status = lab_status(own_lab("dies"))
        assert status is not None
        (process,) = status.processes
        wait_until(lambda: path.stat().st_size > 10 * 1058, "what was captured")
        os.kill(process.pid, signal.SIGKILL)

    assert len(frames_of(path)) == 10
    assert captures.results == ()
    assert captures.banners() == (
        "captures are cut short: its process ended early: it printed nothing",
    )


async def test_a_file_that_cannot_grow_is_closed_whole(tmp_path: Path) -> None:
    async with (
        await start_lab(star(2), lab_name=own_lab("disk")) as handle,
        AsyncExitStack() as stack,
    ):
        with files_of_at_most(5_000):
            captures = await stack.enter_async_context(
                capturing(handle.state, ["h0"], folder=tmp_path)
            )
        assert traffic(handle.state, "flows", "h1", "h0", "10", "1000") == 10
        await stack.aclose()

    assert captures.banners() == ("the capture of h0 ends early: File too large",)
    kept = len(frames_of(tmp_path / "capture-h0.pcap"))
    assert [each.packets for each in captures.results] == [kept]
    assert kept < 5


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Limit the files of processes that are started meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


STARTER = """
import subprocess, sys, time
command = sys.argv[1:]
process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
process.stdin.write(sys.stdin.buffer.readline())
process.stdin.flush()
print(process.pid, flush=True)
time.sleep(100)
"""


async def test_a_capture_ends_with_its_starter(tmp_path: Path) -> None:
    async with await start_lab(star(2), lab_name=own_lab("orphan")) as handle:
        lab = handle.state
        path = tmp_path / "x.pcap"
        request = CaptureRequest(
            host="h0", netns=lab.hosts[0].netns, interface="eth0", path=str(path)
        )
        with started_by_another(lab, request) as (starter, capture):
            assert traffic(lab, "flows", "h1", "h0", "10", "1000") == 10
            starter.kill()
            wait_until(lambda: not is_alive(*capture), "its end")
    assert len(frames_of(path)) == 10


def command_in(lab: LabState) -> list[str]:
    command = [sys.executable, "-m", "chakram.fabric.capture.capture_process"]
    return enter_command(lab.holder_pid, command) if lab.rootless else command


@contextmanager
def started_by_another(
    lab: LabState, request: CaptureRequest
) -> Iterator[tuple[subprocess.Popen[bytes], tuple[int, int]]]:
    """Have a process start the capture: give it, and the capture's id and start."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, *command_in(lab)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        starter.stdin.write(encode_request([request], limit_bytes=10**6))
        starter.stdin.flush()
        lines = sorted([starter.stdout.readline(), starter.stdout.readline()])
        assert lines[1] == b'{"ready": true}\n'
        pid = int(lines[0])
        ticks = process_start_ticks(pid)
        assert ticks is not None
        try:
            yield starter, (pid, ticks)
        finally:
            starter.kill()

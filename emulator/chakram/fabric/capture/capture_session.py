"""Packet capture on a lab's hosts for the duration of a run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from chakram.fabric.capture.capture_process import (
    CaptureRequest,
    CaptureResult,
    check_ready,
    decode_results,
    encode_request,
)
from chakram.fabric.enter_lab import enter_command
from chakram.fabric.labs.lab import register_process, unregister
from chakram.fabric.labs.lab_spec import LabState
from chakram.fabric.local_agent import wait_or_kill
from chakram.foundation.errors import FabricError
from chakram.foundation.units import format_size

LIMIT_BYTES = 256 << 20
"""Maximum size of one host's capture file."""

_START_TIMEOUT_S = 20
_STOP_TIMEOUT_S = 20


class Captures:
    """Results of captures, available when the block of ``capturing`` has ended."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.results: tuple[CaptureResult, ...] = ()
        self.failure: FabricError | None = None

    def banners(self) -> tuple[str, ...]:
        """Return warnings about incomplete capture files, one sentence per reason."""
        banners = []
        if self.failure is not None:
            banners.append(f"captures are cut short: {self.failure.found}")
        missing = [each for each in self.results if each.dropped]
        if missing:
            counts = ", ".join(f"{each.host} {each.dropped}" for each in missing)
            banners.append(
                "captures miss packets that this machine was too busy to write:"
                f" {counts}"
            )
        full = [each.host for each in self.results if each.is_full]
        if full:
            banners.append(
                f"captures of {', '.join(full)} end at "
                f"{format_size(self._limit_bytes)}: later packets are missing"
            )
        banners += [
            f"the capture of {each.host} ends early: {each.failure}"
            for each in self.results
            if each.failure is not None
        ]
        return tuple(banners)


def capture_name(host: str) -> str:
    """Return the name of a host's capture file in the run directory."""
    return f"capture-{host}.pcap"


@asynccontextmanager
async def capturing(
    lab: LabState,
    hosts: Sequence[str],
    *,
    folder: Path,
    limit_bytes: int = LIMIT_BYTES,
) -> AsyncIterator[Captures]:
    """Capture the packets that lab hosts send and receive while the block runs.

    Args:
        lab: Running lab.
        hosts: Names of the hosts to capture on.
        folder: Directory for the files ``capture-<host>.pcap``.
        limit_bytes: Maximum size of each file.

    Yields:
        The results, which are complete after the block.

    Raises:
        PrivilegeError: If this user may not capture packets.
        FabricError: If the capture fails.
    """
    captures = Captures(limit_bytes)
    command = [sys.executable, "-P", "-m", "chakram.fabric.capture.capture_process"]
    process = await asyncio.create_subprocess_exec(
        *(enter_command(lab.holder_pid, command) if lab.rootless else command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # Ctrl-C in a terminal signals every process of the foreground group. The
        # capture must end after the traffic, not before.
        start_new_session=True,
    )
    try:
        register_process(lab.name, process.pid, "capture")
        await _start(process, lab, hosts, folder, limit_bytes)
        yield captures
    finally:
        try:
            captures.results = await _stop(process)
        except FabricError as error:
            captures.failure = error
        unregister(lab.name, process.pid)


async def _start(
    process: asyncio.subprocess.Process,
    lab: LabState,
    hosts: Sequence[str],
    folder: Path,
    limit_bytes: int,
) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(
        encode_request(_requests(lab, hosts, folder), limit_bytes=limit_bytes)
    )
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            line = await process.stdout.readline()
    except TimeoutError:
        raise FabricError(
            "capture", f"did not start within {_START_TIMEOUT_S} s"
        ) from None
    if not line:
        raise FabricError("capture", f"did not start: {await _last_words(process)}")
    check_ready(line)


def _requests(
    lab: LabState, hosts: Sequence[str], folder: Path
) -> list[CaptureRequest]:
    requests = []
    for name in hosts:
        host = lab.host(name)
        requests.append(
            CaptureRequest(
                host=name,
                netns=host.netns,
                interface=host.interface,
                path=str(folder.absolute() / capture_name(name)),
            )
        )
    return requests


async def _stop(process: asyncio.subprocess.Process) -> tuple[CaptureResult, ...]:
    """Stop the process and return its results."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.close()
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            line = await process.stdout.readline()
            words = "" if line else await _last_words(process)
            await process.wait()
    except TimeoutError:
        raise FabricError(
            "capture", f"its process did not end within {_STOP_TIMEOUT_S} s"
        ) from None
    finally:
        await wait_or_kill(process, 0)
    if not line:
        raise FabricError("capture", f"its process ended early: {words}")
    return decode_results(line)


async def _last_words(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    text = (await process.stderr.read()).decode("utf-8", "replace").strip()
    return text.splitlines()[-1] if text else "it printed nothing"

"""Process that writes the packets of lab hosts to capture files.

``python -m chakram.fabric.capture.capture_process`` reads one line of JSON from
standard input (see ``encode_request``). It answers ``{"ready": true}`` once every ring
is open, and captures until standard input closes. Standard input also closes when the
parent process dies. The process then prints a final line that summarizes each file.

The process runs at a lower priority than the data plane, and reads whole blocks. If it
cannot write packets in time, the kernel drops and counts them. The dropped packets are
missing only from the capture, not from the network.
"""

from __future__ import annotations

import json
import os
import select
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

from chakram.fabric.labs.enter_namespace import run_in_namespace
from chakram.fabric.labs.holder_protocol import encode_error, raise_error
from chakram.fabric.modeled_switch.packet_ring import (
    BLOCK_BYTES,
    RETIRE_MS,
    PacketRing,
)
from chakram.foundation.errors import ChakramError, FabricError, PrivilegeError
from chakram.foundation.write_errors import explained_writes

SNAP_BYTES = 1 << 18
"""Upper bound on frame lengths. Readers of capture files reject longer records."""

FILE_HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAP_BYTES, 1)
"""Header of a capture file of Ethernet frames, readable by Wireshark.

The format is classic pcap version 2.4 with nanosecond timestamps. Source:
draft-ietf-opsawg-pcap, "PCAP Capture File Format".
"""

RECORD_HEADER = struct.Struct("<IIII")
"""Header of a captured frame.

Fields: seconds since 1970 (UTC), nanoseconds, number of captured bytes that follow, and
original length in bytes.
"""

_NICE = 5
_RING_BYTES_IN_ALL = 128 << 20
_FEWEST_BLOCKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """Request to capture at one host.

    Attributes:
        host: Name of the host.
        netns: Path of the host's network namespace.
        interface: Interface to capture on.
        path: Path of the capture file.
    """

    host: str
    netns: str
    interface: str
    path: str


@dataclass(slots=True, kw_only=True)
class CaptureResult:
    """Summary of one host's capture file.

    Attributes:
        host: Name of the host.
        packets: Number of packets in the file.
        dropped: Number of packets that are missing because the process could not write
            them in time.
        is_full: Whether the file reached its size limit and lacks later packets.
        failure: Reason why writing ended early, or None.
    """

    host: str
    packets: int = 0
    dropped: int = 0
    is_full: bool = False
    failure: str | None = None


def encode_request(requests: Sequence[CaptureRequest], *, limit_bytes: int) -> bytes:
    """Return the JSON line that requests captures from the process.

    Args:
        requests: One request for each host.
        limit_bytes: Maximum size of each file.
    """
    fields = {"limit_bytes": limit_bytes, "hosts": [asdict(each) for each in requests]}
    return json.dumps(fields).encode() + b"\n"


def check_ready(line: bytes) -> None:
    """Check that *line* reports a process that is ready to capture.

    Raises:
        PrivilegeError: If the process may not capture.
        FabricError: If the process cannot capture, or the answer is invalid.
    """
    fields = _fields(line)
    raise_error(fields)
    if not fields.get("ready"):
        raise FabricError(
            "capture", f"its process sent an invalid answer: {_shown(line)}"
        )


def decode_results(line: bytes) -> tuple[CaptureResult, ...]:
    """Return the final report of the process.

    Raises:
        FabricError: If *line* is not a valid report.
    """
    try:
        return tuple(CaptureResult(**each) for each in _fields(line)["captures"])
    except (KeyError, TypeError):
        raise FabricError(
            "capture", f"its process sent an invalid final report: {_shown(line)}"
        ) from None


def _fields(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    return fields if isinstance(fields, dict) else {}


def _shown(line: bytes) -> str:
    return repr(line[:80].decode("utf-8", "replace"))


class _Capture:
    """The packet ring and the capture file of one host, and a summary of the file."""

    def __init__(
        self, request: CaptureRequest, *, blocks: int, limit_bytes: int
    ) -> None:
        self._blocks = blocks
        self._limit_bytes = limit_bytes
        self._file = _create(Path(request.path))
        try:
            self.ring: PacketRing | None = _open_ring(request, blocks)
        except BaseException:
            self._file.close()
            raise
        self._written_bytes = len(FILE_HEADER)
        self._result = CaptureResult(host=request.host)

    def drain(self) -> None:
        """Write the blocks that the kernel has released, at most one ring's worth."""
        for _ in range(self._blocks):
            if self.ring is None or not self._write_block(self.ring):
                return

    def finish(self) -> CaptureResult:
        """Close the ring and the file, and return a summary of the file."""
        self._end()
        return self._result

    def _write_block(self, ring: PacketRing) -> bool:
        frames = ring.next_block()
        if frames is None:
            return False
        parts: list[bytes] = []
        size_bytes = 0
        room_bytes = self._limit_bytes - self._written_bytes
        for time_s, nanoseconds, length, frame in frames:
            size_bytes += RECORD_HEADER.size + len(frame)
            if size_bytes > room_bytes:
                self._result.is_full = True
                break
            parts += (
                RECORD_HEADER.pack(time_s, nanoseconds, len(frame), length),
                frame,
            )
        data = b"".join(parts)
        try:
            _write_whole(self._file, data)
        except OSError as error:
            self._result.failure = error.strerror or str(error)
            with suppress(OSError):
                self._file.truncate(self._written_bytes)
        else:
            self._written_bytes += len(data)
            self._result.packets += len(parts) // 2
        if self._result.is_full or self._result.failure is not None:
            self._end()
        return self.ring is not None

    def _end(self) -> None:
        if self.ring is not None:
            self._result.dropped = self.ring.dropped()
            self.ring.close()
            self.ring = None
            self._file.close()


def _create(path: Path) -> FileIO:
    with explained_writes(path, FabricError):
        # Unbuffered: written packets are in the file even if this process is killed.
        file = path.open("xb", buffering=0)
        _write_whole(file, FILE_HEADER)
        return file


def _write_whole(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def _open_ring(request: CaptureRequest, blocks: int) -> PacketRing:
    where = f"capture of host {request.host}"

    opened = partial(PacketRing, request.interface, blocks=blocks)
    try:
        return run_in_namespace(request.netns, opened)
    except PermissionError as error:
        raise PrivilegeError(
            where, f"packet sockets are not allowed ({error.strerror})", "run as root"
        ) from error
    except OSError as error:
        raise FabricError(
            where,
            f"cannot capture at {request.interface} ({error.strerror or error})",
            "leave out fabric.capture",
        ) from error


def main() -> int:
    """Capture until standard input closes."""
    os.nice(_NICE)
    captures: list[_Capture] = []
    try:
        request = json.loads(sys.stdin.buffer.readline())
        hosts = [CaptureRequest(**each) for each in request["hosts"]]
        blocks = _RING_BYTES_IN_ALL // BLOCK_BYTES // max(len(hosts), 1)
        captures.extend(
            _Capture(
                each,
                blocks=max(blocks, _FEWEST_BLOCKS),
                limit_bytes=request["limit_bytes"],
            )
            for each in hosts
        )
    except ChakramError as error:
        _say(encode_error(error))
        return error.exit_code
    _say(json.dumps({"ready": True}))
    _capture(captures)
    results = [asdict(each.finish()) for each in captures]
    _say(json.dumps({"captures": results}))
    return 0


def _capture(captures: Sequence[_Capture]) -> None:
    poll = select.poll()
    stop = sys.stdin.fileno()
    poll.register(stop)
    by_descriptor: dict[int, _Capture] = {}
    for each in captures:
        if each.ring is not None:
            poll.register(each.ring)
            by_descriptor[each.ring.fileno()] = each
    stops = False
    while not stops:
        for descriptor, _ in poll.poll():
            if descriptor == stop:
                stops = True
            else:
                by_descriptor[descriptor].drain()
                if by_descriptor[descriptor].ring is None:
                    poll.unregister(descriptor)
    # The last packets are in partly filled blocks, which the kernel releases after a
    # short time.
    time.sleep(3 * RETIRE_MS / 1e3)
    for each in captures:
        each.drain()


def _say(line: str) -> None:
    with suppress(BrokenPipeError):  # the reader is gone
        os.write(sys.stdout.fileno(), line.encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())

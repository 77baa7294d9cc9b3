"""The agent's handle of one shard, with the shard's process, pipe and counters."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from chakram.control.protobuf_messages import decode_message, pb
from chakram.foundation.errors import EnvironmentProblem
from chakram_agent.pipe import HEADER_BYTES, frame, frame_bytes
from chakram_agent.shared_counters import SharedCounters

STOP_GRACE_S = 1.2
"""Time after which the agent kills a shard that does not stop. All traffic must end
within 2 s."""


async def read_frame(reader: asyncio.StreamReader, *, where: str) -> bytes | None:
    """Return the next message of a shard, or None if it has ended.

    Raises:
        PeerError: If the message is too long. *where* is the error's location.
    """
    try:
        header = await reader.readexactly(HEADER_BYTES)
        return await reader.readexactly(frame_bytes(header, where))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


@dataclass(slots=True)
class ShardProcess:
    """A running data-plane process, created by ``start``.

    Attributes:
        number: Number of the shard.
        counters: The shard's counters.
    """

    number: int
    counters: SharedCounters
    _process: asyncio.subprocess.Process
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _killer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(
        cls,
        number: int,
        core: int | None = None,
        *,
        queue_pairs: int = 0,
        ports: int = 0,
        inherited: Sequence[int] = (),
    ) -> ShardProcess:
        """Start the process of a shard.

        The process also inherits the descriptors in *inherited*, under the same
        numbers.

        Args:
            number: Number of the shard.
            core: Core to which the process is pinned. None for any core.
            queue_pairs: Number of queue pairs for which the counters have room.
            ports: Number of ports for which the counters have room.
            inherited: Descriptors of this process.

        Raises:
            EnvironmentProblem: If the process cannot be started.
        """
        with ExitStack() as failed:
            try:
                counters = SharedCounters.create(
                    f"chakram-shard-{number}", queue_pairs=queue_pairs, ports=ports
                )
                failed.callback(counters.close)
                ours, theirs = socket.socketpair()
                failed.callback(ours.close)
                with theirs:
                    process = await asyncio.create_subprocess_exec(
                        sys.executable,
                        *("-P", "-m", "chakram_agent.shard"),
                        *("--control", str(theirs.fileno())),
                        *("--counters", str(counters.descriptor)),
                        *("--parent", str(os.getpid())),
                        *(() if core is None else ("--core", str(core))),
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=asyncio.subprocess.DEVNULL,
                        pass_fds=(theirs.fileno(), counters.descriptor, *inherited),
                    )
            except OSError as error:
                raise EnvironmentProblem(
                    f"shard {number}",
                    f"its process cannot be started ({error.strerror})",
                ) from error
            failed.pop_all()
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(number, counters, process, reader, writer)

    def tell(self, command: pb.ShardCommand) -> None:
        """Send a command to the shard, or do nothing if the shard has ended."""
        with suppress(ConnectionError):
            self._writer.write(frame(command.SerializeToString()))

    async def reports(self) -> AsyncIterator[pb.ShardReport]:
        """Yield the reports of the shard until it ends.

        Raises:
            PeerError: If a message is not a valid report.
        """
        where = f"shard {self.number}"
        while (data := await read_frame(self._reader, where=where)) is not None:
            yield decode_message(pb.ShardReport, data, where=where)

    def stop(self) -> None:
        """Request the end of the shard, and kill it after ``STOP_GRACE_S``."""
        self.tell(pb.ShardCommand(stop=pb.ShardStop()))
        if self._killer is None:
            loop = asyncio.get_running_loop()
            self._killer = loop.call_later(STOP_GRACE_S, self.kill)

    def kill(self) -> None:
        """Kill the process now."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> str:
        """Stop the shard, wait for the end of its process, and return how it ended.

        If the shard closed its pipe but does not exit, the agent kills it.
        """
        self.stop()
        code = await self._process.wait()
        if self._killer is not None:
            self._killer.cancel()
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
        if code < 0:
            return f"the process of shard {self.number} was killed by signal {-code}"
        return (
            f"the process of shard {self.number} ended with exit code {code}; see the "
            "agent's log"
        )

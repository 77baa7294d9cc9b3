"""The agent's handle to one shard, with the shard's process, pipe and counters.

``ForkServers`` starts the processes, with one fork server at a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from chakram.control.protobuf_messages import decode_message, pb
from chakram.foundation.errors import EnvironmentProblem
from chakram_agent.fork_server import (
    STATUS,
    ForkServer,
    describe_exit,
    spawn_fork_server,
)
from chakram_agent.pipe import HEADER_BYTES, frame, frame_bytes
from chakram_agent.shared_counters import SharedCounters

log = logging.getLogger(__name__)

STOP_GRACE_S = 1.2
"""Time after which the agent kills a shard that does not stop. All traffic must end
within 2 s."""
START_TIMEOUT_S = 30.0
"""Longest time for a fork server to start a shard. A slower server is replaced."""
KILL_TIMEOUT_S = 5.0
"""Longest time for a fork server to kill a shard. The agent ends a slower server."""


@dataclass(slots=True)
class ForkedProcess:
    """A process that a fork server has started.

    Attributes:
        server: Fork server that started the process.
    """

    server: ForkServer
    _status: socket.socket
    _killer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(
        cls,
        server: ForkServer,
        shard: int,
        core: int | None,
        descriptors: Sequence[int],
    ) -> ForkedProcess:
        """Have a fork server start a shard (see ``ForkServer.request``).

        Raises:
            ConnectionError: If the fork server has ended.
            TimeoutError: If the fork server does not answer.
            OSError: If the fork server cannot start a process.
        """
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as failed:
            failed.callback(ours.close)
            ours.setblocking(False)
            server.request(shard, core, (theirs.fileno(), *descriptors))
            theirs.close()  # from now on, only the fork server has this end
            async with asyncio.timeout(START_TIMEOUT_S):
                number = await _read_status(ours)
            if number < 0:
                raise OSError(-number, os.strerror(-number))
            failed.pop_all()
        return cls(server, ours)

    def kill(self) -> None:
        """Have the fork server kill the process. End a fork server that is too slow."""
        with suppress(OSError):  # the process has ended
            self._status.shutdown(socket.SHUT_WR)
            if self._killer is None:
                loop = asyncio.get_running_loop()
                self._killer = loop.call_later(KILL_TIMEOUT_S, self.server.end)

    async def wait(self) -> int | None:
        """Return the exit code, or None if the fork server ended first."""
        try:
            return await _read_status(self._status)
        except ConnectionError:
            return None
        finally:
            if self._killer is not None:
                self._killer.cancel()
            self._status.close()


async def _read_status(status: socket.socket) -> int:
    data = await asyncio.get_running_loop().sock_recv(status, STATUS.size)
    if not data:
        raise ConnectionResetError
    (number,) = STATUS.unpack(data)
    return int(number)


class ForkServers:
    """The current fork server of an agent. A new one replaces a fork server that ends.

    Args:
        first: The first fork server. If None, it starts as a new interpreter when
            needed.
    """

    def __init__(self, first: ForkServer | None = None) -> None:
        self._server = first
        # Send one request at a time, because the kernel limits descriptors in flight.
        self._lock = asyncio.Lock()

    async def start(
        self, shard: int, core: int | None, descriptors: Sequence[int]
    ) -> ForkedProcess:
        """Start a shard (see ``ForkServer.request``).

        Raises:
            EnvironmentProblem: If two fork servers in succession have failed.
            OSError: If the fork server cannot start a process.
        """
        async with self._lock:
            ending = ""
            for _ in range(2):
                server = self._server = self._server or spawn_fork_server()
                try:
                    return await ForkedProcess.start(server, shard, core, descriptors)
                except (ConnectionError, TimeoutError):
                    ending = server.end()
                    self._server = None
                    log.warning("%s", ending)
            raise EnvironmentProblem(f"shard {shard}", ending)

    def close(self) -> None:
        """End the current fork server."""
        if self._server is not None:
            self._server.end()
            self._server = None


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
    _process: ForkedProcess
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _killer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(
        cls,
        number: int,
        core: int | None = None,
        *,
        servers: ForkServers,
        queue_pairs: int = 0,
        ports: int = 0,
        inherited: Sequence[int] = (),
    ) -> ShardProcess:
        """Start the process of a shard.

        Args:
            number: Number of the shard.
            core: Core to which the process is pinned. None for any core.
            servers: Fork servers of the agent.
            queue_pairs: Number of queue pairs for which the counters have room.
            ports: Number of ports for which the counters have room.
            inherited: More descriptors of this process that the shard inherits.

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
                    own = (theirs.fileno(), counters.descriptor)
                    process = await servers.start(number, core, (*own, *inherited))
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
        """Request the end of the shard, and kill the shard after ``STOP_GRACE_S``."""
        self.tell(pb.ShardCommand(stop=pb.ShardStop()))
        if self._killer is None:
            loop = asyncio.get_running_loop()
            self._killer = loop.call_later(STOP_GRACE_S, self.kill)

    def kill(self) -> None:
        """Kill the process now."""
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
        if code is None:
            return self._process.server.end()
        return f"the process of shard {self.number} {describe_exit(code)}"

"""The fork server: a process with the imports of a shard, which forks the shards.

A new interpreter with these imports takes a quarter of a second of CPU time; a fork
takes milliseconds. gRPC does not work after a fork, so the agent forks this process
before it imports gRPC. The process has one thread and waits for requests on a socket.
If it ends, the agent starts another one as a new interpreter
(``python -m chakram_agent.fork_server``).

A request names the shard and its core, with descriptors (SCM_RIGHTS) for the shard. The
first descriptor is the *status socket*. The fork server sends the process ID, or a
negative error number, on this socket, and later the exit code. It kills the shard as
soon as the agent closes its end of the socket or shuts that end down for sending. Only
the parent of a process can signal it without the risk that another process already has
its ID.

The kernel kills the fork server with the agent, and the shards with the fork server.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NoReturn

from chakram.fabric.process_control import die_with_parent, set_process_name
from chakram_agent.shard import run_shard

STATUS = struct.Struct("=i")
"""Format of a number on the status socket."""
MOST_DESCRIPTORS = 250
"""Descriptors per message. The kernel accepts 253 (SCM_MAX_FD in net/scm.h)."""
_REQUEST_BYTES = 65536
_NAME = "chakram-forksrv"


def encode_request(
    shard: int, core: int | None, descriptors: Sequence[int]
) -> Iterator[tuple[bytes, Sequence[int]]]:
    """Yield the messages of a request, each with the descriptors to send with it."""
    count = len(descriptors)
    for at in range(0, count, MOST_DESCRIPTORS):
        numbers = descriptors[at : at + MOST_DESCRIPTORS]
        fields = {"shard": shard, "core": core, "numbers": numbers, "at": at}
        whole = {"status": descriptors[0], "count": count}
        yield json.dumps(fields | whole).encode(), numbers


def describe_exit(code: int) -> str:
    """Return a phrase about how a process ended. A negative *code* means a signal."""
    if code < 0:
        return f"was killed by signal {-code}"
    return f"ended with exit code {code}; see the agent's log"


class ForkServer:
    """The agent's handle to a fork server.

    Args:
        pid: Process ID of the fork server, a child of this process.
        requests: Socket to the fork server.
    """

    def __init__(self, pid: int, requests: socket.socket) -> None:
        self._pid = pid
        self._requests = requests
        self._exit_code: int | None = None
        requests.setblocking(False)

    def request(self, shard: int, core: int | None, descriptors: Sequence[int]) -> None:
        """Request a shard, which inherits the niceness and limits of this process.

        Args:
            shard: Number of the shard.
            core: Core to which the process is pinned. None for any core.
            descriptors: Descriptors of this process that the shard gets: the status
                socket, the socket to the agent, the counters, and then all others.

        Raises:
            ConnectionError: If the fork server has ended.
            OSError: If the request cannot be sent.
        """
        if self._exit_code is not None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        self._share_limits()
        for message, sent in encode_request(shard, core, descriptors):
            socket.send_fds(self._requests, [message], sent)

    def _share_limits(self) -> None:
        """Copy limits and niceness, which may have changed, to the fork server."""
        with suppress(OSError):  # a lower niceness needs a privilege
            files = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.prlimit(self._pid, resource.RLIMIT_NOFILE, files)
            os.sched_setaffinity(self._pid, os.sched_getaffinity(0))
            nice = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, self._pid, nice)

    def end(self) -> str:
        """Kill the fork server and its shards, and return how the fork server ended."""
        if self._exit_code is None:
            self._requests.close()
            self._exit_code = -signal.SIGKILL
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                # A fork server that has already ended keeps its exit status.
                _, status = os.waitpid(self._pid, 0)
                self._exit_code = os.waitstatus_to_exitcode(status)
        return f"the process that starts shards {describe_exit(self._exit_code)}"


def fork_server() -> ForkServer:
    """Fork a fork server. Call this while the process has a single thread."""
    ours, theirs = _socket_pair()
    parent = os.getpid()
    # Block Ctrl-C (SIGINT) until the new process ignores it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    pid = os.fork()
    if not pid:
        ours.close()
        _call_and_exit(lambda: _serve(theirs, parent))
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    theirs.close()
    return ForkServer(pid, ours)


def spawn_fork_server() -> ForkServer:
    """Start a fork server as a new interpreter.

    Raises:
        OSError: If the process cannot be started.
    """
    ours, theirs = _socket_pair()
    with theirs:
        theirs.set_inheritable(True)
        module = (sys.executable, "-P", "-m", "chakram_agent.fork_server")
        numbers = (str(theirs.fileno()), str(os.getpid()))
        try:
            pid = os.posix_spawn(
                sys.executable,
                (*module, *numbers),
                os.environ,
                setsigmask={signal.SIGINT},
            )
        except OSError:
            ours.close()
            raise
    return ForkServer(pid, ours)


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return a new pair of sockets: one for the agent, one for the fork server.

    The descriptor of the fork server's socket is above 2.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        # The agent's standard streams may be closed, which frees descriptors 0 to 2.
        number = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 3)
    return ours, socket.socket(fileno=number)


def _call_and_exit(function: Callable[[], None]) -> NoReturn:
    """Call a function in a forked process, and exit without the parent's cleanup."""
    code = 1
    try:
        function()
        code = 0
    except BaseException:  # noqa: BLE001 - the process ends here
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _serve(requests: socket.socket, parent: int) -> None:
    """Fork shards on request until the agent ends."""
    die_with_parent(parent)
    # Ctrl-C also signals this process and the shards. The agent decides how to react.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number != requests.fileno():
            with suppress(OSError):  # already closed by ``listdir``
                os.close(number)
    set_process_name(_NAME)
    # The garbage collector of a shard would otherwise write to all shared pages.
    gc.collect()
    gc.freeze()
    _Server(requests).run()


class _Server:
    """Event loop of the fork server."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._pid = os.getpid()
        self._shards: dict[int, socket.socket] = {}  # status sockets by process ID
        self._received: dict[int, int] = {}  # descriptors by their number in the agent
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._poll = select.poll()
        for each in (requests, self._woken):
            self._poll.register(each, select.POLLIN)

    def run(self) -> None:
        """Serve until the agent closes its socket."""
        signal.set_wakeup_fd(self._waker.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            for number, _ in self._poll.poll():
                if number == self._woken.fileno():
                    self._woken.recv(_REQUEST_BYTES)
                    self._reap()
                elif number != self._requests.fileno():
                    self._kill(number)
                elif not self._take_message():
                    return

    def _take_message(self) -> bool:
        """Handle a message, or return False if the agent has closed its socket."""
        message, received, *_ = socket.recv_fds(
            self._requests, _REQUEST_BYTES, MOST_DESCRIPTORS
        )
        if not message:
            return False
        fields = json.loads(message)
        if not fields["at"]:
            self._drop_received()  # left from an incomplete request
        # The kernel drops descriptors beyond the limit of open files.
        self._received |= dict(zip(fields["numbers"], received, strict=False))
        if fields["at"] + len(fields["numbers"]) == fields["count"]:
            if fields["status"] in self._received:
                self._start(**fields)
            self._drop_received()
        return True

    def _drop_received(self) -> None:
        for number in self._received.values():
            os.close(number)
        self._received = {}

    def _start(
        self, shard: int, core: int | None, status: int, count: int, **_: object
    ) -> None:
        """Fork a shard, and send its process ID or a negative error number."""
        channel = socket.socket(fileno=self._received.pop(status))
        try:
            if len(self._received) + 1 < count:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            answer = os.fork()
        except OSError as error:
            answer = -(error.errno or errno.EAGAIN)
        if not answer:
            _call_and_exit(lambda: self._run_shard(shard, core, channel))
        self._tell(channel, answer)
        if answer < 0:
            channel.close()
            return
        self._shards[answer] = channel
        self._poll.register(channel, select.POLLIN)

    def _run_shard(self, shard: int, core: int | None, channel: socket.socket) -> None:
        """Run the shard in the forked process."""
        die_with_parent(self._pid)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        own = (self._requests, self._woken, self._waker, channel)
        for each in (*own, *self._shards.values()):
            each.close()
        set_process_name(f"chakram-shard{shard}")
        control, counters, *_ = self._received.values()
        run_shard(control, counters, core=core, inherited=self._received)

    def _reap(self) -> None:
        while self._shards:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._shards.pop(pid) as channel:
                with suppress(KeyError):  # the shard was killed
                    self._poll.unregister(channel)
                self._tell(channel, os.waitstatus_to_exitcode(status))

    def _kill(self, number: int) -> None:
        """Kill the shard with this status socket."""
        for pid, channel in self._shards.items():
            if channel.fileno() == number:
                os.kill(pid, signal.SIGKILL)
                self._poll.unregister(channel)

    @staticmethod
    def _tell(channel: socket.socket, number: int) -> None:
        with suppress(ConnectionError):  # the agent no longer waits
            channel.send(STATUS.pack(number))


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))

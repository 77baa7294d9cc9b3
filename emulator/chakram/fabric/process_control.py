"""Identity, priority and termination of child processes.

A process ID alone is ambiguous because the kernel reuses IDs. A process ID together
with the process start time (in clock ticks since boot) identifies exactly one process.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def die_with_parent(
    parent_pid: int | None = None, *, signal_number: int = signal.SIGKILL
) -> None:
    """Have the kernel signal this process when the thread that started it ends.

    The kernel clears the setting when a process changes its credentials, so call this
    after any change of user or user namespace.

    Args:
        parent_pid: Expected parent process. If it has already ended, this process ends
            immediately. Omit this argument across PID namespaces, where IDs are not
            comparable.
        signal_number: Signal to send. The process cannot ignore the default.
    """
    _prctl(_PR_SET_PDEATHSIG, signal_number)
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)


def set_process_name(name: str) -> None:
    """Set the name of this process in ``ps`` and ``top``, at most 15 characters."""
    _prctl(_PR_SET_NAME, name.encode("ascii"))


def _prctl(option: int, value: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_daemon() -> int:
    """Continue as a new process, which leads a new session.

    The original process ends when the new process has ended or has closed the returned
    descriptor. Until then, it forwards SIGTERM. After a SIGTERM, it waits until the new
    process ends.

    Returns:
        A descriptor. When the new process closes it, the original process ends.
        Processes that the new process starts do not inherit the descriptor.
    """
    reader, writer = os.pipe()
    mask = {signal.SIGTERM}
    # Block SIGTERM until a process can handle it.
    signal.pthread_sigmask(signal.SIG_BLOCK, mask)
    child = os.fork()
    if not child:
        os.close(reader)
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, mask)
        return writer
    os.close(writer)
    is_ended = False

    def forward(*_: object) -> None:
        nonlocal is_ended
        is_ended = True
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, mask)
    os.read(reader, 1)
    if is_ended:
        os.waitpid(child, 0)
    os._exit(0)


def set_niceness(pid: int, niceness: int) -> None:
    """Set the niceness of a process, and of its session if it leads one.

    Kernels with autogroups first divide CPU time among sessions, weighted by the
    niceness of each session. The niceness of a process counts only within its session.
    The function does not change sessions that another process leads, such as a
    terminal's.

    Args:
        pid: Process ID. Its existing threads and children keep their niceness.
        niceness: From -20 (highest priority) to 19.

    Raises:
        PermissionError: If this user may not set that niceness.

    Source: sched(7), "The autogroup feature".
    """
    os.setpriority(os.PRIO_PROCESS, pid, niceness)
    group = Path(f"/proc/{pid}/autogroup")
    # Kernels without autogroups have no such file. The file is empty for processes
    # outside any autogroup.
    if os.getsid(pid) == pid and group.exists() and group.read_text("ascii"):
        group.write_text(str(niceness), "ascii")


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command is in parentheses and may itself contain blanks and parentheses.
    return text[text.rfind(")") + 2 :].split()


def process_start_ticks(pid: int) -> int | None:
    """Return the start time of a process in ticks since boot.

    Returns None if there is no such process.

    Source: proc_pid_stat(5), field 22 (``starttime``).
    """
    fields = _stat_fields(pid)
    return None if fields is None else int(fields[19])


def is_alive(pid: int, start_ticks: int) -> bool:
    """Return whether a process with this ID and start time runs and is not a zombie."""
    fields = _stat_fields(pid)
    return (
        fields is not None and fields[0] not in "ZX" and int(fields[19]) == start_ticks
    )


def end_process(pid: int, start_ticks: int, *, grace_ns: int) -> bool:
    """End one process with SIGTERM, or with SIGKILL after a grace period.

    The function opens a process descriptor before it compares the start time. Therefore
    it never signals a new process that reuses the ID.

    Args:
        pid: Process ID.
        start_ticks: Start time from ``process_start_ticks``.
        grace_ns: Time between SIGTERM and SIGKILL.

    Returns:
        Whether the process existed.

    Raises:
        PermissionError: If the process belongs to another user.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(pid, start_ticks):
            return False
        for number, wait_ns in ((signal.SIGTERM, grace_ns), (signal.SIGKILL, 10**9)):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
            # A process descriptor becomes readable when the process ends. Unlike
            # select, poll accepts descriptors with any number.
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if poll.poll(wait_ns / 1e6):
                break
    finally:
        os.close(descriptor)
    return True

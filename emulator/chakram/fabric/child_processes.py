"""Processes that must not outlive, or be mistaken for, one another.

A process id alone names nobody: ids are reused.  An id together with the start time
that the kernel keeps (in clock ticks since boot) names one process for ever.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(
    parent_pid: int | None = None, *, signal_number: int = signal.SIGKILL
) -> None:
    """Have the kernel signal this process when the thread that started it ends.

    The kernel clears the setting when a process changes its credentials, so call this
    after any change of user or user namespace.

    Args:
        parent_pid: The process that is expected to be the parent; if it has ended
            before the call, this process ends at once.  Across a PID namespace the
            id is not comparable: leave it out.
        signal_number: The signal; the default cannot be ignored.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)


def set_niceness(pid: int, niceness: int) -> None:
    """Set the niceness of a process, and that of its session if it leads one.

    Kernels with autogroups share the cores among sessions first, equally unless a
    session has a niceness itself; that of a process counts within its session only.
    A session that another process leads, as that of a terminal, is not ours.

    Args:
        pid: Its id; threads that it has already, and children, keep theirs.
        niceness: From -20, first, to 19.

    Raises:
        PermissionError: If this user may not set that.

    Source: sched(7), "The autogroup feature".
    """
    os.setpriority(os.PRIO_PROCESS, pid, niceness)
    group = Path(f"/proc/{pid}/autogroup")
    # Kernels without autogroups have no such file; it is empty for who is in none.
    if os.getsid(pid) == pid and group.exists() and group.read_text("ascii"):
        group.write_text(str(niceness), "ascii")


def _stat_fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command stands in parentheses and may itself hold blanks and parentheses.
    return text[text.rfind(")") + 2 :].split()


def process_start_ticks(pid: int) -> int | None:
    """Return when a process started, in ticks since boot, or None if there is none.

    Source: proc_pid_stat(5), field 22 (``starttime``).
    """
    fields = _stat_fields(pid)
    return None if fields is None else int(fields[19])


def is_alive(pid: int, start_ticks: int) -> bool:
    """Return whether the process that started then still runs (a zombie does not)."""
    fields = _stat_fields(pid)
    return (
        fields is not None and fields[0] not in "ZX" and int(fields[19]) == start_ticks
    )


def end_process(pid: int, start_ticks: int, *, grace_ns: int) -> bool:
    """End one process: ask it first, kill it after a time of grace.

    The process is held by a descriptor while its start time is compared, so that no
    other process can be hit that got the same id in between.

    Args:
        pid: Its id.
        start_ticks: Its start time, as ``process_start_ticks`` gave it.
        grace_ns: Time between SIGTERM and SIGKILL.

    Returns:
        Whether there was such a process.

    Raises:
        PermissionError: If it belongs to somebody else.
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
            # A descriptor of a process becomes readable when the process ends.
            if select.select([descriptor], [], [], wait_ns / 1e9)[0]:
                break
    finally:
        os.close(descriptor)
    return True

"""Entering network namespaces, for whoever opens sockets in them.

A socket belongs for life to the namespace in which its thread was when it was made,
so one process can hold sockets of many namespaces.  This module imports nothing heavy:
data-plane processes use it.

A namespace is given as a path (such as ``/proc/4711/fd/9``, as a lab's state has
them) or as an open descriptor.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from chakram.foundation.errors import FabricError, PrivilegeError

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

# linux/magic.h and linux/nsfs.h.
_NSFS_MAGIC = 0x6E736673
_NS_GET_NSTYPE = 0xB703

_OWN_NAMESPACE = "/proc/thread-self/ns/net"

_T = TypeVar("_T")

# os.setns and os.unshare exist from Python 3.12 on.
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def setns(descriptor: int, kind: int) -> None:
    """Move the calling thread into a namespace (setns system call).

    Raises:
        OSError: As the kernel says.
    """
    _check(_libc.setns(descriptor, kind), "setns")


def unshare(kinds: int) -> None:
    """Give the calling thread namespaces of its own (unshare system call).

    Raises:
        OSError: As the kernel says.
    """
    _check(_libc.unshare(kinds), "unshare")


def enter_namespace(target: str | int) -> None:
    """Move the calling thread into a network namespace, for good.

    Raises:
        FabricError: If there is no such namespace, for example because its lab ended.
        PrivilegeError: If this process may not enter it.
    """
    if isinstance(target, int):
        _enter(target, f"descriptor {target}")
        return
    descriptor = open_namespace(target)
    try:
        _enter(descriptor, target)
    finally:
        os.close(descriptor)


@contextmanager
def in_namespace(target: str | int, *, may_stay: bool = False) -> Iterator[None]:
    """Do the body in a network namespace, then go back.  Other threads stay put.

    Inside the user namespace of a rootless lab nobody may go back to the namespace of
    the machine: the kernel asks for rights there that the user never had.  That is
    found out before anything moves.

    Args:
        target: The namespace.
        may_stay: Where there is no way back, remain in the namespace after the body.
            That suits a process that does nothing but send and receive in namespaces;
            any other uses ``run_in_namespace``.

    Raises:
        FabricError: If there is no such namespace.
        PrivilegeError: If this process may not enter it, or may not come back.
    """
    home = os.open(_OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            setns(home, CLONE_NEWNET)
            returns = True
        except PermissionError:
            if not may_stay and _may_enter(target):
                raise PrivilegeError(
                    f"network namespace {target}",
                    "this process could enter it but not come back",
                    "open the socket with run_in_namespace",
                ) from None
            returns = False
        enter_namespace(target)
        try:
            yield
        finally:
            if returns:
                setns(home, CLONE_NEWNET)
    finally:
        os.close(home)


def run_in_namespace(target: str | int, fn: Callable[..., _T], *args: Any) -> _T:
    """Return ``fn(*args)``, called by a thread that entered the namespace for it.

    The calling thread stays where it is, so this works even where there would be no
    way back.  What *fn* raises is raised here.

    Raises:
        FabricError: If there is no such namespace.
        PrivilegeError: If this process may not enter it.
    """
    outcome: list[_T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            enter_namespace(target)
            outcome.append(fn(*args))
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            failure.append(error)

    thread = threading.Thread(target=body, name="chakram-netns")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def _may_enter(target: str | int) -> bool:
    try:
        run_in_namespace(target, int)
    except PrivilegeError:
        return False
    return True


def open_namespace(path: str, *, timeout_s: float = 5.0) -> int:
    """Return a descriptor of the network namespace at *path*; the caller closes it.

    Paths come from plans, so nothing else is opened, and nothing is waited for: not
    even that a file system which does not answer finds what the path names.

    Raises:
        FabricError: If there is no network namespace, or none in time.
        PrivilegeError: If this process may not look at it.
    """
    outcome: list[int | BaseException] = []
    lock = threading.Lock()
    waits = True

    def body() -> None:
        found: int | BaseException
        try:
            found = _open(path)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            found = error
        with lock:
            if waits:
                outcome.append(found)
            elif isinstance(found, int):
                os.close(found)  # too late: nobody wants it any more

    # A thread that hangs in the kernel cannot be ended, so nobody may wait for it.
    thread = threading.Thread(target=body, name="chakram-open-netns", daemon=True)
    thread.start()
    thread.join(timeout_s)
    with lock:
        waits = False
    if not outcome:
        raise FabricError(
            f"network namespace {path}",
            f"its file system did not answer within {timeout_s:g} s",
            "network namespaces are in /run/netns and /proc/PID/ns/net",
        )
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _open(path: str) -> int:
    """Open *path* once it is known to be a network namespace."""
    where = f"network namespace {path}"
    try:
        # What is only named (O_PATH) is not opened: no FIFO waits for a writer, no
        # device does anything.
        named = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
        raise FabricError(
            where,
            "it does not exist",
            "has its lab ended? see: chakram fabric status",
        ) from None
    except PermissionError:
        raise _may_not_look(where) from None
    except (OSError, ValueError) as error:
        raise FabricError(where, f"that is no path ({error})") from None
    try:
        if _file_system_of(named) != _NSFS_MAGIC:
            raise _no_namespace(where)
        try:
            # The very file that was looked at, whatever the path names by now.
            descriptor = os.open(
                f"/proc/thread-self/fd/{named}",
                os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC,
            )
        except PermissionError:
            raise _may_not_look(where) from None
        if fcntl.ioctl(descriptor, _NS_GET_NSTYPE) != CLONE_NEWNET:
            os.close(descriptor)
            raise _no_namespace(where)
    finally:
        os.close(named)
    return descriptor


def _file_system_of(descriptor: int) -> int:
    """Return the type of the file system that a file is in (statfs system call)."""
    status = (ctypes.c_long * 64)()  # struct statfs begins with f_type
    _check(_libc.fstatfs(descriptor, status), "fstatfs")
    return int(status[0])


def _no_namespace(where: str) -> FabricError:
    return FabricError(where, "it is something else", "ip netns lists them")


def _may_not_look(where: str) -> PrivilegeError:
    return PrivilegeError(
        where,
        "this process may not look at it",
        "be the user who made the lab, or root",
    )


def _enter(descriptor: int, where: str) -> None:
    try:
        setns(descriptor, CLONE_NEWNET)
    except OSError as error:
        if error.errno == errno.EPERM:
            raise PrivilegeError(
                f"network namespace {where}",
                "this process may not enter it",
                "be root, or start it with: python -m chakram.fabric.enter_lab",
            ) from None
        raise FabricError(
            f"network namespace {where}", f"cannot enter it ({error})"
        ) from error


def require_ipv6() -> None:
    """Refuse what needs IPv6 on a kernel that has none.

    Raises:
        FabricError: If that is so.
    """
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
    except OSError as error:
        raise FabricError(
            "fabric.addressing",
            f"this kernel has no IPv6 ({error.strerror})",
            "boot it without ipv6.disable=1, or use addressing: ipv4",
        ) from error

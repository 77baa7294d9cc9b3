"""Entry into network namespaces, for processes that open sockets in them.

A socket belongs permanently to the namespace of the thread that creates it. One process
can therefore have sockets in many namespaces. This module imports no large packages,
because data-plane processes use it.

A namespace is given as a path (such as ``/proc/4711/fd/9``, from a lab's state) or as
an open descriptor.
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

# os.setns and os.unshare require Python 3.12.
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def setns(descriptor: int, kind: int) -> None:
    """Move the calling thread into a namespace (setns system call).

    Raises:
        OSError: If the kernel refuses.
    """
    _check(_libc.setns(descriptor, kind), "setns")


def unshare(kinds: int) -> None:
    """Move the calling thread into new namespaces (unshare system call).

    Raises:
        OSError: If the kernel refuses.
    """
    _check(_libc.unshare(kinds), "unshare")


def enter_namespace(target: str | int) -> None:
    """Move the calling thread into a network namespace permanently.

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
    """Run the block in a network namespace, then return to the previous namespace.

    Other threads do not move.

    Inside the user namespace of a rootless lab, a thread cannot return to the namespace
    of the machine, because the user lacks the privileges there. The function checks
    that before it moves the thread.

    Args:
        target: The namespace.
        may_stay: Whether the thread may remain in the namespace if it cannot return.
            Set this only in processes that do nothing but send and receive in
            namespaces. Use ``run_in_namespace`` in other processes.

    Raises:
        FabricError: If there is no such namespace.
        PrivilegeError: If this process may not enter the namespace, or could not leave
            it again.
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
                    "this process could enter it but could not return",
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
    """Return ``fn(*args)``, called by a new thread in the namespace.

    The calling thread does not move, so this works even if the thread could not return.
    Exceptions from *fn* are raised in the calling thread.

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
    """Return a descriptor of the network namespace at *path*, for the caller to close.

    Paths come from plans. Therefore the function opens only network namespaces, and it
    never blocks beyond *timeout_s*, even if a file system does not respond.

    Raises:
        FabricError: If *path* is not a network namespace, or does not open in time.
        PrivilegeError: If this process may not inspect it.
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
                os.close(found)  # too late: the caller has timed out

    # A thread that hangs in the kernel cannot be ended, so nothing may wait for it.
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
    """Open *path* after checking that it is a network namespace."""
    where = f"network namespace {path}"
    try:
        # O_PATH does not open the file itself. It cannot block on a FIFO or trigger a
        # device.
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
        raise FabricError(where, f"this is not a valid path ({error})") from None
    try:
        if _file_system_of(named) != _NSFS_MAGIC:
            raise _no_namespace(where)
        try:
            # Open the file that was checked, even if the path now leads to another
            # file.
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
    """Return the type of the file system that contains a file (statfs system call)."""
    status = (ctypes.c_long * 64)()  # struct statfs begins with f_type
    _check(_libc.fstatfs(descriptor, status), "fstatfs")
    return int(status[0])


def _no_namespace(where: str) -> FabricError:
    return FabricError(
        where, "it is not a network namespace", "list network namespaces with ip netns"
    )


def _may_not_look(where: str) -> PrivilegeError:
    return PrivilegeError(
        where,
        "this process may not inspect it",
        "run as the user who created the lab, or as root",
    )


def _enter(descriptor: int, where: str) -> None:
    try:
        setns(descriptor, CLONE_NEWNET)
    except OSError as error:
        if error.errno == errno.EPERM:
            raise PrivilegeError(
                f"network namespace {where}",
                "this process may not enter it",
                "run as root, or start it with: python -m chakram.fabric.enter_lab",
            ) from None
        raise FabricError(
            f"network namespace {where}", f"cannot enter it ({error})"
        ) from error


def require_ipv6() -> None:
    """Check that the kernel supports IPv6.

    Raises:
        FabricError: If the kernel does not support IPv6.
    """
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
    except OSError as error:
        raise FabricError(
            "fabric.addressing",
            f"this kernel has no IPv6 ({error.strerror})",
            "boot it without ipv6.disable=1, or use addressing: ipv4",
        ) from error

"""User namespaces, for labs without root privileges.

A process may create and configure network namespaces inside its own user namespace.
Only the user's own ID is mapped. It maps to 0, so that programs started inside keep
their capabilities. These capabilities have no effect outside.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from chakram.fabric.labs.enter_namespace import (
    CLONE_NEWNET,
    CLONE_NEWUSER,
    setns,
    unshare,
)
from chakram.foundation.errors import FabricError, PrivilegeError

_CAP_NET_ADMIN = 12
_CAP_SYS_ADMIN = 21


def has_net_admin() -> bool:
    """Return whether this process may create and configure namespaces directly."""
    if os.geteuid() != 0:
        return False
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("CapEff:"):
            mask = int(line.split()[1], 16)
            return bool(mask >> _CAP_NET_ADMIN & mask >> _CAP_SYS_ADMIN & 1)
    return False


def enter_new_user_namespace() -> None:
    """Move this process into a new user and network namespace, as its root.

    The process must have only one thread.

    Raises:
        PrivilegeError: If the machine does not allow ordinary users to create
            namespaces.
    """
    uid, gid = os.geteuid(), os.getegid()
    try:
        unshare(CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny", "ascii")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1", "ascii")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1", "ascii")
        unshare(CLONE_NEWNET)
    except OSError as error:
        raise PrivilegeError(
            "fabric", f"cannot create a user namespace ({error.strerror})", _hint(error)
        ) from error


def _hint(error: OSError) -> str:
    """Return a hint with the kernel setting that forbids user namespaces here."""
    otherwise = "or run as root, or use fabric kind loopback"
    for name, forbids in (
        ("kernel.unprivileged_userns_clone", "0"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
        ("user.max_user_namespaces", "0"),
        ("user.max_net_namespaces", "0"),
    ):
        try:
            value = Path("/proc/sys", *name.split(".")).read_text("ascii").strip()
        except OSError:
            continue
        if value == forbids:
            if name.startswith("user."):
                wanted = "65536"
            else:
                wanted = "1" if forbids == "0" else "0"
            return f"set sysctl {name}={wanted}, {otherwise}"
    if error.errno == errno.ENOSPC:
        return f"end namespaces of other programs, {otherwise}"
    return f"allow user namespaces in the container or sandbox, {otherwise}"


def join_user_namespace(pid: int) -> bool:
    """Move this process into the user namespace of another process.

    The process must have only one thread.

    Returns:
        False if this process is already in that user namespace.

    Raises:
        FabricError: If the other process has ended.
        PrivilegeError: If the other process belongs to another user.
    """
    path = f"/proc/{pid}/ns/user"
    try:
        if os.stat(path).st_ino == Path("/proc/self/ns/user").stat().st_ino:
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise FabricError(
            f"lab holder {pid}", "it does not run", "see: chakram fabric status"
        ) from None
    except PermissionError:
        raise PrivilegeError(
            f"lab holder {pid}",
            "it belongs to another user",
            "run as that user, or as root",
        ) from None
    try:
        setns(descriptor, CLONE_NEWUSER)
    except OSError as error:
        raise PrivilegeError(
            f"lab holder {pid}",
            f"cannot enter its user namespace ({error.strerror})",
            "run as the user who created the lab, or as root",
        ) from error
    finally:
        os.close(descriptor)
    return True

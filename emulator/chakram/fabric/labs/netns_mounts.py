"""Names of network namespaces for ``ip netns``, and removal of labs' leftovers.

A namespace without a name exists as long as a process holds it open. Labs that root
started also name their namespaces, so that ``ip netns exec <lab>-h3 tcpdump`` works.
The names are bind mounts in ``/run/netns``, which must be removed when the lab ends.

The names remain if the directory of a lab is deleted. Therefore the loopback interface
of every namespace has an alias (``ip link``) with its lab, holder and state directory.
Names are removed only if the alias matches, never because they look like names of a
lab.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.fabric.labs.enter_namespace import open_namespace, run_in_namespace
from chakram.fabric.labs.lab_files import (
    lab_directory,
    read_holder,
    registered_processes,
    remove_directory,
)
from chakram.fabric.process_control import end_process, is_alive
from chakram.foundation.errors import FabricError, PrivilegeError

if TYPE_CHECKING:
    from pyroute2 import AsyncIPRoute

    from chakram.fabric.labs.namespaces import Namespace

NETNS_DIRECTORY = Path("/run/netns")
"""Directory in which ``ip netns`` finds named network namespaces."""

_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_SHARED = 1 << 20
_MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: Path, flags: int) -> None:
    if _libc.mount(source.encode(), os.fsencode(target), b"none", flags, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


@contextmanager
def _directory_lock() -> Iterator[None]:
    """Hold the lock of ``ip netns add`` during the block."""
    NETNS_DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor = os.open(NETNS_DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def bind_names(descriptors: Mapping[str, int]) -> None:
    """Give names to open namespaces.

    Args:
        descriptors: Open descriptor of each namespace, by name.

    Raises:
        OSError: If the machine does not allow the mounts, or a name is taken. In that
            case none of the new names remains.
    """
    made: list[str] = []
    try:
        with _directory_lock():
            # Create a separate shared mount point, as ip netns does. Names then appear
            # and disappear in all mount namespaces of the machine.
            try:
                _mount("", NETNS_DIRECTORY, _MS_SHARED | _MS_REC)
            except OSError as error:
                if error.errno != errno.EINVAL:  # EINVAL: not a mount point yet
                    raise
                _mount(str(NETNS_DIRECTORY), NETNS_DIRECTORY, _MS_BIND | _MS_REC)
                _mount("", NETNS_DIRECTORY, _MS_SHARED | _MS_REC)
        for name, descriptor in descriptors.items():
            path = NETNS_DIRECTORY / name
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o444))
            made.append(name)
            _mount(f"/proc/self/fd/{descriptor}", path, _MS_BIND)
    except OSError:
        unbind_names(made)
        raise


def unbind_names(names: Iterable[str]) -> None:
    """Remove names, and ignore those that do not exist.

    Raises:
        OSError: If the machine does not allow the removal.
    """
    for name in names:
        path = NETNS_DIRECTORY / name
        # Ignore errors: a killed holder may have created the file but not mounted it.
        _libc.umount2(os.fsencode(path), _MNT_DETACH)
        with suppress(FileNotFoundError):
            path.unlink()


_WORD = "chakram-lab"
_LOOPBACK_INDEX = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedName:
    """Name of a namespace that belongs to a lab of the state directory.

    Attributes:
        name: Name in ``/run/netns``.
        lab: Name of the lab.
        holder_pid: Process that created the namespace.
        holder_start_ticks: Start time of that process.
    """

    name: str
    lab: str
    holder_pid: int
    holder_start_ticks: int

    @property
    def in_use(self) -> bool:
        """Whether the holder of the lab is still running."""
        return is_alive(self.holder_pid, self.holder_start_ticks)


def mark_namespaces(
    namespaces: Iterable[Namespace], *, lab: str, root: Path, pid: int, start_ticks: int
) -> None:
    """Mark namespaces as belonging to a lab.

    Raises:
        FabricError: If the kernel refuses the mark.
    """
    from chakram.fabric.labs.netlink import ask

    mark = f"{_WORD} {lab} {pid} {start_ticks} {_digest(root)}"

    async def set_alias(route: AsyncIPRoute) -> None:
        await route.link("set", index=_LOOPBACK_INDEX, ifalias=mark)

    ask([each.netlink for each in namespaces], set_alias, "interface lo")


def marked_names(root: Path, lab: str | None = None) -> list[MarkedName]:
    """Return the names in ``/run/netns`` that labs of a state directory created.

    Args:
        root: The state directory.
        lab: Name of the lab; None for all labs.
    """
    start = "" if lab is None else f"{lab}-"
    try:
        names = sorted(os.listdir(NETNS_DIRECTORY))
    except OSError:
        return []
    marks = {name: _mark(name) for name in names if name.startswith(start)}
    return [
        mark
        for name, words in marks.items()
        if (mark := _understood(name, words, root)) and lab in (None, mark.lab)
    ]


def _digest(root: Path) -> str:
    # An alias has at most 255 characters, and paths may be longer.
    return hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:16]


def _understood(name: str, words: list[str], root: Path) -> MarkedName | None:
    """Return the marked name that *words* describe, or None if no lab created it."""
    match words:
        case [word, lab, pid, ticks, digest] if (
            word == _WORD
            and digest == _digest(root)
            and name.startswith(f"{lab}-")
            and pid.isdecimal()
            and ticks.isdecimal()
        ):
            return MarkedName(
                name=name,
                lab=lab,
                holder_pid=int(pid),
                holder_start_ticks=int(ticks),
            )
    return None


def _mark(name: str) -> list[str]:
    """Return the words of the mark in a namespace, or [] if it is unreadable."""
    try:
        descriptor = open_namespace(str(NETNS_DIRECTORY / name))
    except (FabricError, PrivilegeError):
        return []
    try:
        return run_in_namespace(descriptor, _alias, name).split()
    except (FabricError, PrivilegeError, OSError):
        return []
    finally:
        os.close(descriptor)


def _alias(name: str) -> str:
    """Return the alias of ``lo`` in the namespace of this thread."""
    from chakram.fabric.labs.netlink import NetlinkSocket, ask

    async def alias(route: AsyncIPRoute) -> str:
        (link,) = await route.link("get", index=_LOOPBACK_INDEX)
        return str(link.get_attr("IFLA_IFALIAS") or "")

    with closing(NetlinkSocket(name)) as socket:
        return ask([socket], alias, "interface lo")[0]


_GRACE_NS = 2 * 10**9


def end_processes(directory: Path, *, spare: frozenset[int]) -> int:
    """End the processes registered with a lab, and return how many ended.

    Args:
        directory: The lab's directory.
        spare: Processes that must not end: the caller and its parent.
    """
    ended = 0
    for process in registered_processes(directory):
        if process.pid not in spare:
            ended += end_process(process.pid, process.start_ticks, grace_ns=_GRACE_NS)
    return ended


def _remove_stray_names(lab: str, root: Path) -> bool:
    """Remove names of a lab without a directory, and return whether there were any."""
    stray = marked_names(root, lab)
    if any(each.in_use for each in stray):
        raise FabricError(
            f"lab {lab}",
            f"it is running, but its directory in {root} was deleted",
            f"end it with: chakram fabric down {lab}",
        )
    unbind_names(each.name for each in stray)
    return bool(stray)


def remove_leftovers(lab: str, root: Path, *, spare: frozenset[int]) -> bool:
    """Remove everything that a lab without a holder left. The caller locks the root.

    Returns:
        Whether there was anything to remove.

    Raises:
        FabricError: If the lab's holder is still running.
    """
    directory = lab_directory(lab, root)
    if not directory.exists():
        return _remove_stray_names(lab, root)
    holder = read_holder(directory)
    if holder is not None and holder.alive:
        raise FabricError(
            f"lab {lab}",
            "it is already running",
            "choose another name with --lab NAME",
        )
    end_processes(directory, spare=spare)
    if holder is not None:
        unbind_names(holder.netns_names)
    remove_directory(directory)
    return True

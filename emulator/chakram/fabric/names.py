"""Names for network namespaces, as ``ip netns`` knows them.

A namespace without a name lives as long as a process has it open.  Root's labs give
their namespaces names as well, so that ``ip netns exec <lab>-h3 tcpdump`` works; the
names are bind mounts in ``/run/netns`` and must be removed in the end.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

NETNS_DIRECTORY = Path("/run/netns")
"""Where ``ip netns`` looks for named network namespaces."""

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
    """Hold the lock that ``ip netns add`` takes as well."""
    NETNS_DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor = os.open(NETNS_DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def bind_names(descriptors: Mapping[str, int]) -> None:
    """Give open namespaces names.

    Args:
        descriptors: Open descriptor of a namespace by its name.

    Raises:
        OSError: If the machine does not allow it, or a name is taken; then none of
            the names remains.
    """
    made: list[str] = []
    try:
        with _directory_lock():
            # As ip netns does: a shared mount point of its own, so that names appear
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
    """Remove names; those that are gone already are passed over.

    Raises:
        OSError: If the machine does not allow it.
    """
    for name in names:
        path = NETNS_DIRECTORY / name
        # Not mounted: a holder was killed between making the file and mounting.
        _libc.umount2(os.fsencode(path), _MNT_DETACH)
        with suppress(FileNotFoundError):
            path.unlink()

"""A file system in memory for a guest to boot from: busybox, modules, one script.

It mounts the machine's own root, read-only with a layer in memory above, and goes on
there: so the guest has the machine's programs and libraries without an image of a disk.
"""

from __future__ import annotations

import stat
from pathlib import Path

_INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in $(cat /modules.load); do
    insmod /modules/$module || echo "cannot load $module"
done
shared=trans=virtio,version=9p2000.L,msize=262144
mount -t 9p -o $shared,cache=loose,ro host /lower || echo "no root of the host"
mount -t tmpfs tmpfs /upper
mkdir /upper/changes /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/changes,workdir=/upper/work \\
    overlay /new || echo "no layer above it"
mkdir -p /new/guest
mount -t 9p -o $shared,cache=none guest /new/guest || echo "no folder of the guest"
for place in proc sys dev; do mount --move /$place /new/$place; done
exec switch_root /new /bin/sh /guest/main.sh
"""
_FOLDERS = ("bin", "dev", "lower", "modules", "new", "proc", "sys", "upper")
_END = "TRAILER!!!"


def make_initramfs(*, busybox: Path, modules: tuple[Path, ...]) -> bytes:
    """Return the archive (cpio, "newc", not compressed).

    Args:
        busybox: A static one.
        modules: In the order in which they are to be loaded.
    """
    files = [
        _entry("init", stat.S_IFREG | 0o755, _INIT.encode()),
        _entry("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes()),
        _entry(
            "modules.load",
            stat.S_IFREG | 0o644,
            "\n".join(each.name for each in modules).encode(),
        ),
        *(
            _entry(f"modules/{each.name}", stat.S_IFREG | 0o644, each.read_bytes())
            for each in modules
        ),
    ]
    folders = [_entry(name, stat.S_IFDIR | 0o755, b"") for name in _FOLDERS]
    return b"".join((*folders, *files, _entry(_END, 0, b"")))


def _entry(name: str, mode: int, data: bytes) -> bytes:
    """Return one entry: 13 numbers of 8 hexadecimal digits, the name, the data."""
    path = name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    numbers = (0, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(path), 0)
    header = b"070701" + b"".join(b"%08X" % number for number in numbers)
    return _padded(header + path) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)

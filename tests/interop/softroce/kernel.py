"""A kernel with Soft-RoCE: Debian's own, downloaded and unpacked, never installed.

Only the image and the modules that the guest loads are kept, in a folder of the user's
cache, so that later runs download nothing.
"""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Backports and cloud kernels aside, both have rdma_rxe. The first is in Debian 12's
# security archive and is the one that later releases have, too.
PACKAGES = ("linux-image-6.12-amd64", "linux-image-amd64")

MODULES = (
    *("virtio_pci", "9pnet_virtio", "9p", "overlay"),
    # Without the second, Soft-RoCE of these kernels makes no device.
    *("rdma_rxe", "crc32_generic", "ib_uverbs", "virtio_net", "ifb"),
    *("sch_netem", "sch_red", "sch_htb", "sch_ingress", "cls_flower", "act_mirred"),
)
"""What the guest loads, without what these depend on."""

_PARTS = ("arch", "crypto", "drivers/infiniband", "drivers/net", "drivers/virtio")
_WANTED = tuple(f"kernel/{part}/" for part in (*_PARTS, "fs", "lib", "net", "mm"))
_LIMIT_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """An unpacked kernel: its image, and all modules in the order to load them."""

    image: Path
    modules: tuple[Path, ...]


def cache_folder() -> Path:
    """Return where kernels are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "chakram" / "softroce"


def cached_kernel() -> Kernel | None:
    """Return a kernel that has been unpacked before; None if there is none."""
    for folder in sorted(cache_folder().glob("linux-image-*"), reverse=True):
        names = (folder / "modules.load").read_text().split()
        return Kernel(
            image=folder / "vmlinuz",
            modules=tuple(folder / "modules" / name for name in names),
        )
    return None


def fetch_kernel() -> Kernel:
    """Return the kernel of the cache, downloaded first if it is not there.

    Raises:
        RuntimeError: If this system has no such package, or it cannot be unpacked.
    """
    kernel = cached_kernel()
    if kernel is not None:
        return kernel
    package = _package()
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as place:
        folder = Path(place)
        # apt gives up its rights before it downloads, and must be able to write.
        folder.chmod(0o777)
        _download(package, folder)
        (archive,) = folder.glob("*.deb")
        ready = folder / package
        _unpack(archive, folder / "root", ready)
        with suppress(OSError):  # another run was faster
            ready.rename(cache_folder() / package)
    kernel = cached_kernel()
    assert kernel is not None
    return kernel


def _download(package: str, folder: Path) -> None:
    try:
        _run("apt-get", "download", "-qq", package, cwd=folder)
    except RuntimeError:
        # What is known of the archive may be old: it may have another version by now.
        _update()
        _run("apt-get", "download", "-qq", package, cwd=folder)


def _update() -> None:
    """Read the index of the archive; wait for other processes that do the same."""
    for pause_s in (10, 20, 30, 0):
        try:
            _run("apt-get", "update", "-qq")
        except RuntimeError:
            if not pause_s:
                raise
            time.sleep(pause_s)
        else:
            return


def _package() -> str:
    """Return the package of the newest kernel that this system's archive has."""
    found = _named_package()
    if found is None:
        _update()
        found = _named_package()
    if found is None:
        raise RuntimeError(f"the package archive has none of {', '.join(PACKAGES)}")
    return found


def _named_package() -> str | None:
    """Return what the first of the meta packages that is known here depends on."""
    for name in PACKAGES:
        shown = subprocess.run(
            ["apt-cache", "show", "--no-all-versions", name],
            capture_output=True,
            text=True,
            check=False,
        )
        for line in shown.stdout.splitlines():
            if line.startswith("Depends: linux-image-"):
                return line.split()[1].rstrip(",")
    return None


def _unpack(archive: Path, root: Path, ready: Path) -> None:
    """Put image and modules of a package into *ready*, by way of *root*."""
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE
    ) as unpacking:
        assert unpacking.stdout is not None
        with tarfile.open(fileobj=unpacking.stdout, mode="r|") as tar:
            for member in tar:
                if member.isfile() and _is_wanted(member.name):
                    tar.extract(member, root, filter="data")
    if unpacking.returncode:
        raise RuntimeError(f"dpkg-deb could not unpack {archive.name}")
    (release,) = (each.name for each in (root / "lib" / "modules").iterdir())
    _run("depmod", "-b", str(root), release)
    paths: dict[Path, None] = {}
    for module in MODULES:
        shown = _run(
            *("modprobe", "-d", str(root), "-S", release, "--show-depends", module)
        )
        for line in shown.splitlines():
            if line.startswith("insmod "):
                paths[Path(line.split()[1])] = None
    (ready / "modules").mkdir(parents=True)
    names = []
    for path in paths:
        name = path.name.removesuffix(".xz")
        data = path.read_bytes()
        if path.suffix == ".xz":
            data = lzma.decompress(data)
        (ready / "modules" / name).write_bytes(data)
        names.append(name)
    (image,) = (root / "boot").glob("vmlinuz-*")
    shutil.move(image, ready / "vmlinuz")
    (ready / "modules.load").write_text("\n".join(names))


def _is_wanted(name: str) -> bool:
    if name.startswith("./boot/vmlinuz-"):
        return True
    if not name.startswith("./lib/modules/"):
        return False
    inner = name.split("/", 4)[-1]
    return inner.startswith("modules.") or inner.startswith(_WANTED)


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout

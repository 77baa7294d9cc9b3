"""The agent bundle: an archive with an agent of the same version as the controller.

A host needs no package index, no compiler and no installation to run the agent. The
host needs a Python of the controller's version, unless the bundle contains an
interpreter.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import importlib.resources
import importlib.util
import io
import json
import platform
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from lzma import LZMAError
from pathlib import Path, PurePosixPath

import chakram
from chakram.foundation.errors import ConfigError, EnvironmentProblem

DISTRIBUTIONS = (
    "cryptography",
    "grpcio",
    "prometheus-client",
    "protobuf",
    "pyroute2",
    "typing-extensions",
)
"""Python distributions that an agent imports."""
_PLUG_IN_GROUPS = ("chakram.algorithms", "chakram.congestion_controls")
_CHUNK_BYTES = 1 << 20
_SKIPPED = {".pyi", ".pyc", ".pxd", ".pyx", ".proto", ".c", ".pem"}
_START = """\
#!/bin/sh
# The host agent of Chakram {version}, for Python {python} on {machine}.
here=$(cd "$(dirname "$0")" && pwd) || exit
for python in "$here/python/bin/python3" python{python} python3; do
    if "$python" -c 'import sys; sys.exit(sys.version_info[:2] != {pair})' 2>/dev/null
    then
        PYTHONPATH="$here/site" PYTHONDONTWRITEBYTECODE=1 \\
            exec "$python" -P -s -m chakram_agent "$@"
    fi
done
echo "chakram-agent: this host has no Python {python}: install it, or push a bundle" \\
    "with an interpreter (chakram hosts push --python FILE)" >&2
exit 3
"""
_MODULES = """\
import ast, importlib, json, pathlib, pkgutil, sys
import chakram.collectives, chakram.roce, chakram_agent
# Congestion controls and algorithms are modules that are found by name.
for package in (chakram.collectives, chakram.roce, chakram_agent):
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
for path in pathlib.Path(chakram_agent.__path__[0]).rglob("*.py"):
    # Functions import some modules on demand.
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("chakram."):
            importlib.import_module(node.module)
found = [sys.modules[name] for name in sorted(sys.modules)]
print(json.dumps([
    [each.__name__, each.__file__] for each in found
    if each.__name__.partition(".")[0] in ("chakram", "chakram_agent")
    and getattr(each, "__file__", None)
]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentBundle:
    """A bundle's archive, and the folder that it unpacks to.

    Attributes:
        data: The archive, a compressed tar file.
        folder: Name of the only folder in the archive. The name contains the bundle's
            digest.
        unpacked_bytes: Size of the unpacked files, without an interpreter.
    """

    data: bytes
    folder: str
    unpacked_bytes: int

    @property
    def command(self) -> str:
        """Path of the agent's command in the archive."""
        return f"{self.folder}/chakram-agent"


def make_bundle(interpreter: Path | None = None) -> AgentBundle:
    """Return a bundle with the agent of this installation.

    Args:
        interpreter: Archive of a relocatable CPython for the hosts, with a folder
            ``python``. If None, hosts need a Python of this version.

    Raises:
        ConfigError: If *interpreter* is not an archive of an interpreter, or has
            another version.
        EnvironmentProblem: If files of this installation are missing.
    """
    version = ".".join(platform.python_version_tuple()[:2])
    if interpreter is not None:
        _check_interpreter(interpreter, version)
    files = dict(_files())
    files |= _stripped({each: files[each] for each in files if each.endswith(".so")})
    machine = platform.machine()
    files["chakram-agent"] = _START.format(
        version=chakram.__version__,
        python=version,
        machine=machine,
        pair=tuple(sys.version_info[:2]),
    ).encode()
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{name} {len(data)} ".encode() + data)
    if interpreter is not None:
        # A host may already have the same files without an interpreter, so choose a new
        # folder.
        with interpreter.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    identity = digest.hexdigest()[:12]
    files["bundle.json"] = json.dumps(
        {
            "version": chakram.__version__,
            "digest": identity,
            "python": version,
            "machine": machine,
            "libc": " ".join(platform.libc_ver()),
        },
        indent=1,
    ).encode()
    folder = f"chakram-agent-{chakram.__version__}-{identity}"
    output = io.BytesIO()
    # Equal files must result in equal archives, so use no time stamps.
    with (
        gzip.GzipFile(fileobj=output, mode="wb", compresslevel=3, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(data)
            info.mode = 0o755 if name == "chakram-agent" else 0o644
            archive.addfile(info, io.BytesIO(data))
        if interpreter is not None:
            _add_interpreter(archive, interpreter, folder)
    return AgentBundle(
        data=output.getvalue(),
        folder=folder,
        unpacked_bytes=sum(map(len, files.values())),
    )


def _files() -> Iterator[tuple[str, bytes]]:
    """Yield the files of the agent and its imports, with their names in the bundle.

    Raises:
        EnvironmentProblem: If a distribution is not installed.
    """
    found = subprocess.run(
        [sys.executable, "-c", _MODULES], capture_output=True, text=True, check=False
    )
    if found.returncode:
        raise EnvironmentProblem(
            "chakram_agent",
            f"cannot be imported: {_last_line(found)}",
            "install chakram again",
        )
    for name, file in json.loads(found.stdout):
        path = Path(file)
        folder = PurePosixPath(*name.split("."))
        is_package = path.name.startswith("__init__.")
        target = folder if is_package else folder.parent
        yield f"site/{target}/{path.name}", path.read_bytes()
        # Chakram checks compiled modules against their sources and C types.
        for suffix in (".py", ".pxd", ".pyx"):
            source = path.with_name(path.name.partition(".")[0] + suffix)
            if source != path and source.exists():
                yield f"site/{target}/{source.name}", source.read_bytes()
    for package in ("chakram", "chakram_agent"):
        root = Path(str(importlib.resources.files(package)))
        types = [
            each for each in root.rglob("*.pxd") if not each.with_suffix(".py").exists()
        ]
        for each in (*root.glob("_compiled.*.json"), root / "__main__.py", *types):
            if each.exists():
                name = each.relative_to(root)
                yield f"site/{package}/{name}", each.read_bytes()
    # cryptography needs only the compiled half of cffi.
    cffi = importlib.util.find_spec("_cffi_backend")
    if cffi is not None and cffi.origin is not None:
        path = Path(cffi.origin)
        yield f"site/{path.name}", path.read_bytes()
    for name in (*DISTRIBUTIONS, *_plug_ins()):
        try:
            listed = importlib.metadata.files(name)
        except importlib.metadata.PackageNotFoundError:
            listed = None
        if listed is None:
            raise EnvironmentProblem(
                name, "is not installed", "install chakram again with its dependencies"
            )
        for installed in listed:
            if installed.suffix not in _SKIPPED and ".." not in installed.parts:
                path = Path(str(installed.locate()))
                if path.is_file():
                    yield f"site/{installed}", path.read_bytes()


def _last_line(ended: subprocess.CompletedProcess[str]) -> str:
    """Return the last error line of a process, or how it ended if there is none."""
    lines = ended.stderr.strip().splitlines()
    return lines[-1] if lines else f"its process ended with {ended.returncode}"


def _stripped(libraries: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return libraries without debugging symbols, if this host has binutils."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {
            name: Path(folder) / f"{number}.so" for number, name in enumerate(libraries)
        }
        for name, path in paths.items():
            path.write_bytes(libraries[name])
        with suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(
                ["strip", "--strip-unneeded", *paths.values()],
                check=True,
                capture_output=True,
            )
        return {name: path.read_bytes() for name, path in paths.items()}


def _plug_ins() -> list[str]:
    """Return the names of the installed distributions with plug-ins for Chakram."""
    found = {
        entry.dist.name
        for group in _PLUG_IN_GROUPS
        for entry in importlib.metadata.entry_points(group=group)
        if entry.dist is not None
    }
    return sorted(found)


def _check_interpreter(path: Path, version: str) -> None:
    """Check the archive of an interpreter.

    Raises:
        ConfigError: If the file is not such an archive, or has another version.
    """
    where = f"--python {path}"
    hint = f"use a relocatable CPython {version}, e.g. of python-build-standalone"
    try:
        with tarfile.open(path) as source:
            names = source.getnames()
            # Read to the end, because checksums follow the last file.
            assert source.fileobj is not None
            while source.fileobj.read(_CHUNK_BYTES):
                pass
    except (OSError, tarfile.TarError, EOFError, LZMAError, zlib.error) as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        raise ConfigError(where, f"cannot be read ({reason})", hint) from error
    if f"python/bin/python{version}" not in names:
        raise ConfigError(where, f"has no python/bin/python{version}", hint)


def _add_interpreter(archive: tarfile.TarFile, path: Path, folder: str) -> None:
    """Add the files of a relocatable CPython below ``python``."""
    with tarfile.open(path) as source:
        for member in source:
            if not member.name.startswith("python/") or ".." in member.name:
                continue
            content = source.extractfile(member) if member.isfile() else None
            member.name = f"{folder}/{member.name}"
            if member.islnk():
                member.linkname = f"{folder}/{member.linkname}"
            member.uid = member.gid = 0
            archive.addfile(member, content)

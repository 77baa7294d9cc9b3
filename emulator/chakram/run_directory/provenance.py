"""Provenance of a run's numbers: versions and properties of the machine."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import chakram
from chakram import _compiled
from chakram.foundation.platform_support import usable_cores

_LIBRARIES = (
    "grpcio",
    "protobuf",
    "prometheus-client",
    "pyarrow",
    "pydantic",
    "pyroute2",
)


def versions() -> dict[str, str]:
    """Return the versions of Chakram, Python, the kernel and the libraries, by name."""
    found = {
        "chakram": chakram.__version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
    }
    return found | {library: _installed(library) for library in _LIBRARIES}


@cache
def _installed(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "not installed"


def compiled() -> dict[str, Any]:
    """Return the hot modules that run compiled, and why others do not."""
    status = _compiled.status()
    return {**asdict(status), "all_compiled": status.is_compiled()}


def host_facts(proc: Path = Path("/proc")) -> dict[str, Any]:
    """Return properties of this machine that limit a run. Unreadable ones are None."""
    return {
        "hostname": platform.node(),
        "machine": platform.machine(),
        "cpu_model": _value(proc / "cpuinfo", "model name", "Model", "cpu model"),
        "cores": os.cpu_count(),
        "usable_cores": len(usable_cores()),
        "memory_bytes": _memory_bytes(proc / "meminfo"),
        "rmem_max_bytes": _number(proc / "sys/net/core/rmem_max"),
        "wmem_max_bytes": _number(proc / "sys/net/core/wmem_max"),
    }


def _value(path: Path, *names: str) -> str | None:
    """Return the value of the first line ``NAME: VALUE`` with one of some names."""
    for line in _lines(path):
        name, _, value = line.partition(":")
        if name.strip() in names:
            return value.strip()
    return None


def _memory_bytes(path: Path) -> int | None:
    kibibytes = (_value(path, "MemTotal") or "").partition(" ")[0]
    return int(kibibytes) * 1024 if kibibytes.isdigit() else None


def _number(path: Path) -> int | None:
    for line in _lines(path):
        return int(line) if line.strip().isdigit() else None
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []

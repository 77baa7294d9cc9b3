"""Facts about the host and the installation of an agent, for its description."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path


def numa_nodes(
    cpus: Collection[int], folder: Path = Path("/sys/devices/system/cpu")
) -> tuple[int, ...]:
    """Return the numbers of the NUMA nodes that these CPUs belong to."""
    links = (link for cpu in cpus for link in folder.glob(f"cpu{cpu}/node[0-9]*"))
    return tuple(sorted({int(link.name.removeprefix("node")) for link in links}))


def bundle_digest(folder: Path) -> str:
    """Return the digest of the agent bundle in a folder; empty if there is none."""
    try:
        digest = json.loads((folder / "bundle.json").read_text())["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(digest)

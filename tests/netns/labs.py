"""Topologies and traffic for tests of labs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chakram.fabric.enter_lab import enter_command
from chakram.fabric.labs.lab_spec import encode_state
from chakram.topology.topology import Topology
from chakram.topology.topology_helpers import single_switch
from tests.leaf_spines import clos
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from chakram.fabric.labs.lab_spec import LabState

NETNS = Path("/run/netns")
GBIT = 10**9
QUEUE_BYTES = 2 << 20
HEADER_BYTES = {"ipv4": 14 + 20 + 8, "ipv6": 14 + 40 + 8}
"""Of a packet, by family: Ethernet, IP and UDP."""

_TRAFFIC = Path(__file__).with_name("traffic.py")


def star(nhosts: int, rate_bps: int | None = GBIT) -> Topology:
    """Return hosts on one switch."""
    return single_switch(nhosts, rate_bps, host_queue_bytes=QUEUE_BYTES)


def leaf_spine() -> Topology:
    """Return two leaves, two spines and four hosts per leaf, at 1 Gbit/s."""
    return clos(
        *(2, 2, 4, GBIT, GBIT),
        host_queue_bytes=QUEUE_BYTES,
        uplink_queue_bytes=QUEUE_BYTES,
    )


def traffic(lab: LabState, kind: str, *arguments: str) -> Any:
    """Return the result of a type of traffic, see ``traffic.py``.

    It is made by a process that entered the lab as an agent would, so that the same
    tests hold with and without root.
    """
    command = [sys.executable, str(_TRAFFIC), kind, *arguments]
    done = subprocess.run(
        enter_command(lab.holder_pid, command) if lab.rootless else command,
        input=encode_state(lab),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def names_of(lab: str) -> list[str]:
    """Return the names of network namespaces that belong to a lab."""
    return sorted(path.name for path in NETNS.glob(f"{lab}-*"))

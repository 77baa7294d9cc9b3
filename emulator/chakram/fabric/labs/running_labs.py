"""Labs that are up, as ``fabric up`` left them, and runs that take place in them.

A run uses such a lab instead of building one of its own, and leaves it as it found it.
Only one at a time: two would share queues that each takes for its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chakram.fabric.labs.lab import lab_status
from chakram.fabric.labs.lab_files import (
    CONTROLLER,
    lab_directory,
    locked,
    register_process,
    registered_processes,
    sockets_directory,
    state_root,
    unregister,
)
from chakram.fabric.labs.namespace_names import end_processes
from chakram.foundation.errors import FabricError
from chakram.foundation.ip_addresses import IPV4, IPV6
from chakram.foundation.units import format_rate, format_size

if TYPE_CHECKING:
    from chakram.fabric.labs.description import LabState
    from chakram.switch.profiles import Profile
    from chakram.topology.topology import Link, Topology


_LISTED = 3


def standing_lab(lab: str) -> LabState | None:
    """Return a lab that is up until somebody takes it down, None if there is none.

    Raises:
        FabricError: If its files were written by another version.
    """
    found = lab_status(lab)
    if found is None or not found.alive or found.state is None:
        return None
    return found.state if found.state.lifetime == "up" else None


def lab_differences(
    state: LabState,
    *,
    topology: Topology,
    seed: int,
    addressing: str,
    mtu: int,
    capture_hosts: Sequence[str],
    forwarding: str = "kernel",
    profile: Profile | None = None,
) -> list[str]:
    """Return how a lab is not what ``start_lab`` would make of the same arguments.

    Delays and marks of links are left out where the kernel forwards, which has none,
    and the seed where there are no equal-cost paths that it could choose among.
    """
    own = state.topology
    found = []
    if _shape(own) != _shape(topology):
        found.append(
            f"it has {_counts(own)}, the experiment "
            f"{_counts(topology)}{_other_names(own, topology)}"
        )
    else:
        found += _link_differences(own, topology)
        is_model = state.forwarding == forwarding == "model"
        if is_model and _delays_and_marks(own) != _delays_and_marks(topology):
            found.append("its links have other delays or marks")
    families = {IPV6 if ":" in host.address else IPV4 for host in state.hosts}
    for name, has, wanted in (
        ("addressing", " and ".join(sorted(families)), addressing),
        ("MTU", str(state.mtu), str(mtu)),
        ("capture", _listed(state.capture_hosts), _listed(capture_hosts)),
        ("forwarding", state.forwarding, forwarding),
    ):
        if has != wanted:
            found.append(f"{name} {has}, the experiment {wanted}")
    if state.forwarding == forwarding == "model" and state.profile != profile:
        found.append("its switches are set otherwise")
    if state.seed != seed and any(map(topology.has_choice, topology.switches)):
        found.append(
            f"seed {state.seed}, the experiment {seed}: it decides the paths of flows"
        )
    return found


def check_lab(state: LabState, differences: Sequence[str]) -> None:
    """Refuse a lab that is not the fabric of the experiment.

    Raises:
        FabricError: If it differs; with all differences.
    """
    if differences:
        raise FabricError(
            f"lab {state.name}",
            "is up, and is not the fabric of the experiment: " + "; ".join(differences),
            f"change the experiment, name another lab with --lab, or take this one "
            f"down: chakram fabric down {state.name}",
        )


@contextmanager
def claimed(lab: str, pid: int) -> Iterator[None]:
    """Be the one run in a lab that is up; what it made there is gone after the block.

    What a run left that was killed ends first.

    Args:
        lab: Its name.
        pid: The controller's process, usually the caller.

    Raises:
        FabricError: If another run is in it.
    """
    root = state_root()
    directory = lab_directory(lab, root)
    with locked(root):
        for each in registered_processes(directory):
            if each.role == CONTROLLER:
                raise FabricError(
                    f"lab {lab}",
                    f"another run is in it, process {each.pid}",
                    "wait for its end, or bring up another lab: "
                    "chakram fabric up EXPERIMENT --lab NAME",
                )
        end_processes(directory, spare=frozenset({pid}))
        _clear(lab)
        register_process(lab, pid, CONTROLLER)
    try:
        yield
    finally:
        with locked(root):
            _clear(lab)
            unregister(lab, pid)


def _clear(lab: str) -> None:
    """Remove the sockets and notes of processes that have ended."""
    directory = lab_directory(lab)
    alive = {each.pid for each in registered_processes(directory)}
    for folder in (sockets_directory(lab), directory / "pids"):
        if folder.is_dir():
            for path in folder.iterdir():
                if path.name not in map(str, alive):
                    path.unlink(missing_ok=True)


def _delays_and_marks(topology: Topology) -> list[object]:
    return [(link.delay_ns, link.ecn) for link in topology.links]


def _shape(topology: Topology) -> tuple[object, ...]:
    links = tuple((link.name, link.a, link.b) for link in topology.links)
    return topology.hosts, topology.switches, links


def _counts(topology: Topology) -> str:
    return (
        f"{len(topology.hosts)} hosts, {len(topology.switches)} switches and "
        f"{len(topology.links)} links"
    )


def _other_names(own: Topology, wanted: Topology) -> str:
    return ", joined otherwise" if _counts(own) == _counts(wanted) else ""


def _link_differences(own: Topology, wanted: Topology) -> list[str]:
    """Return what links of the same ends have that others have not, by kind."""
    by_text: dict[str, list[str]] = {}
    for has, wants in zip(own.links, wanted.links, strict=True):
        if _limits(has) != _limits(wants):
            text = f"{_limits(has)}, the experiment {_limits(wants)}"
            by_text.setdefault(text, []).append(has.name)
    return [f"{_names(links)} {text}" for text, links in by_text.items()]


def _limits(link: Link) -> str:
    rate = "no rate" if link.rate_bps is None else format_rate(link.rate_bps)
    if link.queue_bytes is None:
        return rate
    return f"{rate} with a queue of {format_size(link.queue_bytes)}"


def _names(links: Sequence[str]) -> str:
    more = len(links) - _LISTED
    listed = ", ".join(links[:_LISTED])
    return f"{listed} and {more} more have" if more > 0 else f"{listed} has"


def _listed(hosts: Sequence[str]) -> str:
    return ", ".join(hosts) or "nowhere"

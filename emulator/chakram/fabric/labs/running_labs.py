"""Labs started with ``fabric up``, and runs that use them.

A run uses the running lab instead of building a lab, and leaves it unchanged. Only one
run may use a lab at a time, because each run assumes that the queues contain only its
packets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from chakram.fabric.labs import lab_files
from chakram.fabric.labs.lab import lab_status
from chakram.fabric.labs.lab_spec import LabState
from chakram.fabric.labs.netns_mounts import end_processes
from chakram.foundation.errors import FabricError
from chakram.foundation.ip_addresses import IPV4, IPV6
from chakram.foundation.units import exact_rate, format_size
from chakram.switch.profiles import Profile
from chakram.topology.topology import Link, Topology

_LISTED = 3


def find_running_lab(lab: str) -> LabState | None:
    """Return a running lab of lifetime ``up``, or None if there is none.

    Raises:
        FabricError: If the lab's files were written by another version of Chakram.
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
    """Return the differences between a lab and an experiment's fabric, as clauses.

    With kernel forwarding, delays and ECN marks are not compared, because the kernel
    applies neither. The seed is not compared if no switch has equal-cost paths or marks
    packets.
    """
    own = state.topology
    is_model = state.forwarding == forwarding == "model"
    found = []
    if _shape(own) != _shape(topology):
        found.append(
            f"it has {_counts(own)}, but the experiment has "
            f"{_counts(topology)}{_other_names(own, topology)}"
        )
    else:
        found += _link_differences(own, topology)
        if is_model and _delays_and_marks(own) != _delays_and_marks(topology):
            found.append("its links have different delays or marks")
    families = {IPV6 if ":" in host.address else IPV4 for host in state.hosts}
    for name, has, wanted in (
        ("addressing", " and ".join(sorted(families)), addressing),
        ("MTU", str(state.mtu), str(mtu)),
        ("capture", _listed(state.capture_hosts), _listed(capture_hosts)),
        ("forwarding", state.forwarding, forwarding),
    ):
        if has != wanted:
            found.append(f"{name} is {has}, but {wanted} in the experiment")
    if is_model and state.profile != profile:
        found.append("its switches have different settings")
    if state.seed != seed and (what := _drawn(topology, is_model=is_model)):
        found.append(
            f"seed is {state.seed}, but {seed} in the experiment: it determines {what}"
        )
    return found


def _drawn(topology: Topology, *, is_model: bool) -> str:
    """Return what a lab's seed determines, or an empty text if it has no effect."""
    if any(map(topology.has_choice, topology.switches)):
        return "the paths of flows"
    if is_model and any(link.ecn is not None for link in topology.links):
        return "the marks of packets"
    return ""


def check_lab(state: LabState, differences: Sequence[str]) -> None:
    """Check that a lab does not differ from the fabric of the experiment.

    Raises:
        FabricError: If there are differences. The error lists them.
    """
    if differences:
        raise FabricError(
            f"lab {state.name}",
            "is up, but differs from the fabric of the experiment: "
            + "; ".join(differences),
            f"change the experiment, name another lab with --lab, or take this one "
            f"down: chakram fabric down {state.name}",
        )


@contextmanager
def claimed(lab: str, pid: int) -> Iterator[None]:
    """Reserve a running lab for one run, and remove leftovers after the block.

    The function first ends processes that a killed run left behind.

    Args:
        lab: Name of the lab.
        pid: The controller's process, usually the caller.

    Raises:
        FabricError: If another run uses the lab.
    """
    root = lab_files.state_root()
    directory = lab_files.lab_directory(lab, root)
    with lab_files.locked(root):
        for each in lab_files.registered_processes(directory):
            if each.role == lab_files.CONTROLLER:
                raise FabricError(
                    f"lab {lab}",
                    f"another run uses it (process {each.pid})",
                    "wait until it ends, or bring up another lab: chakram fabric up "
                    "EXPERIMENT --lab NAME",
                )
        end_processes(directory, spare=frozenset({pid}))
        _clear(lab)
        lab_files.register_process(lab, pid, lab_files.CONTROLLER)
    try:
        yield
    finally:
        with lab_files.locked(root):
            _clear(lab)
            lab_files.unregister(lab, pid)


def _clear(lab: str) -> None:
    """Remove the sockets and process files of processes that have ended."""
    directory = lab_files.lab_directory(lab)
    alive = {each.pid for each in lab_files.registered_processes(directory)}
    for folder in (lab_files.sockets_directory(lab), directory / "pids"):
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
    return ", connected differently" if _counts(own) == _counts(wanted) else ""


def _link_differences(own: Topology, wanted: Topology) -> list[str]:
    """Return the differing rates and queues of links, grouped by difference."""
    by_text: dict[str, list[str]] = {}
    for has, wants in zip(own.links, wanted.links, strict=True):
        if _limits(has) != _limits(wants):
            text = f"{_limits(has)}, but {_limits(wants)} in the experiment"
            by_text.setdefault(text, []).append(has.name)
    return [f"{_names(links)} {text}" for text, links in by_text.items()]


def _limits(link: Link) -> str:
    # Use exact texts, because links with equal texts count as equal.
    rate = "no rate" if link.rate_bps is None else f"{exact_rate(link.rate_bps)}/s"
    if link.queue_bytes is None:
        return rate
    return f"{rate} with a queue of {format_size(link.queue_bytes)}"


def _names(links: Sequence[str]) -> str:
    more = len(links) - _LISTED
    listed = ", ".join(links[:_LISTED])
    return f"{listed} and {more} more have" if more > 0 else f"{listed} has"


def _listed(hosts: Sequence[str]) -> str:
    return ", ".join(hosts) or "nowhere"

"""Removing what a lab left outside its namespaces."""

from __future__ import annotations

from pathlib import Path

from chakram.errors import FabricError
from chakram.fabric.marks import marked_names
from chakram.fabric.names import unbind_names
from chakram.fabric.process import end_process
from chakram.fabric.state import (
    lab_directory,
    read_holder,
    registered_processes,
    remove_directory,
)

_GRACE_NS = 2 * 10**9


def end_processes(directory: Path, *, spare: frozenset[int]) -> int:
    """End the processes that registered with a lab; return how many there were.

    Args:
        directory: The lab's directory.
        spare: Processes that are left alone: the caller and whoever started it.
    """
    ended = 0
    for process in registered_processes(directory):
        if process.pid not in spare:
            ended += end_process(process.pid, process.start_ticks, grace_ns=_GRACE_NS)
    return ended


def _remove_stray_names(lab: str, root: Path) -> bool:
    """Remove names of a lab whose directory was deleted; return if there were any."""
    stray = marked_names(root, lab)
    if any(each.in_use for each in stray):
        raise FabricError(
            f"lab {lab}",
            f"it runs, and its directory in {root} was deleted",
            f"end it with: chakram fabric down {lab}",
        )
    unbind_names(each.name for each in stray)
    return bool(stray)


def remove_leftovers(lab: str, root: Path, *, spare: frozenset[int]) -> bool:
    """Remove what a lab without a holder left; the root must be locked.

    Returns:
        Whether there was anything.

    Raises:
        FabricError: If the lab's holder still runs.
    """
    directory = lab_directory(lab, root)
    if not directory.exists():
        return _remove_stray_names(lab, root)
    holder = read_holder(directory)
    if holder is not None and holder.alive:
        raise FabricError(
            f"lab {lab}",
            "it runs already",
            "choose another name with --lab NAME",
        )
    end_processes(directory, spare=spare)
    if holder is not None:
        unbind_names(holder.netns_names)
    remove_directory(directory)
    return True

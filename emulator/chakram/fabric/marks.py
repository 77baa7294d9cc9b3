"""The mark of a lab in its namespaces: whose they are, also without the lab's files.

Names in ``/run/netns`` outlive the directory of a lab if somebody deletes that.  So the
loopback interface of every namespace has an alias (``ip link``) that says which lab
made it, for which holder, and in which state directory: names are removed by that, and
never because they look like ours.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.errors import FabricError, PrivilegeError
from chakram.fabric.names import NETNS_DIRECTORY
from chakram.fabric.netns import open_namespace, run_in_namespace
from chakram.fabric.process import is_alive

if TYPE_CHECKING:
    from pyroute2 import AsyncIPRoute

    from chakram.fabric.namespaces import Namespace


_WORD = "chakram-lab"
_LOOPBACK_INDEX = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedName:
    """A name of a namespace that a lab of this state directory made.

    Attributes:
        name: In ``/run/netns``.
        lab: Which lab.
        holder_pid: The process that made it.
        holder_start_ticks: When that started.
    """

    name: str
    lab: str
    holder_pid: int
    holder_start_ticks: int

    @property
    def in_use(self) -> bool:
        """Whether the holder of its lab still runs."""
        return is_alive(self.holder_pid, self.holder_start_ticks)


def mark_namespaces(
    namespaces: Iterable[Namespace], *, lab: str, root: Path, pid: int, start_ticks: int
) -> None:
    """Mark the namespaces of a lab as its own.

    Raises:
        FabricError: If the kernel refuses.
    """
    from chakram.fabric.netlink import ask

    mark = f"{_WORD} {lab} {pid} {start_ticks} {_digest(root)}"

    async def set_alias(route: AsyncIPRoute) -> None:
        await route.link("set", index=_LOOPBACK_INDEX, ifalias=mark)

    ask([each.netlink for each in namespaces], set_alias, "interface lo")


def marked_names(root: Path, lab: str | None = None) -> list[MarkedName]:
    """Return the names in ``/run/netns`` that labs of a state directory made.

    Args:
        root: The state directory.
        lab: Only names of this lab; None: of all.
    """
    start = "" if lab is None else f"{lab}-"
    try:
        names = sorted(os.listdir(NETNS_DIRECTORY))
    except OSError:
        return []
    marks = {name: _mark(name) for name in names if name.startswith(start)}
    return [
        mark
        for name, words in marks.items()
        if (mark := _understood(name, words, root)) and lab in (None, mark.lab)
    ]


def _digest(root: Path) -> str:
    # An alias has 255 characters at most, and paths may be longer.
    return hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:16]


def _understood(name: str, words: list[str], root: Path) -> MarkedName | None:
    """Return whose name it is, None if it is none of ours."""
    match words:
        case [word, lab, pid, ticks, digest] if (
            word == _WORD
            and digest == _digest(root)
            and name.startswith(f"{lab}-")
            and pid.isdecimal()
            and ticks.isdecimal()
        ):
            return MarkedName(
                name=name,
                lab=lab,
                holder_pid=int(pid),
                holder_start_ticks=int(ticks),
            )
    return None


def _mark(name: str) -> list[str]:
    """Return the words of the mark in a namespace; none if it cannot be looked at."""
    try:
        descriptor = open_namespace(str(NETNS_DIRECTORY / name))
    except (FabricError, PrivilegeError):
        return []
    try:
        return run_in_namespace(descriptor, _alias, name).split()
    except (FabricError, PrivilegeError, OSError):
        return []
    finally:
        os.close(descriptor)


def _alias(name: str) -> str:
    """Return the alias of ``lo`` in the namespace of this thread."""
    from chakram.fabric.netlink import NetlinkSocket, ask

    async def alias(route: AsyncIPRoute) -> str:
        (link,) = await route.link("get", index=_LOOPBACK_INDEX)
        return str(link.get_attr("IFLA_IFALIAS") or "")

    with closing(NetlinkSocket(name)) as socket:
        return ask([socket], alias, "interface lo")[0]

"""Labs as their users see them: start one, look at them, take them down.

The lab itself lives in a process of its own (``chakram.fabric.labs.holder``), because
rootless labs exist only inside a user namespace, and because a lab must disappear with
its holder however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from chakram.fabric.child_processes import end_process
from chakram.fabric.labs.description import LabSpec, LabState, decode_state, encode_spec
from chakram.fabric.labs.holder_protocol import decode_error
from chakram.fabric.labs.lab_files import (
    CONTROLLER,
    RegisteredProcess,
    lab_directory,
    lab_names,
    locked,
    prepare_root,
    read_holder,
    read_state,
    register_process,
    registered_processes,
    sockets_directory,
    state_root,
    unregister,
)
from chakram.fabric.labs.namespace_names import (
    end_processes,
    marked_names,
    remove_leftovers,
)
from chakram.foundation.errors import FabricError
from chakram.switch.profiles import Profile
from chakram.topology.addressing import plan_addresses

if TYPE_CHECKING:
    from chakram.topology.topology import Topology

__all__ = [
    "LabHandle",
    "LabStatus",
    "down",
    "down_unused",
    "lab_status",
    "register_process",
    "sockets_directory",
    "start_lab",
    "status",
    "unregister",
]

_START_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 10
_GRACE_NS = 5 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class LabStatus:
    """What can be told about a lab, dead or alive.

    Attributes:
        name: Name of the lab.
        alive: Whether its holder runs; if not, ``fabric down`` removes the rest.
        state: The lab, once it stands.
        processes: Registered processes that still run.
    """

    name: str
    alive: bool
    state: LabState | None
    processes: tuple[RegisteredProcess, ...]

    @property
    def in_use(self) -> bool:
        """Whether a run needs it, or it is being built for somebody."""
        if not self.alive:
            return False
        return (
            self.state is None
            or self.state.lifetime == "run"
            or any(each.role == CONTROLLER for each in self.processes)
        )


class LabHandle:
    """A lab that was started here; as a context manager it ends with its block.

    Attributes:
        state: Addresses, namespaces and everything else about the lab.
    """

    def __init__(self, state: LabState, holder: subprocess.Popen[bytes] | None) -> None:
        self.state = state
        self._holder = holder

    async def stop(self) -> None:
        """End the lab and remove everything it made; nothing happens the second time.

        A lab of lifetime ``up`` ends as well.
        """
        holder, self._holder = self._holder, None
        if holder is not None:
            await asyncio.to_thread(_close_and_wait, holder)
        await down(self.state.name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


async def start_lab(
    topology: Topology,
    *,
    lab_name: str,
    seed: int = 1,
    addressing: str = "ipv4",
    mtu: int = 4200,
    capture_hosts: Iterable[str] = (),
    forwarding: str = "kernel",
    profile: Profile | None = None,
    lifetime: str = "run",
) -> LabHandle:
    """Build a lab and return it once its first packet can be sent.

    Call it from the main thread: a lab of lifetime ``run`` ends with the thread that
    started it.

    Args:
        topology: Hosts, switches and links.
        lab_name: Prefix of all that is visible outside; must not be in use.
        seed: Decides which of several equal-cost paths a flow takes.
        addressing: Address family of all interfaces, ``ipv4`` or ``ipv6``.
        mtu: Largest IP packet of every interface, in bytes.
        capture_hosts: Hosts on whose links bursts are cut into packets, for captures.
        forwarding: ``kernel``, or ``model`` for modelled switches in one process.
        profile: What modelled switches are like; None: as a kernel's.
        lifetime: ``run`` or ``up``; see ``chakram.fabric.labs.description.LIFETIMES``.

    Raises:
        PrivilegeError: If this user may not make namespaces on this machine.
        FabricError: If the lab runs already, or the kernel cannot build it.
    """
    # Refuse what has no room before anything starts.
    plan_addresses(topology, addressing)
    root = state_root()
    prepare_root(root)
    spec = LabSpec(
        name=lab_name,
        topology=topology,
        seed=seed,
        addressing=addressing,
        mtu=mtu,
        capture_hosts=tuple(capture_hosts),
        forwarding=forwarding,
        lifetime=lifetime,
        state_root=str(root),
        profile=profile or Profile(),
    )
    # Not in another thread: the kernel ties the holder to the thread that starts it.
    holder = subprocess.Popen(  # noqa: ASYNC220 - takes a millisecond
        [sys.executable, "-P", "-m", "chakram.fabric.labs.holder"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Ctrl-C in a terminal goes to every process of the foreground group: the lab
        # has to stand until those that use it have ended.
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            answer, complaint = await asyncio.to_thread(_converse, holder, spec)
        state = _understand(lab_name, answer, complaint)
    except BaseException as error:
        holder.terminate()  # it removes what it has made so far
        await asyncio.to_thread(_close_and_wait, holder)
        if isinstance(error, TimeoutError):
            raise FabricError(
                f"lab {lab_name}", f"not built within {_START_TIMEOUT_S} s"
            ) from error
        raise
    if lifetime == "up":
        await asyncio.to_thread(_close_and_wait, holder)
        return LabHandle(state, None)
    return LabHandle(state, holder)


def _converse(holder: subprocess.Popen[bytes], spec: LabSpec) -> tuple[bytes, bytes]:
    """Send the description; return the answer and, without one, the complaint."""
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stderr is not None
    with contextlib.suppress(BrokenPipeError):  # then there is a complaint
        holder.stdin.write(encode_spec(spec).encode() + b"\n")
        holder.stdin.flush()
    answer = holder.stdout.readline()
    complaint = b"" if answer else holder.stderr.read()
    holder.stdout.close()
    holder.stderr.close()
    return answer, complaint


def _understand(lab_name: str, answer: bytes, complaint: bytes) -> LabState:
    if not answer:
        lines = complaint.decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line), "it said nothing")
        raise FabricError(f"lab {lab_name}", f"its holder ended: {last}")
    text = answer.decode("utf-8", "replace")
    try:
        fields = json.loads(text)
    except ValueError:
        raise FabricError(
            f"lab {lab_name}", f"its holder answered {text[:80]!r}"
        ) from None
    refused = decode_error(fields)
    if refused is not None:
        raise refused
    return decode_state(text)


def _close_and_wait(holder: subprocess.Popen[bytes]) -> None:
    """Close the holder's standard input, which ends a run, and reap it."""
    for stream in (holder.stdin, holder.stdout, holder.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    try:
        holder.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        holder.kill()
        holder.wait()


def lab_status(lab: str) -> LabStatus | None:
    """Return what can be told about one lab, or None if there is nothing of it.

    Raises:
        FabricError: If its files were written by another version.
    """
    directory = lab_directory(lab)
    if not directory.is_dir():
        return None
    holder = read_holder(directory)
    return LabStatus(
        name=lab,
        alive=holder is not None and holder.alive,
        state=read_state(lab),
        processes=tuple(registered_processes(directory)),
    )


def status() -> list[LabStatus]:
    """Return what can be told about all labs of this user, by name."""
    found = (lab_status(lab) for lab in lab_names())
    return [each for each in found if each is not None]


async def down(lab: str | None = None) -> list[str]:
    """End a lab, or all labs of this user, and remove everything they left.

    Processes that registered with the lab end first, then its holder; what a killed
    holder left is removed.  Nothing else is touched, and a lab that does not exist is
    no error.

    Args:
        lab: Name of the lab; None for all.

    Returns:
        The names of the labs of which there was something.
    """
    labs = _known_labs() if lab is None else [lab]
    return [each for each in labs if await asyncio.to_thread(_down, each)]


async def down_unused() -> tuple[list[str], list[str]]:
    """Take down all labs of this user that no run needs, as ``down`` does.

    Returns:
        The names of the labs that ended, and of those that are in use.

    Raises:
        FabricError: If a lab's files were written by another version.
    """
    ended: list[str] = []
    in_use: list[str] = []
    for lab in _known_labs():
        found = lab_status(lab)
        if found is not None and found.in_use:
            in_use.append(lab)
        elif await asyncio.to_thread(_down, lab):
            ended.append(lab)
    return ended, in_use


def _known_labs() -> list[str]:
    """Return the labs of this user, also those of which only names are left."""
    stray = (each.lab for each in marked_names(state_root()) if not each.in_use)
    return sorted({*lab_names(), *stray})


def _down(lab: str) -> bool:
    root = state_root()
    directory = lab_directory(lab, root)
    if not directory.exists() and not marked_names(root, lab):
        return False
    prepare_root(root)  # never act on files that others may have written
    spare = frozenset({os.getpid(), os.getppid()})
    end_processes(directory, spare=spare)
    holder = read_holder(directory)
    if holder is not None:
        # Not under the lock: the holder takes it to remove its own things.
        end_process(holder.pid, holder.start_ticks, grace_ns=_GRACE_NS)
    elif not directory.exists():
        for pid, start_ticks in {
            (each.holder_pid, each.holder_start_ticks)
            for each in marked_names(root, lab)
        }:
            end_process(pid, start_ticks, grace_ns=_GRACE_NS)
    with locked(root):
        remove_leftovers(lab, root, spare=spare)
    return True

"""Functions that start, inspect and take down labs.

A separate process owns each lab (``chakram.fabric.labs.holder``), for two reasons:

- Rootless labs exist only inside a user namespace.
- A lab must disappear with its holder even if the holder crashes.
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
from typing import Self

from chakram.fabric.labs.holder_protocol import raise_error
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
from chakram.fabric.labs.lab_spec import LabSpec, LabState, decode_state, encode_spec
from chakram.fabric.labs.netns_mounts import (
    end_processes,
    marked_names,
    remove_leftovers,
)
from chakram.fabric.process_control import end_process
from chakram.foundation.errors import FabricError
from chakram.switch.profiles import Profile
from chakram.topology.addressing import plan_addresses
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
    """Status of a lab, running or dead.

    Attributes:
        name: Name of the lab.
        alive: Whether the lab's holder is running. If not, ``fabric down`` removes what
            is left of the lab.
        state: State of the lab, or None until it is built.
        processes: Registered processes that still run.
    """

    name: str
    alive: bool
    state: LabState | None
    processes: tuple[RegisteredProcess, ...]

    @property
    def in_use(self) -> bool:
        """Whether a run uses the lab, or the lab is still being built."""
        if not self.alive:
            return False
        return (
            self.state is None
            or self.state.lifetime == "run"
            or any(each.role == CONTROLLER for each in self.processes)
        )


@dataclass(slots=True, eq=False)
class LabHandle:
    """A lab started by this process. As a context manager, it ends with its block.

    Attributes:
        state: Addresses, namespaces and all other state of the lab.
    """

    state: LabState
    holder: subprocess.Popen[bytes] | None

    async def stop(self) -> None:
        """End the lab and remove everything that it created.

        Labs of lifetime ``up`` end as well. A second call has no effect.
        """
        holder, self.holder = self.holder, None
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
    """Build a lab and return it once it can carry packets.

    Call this from the main thread, because a lab of lifetime ``run`` ends with the
    thread that started it.

    Args:
        topology: Hosts, switches and links.
        lab_name: Prefix of all names visible outside the lab. It must not be in use.
        seed: Seed for the choice among equal-cost paths.
        addressing: Address family of all interfaces, ``ipv4`` or ``ipv6``.
        mtu: Largest IP packet of every interface, in bytes.
        capture_hosts: Hosts whose links carry separate packets instead of bursts, for
            captures.
        forwarding: ``kernel``, or ``model`` for modeled switches in one process.
        profile: Settings of modeled switches; None for the defaults.
        lifetime: ``run`` or ``up``: see ``chakram.fabric.labs.lab_spec.LIFETIMES``.

    Raises:
        PrivilegeError: If this user may not create namespaces on this machine.
        FabricError: If the lab is already running, or the kernel cannot build it.
    """
    # Fail early if the address space is too small.
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
    # Start the holder in this thread, because the kernel ends the holder with the
    # thread that starts it.
    holder = subprocess.Popen(  # noqa: ASYNC220 - takes a millisecond
        [sys.executable, "-P", "-m", "chakram.fabric.labs.holder"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Ctrl-C in a terminal signals every process of the foreground group. The lab
        # must outlive the processes that use it.
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            answer, complaint = await asyncio.to_thread(_converse, holder, spec)
        state = _understand(lab_name, answer, complaint)
    except BaseException as error:
        holder.terminate()  # the holder removes everything that it has created
        await asyncio.to_thread(_close_and_wait, holder)
        if isinstance(error, TimeoutError):
            raise FabricError(
                f"lab {lab_name}", f"was not built within {_START_TIMEOUT_S} s"
            ) from error
        raise
    if lifetime == "up":
        await asyncio.to_thread(_close_and_wait, holder)
        return LabHandle(state, None)
    return LabHandle(state, holder)


def _converse(holder: subprocess.Popen[bytes], spec: LabSpec) -> tuple[bytes, bytes]:
    """Send the specification, and return the answer and the error output."""
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stderr is not None
    with contextlib.suppress(BrokenPipeError):  # the error output contains the reason
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
        last = next((line for line in reversed(lines) if line), "it printed nothing")
        raise FabricError(f"lab {lab_name}", f"its holder ended: {last}")
    text = answer.decode("utf-8", "replace")
    try:
        fields = json.loads(text)
    except ValueError:
        raise FabricError(
            f"lab {lab_name}", f"its holder sent an invalid answer: {text[:80]!r}"
        ) from None
    raise_error(fields)
    return decode_state(text)


def _close_and_wait(holder: subprocess.Popen[bytes]) -> None:
    """Close the holder's standard input, which ends a run's lab. Reap the holder."""
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
    """Return the status of one lab, or None if it has no directory.

    Raises:
        FabricError: If the lab's files were written by another version of Chakram.
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
    """Return the status of all labs of this user, by name."""
    found = (lab_status(lab) for lab in lab_names())
    return [each for each in found if each is not None]


async def down(lab: str | None = None) -> list[str]:
    """End one lab or all labs of this user, and remove everything that they left.

    Processes registered with the lab end first, then its holder. Leftovers of a killed
    holder are also removed. It is not an error if the lab does not exist.

    Args:
        lab: Name of the lab; None for all.

    Returns:
        The names of the labs that existed or had left something behind.
    """
    labs = _known_labs() if lab is None else [lab]
    return [each for each in labs if await asyncio.to_thread(_down, each)]


async def down_unused() -> tuple[list[str], list[str]]:
    """Take down all labs of this user that no run uses, as ``down`` does.

    Returns:
        The names of the labs that ended, and the names of the labs in use.

    Raises:
        FabricError: If a lab's files were written by another version of Chakram.
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
    """Return the labs of this user, even if only their namespace names remain."""
    stray = (each.lab for each in marked_names(state_root()) if not each.in_use)
    return sorted({*lab_names(), *stray})


def _down(lab: str) -> bool:
    root = state_root()
    directory = lab_directory(lab, root)
    if not directory.exists() and not marked_names(root, lab):
        return False
    prepare_root(root)  # never trust files that others may have written
    spare = frozenset({os.getpid(), os.getppid()})
    end_processes(directory, spare=spare)
    holder = read_holder(directory)
    if holder is not None:
        # This code must not hold the lock, because the holder takes it to clean up.
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

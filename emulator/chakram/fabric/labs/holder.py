"""The process that owns a lab: it builds the lab, keeps it open and removes it.

``python -m chakram.fabric.labs.holder`` reads a lab's specification (a ``LabSpec`` as
one line of JSON) from standard input. It answers with one line of JSON on standard
output (a ``LabState``, or an error) and then waits for requests.

A lab of lifetime ``run`` ends when standard input closes or the process that started
the holder ends. A lab of lifetime ``up`` ends on SIGTERM. Namespaces need no clean-up,
because the kernel frees them with their last descriptor.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from chakram.fabric.labs.holder_protocol import SOCKET_NAME, encode_error, receive_line
from chakram.fabric.labs.lab_files import (
    STATE_ROOT_VARIABLE,
    Holder,
    lab_directory,
    locked,
    read_holder,
    registered_processes,
    remove_directory,
    write_holder,
    write_whole,
)
from chakram.fabric.labs.lab_spec import (
    HostState,
    LabSpec,
    LabState,
    PortState,
    SwitchState,
    decode_spec,
    encode_state,
)
from chakram.fabric.labs.link_counters import (
    BIN_REQUEST,
    COUNTERS_REQUEST,
    FAULTS_REQUEST,
    SAMPLES_REQUEST,
)
from chakram.fabric.labs.netns_mounts import (
    bind_names,
    mark_namespaces,
    marked_names,
    remove_leftovers,
    unbind_names,
)
from chakram.fabric.labs.user_namespace import enter_new_user_namespace, has_net_admin
from chakram.fabric.process_control import (
    become_daemon,
    die_with_parent,
    process_start_ticks,
)
from chakram.foundation.errors import ChakramError, FabricError

if TYPE_CHECKING:
    from chakram.fabric.labs.built_lab import BuiltLab
    from chakram.fabric.labs.kernel_faults import KernelFaults
    from chakram.fabric.labs.switch_control import LabSwitch


log = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 2.0
_REQUESTS_WAITING = 64
_LONGEST_WAIT_MS = 3_600_000
_LOG_NAME = "holder.log"
_REQUESTS = (COUNTERS_REQUEST, FAULTS_REQUEST, BIN_REQUEST, SAMPLES_REQUEST)


def main() -> int:
    """Run the holder of one lab, and return the exit status."""
    parent = os.getppid()
    try:
        spec = decode_spec(sys.stdin.readline())
        started = become_daemon() if spec.lifetime == "up" else None
        rootless = not has_net_admin()
        if rootless:
            enter_new_user_namespace()
        if spec.lifetime == "run":
            # Use a signal that can be handled, because the holder must first remove
            # names.
            die_with_parent(parent, signal_number=signal.SIGTERM)
        return _hold(spec, rootless=rootless, parent=parent, started=started)
    except ChakramError as error:
        sys.stdout.write(encode_error(error) + "\n")
        sys.stdout.flush()
        return error.exit_code


def _hold(spec: LabSpec, *, rootless: bool, parent: int, started: int | None) -> int:
    """Build the lab, and keep it open until it ends.

    Args:
        spec: Specification of the lab.
        rootless: Whether this process is in a new user namespace.
        parent: Process that started this process.
        started: Descriptor to close once the lab is up, or None.
    """
    root = Path(spec.state_root)
    # From here on, a signal wakes the loop below instead of ending the process, so that
    # everything created is removed.
    wake_reader, wake_writer = socket.socketpair()
    wake_writer.setblocking(False)
    signal.set_wakeup_fd(wake_writer.fileno())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    directory, holder = _claim(spec, root, parent)
    switch: LabSwitch | None = None
    try:
        lab, state = _build(spec, directory, holder, rootless=rootless)
        if spec.forwarding == "model":
            from chakram.fabric.labs.switch_control import LabSwitch

            (namespace,) = (lab.namespaces[each.name] for each in state.switches)
            log_path = directory / _LOG_NAME
            switch = LabSwitch(spec, namespace.descriptor, log_path)
        listener = _listen(directory)
        log_file = _open_log(directory)
        write_whole(directory / "state.json", encode_state(state))
        # After this answer the lab is up, whatever happens to its directory.
        sys.stdout.write(encode_state(state) + "\n")
        sys.stdout.flush()
        _detach(log_file, keep_stdin=spec.lifetime == "run")
        if started is not None:
            os.close(started)
        log.info("lab is up name=%s hosts=%d", spec.name, len(state.hosts))
        _serve(lab, spec, switch, listener, wake_reader)
        log.info("lab ends name=%s", spec.name)
        listener.close()
        lab.close()
    finally:
        if switch is not None:
            switch.close()
        _release(directory, root, parent)
    return 0


def _claim(spec: LabSpec, root: Path, parent: int) -> tuple[Path, Holder]:
    """Create the lab's directory, or raise ``FabricError`` if the lab is running."""
    directory = lab_directory(spec.name, root)
    ticks = process_start_ticks(os.getpid())
    if ticks is None:
        raise FabricError(f"lab {spec.name}", "/proc is not mounted", "mount it")
    holder = Holder(pid=os.getpid(), start_ticks=ticks)
    with locked(root):
        remove_leftovers(spec.name, root, spare=frozenset({parent}))
        for each in (directory, directory / "pids", directory / "sockets"):
            each.mkdir(mode=0o700)
        write_holder(directory, holder)
    return directory, holder


def _build(
    spec: LabSpec, directory: Path, holder: Holder, *, rootless: bool
) -> tuple[BuiltLab, LabState]:
    # Imported late: pyroute2 takes 0.15 s to import, which would delay reports of an
    # invalid specification or missing privileges.
    from chakram.fabric.labs.builder import build_lab

    lab = build_lab(spec)
    notes = list(lab.notes)
    names: dict[str, str] = {}
    if not rootless:
        names = {node: f"{spec.name}-{node}" for node in lab.namespaces}
        mark_namespaces(
            lab.namespaces.values(),
            lab=spec.name,
            root=Path(spec.state_root),
            pid=holder.pid,
            start_ticks=holder.start_ticks,
        )
        # Record the names first, so that `down` can remove them if this process is
        # killed.
        holder = replace(holder, netns_names=tuple(names.values()))
        write_holder(directory, holder)
        try:
            bind_names(
                {names[node]: each.descriptor for node, each in lab.namespaces.items()}
            )
        except OSError as error:
            notes.append(f"namespaces have no names for ip netns ({error})")
            names = {}
            holder = replace(holder, netns_names=())
            write_holder(directory, holder)
    return lab, _describe(spec, lab, directory, holder, names, notes, rootless)


def _describe(
    spec: LabSpec,
    lab: BuiltLab,
    directory: Path,
    holder: Holder,
    names: dict[str, str],
    notes: list[str],
    rootless: bool,
) -> LabState:
    def path(node: str) -> str:
        return f"/proc/{holder.pid}/fd/{lab.namespaces[node].descriptor}"

    hosts: list[HostState] = []
    for name in spec.topology.hosts:
        link = spec.topology.host_link(name)
        address = lab.addresses.host(name)
        hosts.append(
            HostState(
                name=name,
                netns=path(name),
                netns_name=names.get(name),
                interface=lab.ports[link.end_at(name)].interface,
                address=address.address,
                prefix_length=lab.prefix_lengths[name],
                mac=address.mac,
                mtu=spec.mtu,
                switch_interface=lab.ports[link.other_end(name)].interface,
            )
        )
    ports: dict[str, list[PortState]] = {
        node: [] for node in lab.namespaces if node not in spec.topology.hosts
    }
    for link in spec.topology.links:
        for end in (link.a, link.b):
            port = lab.ports.get(end)
            if port is not None and port.namespace in ports:
                ports[port.namespace].append(
                    PortState(interface=port.interface, link=link.name)
                )
    return LabState(
        name=spec.name,
        holder_pid=holder.pid,
        holder_start_ticks=holder.start_ticks,
        rootless=rootless,
        lifetime=spec.lifetime,
        forwarding=spec.forwarding,
        seed=spec.seed,
        mtu=spec.mtu,
        directory=str(directory),
        hosts=tuple(hosts),
        switches=tuple(
            SwitchState(
                name=node,
                netns=path(node),
                netns_name=names.get(node),
                ports=tuple(some),
            )
            for node, some in ports.items()
        ),
        notes=tuple(notes),
        topology=spec.topology,
        capture_hosts=spec.capture_hosts,
        profile=spec.profile,
    )


def _listen(directory: Path) -> socket.socket:
    path = directory / SOCKET_NAME
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(_REQUESTS_WAITING)
    except OSError as error:
        listener.close()
        raise FabricError(
            str(path),
            f"cannot listen there ({error})",
            f"set {STATE_ROOT_VARIABLE} to a directory with a shorter name",
        ) from error
    return listener


def _open_log(directory: Path) -> int:
    path = directory / _LOG_NAME
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _detach(log_file: int, *, keep_stdin: bool) -> None:
    """Redirect standard streams, so that the starting process reads end of file."""
    null = os.open(os.devnull, os.O_RDWR)
    if not keep_stdin:
        os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    os.dup2(log_file, 2)
    os.close(log_file)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True
    )


def _serve(
    lab: BuiltLab,
    spec: LabSpec,
    switch: LabSwitch | None,
    listener: socket.socket,
    wake_reader: socket.socket,
) -> None:
    """Answer requests until a signal arrives, or a run closes standard input."""
    # Injector of kernel link faults, created on demand because its import is slow.
    faults: KernelFaults | None = None
    sources: list[int | socket.socket] = [listener, wake_reader]
    if spec.lifetime == "run":
        sources.append(0)
    if switch is not None:
        sources.append(switch.ended)
    while True:
        wait_s = None if faults is None else _advance(faults)
        ready = wait_for_input(sources, wait_s)
        if switch is not None and switch.ended in ready:
            # Packets to the switch are lost from now on. Requests for counters report
            # the end of the process.
            log.error("the process of the switches has ended name=%s", spec.name)
            sources.remove(switch.ended)
        if wake_reader.fileno() in ready or (0 in ready and not os.read(0, 1 << 16)):
            return
        if listener.fileno() in ready:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(_REQUEST_TIMEOUT_S)
                # A client that disconnects, or never ends its line, must not affect the
                # lab.
                with suppress(OSError, ChakramError):
                    line = receive_line(connection)
                    answer, faults = _answer(lab, spec, switch, faults, line)
                    connection.sendall(answer)


def wait_for_input(
    sources: Iterable[int | socket.socket], wait_s: float | None
) -> set[int]:
    """Return the descriptors that can be read.

    A lab of 512 namespaces has a thousand descriptors. ``select`` cannot watch
    descriptors with numbers of 1,024 or more, and ``poll`` can only wait for whole
    milliseconds.

    Args:
        sources: Descriptors and sockets to watch.
        wait_s: Maximum time to wait, or None for no limit. The function may return up
            to a millisecond early, and waits for at most an hour. Times below a
            millisecond are exact.
    """
    poll = select.poll()
    for source in sources:
        poll.register(source, select.POLLIN)
    wait_ms = None if wait_s is None else min(int(wait_s * 1e3), _LONGEST_WAIT_MS)
    if wait_s and not wait_ms:
        select.select([], [], [], wait_s)
    return {descriptor for descriptor, _ in poll.poll(wait_ms)}


def _advance(faults: KernelFaults) -> float | None:
    """Apply due faults, and return the seconds until the next change, or None."""
    try:
        return faults.advance(monotonic_ns())
    except ChakramError:
        log.exception("a link fault was not applied")
        return 0.0


def _answer(
    lab: BuiltLab,
    spec: LabSpec,
    switch: LabSwitch | None,
    faults: KernelFaults | None,
    line: bytes,
) -> tuple[bytes, KernelFaults | None]:
    """Return the answer to a request, and the fault injector if there is one."""
    from chakram.fabric.labs.shaping import count_links

    where = f"lab {spec.name}"
    try:
        fields = _fields(line, where)
        if switch is not None:
            return json.dumps(switch.ask(line.decode())).encode() + b"\n", None
        if fields["request"] == FAULTS_REQUEST:
            from chakram.fabric.labs.kernel_faults import KernelFaults, decode_faults

            happening = decode_faults(fields, where)
            faults = faults or KernelFaults(lab, spec)
            faults.disturb(happening, monotonic_ns())
            return b"{}\n", faults
        if fields["request"] != COUNTERS_REQUEST:
            raise FabricError(
                where,
                "the kernel is the switch of this lab",
                "use fabric.switch: model",
            )
        counters = count_links(lab, spec.topology)
    except ChakramError as error:
        return encode_error(error).encode() + b"\n", faults
    links = {
        name: {field: getattr(each, field) for field in each.__slots__}
        for name, each in counters.items()
    }
    return json.dumps({"links": links}).encode() + b"\n", faults


def _fields(line: bytes, where: str) -> dict[str, Any]:
    """Return the fields of a request, or reject a request of unknown type."""
    try:
        fields: dict[str, Any] = json.loads(line)
        request = fields["request"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FabricError(where, "the request is not valid") from None
    if request not in _REQUESTS:
        raise FabricError(where, f"unknown request {request!r}")
    return fields


def _release(directory: Path, root: Path, parent: int) -> None:
    """Remove everything the lab has outside its namespaces.

    The directory remains if registered processes still run, other than the process that
    started this holder. ``down`` needs the directory to find them.
    """
    with locked(root):
        holder = read_holder(directory)
        if holder is not None:
            unbind_names(holder.netns_names)
        else:
            # The directory was deleted, but the names still exist.
            unbind_names(
                each.name
                for each in marked_names(root, directory.name)
                if each.holder_pid == os.getpid()
            )
        others = [
            each for each in registered_processes(directory) if each.pid != parent
        ]
        if not others:
            remove_directory(directory)


if __name__ == "__main__":
    sys.exit(main())

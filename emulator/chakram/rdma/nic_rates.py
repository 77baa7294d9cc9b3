"""What an RDMA NIC can send: message rate and bandwidth by size, list and queue pairs.

Both ends are queue pairs of the same device, so the data crosses its PCIe link twice.
WRITEs go from one half of a memory region to the other.  The last message of each list
is signaled, as in the data plane.
"""

from __future__ import annotations

import errno
import re
import shutil
import socket
import subprocess
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from chakram.foundation.errors import ConfigError, EnvironmentProblem, RunFailed
from chakram.rdma.hardware_counters import SYSFS

if TYPE_CHECKING:
    from chakram.rdma.libibverbs import CompletionQueue, Device, QueuePair

DEPTH = 128
"""Maximum number of messages in flight per queue pair, as in perftest."""

_TRIALS = (
    (64, 1, 1),
    (64, 1, 32),
    (64, 8, 32),
    (4096, 1, 32),
    (65_536, 1, 1),
    (65_536, 1, 32),
    (65_536, 8, 32),
    (1 << 20, 1, 4),
    (1 << 20, 8, 4),
)
"""Size in bytes, queue pairs, and messages per list."""

_PERFTEST = "ib_write_bw"
_TIMEOUT = 18
"""Code of 1.07 s, because emulated devices are slow."""
_GRACE_S = 20.0
_STARTING_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NicRate:
    """Measured rate of one trial.

    Attributes:
        size_bytes: Size of a message.
        queue_pairs: Number of queue pairs that send.
        list_length: Number of messages per list of work requests.
        messages: Number of completed messages.
        time_ns: Time from the first post to the last completion.
        post_ns: Time in calls that post.
        perftest_bps: What ``ib_write_bw`` measured with the same settings.  None: it is
            not installed or has failed.
    """

    size_bytes: int
    queue_pairs: int
    list_length: int
    messages: int
    time_ns: int
    post_ns: int
    perftest_bps: float | None = None

    @property
    def messages_per_s(self) -> float:
        """Completed messages per second."""
        return self.messages * 1e9 / self.time_ns

    @property
    def bits_per_s(self) -> float:
        """Payload rate in bit/s."""
        return 8 * self.size_bytes * self.messages_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """An RDMA device to test.

    Attributes:
        name: Name of the device.
        address: Address of the queue pairs, which is in the GID table.
        gid_index: Index of that address, of type RoCE v2.
        path_mtu: Maximum payload of a packet.
        rate_bps: Rate of the port in bit/s, or None if unknown.
        firmware: Version of the firmware.
    """

    name: str
    address: str
    gid_index: int
    path_mtu: int
    rate_bps: int | None
    firmware: str


def open_device(name: str) -> Device:
    """Return an open RDMA device.

    Raises:
        ConfigError: If there is no such device.
        EnvironmentProblem: If libibverbs is missing, or the device cannot be opened.
    """
    try:
        from chakram.rdma.libibverbs import Device, device_names
    except ImportError as error:
        raise EnvironmentProblem(
            f"RDMA device {name}",
            f"libibverbs cannot be used: {error}",
            "install libibverbs1 and ibverbs-providers; to build from source, install "
            "libibverbs-dev and run make build",
        ) from None
    try:
        return Device(name)
    except LookupError:
        known = ", ".join(device_names()) or "none"
        raise ConfigError(
            f"RDMA device {name}", "does not exist", f"devices of this host: {known}"
        ) from None
    except OSError as error:
        raise EnvironmentProblem(
            f"RDMA device {name}",
            str(error),
            "check /dev/infiniband and its permissions",
        ) from None


def find_nic(device: Device, address: str | None, sysfs: Path = SYSFS) -> Nic:
    """Return how to use a device: an address of its GID table, MTU and rate.

    Args:
        device: The open device.
        address: Address to use; None: the first one that is not link-local.
        sysfs: Folder with the devices of the host.

    Raises:
        ConfigError: If the device is InfiniBand, its port is not active, or its GID
            table has no usable address.
    """
    if not device.is_ethernet:
        raise ConfigError(
            f"RDMA device {device.name}", "is InfiniBand", "name a device for RoCE"
        )
    if not device.is_active:
        raise ConfigError(
            f"RDMA device {device.name}",
            "its port is not active",
            "check cable and interface: rdma link show",
        )
    try:
        wanted = str(ip_address(address)) if address else None
    except ValueError:
        raise ConfigError(
            "--address", f"{address!r} is no IP address", "e.g. 198.18.0.1"
        ) from None
    usable = {
        index: each
        for index, each in device.gids().items()
        if _is_version_2(sysfs / device.name, index)
    }
    chosen = next(
        (
            index
            for index, each in usable.items()
            if (each == wanted if wanted else not each.startswith("fe80:"))
        ),
        None,
    )
    if chosen is None:
        raise ConfigError(
            f"RDMA device {device.name}",
            f"has no GID of type RoCE v2 for {address or 'a global address'}",
            f"its addresses are: {', '.join(usable.values()) or 'none'}",
        )
    return Nic(
        name=device.name,
        address=usable[chosen],
        gid_index=chosen,
        path_mtu=device.path_mtu,
        rate_bps=_rate_of(sysfs / device.name),
        firmware=device.firmware,
    )


def _is_version_2(device: Path, index: int) -> bool:
    try:
        kind = (device / "ports/1/gid_attrs/types" / str(index)).read_text()
    except OSError:
        return False
    return kind.strip() == "RoCE v2"


def _rate_of(device: Path) -> int | None:
    """Return the rate of the first port, which sysfs gives like ``100 Gb/sec (4X)``."""
    with suppress(OSError):
        found = re.match(r"([\d.]+) Gb/sec", (device / "ports/1/rate").read_text())
        if found is not None:
            return round(float(found[1]) * 1e9)
    return None


def measure(
    device: Device, nic: Nic, *, duration_s: float, tell: Callable[[str], None]
) -> Iterator[NicRate]:
    """Measure all trials, each for about *duration_s*.

    Raises:
        ChakramError: If the device refuses an object, or a message fails.
    """
    for size_bytes, queue_pairs, list_length in _TRIALS:
        tell(f"{size_bytes} B, {queue_pairs} queue pairs, lists of {list_length}")
        try:
            yield _trial(
                device,
                nic,
                size_bytes=size_bytes,
                queue_pairs=queue_pairs,
                list_length=list_length,
                duration_s=duration_s,
            )
        except OSError as error:
            is_memory = error.errno in (errno.ENOMEM, errno.EAGAIN, errno.EPERM)
            hint = (
                "raise the limit of locked memory (ulimit -l)"
                if is_memory
                else "check the device: rdma link show, ibv_devinfo -v"
            )
            raise EnvironmentProblem(
                f"RDMA device {nic.name}", str(error), hint
            ) from None


def _trial(
    device: Device,
    nic: Nic,
    *,
    size_bytes: int,
    queue_pairs: int,
    list_length: int,
    duration_s: float,
) -> NicRate:
    from chakram.rdma.libibverbs import CompletionQueue, Memory, QueuePair

    with ExitStack() as stack:
        memory = stack.enter_context(closing(Memory(device, 2 * size_bytes)))
        done = stack.enter_context(
            closing(CompletionQueue(device, queue_pairs * DEPTH))
        )
        unused = stack.enter_context(closing(CompletionQueue(device, 1)))
        senders = []
        for _ in range(queue_pairs):
            ends = [
                stack.enter_context(
                    closing(
                        QueuePair(
                            device,
                            memory,
                            queue,
                            send_depth=depth,
                            receive_depth=1,
                        )
                    )
                )
                for queue, depth in ((done, DEPTH), (unused, 1))
            ]
            for own, other in (ends, ends[::-1]):
                own.connect(
                    remote_qpn=other.qpn,
                    remote_gid=nic.address,
                    gid_index=nic.gid_index,
                    path_mtu=nic.path_mtu,
                    send_psn=0,
                    receive_psn=0,
                    traffic_class=0,
                    remote_address=memory.address,
                    remote_key=memory.remote_key,
                    timeout=_TIMEOUT,
                )
            senders.append(ends[0])
        work = [0, 0, size_bytes, size_bytes, -1, 0]
        rows = array("q", list_length * work)
        rows[-1] = 1
        messages, time_ns, post_ns = _send(
            senders,
            done,
            rows,
            list_length=list_length,
            duration_ns=round(duration_s * 1e9),
            name=nic.name,
        )
    perftest_bps = _perftest_bps(
        nic, size_bytes=size_bytes, queue_pairs=queue_pairs, list_length=list_length
    )
    return NicRate(
        size_bytes=size_bytes,
        queue_pairs=queue_pairs,
        list_length=list_length,
        messages=messages,
        time_ns=time_ns,
        post_ns=post_ns,
        perftest_bps=perftest_bps,
    )


def _send(
    senders: Sequence[QueuePair],
    done: CompletionQueue,
    rows: array[int],
    list_length: int,
    *,
    duration_ns: int,
    name: str,
) -> tuple[int, int, int]:
    """Return number of messages, time, and time in posts."""
    from chakram.rdma.libibverbs import status_text

    outstanding = {sender.qpn: 0 for sender in senders}
    messages = post_ns = 0
    began_ns = last_ns = time.perf_counter_ns()
    end_ns = began_ns + duration_ns
    while True:
        now_ns = time.perf_counter_ns()
        if now_ns < end_ns or (not messages and not any(outstanding.values())):
            for sender in senders:
                if outstanding[sender.qpn] + list_length <= DEPTH:
                    posted_ns = time.perf_counter_ns()
                    sender.post(rows)
                    post_ns += time.perf_counter_ns() - posted_ns
                    outstanding[sender.qpn] += list_length
        elif not any(outstanding.values()):
            return messages, last_ns - began_ns, post_ns
        completions = done.poll()
        for _, status, _, _, _, qpn in completions:
            if status:
                raise RunFailed(
                    f"RDMA device {name}",
                    f"a message failed: {status_text(status)}",
                    "check the link and the counters of the device",
                )
            outstanding[qpn] -= list_length
            messages += list_length
        if completions:
            last_ns = time.perf_counter_ns()
        elif now_ns > last_ns + _GRACE_S * 1e9:
            raise RunFailed(
                f"RDMA device {name}",
                f"completed nothing for {_GRACE_S:.0f} s",
                "check whether its port is active",
            )


def _perftest_bps(
    nic: Nic, *, size_bytes: int, queue_pairs: int, list_length: int
) -> float | None:
    """Return what ``ib_write_bw`` measures between two processes of this host."""
    program = shutil.which(_PERFTEST)
    if program is None:
        return None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = {
        "-d": nic.name,
        "-x": str(nic.gid_index),
        "-s": str(size_bytes),
        "-q": str(queue_pairs),
        "-t": str(DEPTH),
        "-l": str(list_length),
        "-n": str(max(DEPTH, 4 * list_length)),
        "-u": str(_TIMEOUT),
        "-p": port,
    }
    command = [program, *(word for pair in options.items() for word in pair), "-F"]
    with subprocess.Popen(
        [*command, "--report_gbits"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            # The server has no sign that it listens, so try until it does.
            for _ in range(3):
                time.sleep(_STARTING_S / 10)
                with suppress(subprocess.TimeoutExpired):
                    client = subprocess.run(
                        [*command, "--report_gbits", "127.0.0.1"],
                        capture_output=True,
                        text=True,
                        timeout=_GRACE_S,
                        check=False,
                    )
                    if client.returncode == 0:
                        return average_bps(client.stdout.splitlines())
        finally:
            server.kill()
    return None


def average_bps(lines: Iterable[str]) -> float | None:
    """Return the average bandwidth in a report of ``ib_write_bw`` in Gbit/s."""
    for line in lines:
        words = line.split()
        if len(words) == 5 and words[0].isdigit():
            with suppress(ValueError):
                return float(words[3]) * 1e9
    return None

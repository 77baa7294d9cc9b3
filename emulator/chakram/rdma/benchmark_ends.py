"""Ends of a measurement of RDMA NICs: queue pairs of one device, or of two hosts.

On the other host, ``chakram doctor --nic DEVICE --listen ADDRESS:PORT`` serves one
measurement. Requests and answers are lines of JSON on a TCP connection without
authentication, as with perftest.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from chakram.foundation.errors import PeerError
from chakram.rdma.hardware_counters import counted, read_counters
from chakram.rdma.nic_settings import nic_settings

if TYPE_CHECKING:
    from chakram.rdma.libibverbs import Device
    from chakram.rdma.nic_device import Nic

DEPTH = 128
"""Maximum number of messages in flight per queue pair, as in perftest."""

_TIMEOUT = 18
"""Timeout code for 1.07 s, because emulated devices are slow."""
_PERFTEST = "ib_write_bw"
_PROTOCOL = "chakram.nic-measurement/1"
_CONNECT_LIMIT_S = 10.0
_LIMIT_S = 120.0
_MAX_LINE = 1 << 16
_MAX_BYTES = 1 << 30
_MAX_PAIRS = 256
_PATH_MTUS = (256, 512, 1024, 2048, 4096)
_QPNS, _KEYS, _ADDRESSES = 1 << 24, 1 << 32, 1 << 63


class Trial(NamedTuple):
    """Settings of one measurement."""

    size_bytes: int
    queue_pairs: int
    list_length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAddress:
    """Data that the other end needs to connect to queue pairs.

    Attributes:
        gid: Address of the device.
        path_mtu: Maximum payload of a packet.
        qpns: Numbers of the queue pairs.
        memory: Start of the memory for WRITEs.
        key: Key of the memory.
    """

    gid: str
    path_mtu: int
    qpns: list[int]
    memory: int
    key: int


class End:
    """Queue pairs of a device for one trial, with memory for one message.

    Attributes:
        address: Data that the other end needs to connect.
        pairs: Queue pairs of the trial.
        completions: Completion queue of the queue pairs.

    Raises:
        OSError: If the device refuses an object.
    """

    def __init__(self, device: Device, nic: Nic, trial: Trial, *, depth: int) -> None:
        from chakram.rdma.libibverbs import CompletionQueue, Memory, QueuePair

        self._nic = nic
        with ExitStack() as stack:
            memory = stack.enter_context(closing(Memory(device, trial.size_bytes)))
            self.completions = stack.enter_context(
                closing(CompletionQueue(device, trial.queue_pairs * depth))
            )
            self.pairs = [
                stack.enter_context(
                    closing(
                        QueuePair(
                            device,
                            memory,
                            self.completions,
                            send_depth=depth,
                            receive_depth=1,
                        )
                    )
                )
                for _ in range(trial.queue_pairs)
            ]
            self._objects = stack.pop_all()
        self.address = EndAddress(
            gid=nic.address,
            path_mtu=nic.path_mtu,
            qpns=[pair.qpn for pair in self.pairs],
            memory=memory.address,
            key=memory.remote_key,
        )

    def connect(self, other: EndAddress) -> None:
        """Connect each queue pair to the one at the same position of the other end."""
        for pair, qpn in zip(self.pairs, other.qpns, strict=True):
            pair.connect(
                remote_qpn=qpn,
                remote_gid=other.gid,
                gid_index=self._nic.gid_index,
                path_mtu=min(self._nic.path_mtu, other.path_mtu),
                send_psn=0,
                receive_psn=0,
                traffic_class=0,
                remote_address=other.memory,
                remote_key=other.key,
                timeout=_TIMEOUT,
            )

    def close(self) -> None:
        """Release all objects."""
        self._objects.close()


class Receiver(Protocol):
    """The end of a measurement to which the WRITEs go.

    Attributes:
        host: Address at which the receiver's perftest server listens.
    """

    host: str

    def open(self, trial: Trial, sender: EndAddress) -> EndAddress:
        """Create the queue pairs of a trial, and connect them to the sender's."""

    def start_perftest(self, trial: Trial) -> int | None:
        """Start the perftest server. Return its port, or None if it is missing."""

    def end(self) -> None:
        """Release the queue pairs, and end perftest."""


class LocalReceiver:
    """Receiving queue pairs of a device of this host.

    Attributes:
        host: Address at which the receiver's perftest server listens.
    """

    def __init__(self, device: Device, nic: Nic) -> None:
        self.host = "127.0.0.1"
        self._device, self._nic = device, nic
        self._open = ExitStack()

    def open(self, trial: Trial, sender: EndAddress) -> EndAddress:
        """Create the queue pairs of a trial, and connect them to the sender's.

        Raises:
            OSError: If the device refuses the queue pairs.
        """
        receiver = End(self._device, self._nic, trial, depth=1)
        self._open.callback(receiver.close)
        receiver.connect(sender)
        return receiver.address

    def start_perftest(self, trial: Trial) -> int | None:
        """Start the perftest server. Return its port, or None if it is missing."""
        with socket.socket() as free:
            free.bind(("", 0))
            port: int = free.getsockname()[1]
        command = perftest_command(self._nic, trial, port)
        if command is None:
            return None
        self._open.callback(_ended, subprocess.Popen(command, **_SILENT))
        return port

    def end(self) -> None:
        """Release the queue pairs, and end perftest."""
        self._open.close()


_SILENT: Mapping[str, Any] = dict.fromkeys(
    ("stdin", "stdout", "stderr"), subprocess.DEVNULL
)


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def perftest_command(nic: Nic, trial: Trial, port: int) -> list[str] | None:
    """Return the ``ib_write_bw`` command for one end, or None if it is missing."""
    program = shutil.which(_PERFTEST)
    if program is None:
        return None
    options = {
        "-d": nic.name,
        "-x": nic.gid_index,
        "-s": trial.size_bytes,
        "-q": trial.queue_pairs,
        "-t": DEPTH,
        "-l": trial.list_length,
        "-n": max(DEPTH, 4 * trial.list_length),
        "-u": _TIMEOUT,
        "-p": port,
    }
    words = [str(word) for option in options.items() for word in option]
    return [program, *words, "-F", "--report_gbits"]


class RemoteReceiver:
    """Receiver on another host, which runs ``chakram doctor --listen``.

    Attributes:
        host: Address of the other host.
        name: Device and address of the receiver.

    Raises:
        PeerError: If the other host does not answer, or does not run this command.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self._where = f"--peer {host}:{port}"
        try:
            self._connection = socket.create_connection(
                (host, port), timeout=_CONNECT_LIMIT_S
            )
        except OSError as error:
            raise PeerError(
                self._where,
                str(error),
                "start chakram doctor --nic DEVICE --listen ADDRESS:PORT there",
            ) from None
        self._connection.settimeout(_LIMIT_S)
        self._lines = self._connection.makefile("rb")
        try:
            self.name = str(self._answer("hello", protocol=_PROTOCOL).get("name"))
        except BaseException:
            self.close()
            raise

    def open(self, trial: Trial, sender: EndAddress) -> EndAddress:
        """Create the queue pairs of a trial on the other host, and connect them.

        Raises:
            PeerError: If the other host refuses.
        """
        answer = self._answer("open", trial=trial, sender=asdict(sender))
        try:
            return _end_address(answer["receiver"], trial)
        except (KeyError, TypeError, ValueError):
            raise self._strange() from None

    def start_perftest(self, trial: Trial) -> int | None:
        """Start the perftest server on the other host: see `LocalReceiver`."""
        port = self._answer("perftest", trial=trial).get("port")
        return port if isinstance(port, int) else None

    def end(self) -> None:
        """Release the queue pairs on the other host, and end perftest."""
        self._answer("end")

    def counters(self) -> dict[str, int]:
        """Return the increase of the other device's counters since the start."""
        found = self._answer("counters").get("counters")
        if not isinstance(found, dict):
            raise self._strange()
        return found

    def close(self) -> None:
        """End the connection, which also ends the command on the other host."""
        self._lines.close()
        self._connection.close()

    def _answer(self, request: str, **more: object) -> dict[str, Any]:
        try:
            line = json.dumps({"request": request, **more}).encode()
            self._connection.sendall(line + b"\n")
            answer = _parsed(self._lines.readline(_MAX_LINE))
        except OSError as error:
            raise PeerError(self._where, str(error), "check that host") from None
        except ValueError:
            raise self._strange() from None
        if "error" in answer:
            raise PeerError(self._where, str(answer["error"]), "see the other terminal")
        return answer

    def _strange(self) -> PeerError:
        return PeerError(
            self._where,
            "is not chakram doctor --listen of the same version",
            "use the same version of Chakram at both ends",
        )


def serve(device: Device, nic: Nic, listener: socket.socket) -> dict[str, int]:
    """Serve one measurement on a listening socket, and return the device's counters.

    Raises:
        PeerError: If the connection to the sender breaks.
    """
    connection, (sender, *_) = listener.accept()
    interface = nic_settings(nic.name, nic.gid_index).get("interface", "")
    before = read_counters(nic.name, interface)

    def counters() -> dict[str, int]:
        return counted(before, read_counters(nic.name, interface))

    receiver = LocalReceiver(device, nic)
    try:
        with connection, connection.makefile("rb") as lines:
            connection.settimeout(_LIMIT_S)
            while line := lines.readline(_MAX_LINE):
                answer = _answer_to(line, receiver, nic, counters)
                connection.sendall(json.dumps(answer).encode() + b"\n")
    except OSError as error:
        raise PeerError(sender, str(error), "start both ends again") from None
    finally:
        receiver.end()
    return counters()


def _answer_to(
    line: bytes, receiver: LocalReceiver, nic: Nic, counters: Callable[[], object]
) -> dict[str, Any]:
    try:
        asked = _parsed(line)
        match asked["request"]:
            case "hello" if asked["protocol"] == _PROTOCOL:
                return {"name": f"{nic.name} ({nic.address})"}
            case "open":
                trial = _trial(asked["trial"])
                sender = _end_address(asked["sender"], trial)
                return {"receiver": asdict(receiver.open(trial, sender))}
            case "perftest":
                return {"port": receiver.start_perftest(_trial(asked["trial"]))}
            case "end":
                receiver.end()
                return {}
            case "counters":
                return {"counters": counters()}
    except OSError as error:
        return {"error": f"{nic.name}: {error}"}
    except (KeyError, TypeError, ValueError):
        pass
    return {"error": "the request is unknown: use the same version at both ends"}


def _parsed(line: bytes) -> dict[str, Any]:
    """Parse a line that must contain a JSON object.

    Raises:
        ValueError: If the line is not a JSON object.
    """
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def _trial(found: list[int]) -> Trial:
    """Check the settings in a request, and return them.

    Raises:
        TypeError: If *found* does not contain three numbers.
        ValueError: If a number is outside its range.
    """
    trial = Trial(*found)
    for number, most in zip(trial, (_MAX_BYTES, _MAX_PAIRS, DEPTH), strict=True):
        if type(number) is not int or not 0 < number <= most:
            raise ValueError(number)
    return trial


def _end_address(found: dict[str, Any], trial: Trial) -> EndAddress:
    """Check the address of the other end, and return it.

    Raises:
        TypeError: If a member is missing or unknown.
        ValueError: If a member is invalid.
    """
    address = EndAddress(**found)
    ip_address(address.gid)
    if address.path_mtu not in _PATH_MTUS or len(address.qpns) != trial.queue_pairs:
        raise ValueError(address)
    numbers = {_QPNS: address.qpns, _ADDRESSES: [address.memory], _KEYS: [address.key]}
    for most, values in numbers.items():
        if not all(type(each) is int and 0 <= each < most for each in values):
            raise ValueError(address)
    return address

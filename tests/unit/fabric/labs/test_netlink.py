from __future__ import annotations

import errno
import os
import socket
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from chakram.fabric.labs.netlink import NetlinkSocket, _refusal
from chakram.fabric.labs.netlink_requests import Request
from chakram.foundation.errors import FabricError, PrivilegeError

if TYPE_CHECKING:
    from chakram.foundation.errors import ChakramError


@pytest.mark.parametrize(
    ("number", "text", "kind", "message"),
    [
        (
            errno.EPERM,
            "",
            PrivilegeError,
            "lab: adds a link: the kernel refused (Operation not permitted) "
            "(run as root, or allow user namespaces)",
        ),
        (
            errno.ENOENT,
            "",
            FabricError,
            "lab: adds a link: the kernel refused (No such file or directory) "
            "(see what is missing with: chakram doctor)",
        ),
        (
            errno.ENOENT,
            "no such qdisc",
            FabricError,
            "lab: adds a link: the kernel refused (no such qdisc)",
        ),
    ],
)
def test_refusal_of_the_kernel_is_reported_with_a_remedy(
    number: int, text: str, kind: type[ChakramError], message: str
) -> None:
    error = _refusal("lab", "adds a link", number, text)
    assert type(error) is kind
    assert str(error) == message


HEADER = "=IHHII"
EXT_ACK = 0x200


class Kernel:
    """A kernel behind a routing socket, which executes requests in order.

    Attributes:
        sent: What was sent at once each time, as (length, sequence, port) of messages.
        refused: By sequence number, the error and the kernel's own words.
        per_datagram: Answers that it gives at once.
    """

    def __init__(self) -> None:
        self.sent: list[list[tuple[int, int, int]]] = []
        self.refused: dict[int, tuple[int, str]] = {}
        self.per_datagram = 3
        self._answers: list[bytes] = []
        self.is_closed = False

    def bind(self, address: tuple[int, int]) -> None:
        assert address == (0, 0)

    def setsockopt(self, level: int, name: int, value: object) -> None:
        pass

    def settimeout(self, timeout_s: float) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def sendto(self, data: bytes, address: tuple[int, int]) -> int:
        assert address == (0, 0)
        found = []
        offset = 0
        while offset < len(data):
            length, _, _, sequence, port = struct.unpack_from(HEADER, data, offset)
            found.append((length, sequence, port))
            self._answers.append(self._answer(data[offset : offset + length], sequence))
            offset += length
        self.sent.append(found)
        return len(data)

    def _answer(self, request: bytes, sequence: int) -> bytes:
        error, words = self.refused.get(sequence, (0, ""))
        body = struct.pack("=i", -error) + request[:16]
        flags = 0
        if words:
            flags = EXT_ACK
            # Where it went wrong (an offset, unread), and then what.
            body += struct.pack("=HHI", 8, 2, 40)
            said = words.encode() + b"\0"
            body += struct.pack("=HH", 4 + len(said), 1) + said
        answer = struct.pack(HEADER, 16 + len(body), 2, flags, sequence, 0) + body
        return answer + bytes(-len(answer) % 4)

    def recv(self, size: int) -> bytes:
        assert self._answers, "nothing was sent, so this read would block forever"
        first, self._answers = (
            self._answers[: self.per_datagram],
            self._answers[self.per_datagram :],
        )
        return b"".join(first)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()

    def opened(*args: int) -> Kernel:
        return made

    names = ("AF_NETLINK", "SOCK_DGRAM", "SOCK_CLOEXEC")
    fake: Any = SimpleNamespace(
        socket=opened, **{name: getattr(socket, name) for name in names}
    )
    monkeypatch.setattr("chakram.fabric.labs.netlink.socket", fake)
    return made


def requests(*sizes: int) -> list[Request]:
    return [
        Request(
            struct.pack(HEADER, size, 16, 5, 77, 77) + bytes(size - 16), f"step {n}"
        )
        for n, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "sends"),
    [
        ([], []),
        ([32], [1]),
        ([32] * 100, [100]),
        ([32] * 101, [100, 1]),
        ([32] * 250, [100, 100, 50]),
        # No more than 60,000 bytes at once, but at least one message.
        ([30_000] * 3, [2, 1]),
        ([30_000, 30_004, 30_000], [1, 1, 1]),
        ([64_000, 32, 64_000], [1, 1, 1]),
        ([30_000, 29_968, 32, 32], [3, 1]),
    ],
)
def test_requests_leave_in_order_and_not_too_many_at_once(
    kernel: Kernel, sizes: list[int], sends: list[int]
) -> None:
    NetlinkSocket("lab").execute(requests(*sizes))

    assert [len(each) for each in kernel.sent] == sends
    assert [each for some in kernel.sent for each in some] == [
        (size, number + 1, 0) for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("per_datagram", [1, 2, 7])
def test_first_refused_request_is_named_after_all_were_tried(
    kernel: Kernel, per_datagram: int
) -> None:
    kernel.per_datagram = per_datagram
    kernel.refused = {
        2: (errno.EEXIST, "it is there already"),
        3: (errno.EINVAL, "nonsense"),
    }
    netlink = NetlinkSocket("lab")

    with pytest.raises(
        FabricError, match=r"lab: step 1: the kernel refused \(it is there already\)$"
    ) as raised:
        netlink.execute(requests(32, 36, 32, 32, 32))

    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__.errno == errno.EEXIST
    assert [len(each) for each in kernel.sent] == [5]
    # No part of it remains for the next request.
    netlink.execute(requests(32))


def test_error_number_is_shown_without_a_kernel_message(kernel: Kernel) -> None:
    kernel.refused = {1: (errno.ENODEV, "")}

    with pytest.raises(FabricError) as raised:
        NetlinkSocket("lab").execute(requests(32))

    assert os.strerror(errno.ENODEV) in str(raised.value)


def test_refused_request_stops_later_batches(
    kernel: Kernel,
) -> None:
    kernel.refused = {100: (errno.EPERM, "")}

    with pytest.raises(PrivilegeError):
        NetlinkSocket("lab").execute(requests(*[32] * 101))

    assert [len(each) for each in kernel.sent] == [100]


@pytest.mark.parametrize("number", [0, errno.EPERM, errno.EEXIST])
def test_caller_gets_the_error_number(kernel: Kernel, number: int) -> None:
    kernel.refused = {1: (number, "no")} if number else {}

    (request,) = requests(32)
    assert NetlinkSocket("lab").errno_of(request) == number


def test_a_socket_that_cannot_be_set_up_is_closed(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.ENOPROTOOPT, "no such option")

    monkeypatch.setattr(kernel, "setsockopt", refuse)

    with pytest.raises(OSError, match="no such option"):
        NetlinkSocket("lab")
    assert kernel.is_closed

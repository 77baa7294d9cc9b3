"""Interface of a route, parsed from the kernel's answer."""

from __future__ import annotations

import errno
import os
import socket
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from chakram.foundation.errors import FabricError
from chakram_agent.dataplane import route_check
from chakram_agent.dataplane.route_check import check_route, outgoing_interface

if TYPE_CHECKING:
    from types import TracebackType

NEWROUTE, ERROR = 24, 2
DESTINATION, OUTGOING, GATEWAY = 1, 4, 5


def attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def answer(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def route(*attributes: bytes) -> bytes:
    return answer(NEWROUTE, bytes(12) + b"".join(attributes))


def to(index: int) -> bytes:
    return route(attribute(OUTGOING, struct.pack("=i", index)))


class Kernel:
    """A routing socket that gives one answer."""

    def __init__(self, given: bytes) -> None:
        self.given = given
        self.asked: list[bytes] = []

    def __enter__(self) -> Kernel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def send(self, data: bytes) -> None:
        self.asked.append(data)

    def recv(self, size: int) -> bytes:
        return self.given


def kernel_that_says(monkeypatch: pytest.MonkeyPatch, given: bytes) -> Kernel:
    kernel = Kernel(given)
    names = ("AF_INET", "AF_INET6", "AF_NETLINK", "SOCK_RAW", "SOCK_CLOEXEC")
    fake: Any = SimpleNamespace(
        socket=lambda *_: kernel,
        inet_pton=socket.inet_pton,
        NETLINK_ROUTE=socket.NETLINK_ROUTE,
        **{name: getattr(socket, name) for name in names},
    )
    monkeypatch.setattr(route_check, "socket", fake)
    return kernel


@pytest.mark.parametrize(
    ("address", "family", "bits"),
    [("198.18.0.1", socket.AF_INET, 32), ("2001:2::1", socket.AF_INET6, 128)],
)
def test_route_is_requested_for_one_address(
    address: str, family: int, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernel_that_says(monkeypatch, to(7))

    assert outgoing_interface(address) == 7
    (asked,) = kernel.asked
    length, kind, flags, _, port = struct.unpack_from("=IHHII", asked)
    # RTM_GETROUTE, NLM_F_REQUEST
    assert (length, kind, flags, port) == (len(asked), 26, 1, 0)
    assert struct.unpack_from("=BBBBBBBBI", asked, 16) == (family, bits, *[0] * 7)
    packed = socket.inet_pton(family, address)
    assert asked[28:] == attribute(DESTINATION, packed)


def test_interface_is_found_among_other_attributes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = route(
        attribute(DESTINATION, bytes(4)),
        attribute(99, b"odd"),
        attribute(OUTGOING, struct.pack("=i", 300)),
        attribute(GATEWAY, bytes(4)),
    )
    kernel_that_says(monkeypatch, said)

    assert outgoing_interface("198.18.0.1") == 300


@pytest.mark.parametrize(
    "said",
    [
        route(attribute(DESTINATION, bytes(4))),
        route(),
        # An attribute without a length must not cause an endless loop.
        route(bytes(8)),
        answer(3, bytes(12) + attribute(OUTGOING, struct.pack("=i", 7))),
    ],
)
def test_answer_without_an_interface_is_reported(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_that_says(monkeypatch, said)

    with pytest.raises(FabricError, match="the kernel reports no interface for it"):
        outgoing_interface("198.18.0.1")


def test_reason_of_a_missing_route_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = answer(ERROR, struct.pack("=i", -errno.ENETUNREACH) + bytes(16))
    kernel_that_says(monkeypatch, said)

    with pytest.raises(FabricError) as raised:
        outgoing_interface("198.18.0.1")
    assert str(raised.value) == (
        "destination 198.18.0.1: there is no route to it "
        f"({os.strerror(errno.ENETUNREACH)})"
    )


@pytest.mark.parametrize(
    ("source", "address", "index", "is_refused"),
    [
        ("198.18.0.1", "198.18.0.2", 1, True),
        ("198.18.0.1", "198.18.0.2", 2, False),
        ("127.0.0.1", "198.18.0.2", 1, True),
        ("198.18.0.1", "127.0.0.2", 1, True),
        # These say openly what they are.
        ("127.0.0.1", "127.0.0.2", 1, False),
        ("::1", "::1", 1, False),
    ],
)
def test_only_open_loopback_goes_through_lo(
    source: str,
    address: str,
    index: int,
    is_refused: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel_that_says(monkeypatch, to(index))

    if is_refused:
        with pytest.raises(FabricError, match=f"packets to {address} would go through"):
            check_route(address, source=source)
    else:
        check_route(address, source=source)


@pytest.mark.parametrize("kind", [3, 4, 5])
def test_a_route_to_many_hosts_is_refused(
    kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RTN_BROADCAST, RTN_ANYCAST, RTN_MULTICAST."""
    said = answer(
        NEWROUTE,
        bytes([2, 32, 0, 0, 254, 2, 253, kind]) + bytes(4) + to(2)[28:],
    )
    kernel_that_says(monkeypatch, said)

    with pytest.raises(FabricError, match=r"198\.18\.0\.255: it is the broadcast"):
        check_route("198.18.0.255", source="198.18.0.1")

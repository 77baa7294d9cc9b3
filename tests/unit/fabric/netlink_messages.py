"""A parser of netlink requests, see rtnetlink(7)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chakram.fabric.labs.netlink_requests import Request

# By message, the struct in front of its attributes: its format, names of its fields.
_LINK = ("=BxHiII", ("family", "type", "index", "flags", "change"))
_ADDRESS = ("=BBBBI", ("family", "prefix_length", "flags", "scope", "index"))
_ROUTE = (
    "=BBBBBBBBI",
    (
        *("family", "dst_len", "src_len", "tos", "table"),
        *("protocol", "scope", "type", "flags"),
    ),
)
_NEIGHBOR = ("=B3xiHBB", ("family", "index", "state", "flags", "type"))
_QUEUE = ("=B3xiIII", ("family", "index", "handle", "parent", "info"))

KINDS: dict[int, tuple[str, tuple[str, tuple[str, ...]]]] = {
    16: ("NEWLINK", _LINK),
    20: ("NEWADDR", _ADDRESS),
    24: ("NEWROUTE", _ROUTE),
    28: ("NEWNEIGH", _NEIGHBOR),
    36: ("NEWQDISC", _QUEUE),
    37: ("DELQDISC", _QUEUE),
    40: ("NEWTCLASS", _QUEUE),
    44: ("NEWTFILTER", _QUEUE),
}
_FLAGS = {
    0x1: "REQUEST",
    0x4: "ACK",
    0x100: "REPLACE",
    0x200: "EXCL",
    0x400: "CREATE",
}
MAKE = {"REQUEST", "ACK", "CREATE", "EXCL"}
REPLACE = {"REQUEST", "ACK", "CREATE", "REPLACE"}
CHANGE = {"REQUEST", "ACK"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A request as the kernel reads it.

    Attributes:
        kind: Its name in the kernel's headers, without ``RTM_``.
        flags: Their names in the kernel's headers, without ``NLM_F_``.
        fields: Of the struct behind the header, those that are not 0.
        attributes: By number, their bytes.
    """

    kind: str
    flags: set[str]
    fields: dict[str, int]
    attributes: dict[int, bytes]


def decoded(request: Request) -> Message:
    return decoded_bytes(request.data)


def decoded_bytes(data: bytes) -> Message:
    length, number, flags = struct.unpack_from("=IHH", data)
    assert length == len(data)
    assert flags & ~sum(_FLAGS) == 0
    kind, (layout, names) = KINDS[number]
    fields = dict(zip(names, struct.unpack_from(layout, data, 16), strict=True))
    return Message(
        kind=kind,
        flags={name for bit, name in _FLAGS.items() if flags & bit},
        fields={name: value for name, value in fields.items() if value},
        attributes=attributes_of(data[16 + struct.calcsize(layout) :]),
    )


def attributes_of(data: bytes) -> dict[int, bytes]:
    found = list(_attributes(data))
    assert len(dict(found)) == len(found)
    return dict(found)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset < len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        assert length >= 4
        # The two upper bits say how the attribute is nested or ordered.
        yield kind & 0x3FFF, data[offset + 4 : offset + length]
        offset += (length + 3) & ~3


def number(value: int) -> bytes:
    return struct.pack("=I", value)


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def mac(value: str) -> bytes:
    return bytes.fromhex(value.replace(":", ""))


class FakeNetlink:
    """Replaces the routing socket of a namespace; keeps all requests.

    Args:
        refuse: Raised at whatever is asked for.
    """

    def __init__(self, refuse: Exception | None = None) -> None:
        self.refuse = refuse
        self.requests: list[Request] = []

    def execute(self, requests: list[Request]) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.requests += requests

    def close(self) -> None:
        pass

    def taken(self) -> list[Request]:
        """Return the requests since the last call."""
        taken, self.requests = self.requests, []
        return taken


def fields_of(requests: list[Request], *names: str) -> list[Any]:
    """Return for each request its kind and some of its fields."""
    return [
        (message.kind, *(message.fields.get(name, 0) for name in names))
        for message in map(decoded, requests)
    ]

"""Which packets a fault hits: counting, and chance from a seeded generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chakram.plan.faults import (
    ACK,
    CNP,
    FIRST,
    LAST,
    MIDDLE,
    NAK,
    ONLY,
    OTHER,
    PACKET_CLASSES,
    PacketFault,
)
from chakram.roce.constants import ICRC_BYTES, BurstKind
from chakram.roce.datagrams import SERVED, SegmentParser
from chakram.roce.headers import BTH_BYTES
from chakram.roce.opcodes import Opcode

if TYPE_CHECKING:
    from random import Random

    from chakram.roce.burst import Burst


_OF_DATA = (FIRST, MIDDLE, LAST, LAST, ONLY, ONLY)
"""By position of an opcode behind the FIRST of its verb."""

_OF_KIND = {BurstKind.ACK: ACK, BurstKind.NAK: NAK, BurstKind.CNP: CNP}


class FaultRule:
    """A fault and the queue pairs of one port that it is about.

    Args:
        fault: The fault.
        qpns: Queue pairs of the port; None: all.
        index: Its place among the faults of the run; None: it has none.

    Attributes:
        disturbed: Packets to which it happened; what hits them counts it.
    """

    __slots__ = ("_seen", "classes", "disturbed", "fault", "index", "qpns")

    def __init__(
        self,
        fault: PacketFault,
        qpns: frozenset[int] | None = None,
        *,
        index: int | None = None,
    ) -> None:
        self.fault = fault
        self.qpns = qpns
        self.index = index
        self.disturbed = 0
        self.classes = PACKET_CLASSES[fault.packets]
        self._seen = 0

    def hits(self, rng: Random) -> bool:
        """Count a packet that fits; tell whether it is one to be hit."""
        fault = self.fault
        if fault.nth == 0:
            return rng.random() < fault.probability
        self._seen += 1
        behind = self._seen - fault.nth
        if behind >= 0 and fault.every:
            behind %= fault.every
        return 0 <= behind < fault.count


class PacketFaults:
    """The rules of one port for one direction.

    Of several rules that hit one packet the first one counts; all of them have seen it.
    """

    __slots__ = ("_rng", "_rules")

    def __init__(self, rules: Sequence[FaultRule], rng: Random) -> None:
        self._rules = tuple(rules)
        self._rng = rng

    def __bool__(self) -> bool:
        return bool(self._rules)

    def disturbed(self) -> dict[int, int]:
        """Return by place in the run how many packets each rule has disturbed."""
        return {
            rule.index: rule.disturbed for rule in self._rules if rule.index is not None
        }

    def draw(self, bits: range) -> int:
        """Return one of *bits*, of which there is at least one."""
        return self._rng.choice(bits)

    def judge(self, qpn: int, packet_class: int) -> FaultRule | None:
        """Return the rule that hits the next packet of queue pair *qpn*; None: none."""
        hit = None
        for rule in self._rules:
            if (
                packet_class & rule.classes
                and (rule.qpns is None or qpn in rule.qpns)
                and rule.hits(self._rng)
                and hit is None
            ):
                hit = rule
        return hit


def bits_of_datagram(
    data: bytes | bytearray | memoryview, offset: int, size: int, part: str
) -> range:
    """Return the bits of a packet, from its first one on, that belong to a part."""
    parser = SegmentParser()
    payload_at = size - ICRC_BYTES
    if parser.parse(data, offset, size) == SERVED and parser.is_data:
        payload_at = parser.payload_at - offset
    return _bits(payload_at, size, part)


def bits_of_burst(burst: Burst, position: int, part: str) -> range:
    """Return the bits of the packet at *position*, as `bits_of_datagram`."""
    # The overhead is Ethernet, IP and UDP, BTH and ICRC.
    outer_bytes = burst.overhead_bytes - BTH_BYTES - ICRC_BYTES
    size = burst.packet_wire_bytes(position) - outer_bytes
    padded_bytes = (burst.packet_payload_bytes(position) + 3) // 4 * 4
    return _bits(size - ICRC_BYTES - padded_bytes, size, part)


def _bits(payload_at: int, size: int, part: str) -> range:
    end = max(size - ICRC_BYTES, 1)
    if part == "any":
        return range(8 * size)
    if part == "payload" and 0 < payload_at < end:
        return range(8 * payload_at, 8 * end)
    return range(8 * max(1, min(payload_at, end)))


def class_of_datagram(
    data: bytes | bytearray | memoryview, offset: int, size: int
) -> int:
    """Return the class of a packet, as a bit; what is none is `OTHER`."""
    if size <= BTH_BYTES:
        return OTHER
    opcode = data[offset]
    if opcode <= Opcode.WRITE_ONLY_WITH_IMMEDIATE:
        return _OF_DATA[opcode % len(_OF_DATA)]
    if opcode == Opcode.ACKNOWLEDGE:
        return NAK if data[offset + BTH_BYTES] >> 5 else ACK
    return CNP if opcode == Opcode.CNP else OTHER


def class_of_burst(burst: Burst, position: int) -> int:
    """Return the class of the packet at *position* in *burst*, as a bit."""
    if burst.kind != BurstKind.DATA:
        return _OF_KIND[BurstKind(burst.kind)]
    index = burst.packet_index + position
    if burst.message_packets == 1:
        return ONLY
    if index == 0:
        return FIRST
    return LAST if index == burst.message_packets - 1 else MIDDLE

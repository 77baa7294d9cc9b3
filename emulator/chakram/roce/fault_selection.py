"""Selection of the packets that a fault hits, by count or by chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from chakram.plan.packet_faults import (
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
from chakram.roce.constants import BTH_BYTES, ICRC_BYTES, BurstKind
from chakram.roce.opcodes import Opcode
from chakram.roce.segment_parser import SERVED, SegmentParser
from chakram.switch.keyed_random import Attempts, draw, share_of_draws

if TYPE_CHECKING:
    from chakram.roce.burst import Burst


_OF_DATA = (FIRST, MIDDLE, LAST, LAST, ONLY, ONLY)
"""Packet class of an opcode, by its distance from the FIRST opcode of the verb."""

_KINDS = (ACK, NAK, CNP, OTHER, FIRST | MIDDLE | LAST | ONLY)
"""Kinds of packets whose PSNs are counted separately."""

_MOST_FLOWS = 1 << 20

_OF_KIND = {BurstKind.ACK: ACK, BurstKind.NAK: NAK, BurstKind.CNP: CNP}


@dataclass(slots=True, eq=False)
class FaultRule:
    """A fault, and the queue pairs of one port that it applies to.

    Attributes:
        fault: Definition of the fault.
        qpns: Queue pairs of the port; None: all.
        index: Index among the faults of the run; None: the fault is not among them.
        disturbed: Number of packets that the fault has disturbed, counted by the port.
        stream: Random stream of the draws. Equal faults of one port have different
            streams. Neither the probability nor other faults affect the stream.
    """

    fault: PacketFault
    qpns: frozenset[int] | None = None
    _: KW_ONLY
    index: int | None = None
    disturbed: int = 0
    classes: int = field(init=False)
    stream: int = 0
    _seen: int = 0
    _share: int = field(init=False)

    def __post_init__(self) -> None:
        self.classes = PACKET_CLASSES[self.fault.packets]
        self._share = share_of_draws(self.fault.probability)

    def hits(self, seed: int, number: int) -> bool:
        """Count a packet that matches, and return whether the fault hits it.

        Args:
            seed: Seed of all draws.
            number: Number of the packet (see ``packet_number``).
        """
        fault = self.fault
        if fault.nth == 0:
            return draw(seed, self.stream, number) < self._share
        self._seen += 1
        behind = self._seen - fault.nth
        if behind >= 0 and fault.every:
            behind %= fault.every
        return 0 <= behind < fault.count


class Hit(NamedTuple):
    """A rule that hits a packet.

    Attributes:
        rule: Rule that hits the packet.
        number: Number of the packet (see ``packet_number``).
    """

    rule: FaultRule
    number: int


class PacketFaults:
    """The fault rules of one port for one direction.

    If several rules hit a packet, the first one applies. All of them count the packet.

    Args:
        rules: Fault rules, in order of precedence.
        seed: Seed of the random draws of all rules.
        first_psns: First PSN of data and first PSN of responses, by queue pair. Each
            run chooses them at random, so draws depend only on the distance from them.
    """

    __slots__ = ("_attempts", "_first_psns", "_rules", "_seed")

    def __init__(
        self,
        rules: Sequence[FaultRule],
        seed: int,
        first_psns: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:
        self._rules = tuple(rules)
        self._seed = seed
        self._first_psns = first_psns or {}
        # The keys are the queue pair and the kind of packet.
        self._attempts: dict[tuple[int, int], Attempts] = {}
        alike: dict[str, int] = {}
        for rule in rules:
            fault = rule.fault
            kind = repr(fault if fault.nth else replace(fault, probability=1.0))
            alike[kind] = alike.get(kind, 0) + 1
            digest = sha256(f"{kind} {alike[kind]}".encode()).digest()
            rule.stream = int.from_bytes(digest[:8], "big")

    def __bool__(self) -> bool:
        return bool(self._rules)

    def disturbed(self) -> dict[int, int]:
        """Return how many packets each rule has disturbed, by index in the run."""
        return {
            rule.index: rule.disturbed for rule in self._rules if rule.index is not None
        }

    def draw(self, bits: range, hit: Hit) -> int:
        """Return a random element of *bits*, which must not be empty."""
        return bits[draw(self._seed, hit.rule.stream ^ 1, hit.number) * len(bits) >> 32]

    def judge(
        self, qpn: int, packet_class: int, psn: int = 0, source_port: int = 0
    ) -> Hit | None:
        """Return the rule that hits the next packet of queue pair *qpn*, or None.

        Args:
            qpn: Queue pair of this port.
            packet_class: Class of the packet.
            psn: PSN of the packet.
            source_port: UDP source port of the flow. Draws depend on the port, not on
                the QPN, because QPNs vary with the number of processes of an agent.
        """
        hit = None
        if self._rules and qpn >= 0:
            number = self._number(qpn, packet_class, psn, source_port)
        for rule in self._rules:
            if (
                packet_class & rule.classes
                and (rule.qpns is None or qpn in rule.qpns)
                and rule.hits(self._seed, number)
                and hit is None
            ):
                hit = Hit(rule, number)
        return hit

    def _number(self, qpn: int, packet_class: int, psn: int, source_port: int) -> int:
        """Return the number that identifies the packet in random draws."""
        kind = next(at for at, each in enumerate(_KINDS) if packet_class & each)
        attempts = self._attempts.get((qpn, kind))
        if attempts is None:
            if len(self._attempts) >= _MOST_FLOWS:
                self._attempts.clear()  # QPNs that no peer of the run uses
            attempts = Attempts(source_port * len(_KINDS) + kind)
            self._attempts[qpn, kind] = attempts
        first_psn = self._first_psns.get(qpn, (0, 0))[_KINDS[kind] in (ACK, NAK)]
        return attempts.number((psn - first_psn) & 0xFFFFFF)


def bits_of_datagram(
    data: bytes | bytearray | memoryview, offset: int, size: int, part: str
) -> range:
    """Return the bits of *part*, as positions from the start of the packet."""
    parser = SegmentParser()
    payload_at = size - ICRC_BYTES
    if parser.parse(data, offset, size) == SERVED and parser.is_data:
        payload_at = parser.payload_at - offset
    return _bits(payload_at, size, part)


def bits_of_burst(burst: Burst, position: int, part: str) -> range:
    """Return the bits of *part* in the packet at *position*."""
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
    """Return the class of a packet, as a bit: `OTHER` for an invalid packet."""
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

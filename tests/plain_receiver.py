"""A simple reference receiver that judges damaged packets.

One packet after the other, by the bytes, without any of the engine's code. Memory, and
what answers do to the sending half, are left out.
"""

from __future__ import annotations

from collections import Counter, deque

from chakram.roce.opcodes import REFUSED_OPCODES, Opcode

_ICRC_BYTES = 4
_LEAST_BYTES = 16
"""A BTH and an ICRC."""

_LONGEST_BYTES = 1 << 31
# Where the payload of a data packet begins, behind BTH, RETH and immediate data.
_PAYLOAD_AT = (12, 12, 12, 16, 12, 16, 28, 12, 12, 16, 28, 32)
_BEGINS = frozenset((0, 4, 5))
_GOES_ON = frozenset((0, 1))
_HAS_IMMEDIATE = frozenset((3, 5))
# Requests that are refused must at least have their headers: RETH or AtomicETH.
_LEAST_REST: dict[int, int] = {
    Opcode.READ_REQUEST: 16,
    Opcode.COMPARE_SWAP: 28,
    Opcode.FETCH_ADD: 28,
}

OF_PORT = ("malformed", "partition_key_errors", "unknown_queue_pair", "unsupported")
"""Counters of a port: what no queue pair gets, or none serves."""

OF_ANSWERS = ("acks_received", "naks_received", "cnps_received")
"""Counters of a queue pair."""


class PlainReceiver:
    """A port with one queue pair that keeps nothing.

    Attributes:
        counted: How many packets were what; the keys are names of counters of a port
            and of a queue pair.
        expected_psn: The one that may come next.
        has_failed: Whether the queue pair is in the error state. Answers can bring that
            about, too; the caller then sets this.
        messages: Message, payload bytes, packets and marks of what is reported, oldest
            first.
    """

    def __init__(self, qpn: int, *, path_mtu: int) -> None:
        self._qpn = qpn.to_bytes(3, "big")
        self._path_mtu = path_mtu
        self.counted: Counter[str] = Counter()
        self.expected_psn = 0
        self.has_failed = False
        self.messages: deque[tuple[int | None, int, int, int]] = deque()
        # Of the message that has begun: SEND or WRITE, its bytes, those it is to have.
        self._is_write: bool | None = None
        self._bytes = self._length = 0
        # Not reported yet: those of this message, and of WRITEs without immediate.
        self._row = [0, 0, 0]

    def take_joined(self, data: bytes, segment_size: int, ce: bool) -> None:
        """Take packets of one size, but the last may be shorter; 0: there is one."""
        size = len(data)
        if segment_size <= 0 or segment_size >= size:
            self.take(data, ce)
        elif segment_size < _LEAST_BYTES:
            # Not one by one: there may be hundreds.
            self.counted["malformed"] += -(-size // segment_size)
        else:
            for start in range(0, size, segment_size):
                self.take(data[start : start + segment_size], ce)

    def take(self, data: bytes, ce: bool) -> None:
        """Take one packet."""
        opcode = data[0] if data else 0
        kind = self._kind(data, opcode)
        if kind in OF_PORT:
            self.counted[kind] += 1
        if self.has_failed:
            return
        if kind == "data":
            self._take_data(data, opcode, ce)
        elif kind in OF_ANSWERS:
            self.counted[kind] += 1
        elif kind == "unsupported" and opcode in REFUSED_OPCODES:
            self.counted["ce"] += ce
            if int.from_bytes(data[9:12], "big") == self.expected_psn:
                self._refuse()

    def _kind(self, data: bytes, opcode: int) -> str:
        """Return the classification of a packet; the queue pair classifies "data"."""
        size = len(data)
        if size < _LEAST_BYTES or data[1] & 0x0F:
            return "malformed"
        pad_bytes = data[1] >> 4 & 3
        is_data = opcode <= 11
        if is_data:
            rest = size - _ICRC_BYTES - _PAYLOAD_AT[opcode]
            if rest < pad_bytes or rest & 3:
                return "malformed"
        elif opcode == 0x11:
            if size != 20 or pad_bytes:
                return "malformed"
        elif opcode == 0x81:
            if size != 32 or pad_bytes or not data[4] & 0x40:
                return "malformed"
        elif size - 16 - pad_bytes < _LEAST_REST.get(opcode, 0):
            return "malformed"
        # The default partition; the upper bit tells members apart.
        if data[3] != 0xFF or data[2] | 0x80 != 0xFF:
            return "partition_key_errors"
        if data[5:8] != self._qpn:
            return "unknown_queue_pair"
        if is_data:
            return "data"
        if opcode == 0x11:
            return "naks_received" if data[12] >= 0x20 else "acks_received"
        return "cnps_received" if opcode == 0x81 else "unsupported"

    def _take_data(self, data: bytes, opcode: int, ce: bool) -> None:
        """Take a SEND or WRITE for the queue pair."""
        self.counted["packets_received"] += 1
        self.counted["ce"] += ce
        distance = int.from_bytes(data[9:12], "big") - self.expected_psn & 0xFFFFFF
        if distance:
            behind = distance >= 1 << 23
            self.counted["duplicates" if behind else "out_of_sequence"] += 1
            return
        at = _PAYLOAD_AT[opcode]
        is_write, operation = opcode >= 6, opcode % 6
        payload_bytes = len(data) - at - _ICRC_BYTES - (data[1] >> 4 & 3)
        begins = operation in _BEGINS
        ends = operation not in _GOES_ON
        if (self._is_write is None) != begins or (
            not begins and is_write != self._is_write
        ):
            self._refuse()
            return
        if begins:
            self._bytes = 0
            self._length = int.from_bytes(data[24:28], "big") if is_write else 0
        self._bytes += payload_bytes
        least = (0 if begins else 1) if ends else self._path_mtu
        if (
            not least <= payload_bytes <= self._path_mtu
            or (self._length if is_write else self._bytes) > _LONGEST_BYTES
            or (is_write and self._bytes > self._length)
            or (is_write and ends and self._bytes != self._length)
        ):
            self._refuse()
            return
        self.expected_psn = self.expected_psn + 1 & 0xFFFFFF
        self._is_write = None if ends else is_write
        for place, amount in enumerate((payload_bytes, 1, ce)):
            self._row[place] += amount
        if ends:
            self.counted["messages_received"] += 1
            has_immediate = operation in _HAS_IMMEDIATE
            if has_immediate or not is_write:
                number = int.from_bytes(data[at - 4 : at], "big")
                size_bytes, packets, marks = self._row
                self.messages.append(
                    (number if has_immediate else None, size_bytes, packets, marks)
                )
                self._row = [0, 0, 0]

    def _refuse(self) -> None:
        """Take a packet that no peer may send: the queue pair fails."""
        self.counted["invalid_requests"] += 1
        self.has_failed = True

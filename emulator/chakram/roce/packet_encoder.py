# cython: annotation_typing=False, language_level=3, cdivision=True
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""Encoder of bursts as bytes, in a buffer of prepared packets.

A port sends from unconnected UDP sockets with the don't-fragment flag. The kernel then
numbers the segments of one send 0, 1, 2 .. in the IPv4 identification. The ICRC covers
that field, so the encoder can compute a valid ICRC.

The payload is a fixed pattern, because only its length matters. It stays in the buffer
between bursts. Only the bytes around it are rewritten (`chakram.roce.packet_assembly`).

Compiled code does not check the bounds of the buffer. `WireEncoder.encode` rejects
bursts that do not fit before it writes anything.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.plan.transport import ICRC_MODES, PATH_MTUS
from chakram.roce.constants import (
    BTH_BYTES,
    ICRC_BYTES,
    UDP_PORT,
    BurstKind,
    Verb,
)
from chakram.roce.header_crc_cache import HeaderRegisters
from chakram.roce.icrc import icrc as icrc_of
from chakram.roce.packet_assembly import (
    IMMEDIATE_BYTES,
    LONGEST_ANSWER_BYTES,
    RETH_BYTES,
    Stamper,
)

if TYPE_CHECKING:
    from chakram.roce.burst import Burst

__all__ = ["WireEncoder"]

_DATA = int(BurstKind.DATA)
_WRITE = int(Verb.WRITE)
_IMMEDIATE = IMMEDIATE_BYTES
_ICRC = ICRC_BYTES
_BY_TABLE = ICRC_MODES.index("table")
_IN_FULL = ICRC_MODES.index("full")


class WireEncoder:
    """Encodes the bursts of one port as UDP payloads.

    The encoder owns a buffer with *slots*. Each slot has room for one burst, so that a
    batch of sends can be prepared.
    """

    __slots__ = (
        "_answer_at",
        "_bytes",
        "_cut_answer",
        "_cut_data",
        "_dirty",
        "_header_registers",
        "_icrc_mode",
        "_max_burst_packets",
        "_odd_at",
        "_packet_bytes",
        "_path_mtu",
        "_segment_bytes",
        "_shapes",
        "_slot_bytes",
        "_slots",
        "_stamper",
        "_view",
    )

    def __init__(
        self,
        *,
        local_address: str,
        path_mtu: int,
        max_burst_packets: int,
        udp_port: int = UDP_PORT,
        slots: int = 1,
        icrc: str = "table",
    ) -> None:
        """Prepare the buffer.

        Args:
            local_address: IPv4 or IPv6 address that the port sends from.
            path_mtu: Path MTU of all queue pairs of the port.
            max_burst_packets: Maximum packets per burst, as in the `PortEngine`.
            udp_port: Default UDP destination port for `set_destination`.
            slots: Number of bursts that fit into the buffer.
            icrc: One of `ICRC_MODES`.

        Raises:
            ValueError: If an argument is out of range.
        """
        if path_mtu not in PATH_MTUS:
            raise ValueError(f"path MTU {path_mtu} is not one of {PATH_MTUS}")
        if not 1 <= max_burst_packets <= 128:
            raise ValueError(
                f"{max_burst_packets} packets in a burst are not in 1..128"
            )
        if icrc not in ICRC_MODES:
            raise ValueError(f"ICRC mode {icrc!r} is not one of {ICRC_MODES}")
        if slots < 1:
            raise ValueError(f"{slots} slots cannot hold a burst")
        self._header_registers = HeaderRegisters(local_address, udp_port)
        self._icrc_mode = ICRC_MODES.index(icrc)
        self._path_mtu = path_mtu
        self._max_burst_packets = max_burst_packets
        self._slots = slots
        # A slot has three parts:
        # 1. a run of packets without extended headers, which keep their payload
        # 2. room for other data: a FIRST and one more packet, or one-packet messages
        # 3. room for a response
        self._packet_bytes = BTH_BYTES + path_mtu + ICRC_BYTES
        run_bytes = max_burst_packets * self._packet_bytes
        odd_bytes = max(2, max_burst_packets) * (
            self._packet_bytes + RETH_BYTES + IMMEDIATE_BYTES
        )
        self._odd_at = run_bytes
        self._answer_at = run_bytes + odd_bytes
        self._slot_bytes = run_bytes + odd_bytes + LONGEST_ANSWER_BYTES
        self._bytes = bytearray(slots * self._slot_bytes)
        self._view = memoryview(self._bytes)
        self._stamper = Stamper(
            buffer=self._bytes,
            header_registers=self._header_registers,
            path_mtu=path_mtu,
        )
        # The parts of the buffer that were returned last.
        self._cut_data = _Cut()
        self._cut_answer = _Cut()
        # Segment size of the data that was written last.
        self._segment_bytes = 0
        # For each slot, the packet of the run whose payload was overwritten (-1: none),
        # and a key for the positions of the payloads in the other data (0: none).
        self._dirty = [-1] * slots
        self._shapes = array("q", (0 for _ in range(slots)))
        for slot in range(slots):
            for position in range(max_burst_packets):
                self._stamper.put_payload(
                    slot * self._slot_bytes + position * self._packet_bytes
                )

    def set_destination(
        self, destination: int, address: str, udp_port: int | None = None
    ) -> None:
        """Set the address and UDP port of a *destination* index.

        Raises:
            ValueError: If *address* and the local address differ in IP version, or
                *udp_port* is out of range.
        """
        self._header_registers.set_destination(destination, address, udp_port)

    def send_unsegmented(self) -> None:
        """Compute ICRCs for packets that leave one by one, each in its own send.

        The kernel then gives all of them identification 0, whatever their position in
        the burst.
        """
        self._stamper.is_numbered = False

    def encode(self, burst: Burst, slot: int = 0) -> tuple[memoryview, int]:
        """Return the UDP payloads of *burst*, concatenated, and the segment size.

        Each payload has the segment size, except the last, which may be shorter. The
        bytes are valid until the next burst is encoded into *slot*.

        Raises:
            ValueError: If *slot* is out of range, the burst does not fit this encoder,
                or its destination is unknown.
        """
        if slot < 0 or slot >= self._slots:
            raise ValueError(f"slot {slot} is not in 0..{self._slots - 1}")
        start = slot * self._slot_bytes
        if burst.kind != _DATA:
            start += self._answer_at
            segment = self._stamper.put_answer(burst, start)
            end = start + segment
            cut = self._cut_answer
        else:
            self._check(burst)
            cut = self._cut_data
            if burst.packet_index < burst.message_packets - 1 and (
                burst.packet_index > 0 or burst.verb != _WRITE
            ):
                end = self._put_run(burst, slot, start)
            else:
                start += self._odd_at
                end = self._put_odd(burst, slot, start)
            segment = self._segment_bytes
        if self._icrc_mode != _BY_TABLE:
            self._replace_icrcs(burst, start, end, segment)
        if cut.start != start or cut.end != end:
            cut.start = start
            cut.end = end
            cut.view = self._view[start:end]
            cut.segment = 0
        if cut.segment != segment:
            cut.segment = segment
            cut.result = cut.view, segment
        return cut.result

    def _replace_icrcs(self, burst: Burst, start: int, end: int, segment: int) -> None:
        """Replace the ICRCs with zeros, or with ICRCs computed over all bytes."""
        for position, at in enumerate(range(start, end, segment)):
            stop = at + segment if at + segment < end else end
            value = bytes(_ICRC)
            if self._icrc_mode == _IN_FULL:
                headers = self._header_registers.masked_headers(
                    burst, stop - at, position if self._stamper.is_numbered else 0
                )
                value = icrc_of(headers, bytes(self._bytes[at : stop - _ICRC]))
            self._bytes[stop - _ICRC : stop] = value

    def _check(self, burst: Burst) -> None:
        """Reject data that does not fit into the buffer or into one send."""
        count = burst.count
        if burst.path_mtu != self._path_mtu or count > self._max_burst_packets:
            raise ValueError(f"{burst!r} exceeds the limits of this encoder")
        last_bytes = burst.packet_payload_bytes(count - 1)
        if count < 1 or last_bytes < 0 or last_bytes > self._path_mtu:
            raise ValueError(f"{burst!r} is inconsistent")
        index = burst.packet_index
        if burst.message_ids is not None:
            if (
                index > 0
                or burst.message_packets > 1
                or count != len(burst.message_ids)
            ):
                raise ValueError(f"{burst!r} is inconsistent")
        elif index < burst.message_packets - 1 and (index > 0 or burst.verb != _WRITE):
            if (
                index + count == burst.message_packets
                and last_bytes > self._path_mtu - _IMMEDIATE
            ):
                raise ValueError(f"{burst!r} does not fit into one send")
        elif count > 2:
            raise ValueError(f"{burst!r} does not fit into one send")

    def _put_run(self, burst: Burst, slot: int, at: int) -> int:
        """Write packets without a RETH, of which only the last may end the message.

        Returns:
            The offset after the last packet.
        """
        size = self._packet_bytes
        self._segment_bytes = size
        position = self._dirty[slot]
        if position >= 0:
            self._stamper.put_payload(at + position * size)
            self._dirty[slot] = -1
        if burst.packet_index + burst.count < burst.message_packets:
            self._stamper.put_alike(burst, burst.count, at)
            return at + burst.count * size
        # All packets except a LAST have the same layout.
        position = burst.count - 1
        self._dirty[slot] = position
        self._stamper.put_alike(burst, position, at)
        at += position * size
        return at + self._stamper.put_packet(burst, position, at, False)

    def _put_odd(self, burst: Burst, slot: int, at: int) -> int:
        """Write packets, some with extended headers, and return the end offset."""
        count = burst.count
        last_bytes = burst.packet_payload_bytes(count - 1)
        # All bursts with the same key have their payloads at the same positions.
        shape = (last_bytes << 8 | count) << 16 | (
            self._stamper.opcode(burst, 0) << 8 | self._stamper.opcode(burst, count - 1)
        )
        is_there = self._shapes[slot] == shape
        # Until everything is written, the slot contains no valid payload.
        self._shapes[slot] = 0
        self._segment_bytes = 0
        for position in range(count):
            length = self._stamper.put_packet(burst, position, at, is_there)
            if position == 0:
                self._segment_bytes = length
            at += length
        self._shapes[slot] = shape
        return at


class _Cut:
    """A part of the buffer that `WireEncoder.encode` returned.

    Attributes:
        start: Offset of the first byte.
        end: Offset after the last byte.
        view: View of the bytes.
        segment: Segment size that was last returned with *view*.
        result: Tuple of *view* and *segment*.
    """

    __slots__ = ("end", "result", "segment", "start", "view")

    def __init__(self) -> None:
        self.start = -1
        self.end = -1
        self.view = memoryview(b"")
        self.segment = 0
        self.result = (self.view, 0)

# cython: annotation_typing=False, language_level=3, cdivision=True
# cython: wraparound=False, boundscheck=False, initializedcheck=False
"""From bursts to bytes: a buffer of prepared packets, of which only headers change.

A port sends from unconnected UDP sockets with the don't-fragment flag. The kernel then
numbers the segments of one send 0, 1, 2 .. in the IPv4 identification, which the ICRC
covers; so a valid ICRC can be made here. The payload is a fixed pattern: what a packet
carries is of no interest, how much is. So it stays where it is from burst to burst, and
only what is around it is written anew (`chakram.roce.packet_stamping`).

Compiled, nothing checks the bounds of the buffer: `WireEncoder.encode` refuses bursts
that do not fit before anything is written.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from chakram.plan.transport import ICRC_MODES, PATH_MTUS
from chakram.roce.constants import (
    ICRC_BYTES,
    UDP_PORT,
    BurstKind,
    Verb,
)
from chakram.roce.header_registers import HeaderRegisters
from chakram.roce.headers import BTH_BYTES
from chakram.roce.icrc import icrc as icrc_of
from chakram.roce.packet_stamping import (
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
    """Turns the bursts of one port into UDP payloads.

    The bytes stand in a buffer that belongs to the encoder. It has *slots* of which
    each holds one burst, so that a batch of sends can be prepared.
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
            path_mtu: Of all its queue pairs.
            max_burst_packets: As in its `PortEngine`.
            udp_port: UDP destination port of peers that `set_destination` gives none.
            slots: How many bursts the buffer holds.
            icrc: One of `ICRC_MODES`.

        Raises:
            ValueError: If one of them is out of range.
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
            raise ValueError(f"{slots} slots hold no burst")
        self._header_registers = HeaderRegisters(local_address, udp_port)
        self._icrc_mode = ICRC_MODES.index(icrc)
        self._path_mtu = path_mtu
        self._max_burst_packets = max_burst_packets
        self._slots = slots
        # Each slot: a run of packets without extended headers that keeps its payload;
        # behind it room for any other data (FIRST and one more, or messages of one
        # packet), and for an answer.
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
        # The parts of it that were returned last.
        self._cut_data = _Cut()
        self._cut_answer = _Cut()
        # Segment size of the data that was written last.
        self._segment_bytes = 0
        # By slot: which packet of the run has lost its payload, -1: none; and where the
        # payloads of the other data stand, as a number, 0: nowhere.
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
        """Say which peer a queue pair's *destination* stands for.

        Raises:
            ValueError: If *address* is not of the same IP version as the local one, or
                *udp_port* is out of range.
        """
        self._header_registers.set_destination(destination, address, udp_port)

    def leave_alone(self) -> None:
        """Seal packets as what they will be where each leaves by a send of its own.

        The kernel then gives all of them identification 0, whatever their place in the
        burst is.
        """
        self._stamper.is_numbered = False

    def encode(self, burst: Burst, slot: int = 0) -> tuple[memoryview, int]:
        """Return the UDP payloads of *burst*, one behind the other, and a size.

        All have that size but the last, which may be shorter: it is the segment size
        for the kernel. The bytes are good until the next burst is encoded to *slot*.

        Raises:
            ValueError: If the burst does not fit this encoder, or its destination is
                not known.
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
        """Write zeros, or what the rule gives over all bytes, for what tables gave."""
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
        """Refuse data that does not fit the buffer, or no send."""
        count = burst.count
        if burst.path_mtu != self._path_mtu or count > self._max_burst_packets:
            raise ValueError(f"{burst!r} is larger than what this encoder was made for")
        last_bytes = burst.packet_payload_bytes(count - 1)
        if count < 1 or last_bytes < 0 or last_bytes > self._path_mtu:
            raise ValueError(f"{burst!r} contradicts itself")
        index = burst.packet_index
        if burst.message_ids is not None:
            if (
                index > 0
                or burst.message_packets > 1
                or count != len(burst.message_ids)
            ):
                raise ValueError(f"{burst!r} contradicts itself")
        elif index < burst.message_packets - 1 and (index > 0 or burst.verb != _WRITE):
            if (
                index + count == burst.message_packets
                and last_bytes > self._path_mtu - _IMMEDIATE
            ):
                raise ValueError(f"{burst!r} does not fit one send")
        elif count > 2:
            raise ValueError(f"{burst!r} does not fit one send")

    def _put_run(self, burst: Burst, slot: int, at: int) -> int:
        """Write packets without RETH, of which only the last may end the message.

        Returns:
            Where they end.
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
        # All but a LAST are alike.
        position = burst.count - 1
        self._dirty[slot] = position
        self._stamper.put_alike(burst, position, at)
        at += position * size
        return at + self._stamper.put_packet(burst, position, at, False)

    def _put_odd(self, burst: Burst, slot: int, at: int) -> int:
        """Write packets of which some have extended headers; return where they end."""
        count = burst.count
        last_bytes = burst.packet_payload_bytes(count - 1)
        # All bursts with this number have their payloads at the same places.
        shape = (last_bytes << 8 | count) << 16 | (
            self._stamper.opcode(burst, 0) << 8 | self._stamper.opcode(burst, count - 1)
        )
        is_there = self._shapes[slot] == shape
        # Until all is written, nothing of it counts.
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
    """A part of a buffer.

    Attributes:
        start: Where it begins.
        end: Before what it ends.
        view: It.
        segment: Size of the segments that it was returned with.
        result: The two of them.
    """

    __slots__ = ("end", "result", "segment", "start", "view")

    def __init__(self) -> None:
        self.start = -1
        self.end = -1
        self.view = memoryview(b"")
        self.segment = 0
        self.result = (self.view, 0)

# cython: annotation_typing=False, language_level=3, cdivision=True
"""Delivery of arriving packets to the queue pairs of a port.

The kernel may deliver many packets at once. Consecutive packets of one message are
collected and passed to the queue pair together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.constants import BurstKind
from chakram.roce.opcodes import REFUSED_OPCODES, Opcode
from chakram.roce.packet_verification import INTACT, WRONG_ICRC
from chakram.roce.segment_parser import MALFORMED, Run, SegmentParser

if TYPE_CHECKING:
    from chakram.roce.burst import Burst
    from chakram.roce.packet_verification import PacketVerifier
    from chakram.roce.queue_pair import QueuePair
    from chakram.roce.queue_pairs import QueuePairs
    from chakram.roce.scheduler import Scheduler

__all__ = ["Receiver"]

_MALFORMED = MALFORMED
_INTACT = INTACT
_WRONG_ICRC = WRONG_ICRC
_DATA = int(BurstKind.DATA)
_CNP = int(Opcode.CNP)
_ACKNOWLEDGE = int(Opcode.ACKNOWLEDGE)


class Receiver:
    """The receiving side of a port, which `PortEngine` calls.

    Attributes:
        packets_received: See `PortStatistics`.
        unknown_queue_pair: See `PortStatistics`.
        foreign_address: See `PortStatistics`.
        malformed: See `PortStatistics`.
        partition_key_errors: See `PortStatistics`.
        unsupported: See `PortStatistics`.
        verified: See `PortStatistics`.
        icrc_errors: See `PortStatistics`.
        wrong_payloads: See `PortStatistics`.
    """

    __slots__ = (
        "_parser",
        "_queue_pairs",
        "_run",
        "_scheduler",
        "_until_next",
        "_verifier",
        "foreign_address",
        "icrc_errors",
        "malformed",
        "packets_received",
        "partition_key_errors",
        "unknown_queue_pair",
        "unsupported",
        "verified",
        "wrong_payloads",
    )

    def __init__(
        self,
        *,
        queue_pairs: QueuePairs,
        scheduler: Scheduler,
        verifier: PacketVerifier | None,
    ) -> None:
        """Create the receiver of a port.

        Args:
            queue_pairs: Queue pairs of the port.
            scheduler: Scheduler to update after packets have arrived for a queue pair.
            verifier: Verifies packets that arrive as bytes; None: they are not
                verified.
        """
        self._queue_pairs = queue_pairs
        self._scheduler = scheduler
        self._verifier = verifier
        # Number of packets until the next one to verify.
        self._until_next = 0 if verifier is None else verifier.every
        # The current packet, and the earlier packets that are not delivered yet.
        self._parser = SegmentParser()
        self._run = Run()
        self.packets_received = 0
        self.unknown_queue_pair = 0
        self.foreign_address = 0
        self.malformed = 0
        self.partition_key_errors = 0
        self.unsupported = 0
        self.verified = 0
        self.icrc_errors = 0
        self.wrong_payloads = 0

    def receive_burst(
        self,
        burst: Burst,
        now_ns: int,
        first: int,
        count: int,
        ce: int,
    ) -> None:
        """Receive packets of a burst: see `PortEngine.receive_burst`.

        *count* is not None here.
        """
        self.packets_received += count
        queue_pair = self._queue_pairs.find(burst.destination_qpn)
        if queue_pair is None:
            self.unknown_queue_pair += count
            return
        if burst.flipped_bit >= 0:
            # There are no bytes to verify, but in a real packet the check would fail.
            self.verified += count
            self.icrc_errors += count
            return
        if burst.is_marked:
            ce = count
        if burst.kind == _DATA:
            queue_pair.fetch_receiver()
            queue_pair.arrivals.receive_burst(burst, now_ns, first, count, ce)
            # Most data does not affect sending, so no update is needed.
            if queue_pair.responder.has_answer() or queue_pair.requester.failed:
                self._scheduler.note_data(queue_pair, now_ns)
        else:
            queue_pair.fetch_sender()
            queue_pair.arrivals.receive_burst(burst, now_ns, first, count, ce)
            self._scheduler.update(queue_pair, now_ns, now_ns)

    def set_not_ready(self, qpn: int, psn: int, now_ns: int, ce: int) -> bool:
        """Refuse a packet for now: see `PortEngine.set_not_ready`."""
        queue_pair = self._queue_pairs.find(qpn)
        if queue_pair is None or not queue_pair.responder.set_not_ready(
            psn, ce, now_ns
        ):
            return False
        self._scheduler.update(queue_pair, now_ns, now_ns)
        return True

    def receive_datagrams(
        self,
        buffer: bytes | bytearray | memoryview,
        length: int,
        segment_size: int,
        now_ns: int,
        ce: bool,
        source_port: int,
        source_high: int,
        source_low: int,
    ) -> None:
        """Receive bytes from a socket: see `PortEngine.receive_datagrams`."""
        run = self._run
        queue_pair: QueuePair | None = None
        verifier = self._verifier
        if length > len(buffer):
            length = len(buffer)
        if length <= 0:
            self.packets_received += 1
            self.malformed += 1
            return
        if segment_size <= 0 or segment_size > length:
            segment_size = length
        if verifier is not None:
            verifier.begin()
        position = -1
        offset = 0
        while offset < length:
            position += 1
            size = segment_size if segment_size < length - offset else length - offset
            if self._admits(buffer, offset, size):
                qpn = self._parser.qpn
                if queue_pair is None or queue_pair.qpn != qpn:
                    if queue_pair is not None:
                        self._deliver(queue_pair, run, ce, now_ns)
                        self._scheduler.update(queue_pair, now_ns, now_ns)
                    queue_pair = self._addressed(qpn, source_high, source_low)
                if queue_pair is None:
                    pass  # already counted
                elif (
                    verifier is not None
                    and queue_pair.flow is not None
                    and source_port > 0
                    and not self._is_good(
                        queue_pair,
                        buffer,
                        offset,
                        size,
                        source_port,
                        position,
                        ce,
                        now_ns,
                    )
                ):
                    pass  # counted by _is_good
                elif queue_pair.memory is not None and self._parser.is_data:
                    self._keep(queue_pair, buffer, ce, now_ns)
                elif run.extend(self._parser):
                    if run.is_inside():
                        repeated = self._repeat(
                            queue_pair,
                            buffer,
                            offset + size,
                            size,
                            length,
                            source_port,
                            position + 1,
                        )
                        position += repeated
                        offset += repeated * size
                else:
                    self._deliver(queue_pair, run, ce, now_ns)
                    if self._parser.is_data:
                        run.begin(self._parser, queue_pair.path_mtu)
                    else:
                        self._receive_control(queue_pair, ce, now_ns)
            offset += size
        if queue_pair is not None:
            self._deliver(queue_pair, run, ce, now_ns)
            self._scheduler.update(queue_pair, now_ns, now_ns)

    def _repeat(
        self,
        queue_pair: QueuePair,
        buffer: bytes | bytearray | memoryview,
        offset: int,
        size: int,
        length: int,
        source_port: int,
        position: int,
    ) -> int:
        """Add packets that repeat the last packet to its run. Return their number.

        Most packets of long messages repeat the previous packet. Handling all
        repetitions at once takes a third of the time.
        """
        count = self._parser.repetitions(buffer, offset, size, length)
        verifier, flow = self._verifier, queue_pair.flow
        if verifier is not None and flow is not None and source_port > 0:
            if verifier.every > 1:
                return 0
            count = verifier.intact(
                buffer, offset, size, count, flow, self._parser.opcode, position
            )
            self.verified += count
        self.packets_received += count
        self._run.repeat(count)
        return count

    def is_foreign(self, qpn: int, high: int, low: int) -> bool:
        """Return whether an address is foreign: see `PortEngine.is_foreign`."""
        queue_pair = self._queue_pairs.find(qpn)
        return queue_pair is not None and not queue_pair.takes_from(high, low)

    def _addressed(self, qpn: int, high: int, low: int) -> QueuePair | None:
        """Return queue pair *qpn* if it accepts packets from an address, or None.

        All packets of one receive come from one address. The receiver therefore calls
        this method once per receive, and again when the queue pair changes.
        """
        queue_pair = self._queue_pairs.find(qpn)
        if queue_pair is None:
            self.unknown_queue_pair += 1
            return None
        if not queue_pair.takes_from(high, low):
            self.foreign_address += 1
            queue_pair.note_foreign(high, low)
            return None
        queue_pair.is_heard = True
        return queue_pair

    def _admits(
        self,
        buffer: bytes | bytearray | memoryview,
        offset: int,
        size: int,
    ) -> bool:
        """Parse a packet. Return whether it is valid and in the default partition."""
        self.packets_received += 1
        if self._parser.parse(buffer, offset, size) == _MALFORMED:
            self.malformed += 1
            return False
        if self._parser.partition_key & 0x7FFF != 0x7FFF:
            # All queue pairs are full members of the default partition, so limited
            # members may send to them (IBA volume 1, 10.9.3).
            self.partition_key_errors += 1
            return False
        return True

    def _deliver(self, queue_pair: QueuePair, run: Run, ce: bool, now_ns: int) -> None:
        """Deliver the collected packets, if any."""
        if run.count == 0:
            return
        queue_pair.arrivals.receive_run(
            run.psn,
            run.count,
            run.verb,
            run.is_first,
            run.is_last,
            run.payload_bytes,
            run.dma_length_bytes,
            run.immediate,
            run.ack_request,
            run.count if ce else 0,
            now_ns,
        )
        run.count = 0

    def _keep(
        self,
        queue_pair: QueuePair,
        buffer: bytes | bytearray | memoryview,
        ce: bool,
        now_ns: int,
    ) -> None:
        """Deliver the last parsed packet with its payload from *buffer*."""
        parser = self._parser
        start = parser.payload_at
        queue_pair.arrivals.receive_contents(
            parser.psn,
            parser.verb,
            parser.is_first,
            parser.is_last,
            bytes(buffer[start : start + parser.payload_bytes]),
            parser.dma_length_bytes,
            parser.address,
            parser.key,
            parser.immediate,
            parser.ack_request,
            ce,
            now_ns,
        )

    def _receive_control(self, queue_pair: QueuePair, ce: bool, now_ns: int) -> None:
        """Deliver the last parsed packet, which is not data."""
        opcode = self._parser.opcode
        if opcode == _ACKNOWLEDGE:
            queue_pair.arrivals.receive_ack(
                self._parser.syndrome, self._parser.psn, now_ns, self._parser.msn
            )
        elif opcode == _CNP:
            queue_pair.arrivals.receive_cnp(now_ns)
        else:
            self.unsupported += 1
            if opcode in REFUSED_OPCODES:
                problem = f"opcode {opcode:#04x} is not supported"
                queue_pair.arrivals.refuse(self._parser.psn, ce, now_ns, problem)

    def _is_good(
        self,
        queue_pair: QueuePair,
        buffer: bytes | bytearray | memoryview,
        offset: int,
        size: int,
        source_port: int,
        position: int,
        ce: bool,
        now_ns: int,
    ) -> bool:
        """Return whether the last parsed packet is accepted after verification.

        Only one packet in `PacketVerifier.every` is verified. All other packets are
        accepted. A packet with a correct ICRC and a wrong payload is accepted, as in a
        NIC. The receiver counts it, because the check exists to find wrong payloads.
        """
        verifier = self._verifier
        flow = queue_pair.flow
        if verifier is None or flow is None:
            return True
        self._until_next -= 1
        if self._until_next > 0:
            return True
        self._until_next = verifier.every
        self.verified += 1
        verdict = verifier.judge(
            buffer, offset, size, self._parser, flow, source_port, position
        )
        if verdict == _INTACT:
            return True
        if verdict == _WRONG_ICRC:
            self.icrc_errors += 1
            return False
        # Earlier packets decide whether this packet is accepted, so deliver them first.
        self._deliver(queue_pair, self._run, ce, now_ns)
        if queue_pair.responder.takes(self._parser.psn):
            queue_pair.responder.note_wrong_payload(self._parser.psn)
            self.wrong_payloads += 1
        return True

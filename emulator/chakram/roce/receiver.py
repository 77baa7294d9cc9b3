# cython: annotation_typing=False, language_level=3, cdivision=True
"""Which queue pair of a port gets what arrives, and what nobody gets.

What the kernel hands over may be many packets: those that follow each other in one
message are collected, and handed over together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.datagrams import MALFORMED, Run, SegmentParser
from chakram.roce.opcodes import REFUSED_OPCODES, Opcode

if TYPE_CHECKING:
    from chakram.roce.burst import Burst
    from chakram.roce.queue_pair import QueuePair
    from chakram.roce.scheduler import Scheduler
    from chakram.roce.verify import IcrcVerifier

__all__ = ["Receiver"]

_MALFORMED = MALFORMED
_CNP = int(Opcode.CNP)
_ACKNOWLEDGE = int(Opcode.ACKNOWLEDGE)


class Receiver:
    """The receiving side of a port: see the module; `PortEngine` calls the methods.

    Attributes:
        packets_received: As the others, see `PortStatistics`.
        unknown_queue_pair: Likewise.
        foreign_address: Likewise.
        malformed: Likewise.
        partition_key_errors: Likewise.
        unsupported: Likewise.
        icrc_checked: Likewise.
        icrc_errors: Likewise.
    """

    __slots__ = (
        "_parser",
        "_queue_pairs",
        "_run",
        "_scheduler",
        "_verifier",
        "foreign_address",
        "icrc_checked",
        "icrc_errors",
        "malformed",
        "packets_received",
        "partition_key_errors",
        "unknown_queue_pair",
        "unsupported",
    )

    def __init__(
        self,
        *,
        queue_pairs: dict[int, QueuePair],
        scheduler: Scheduler,
        verifier: IcrcVerifier | None,
    ) -> None:
        """Begin with nothing received.

        Args:
            queue_pairs: Those of the port by QPN; a dictionary of the port's.
            scheduler: Is told whose packets have arrived.
            verifier: Which packets to check, of those that arrive as bytes.
        """
        self._queue_pairs = queue_pairs
        self._scheduler = scheduler
        self._verifier = verifier
        # The packet looked at, and those before it that are not handed over yet.
        self._parser = SegmentParser()
        self._run = Run()
        self.packets_received = 0
        self.unknown_queue_pair = 0
        self.foreign_address = 0
        self.malformed = 0
        self.partition_key_errors = 0
        self.unsupported = 0
        self.icrc_checked = 0
        self.icrc_errors = 0

    def receive_burst(
        self,
        burst: Burst,
        now_ns: int,
        first: int,
        count: int,
        ce: int,
    ) -> None:
        """See `PortEngine.receive_burst`; here *count* is known."""
        self.packets_received += count
        queue_pair = self._queue_pairs.get(burst.destination_qpn)
        if queue_pair is None:
            self.unknown_queue_pair += count
            return
        if burst.is_marked:
            ce = count
        queue_pair.arrivals.receive_burst(burst, now_ns, first, count, ce)
        self._scheduler.update(queue_pair, now_ns, now_ns)

    def be_not_ready(self, qpn: int, psn: int, now_ns: int, ce: int) -> bool:
        """See `PortEngine.be_not_ready`."""
        queue_pair = self._queue_pairs.get(qpn)
        if queue_pair is None or not queue_pair.responder.be_not_ready(psn, ce, now_ns):
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
        """See `PortEngine.receive_datagrams`."""
        run = self._run
        queue_pair: QueuePair | None = None
        if length > len(buffer):
            length = len(buffer)
        if length <= 0:
            self.packets_received += 1
            self.malformed += 1
            return
        if segment_size <= 0 or segment_size > length:
            segment_size = length
        offset = 0
        while offset < length:
            size = segment_size if segment_size < length - offset else length - offset
            if self._admits(buffer, offset, size, source_port):
                qpn = self._parser.qpn
                if queue_pair is None or queue_pair.qpn != qpn:
                    if queue_pair is not None:
                        self._deliver(queue_pair, run, ce, now_ns)
                        self._scheduler.update(queue_pair, now_ns, now_ns)
                    queue_pair = self._addressed(qpn, source_high, source_low)
                if queue_pair is None:
                    pass  # it has been counted
                elif queue_pair.memory is not None and self._parser.is_data:
                    self._keep(queue_pair, buffer, ce, now_ns)
                elif not run.extend(self._parser):
                    self._deliver(queue_pair, run, ce, now_ns)
                    if self._parser.is_data:
                        run.begin(self._parser, queue_pair.path_mtu)
                    else:
                        self._receive_control(queue_pair, ce, now_ns)
            offset += size
        if queue_pair is not None:
            self._deliver(queue_pair, run, ce, now_ns)
            self._scheduler.update(queue_pair, now_ns, now_ns)

    def is_foreign(self, qpn: int, high: int, low: int) -> bool:
        """See `PortEngine.is_foreign`."""
        queue_pair = self._queue_pairs.get(qpn)
        return queue_pair is not None and not queue_pair.takes_from(high, low)

    def _addressed(self, qpn: int, high: int, low: int) -> QueuePair | None:
        """Return the queue pair of a packet from that address; None: it gets nothing.

        All that one receive hands over comes from one address, so this is asked once
        for every receive, and again where the queue pair changes.
        """
        queue_pair = self._queue_pairs.get(qpn)
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
        source_port: int,
    ) -> bool:
        """Parse a received packet; tell whether it is one and is to be taken."""
        self.packets_received += 1
        if self._parser.parse(buffer, offset, size) == _MALFORMED:
            self.malformed += 1
            return False
        if self._parser.partition_key & 0x7FFF != 0x7FFF:
            # All are full members of the default partition, so its limited members
            # may send, too (IBA volume 1, 10.9.3).
            self.partition_key_errors += 1
            return False
        if self._verifier is None or source_port <= 0:
            return True
        return self._is_intact(buffer, offset, size, source_port)

    def _deliver(self, queue_pair: QueuePair, run: Run, ce: bool, now_ns: int) -> None:
        """Hand over the packets that were collected, if there are any."""
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
        """Hand over the packet that was parsed last with its payload, from *buffer*."""
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
        """Hand over the packet that was parsed last, which is not data."""
        opcode = self._parser.opcode
        if opcode == _ACKNOWLEDGE:
            queue_pair.arrivals.receive_ack(
                self._parser.syndrome, self._parser.psn, now_ns
            )
        elif opcode == _CNP:
            queue_pair.arrivals.receive_cnp(now_ns)
        else:
            self.unsupported += 1
            if opcode in REFUSED_OPCODES:
                problem = f"opcode {opcode:#04x} is not supported"
                queue_pair.arrivals.refuse(self._parser.psn, ce, now_ns, problem)

    def _is_intact(
        self,
        buffer: bytes | bytearray | memoryview,
        offset: int,
        size: int,
        source_port: int,
    ) -> bool:
        """Tell whether the ICRC of a packet is right, or is not looked at."""
        verifier = self._verifier
        queue_pair = self._queue_pairs.get(self._parser.qpn)
        if verifier is None or queue_pair is None or not verifier.is_due():
            return True
        self.icrc_checked += 1
        if verifier.is_valid(
            bytes(buffer[offset : offset + size]),
            peer=queue_pair.destination,
            source_port=source_port,
        ):
            return True
        self.icrc_errors += 1
        return False

# cython: annotation_typing=False, language_level=3, cdivision=True
"""Scheduler of a port, which decides which queue pair sends next, and when.

Responses (ACK, NAK, CNP) go first. If *short_data_leads* is true, one burst of data
that ends with a short packet goes before the responses. The peer waits for a short
message, but seldom for an ACK. Deficit round robin over wire bytes shares the port
among the queue pairs that may send data now. At its turn, a queue pair gets a quantum:
the wire bytes of one full burst. It sends as long as any of the quantum is left. If the
last burst exceeds the quantum, the excess is deducted from the next turn. The totals of
two queue pairs that always have something to send thus never differ by more than a
quantum and a burst.

A queue pair with nothing to send, or blocked by its window or its rate, is in no list
and costs nothing. Queue pairs may share a message order, in which the earliest message
of all these queue pairs goes first (`chakram.roce.send_turns`).

`chakram.roce.pacing` explains pacing and the accounting of data plane delays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chakram.roce.constants import NEVER, BurstKind
from chakram.roce.fifo import Fifo
from chakram.roce.histogram import Histogram
from chakram.roce.send_turns import Turns
from chakram.roce.timers import Timers

if TYPE_CHECKING:
    from chakram.roce.burst import Burst
    from chakram.roce.pacing import Line
    from chakram.roce.queue_pair import QueuePair
    from chakram.roce.queue_pairs import QueuePairs

__all__ = ["Scheduler"]

_NEVER = NEVER
_DATA = int(BurstKind.DATA)
# Bits that state which traffic is paused.
_DATA_PAUSED, _ANSWERS_PAUSED = 1, 2


class Scheduler:
    """The sending side of a port, which `PortEngine` calls.

    Attributes:
        packets_sent: See `PortStatistics`.
        bytes_sent: See `PortStatistics`.
        bursts_sent: See `PortStatistics`.
        control_sent: See `PortStatistics`.
        pacing_errors: See `PortStatistics`.
        paused_ns: See `PortStatistics`.
        short_data_leads: Whether short data goes before responses, unless data was
            sent last.
        has_news: Whether something may have become due earlier, or ready to send, since
            the last call of `next_wakeup_ns`.
    """

    __slots__ = (
        "_answering",
        "_answers_until_ns",
        "_data_until_ns",
        "_line",
        "_max_burst_packets",
        "_offered",
        "_offered_queue_pair",
        "_paused",
        "_paused_since_ns",
        "_quantum_bytes",
        "_queue_pairs",
        "_sent_data",
        "_timers",
        "_turns",
        "bursts_sent",
        "bytes_sent",
        "control_sent",
        "has_news",
        "pacing_errors",
        "packets_sent",
        "paused_ns",
        "short_data_leads",
    )

    def __init__(
        self,
        *,
        queue_pairs: QueuePairs,
        line: Line,
        max_burst_packets: int,
    ) -> None:
        """Create a scheduler with nothing to send.

        Args:
            queue_pairs: Queue pairs of the port.
            line: Link of the port.
            max_burst_packets: Maximum number of packets in one burst.
        """
        self._queue_pairs = queue_pairs
        self._line = line
        self._max_burst_packets = max_burst_packets
        # Queue pairs with a response, and queue pairs with data.
        self._answering = Fifo()
        self._turns = Turns()
        # An entry is valid only if its queue pair still stores the same time (see
        # `_schedule`).
        self._timers = Timers()
        self._quantum_bytes = 0
        # The burst that `peek_burst` returned last, and its queue pair.
        self._offered: Burst | None = None
        self._offered_queue_pair: QueuePair | None = None
        # Whether the last burst contained data.
        self._sent_data = False
        self.short_data_leads = False
        self.packets_sent = 0
        self.bytes_sent = 0
        self.bursts_sent = 0
        self.control_sent = 0
        self.pacing_errors = Histogram()
        self.has_news = True
        # The traffic that the network has paused, the ends of the pauses, and the start
        # of the data pause.
        self._paused = 0
        self._data_until_ns = 0
        self._answers_until_ns = 0
        self._paused_since_ns = 0
        self.paused_ns = 0

    def admit(self, queue_pair: QueuePair) -> None:
        """Make the quantum large enough for the full bursts of a new queue pair."""
        queue_pair.requester.use_line(self._line)
        packet_bytes = queue_pair.path_mtu + queue_pair.overhead_bytes
        quantum_bytes = self._max_burst_packets * packet_bytes
        if quantum_bytes > self._quantum_bytes:
            self._quantum_bytes = quantum_bytes

    def update(self, queue_pair: QueuePair, since_ns: int, now_ns: int) -> None:
        """Update whether and when a queue pair may send, after any change to it.

        Args:
            queue_pair: Queue pair to update.
            since_ns: Time from which the queue pair may send, if it may send now. This
                time is before *now_ns* if the timer that made the queue pair ready is
                handled late.
            now_ns: Current time.
        """
        is_busy = self._answering.count + self._turns.ring.count > 0
        ready_ns = _NEVER if queue_pair.is_in_ring else queue_pair.requester.ready_ns()
        if ready_ns <= now_ns:
            self.has_news = True
            if since_ns < ready_ns:
                # Another timer of the queue pair was due before its pace allowed a
                # packet.
                since_ns = ready_ns
            if not is_busy:
                is_busy = True
                self._line.demand(since_ns)
            queue_pair.ready_since_ns = since_ns
            queue_pair.requester.demand(since_ns)
            # Link time that was lost until now does not count for this queue pair.
            queue_pair.wait_before_ns = (
                self._line.generator_wait_ns + self._line.lost_ns(since_ns)
            )
            self._turns.enter(queue_pair)
            queue_pair.requester.begin_turn(now_ns)
        elif not queue_pair.is_in_ring:
            queue_pair.requester.end_turn(now_ns)
        elif self._turns.has_other_order(queue_pair):
            # The queue pair has gone back, or skipped packets that had already arrived.
            self.has_news = True
            self._turns.leave(queue_pair)
            self._turns.enter(queue_pair)
        self._answer(queue_pair, is_busy, now_ns)
        self._schedule(queue_pair)

    def note_data(self, queue_pair: QueuePair, now_ns: int) -> None:
        """Update a queue pair after data arrived that may need a response.

        Arriving data does not make a queue pair ready to send, so usually only the
        response matters.
        """
        requester = queue_pair.requester
        if requester.failed or not (queue_pair.is_in_ring or requester.is_idle()):
            self.update(queue_pair, now_ns, now_ns)
        else:
            is_busy = self._answering.count + self._turns.ring.count > 0
            self._answer(queue_pair, is_busy, now_ns)

    def _answer(self, queue_pair: QueuePair, is_busy: bool, now_ns: int) -> None:
        """Queue a pending response, if any. *is_busy*: whether other packets wait."""
        if not queue_pair.is_answering and queue_pair.responder.has_answer():
            if not is_busy:
                self._line.demand(now_ns)
            self.has_news = True
            queue_pair.is_answering = True
            self._answering.append(queue_pair)

    def peek_burst(self, now_ns: int) -> Burst | None:
        """Return the burst that would leave now: see `PortEngine.peek_burst`."""
        if self._timers.first_ns <= now_ns:
            self.handle_timers(now_ns)
        if self._paused != 0:
            self._end_pauses(now_ns)
        if now_ns < self._line.ready_ns(now_ns):
            return None
        burst: Burst | None = None
        if self.short_data_leads and not self._sent_data and self._has_short_data():
            burst = self._peek_data(now_ns)
            if burst is not None:
                return burst
        while self._answering.count > 0 and not self._paused & _ANSWERS_PAUSED:
            queue_pair: QueuePair = self._answering.first()
            burst = queue_pair.make_answer()
            if burst is not None:
                self._offer(burst, queue_pair, now_ns)
                return burst
            # The gap has closed, so no response is needed.
            self._answering.take()
            queue_pair.is_answering = False
        return self._peek_data(now_ns)

    def foresee_send(self, stage: int) -> None:
        """Prefetch for the next data burst: see `PortEngine.foresee_send`."""
        ring = self._turns.ring
        if ring.count == 0:
            return
        if stage == 0:
            ring.fetch_first(6)
            return
        queue_pair: QueuePair = ring.first()
        if stage == 1:
            queue_pair.fetch_sender()
        else:
            queue_pair.requester.queue.fetch_oldest()

    def _has_short_data(self) -> bool:
        """Return whether the data to send next ends with a short packet."""
        if self._turns.ring.count == 0:
            return False
        queue_pair: QueuePair = self._turns.ring.first()
        return queue_pair.requester.is_nearly_done()

    def _peek_data(self, now_ns: int) -> Burst | None:
        """Return the burst of data that would leave now, if any."""
        while self._turns.ring.count > 0 and not self._paused & _DATA_PAUSED:
            queue_pair: QueuePair = self._turns.ring.first()
            queue_pair.fetch_sender()
            self._turns.ring.fetch_second(6)
            burst = None
            if queue_pair.requester.ready_ns() <= now_ns:
                burst = queue_pair.make_burst(self._max_burst_packets)
            if burst is None:
                self._leave_ring(queue_pair, now_ns)
                continue
            if queue_pair.deficit_bytes <= 0:
                queue_pair.deficit_bytes += self._quantum_bytes
                if queue_pair.deficit_bytes <= 0:
                    # The queue pair's debt exceeds a quantum, so it misses this turn.
                    self._turns.end_turn()
                    continue
            self._offer(burst, queue_pair, now_ns)
            return burst
        return None

    def commit_burst(self, burst: Burst, now_ns: int) -> None:
        """Record that a burst has left: see `PortEngine.commit_burst`."""
        queue_pair = self._offered_queue_pair
        if queue_pair is None or burst is not self._offered:
            raise ValueError(f"{burst!r} is not the burst that was offered last")
        if burst.kind == _DATA:
            # Credit the message before the queue pair moves on to the next one.
            self._credit_wait(queue_pair)
            queue_pair.requester.commit(burst, now_ns, self._line.due_ns())
        else:
            queue_pair.responder.commit(burst)
            self.control_sent += 1
        self._offered = None
        self._offered_queue_pair = None
        self._sent_data = burst.kind == _DATA
        self.packets_sent += burst.count
        self.bytes_sent += burst.wire_bytes
        self.bursts_sent += 1
        self._line.occupy(burst.wire_bytes, now_ns, self._turns.ring.count)
        if burst.kind != _DATA:
            if not queue_pair.responder.has_answer():
                self._answering.take()
                queue_pair.is_answering = False
            return
        queue_pair.deficit_bytes -= burst.wire_bytes
        queue_pair.requester.note_line(self._line.free_ns)
        if queue_pair.requester.ready_ns() > now_ns:
            self._leave_ring(queue_pair, now_ns)
        elif self._turns.has_other_order(queue_pair):
            self._turns.leave(queue_pair)
            self._turns.enter(queue_pair)
        elif queue_pair.deficit_bytes <= 0:
            self._turns.end_turn()
        self._schedule(queue_pair)

    def next_wakeup_ns(self) -> int:
        """Return when there is work to do next: see `PortEngine.next_wakeup_ns`."""
        self.has_news = False
        wakeup_ns = _NEVER
        if self._paused != 0:
            wakeup_ns = self._paused_wakeup_ns()
        elif self._answering.count + self._turns.ring.count > 0:
            wakeup_ns = self._line.free_ns
        else:
            self._line.rest()
        while self._timers.first_ns < wakeup_ns:
            time_ns = self._timers.first_ns
            queue_pair = self._queue_pairs.of(self._timers.first_qpn)
            if self._is_due(queue_pair, time_ns):
                return time_ns
            # The deadline has moved to a later time, so the entry is obsolete.
            self._drop_first(queue_pair, time_ns)
            self._schedule(queue_pair)
        return wakeup_ns

    def pause(self, data: bool, answers: bool, until_ns: int, now_ns: int) -> None:
        """Pause data or responses: see `PortEngine.pause`."""
        self._end_pauses(now_ns)
        if data and not self._paused & _DATA_PAUSED and until_ns > now_ns:
            self._paused |= _DATA_PAUSED
            self._paused_since_ns = now_ns
            self._line.pause(now_ns)
        if data:
            self._data_until_ns = until_ns
        if answers:
            self._answers_until_ns = until_ns
            if until_ns > now_ns:
                self._paused |= _ANSWERS_PAUSED
        self._end_pauses(now_ns)

    def _end_pauses(self, now_ns: int) -> None:
        """End the pauses that are over, and do not count them as data plane delay."""
        if self._paused & _DATA_PAUSED and self._data_until_ns <= now_ns:
            self._paused &= ~_DATA_PAUSED
            self.paused_ns += self._data_until_ns - self._paused_since_ns
            self._line.resume(self._data_until_ns)
        if self._paused & _ANSWERS_PAUSED and self._answers_until_ns <= now_ns:
            self._paused &= ~_ANSWERS_PAUSED
            self._line.demand(self._answers_until_ns)

    def _paused_wakeup_ns(self) -> int:
        """Return when the next burst may leave, while data or responses are paused."""
        wakeup_ns = _NEVER
        if self._answering.count > 0:
            wakeup_ns = self._line.free_ns
            if self._paused & _ANSWERS_PAUSED and wakeup_ns < self._answers_until_ns:
                wakeup_ns = self._answers_until_ns
        if self._turns.ring.count > 0:
            data_ns = self._line.free_ns
            if self._paused & _DATA_PAUSED and data_ns < self._data_until_ns:
                data_ns = self._data_until_ns
            if data_ns < wakeup_ns:
                wakeup_ns = data_ns
        return wakeup_ns

    def handle_timers(self, now_ns: int) -> None:
        """Run the timers that are due: see `PortEngine.handle_timers`."""
        while self._timers.first_ns <= now_ns:
            time_ns = self._timers.first_ns
            queue_pair = self._queue_pairs.of(self._timers.first_qpn)
            if not self._drop_first(queue_pair, time_ns):
                continue
            if queue_pair.requester.next_timeout_ns() <= now_ns:
                queue_pair.handle_timeout(now_ns)
            self.update(queue_pair, time_ns, now_ns)

    def _schedule(self, queue_pair: QueuePair) -> None:
        """Make sure that a timer covers every deadline of *queue_pair*.

        Deadlines usually move to later times. An entry that is now too early stays in
        place and is checked at its time. Each of the three deadlines has a separate
        entry. With a common entry for the earliest deadline, every paced packet would
        leave behind an obsolete entry for a timeout seconds later.
        """
        requester = queue_pair.requester
        time_ns = requester.retries.timeout_ns
        if time_ns < queue_pair.timeout_entry_ns:
            self.has_news = True
            queue_pair.timeout_entry_ns = time_ns
            self._timers.add(time_ns, queue_pair.qpn)
        time_ns = requester.control_timer_ns()
        if time_ns < queue_pair.control_entry_ns:
            self.has_news = True
            queue_pair.control_entry_ns = time_ns
            self._timers.add(time_ns, queue_pair.qpn)
        if not queue_pair.is_in_ring:
            time_ns = requester.ready_ns()
            if time_ns < queue_pair.ready_entry_ns:
                self.has_news = True
                queue_pair.ready_entry_ns = time_ns
                self._timers.add(time_ns, queue_pair.qpn)

    def _is_due(self, queue_pair: QueuePair, time_ns: int) -> bool:
        """Return whether the entry at *time_ns* has a deadline that is due by then."""
        requester = queue_pair.requester
        return (
            (
                time_ns == queue_pair.timeout_entry_ns
                and requester.retries.timeout_ns <= time_ns
            )
            or (
                time_ns == queue_pair.control_entry_ns
                and requester.control_timer_ns() <= time_ns
            )
            or (
                time_ns == queue_pair.ready_entry_ns
                and not queue_pair.is_in_ring
                and requester.ready_ns() <= time_ns
            )
        )

    def _drop_first(self, queue_pair: QueuePair, time_ns: int) -> bool:
        """Remove the first entry, and return whether any deadline still used it."""
        self._timers.drop_first()
        is_standing = False
        if time_ns == queue_pair.timeout_entry_ns:
            queue_pair.timeout_entry_ns = _NEVER
            is_standing = True
        if time_ns == queue_pair.control_entry_ns:
            queue_pair.control_entry_ns = _NEVER
            is_standing = True
        if time_ns == queue_pair.ready_entry_ns:
            queue_pair.ready_entry_ns = _NEVER
            is_standing = True
        return is_standing

    def _leave_ring(self, queue_pair: QueuePair, now_ns: int) -> None:
        """Remove the first queue pair from the ring, because it may not send now."""
        self._turns.leave(queue_pair)
        queue_pair.requester.end_turn(now_ns)
        self._schedule(queue_pair)

    def _offer(self, burst: Burst, queue_pair: QueuePair, now_ns: int) -> None:
        """Store the burst that is offered, and account for its delay."""
        self._offered = burst
        self._offered_queue_pair = queue_pair
        if burst.kind == _DATA and self._line.is_first_offer():
            self._note_pacing(queue_pair, now_ns)
        self._line.offer(now_ns)

    def _note_pacing(self, queue_pair: QueuePair, now_ns: int) -> None:
        """Record how late a burst of data is offered, compared with its pace."""
        paced_ns = queue_pair.requester.ready_ns()
        if not self._line.has_rate() and paced_ns <= 0:
            return
        due_ns = self._line.due_ns()
        if due_ns < queue_pair.ready_since_ns:
            due_ns = queue_pair.ready_since_ns
        if due_ns < paced_ns:
            due_ns = paced_ns
        self.pacing_errors.add(now_ns - due_ns)

    def _credit_wait(self, queue_pair: QueuePair) -> None:
        """Charge the next message for link time lost while *queue_pair* was ready."""
        total_ns = self._line.generator_wait_ns
        wait_ns = total_ns - queue_pair.wait_before_ns
        queue_pair.wait_before_ns = total_ns
        if wait_ns > 0:
            queue_pair.requester.add_generator_wait(wait_ns)

# cython: annotation_typing=False, language_level=3, cdivision=True
"""Which queue pair of a port sends next, and when.

Answers (ACK, NAK, CNP) go first. Data is shared out by deficit round robin
over wire bytes, among the queue pairs that may send now: at its turn a queue pair is
given a quantum (the wire bytes of one full burst) and sends while it has any of it
left; what the last burst takes too much is taken off the next turn. So two queue pairs
that always have something to send never differ by more than a quantum and a burst. A
queue pair with nothing to send, or stopped by its window or its rate, is in no list and
costs nothing. Queue pairs may be given a common order, in which the earlier messages of
all of them go before the later ones: `chakram.roce.send_turns`.

Pacing, and the account of how late the data plane was: `chakram.roce.pacing`.
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
# What is paused, a bit each.
_DATA_PAUSED, _ANSWERS_PAUSED = 1, 2


class Scheduler:
    """The sending side of a port: see the module; `PortEngine` calls the methods.

    Attributes:
        packets_sent: As the next three, see `PortStatistics`.
        bytes_sent: Likewise.
        bursts_sent: Likewise.
        control_sent: Likewise.
        pacing_errors: Likewise.
        paused_ns: Likewise.
        has_news: Whether something may have become due sooner, or may be sent, since
            `next_wakeup_ns` was asked.
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
        "_timers",
        "_turns",
        "bursts_sent",
        "bytes_sent",
        "control_sent",
        "has_news",
        "pacing_errors",
        "packets_sent",
        "paused_ns",
    )

    def __init__(
        self,
        *,
        queue_pairs: QueuePairs,
        line: Line,
        max_burst_packets: int,
    ) -> None:
        """Begin with nothing to send.

        Args:
            queue_pairs: Those of the port.
            line: Its line.
            max_burst_packets: Packets in one burst at most.
        """
        self._queue_pairs = queue_pairs
        self._line = line
        self._max_burst_packets = max_burst_packets
        # Queue pairs.
        self._answering = Fifo()
        self._turns = Turns()
        # An entry counts only if its queue pair still has that time: see `_schedule`.
        self._timers = Timers()
        self._quantum_bytes = 0
        # The burst that `peek_burst` returned last, and whose it is.
        self._offered: Burst | None = None
        self._offered_queue_pair: QueuePair | None = None
        self.packets_sent = 0
        self.bytes_sent = 0
        self.bursts_sent = 0
        self.control_sent = 0
        self.pacing_errors = Histogram()
        self.has_news = True
        # What the network pauses, until when, and since when data has rested.
        self._paused = 0
        self._data_until_ns = 0
        self._answers_until_ns = 0
        self._paused_since_ns = 0
        self.paused_ns = 0

    def admit(self, queue_pair: QueuePair) -> None:
        """Make room for the full bursts of a queue pair that is new at the port."""
        queue_pair.requester.use_line(self._line)
        packet_bytes = queue_pair.path_mtu + queue_pair.overhead_bytes
        quantum_bytes = self._max_burst_packets * packet_bytes
        if quantum_bytes > self._quantum_bytes:
            self._quantum_bytes = quantum_bytes

    def update(self, queue_pair: QueuePair, since_ns: int, now_ns: int) -> None:
        """Take note of what a queue pair may do after something happened to it.

        Args:
            queue_pair: The one.
            since_ns: Since when it may, if it may now: before *now_ns* if a timer that
                made it ready is handled late.
            now_ns: The time.
        """
        is_busy = self._answering.count + self._turns.ring.count > 0
        ready_ns = _NEVER if queue_pair.is_in_ring else queue_pair.requester.ready_ns()
        if ready_ns <= now_ns:
            self.has_news = True
            if since_ns < ready_ns:
                # Another timer of the queue pair was due before its pace was.
                since_ns = ready_ns
            if not is_busy:
                is_busy = True
                self._line.demand(since_ns)
            queue_pair.ready_since_ns = since_ns
            queue_pair.requester.demand(since_ns)
            # What the line has lost so far, it has lost without this queue pair.
            queue_pair.wait_before_ns = (
                self._line.generator_wait_ns + self._line.lost_ns(since_ns)
            )
            self._turns.enter(queue_pair)
            queue_pair.requester.begin_turn(now_ns)
        elif not queue_pair.is_in_ring:
            queue_pair.requester.end_turn(now_ns)
        elif self._turns.has_other_order(queue_pair):
            # It has gone back, or skipped what had arrived after all.
            self.has_news = True
            self._turns.leave(queue_pair)
            self._turns.enter(queue_pair)
        self._answer(queue_pair, is_busy, now_ns)
        self._schedule(queue_pair)

    def note_data(self, queue_pair: QueuePair, now_ns: int) -> None:
        """Do what `update` does after data came, which may have to be answered.

        That lets nobody send: mostly there is nothing to look at but the answer.
        """
        requester = queue_pair.requester
        if requester.failed or not (queue_pair.is_in_ring or requester.is_idle()):
            self.update(queue_pair, now_ns, now_ns)
        else:
            is_busy = self._answering.count + self._turns.ring.count > 0
            self._answer(queue_pair, is_busy, now_ns)

    def _answer(self, queue_pair: QueuePair, is_busy: bool, now_ns: int) -> None:
        """See to it that an answer leaves, if there is one; *is_busy*: after others."""
        if not queue_pair.is_answering and queue_pair.responder.has_answer():
            if not is_busy:
                self._line.demand(now_ns)
            self.has_news = True
            queue_pair.is_answering = True
            self._answering.append(queue_pair)

    def peek_burst(self, now_ns: int) -> Burst | None:
        """See `PortEngine.peek_burst`."""
        if self._timers.first_ns <= now_ns:
            self.handle_timers(now_ns)
        if self._paused != 0:
            self._end_pauses(now_ns)
        if now_ns < self._line.ready_ns(now_ns):
            return None
        while self._answering.count > 0 and not self._paused & _ANSWERS_PAUSED:
            queue_pair: QueuePair = self._answering.first()
            burst = queue_pair.make_answer()
            if burst is not None:
                self._offer(burst, queue_pair, now_ns)
                return burst
            # Nothing is to be answered any more: the gap has closed.
            self._answering.take()
            queue_pair.is_answering = False
        while self._turns.ring.count > 0 and not self._paused & _DATA_PAUSED:
            queue_pair = self._turns.ring.first()
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
                    # Deep in debt: its turn is over before it begins.
                    self._turns.end_turn()
                    continue
            self._offer(burst, queue_pair, now_ns)
            return burst
        return None

    def commit_burst(self, burst: Burst, now_ns: int) -> None:
        """See `PortEngine.commit_burst`."""
        queue_pair = self._offered_queue_pair
        if queue_pair is None or burst is not self._offered:
            raise ValueError(f"{burst!r} is not the burst that was offered last")
        if burst.kind == _DATA:
            # The message is credited before the queue pair moves on to the next.
            self._credit_wait(queue_pair)
            queue_pair.requester.commit(burst, now_ns, self._line.due_ns())
        else:
            queue_pair.responder.commit(burst)
            self.control_sent += 1
        self._offered = None
        self._offered_queue_pair = None
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
        """See `PortEngine.next_wakeup_ns`."""
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
            # Its deadline has moved on since; the entry stayed behind.
            self._drop_first(queue_pair, time_ns)
            self._schedule(queue_pair)
        return wakeup_ns

    def pause(self, data: bool, answers: bool, until_ns: int, now_ns: int) -> None:
        """See `PortEngine.pause`."""
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
        """Go on where a pause is over: that nothing left was not for lack of time."""
        if self._paused & _DATA_PAUSED and self._data_until_ns <= now_ns:
            self._paused &= ~_DATA_PAUSED
            self.paused_ns += self._data_until_ns - self._paused_since_ns
            self._line.resume(self._data_until_ns)
        if self._paused & _ANSWERS_PAUSED and self._answers_until_ns <= now_ns:
            self._paused &= ~_ANSWERS_PAUSED
            self._line.demand(self._answers_until_ns)

    def _paused_wakeup_ns(self) -> int:
        """Return when something may be sent although something is paused."""
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
        """See `PortEngine.handle_timers`."""
        while self._timers.first_ns <= now_ns:
            time_ns = self._timers.first_ns
            queue_pair = self._queue_pairs.of(self._timers.first_qpn)
            if not self._drop_first(queue_pair, time_ns):
                continue
            if queue_pair.requester.next_timeout_ns() <= now_ns:
                queue_pair.handle_timeout(now_ns)
            self.update(queue_pair, time_ns, now_ns)

    def _schedule(self, queue_pair: QueuePair) -> None:
        """See that a timer stands, early enough, for all that *queue_pair* waits for.

        Deadlines mostly move on: an entry that has become too early is left where it is
        and looked at when its time comes. Each of the three has an entry of its own: a
        pace that is due in microseconds must not leave behind, packet by packet, the
        entries of a timeout that comes in seconds.
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
        """Tell whether the entry of *time_ns* stands for what is due by then."""
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
        """Take the first entry out; tell whether anything still stood for it."""
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
        """Take the first queue pair out of the ring: it may not send now."""
        self._turns.leave(queue_pair)
        queue_pair.requester.end_turn(now_ns)
        self._schedule(queue_pair)

    def _offer(self, burst: Burst, queue_pair: QueuePair, now_ns: int) -> None:
        """Remember what is offered, and account for how late that is."""
        self._offered = burst
        self._offered_queue_pair = queue_pair
        if burst.kind == _DATA and self._line.is_first_offer():
            self._note_pacing(queue_pair, now_ns)
        self._line.offer(now_ns)

    def _note_pacing(self, queue_pair: QueuePair, now_ns: int) -> None:
        """Count how much later than its pace allowed a burst of data is offered."""
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
        """Add to its message what the port lost while *queue_pair* was ready."""
        total_ns = self._line.generator_wait_ns
        wait_ns = total_ns - queue_pair.wait_before_ns
        queue_pair.wait_before_ns = total_ns
        if wait_ns > 0:
            queue_pair.requester.add_generator_wait(wait_ns)

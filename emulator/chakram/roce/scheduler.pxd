cimport cython

from chakram.roce.burst cimport Burst
from chakram.roce.fifo cimport Fifo
from chakram.roce.histogram cimport Histogram
from chakram.roce.pacing cimport Line
from chakram.roce.queue_pair cimport QueuePair
from chakram.roce.queue_pairs cimport QueuePairs
from chakram.roce.requester cimport Requester
from chakram.roce.timers cimport Timers
from chakram.roce.send_turns cimport Turns

cdef long long _NEVER
cdef int _DATA
cdef int _DATA_PAUSED
cdef int _ANSWERS_PAUSED


cdef class Scheduler:
    cdef QueuePairs _queue_pairs
    cdef Line _line
    cdef int _max_burst_packets
    cdef Fifo _answering
    cdef Turns _turns
    cdef Timers _timers
    cdef long long _quantum_bytes
    cdef Burst _offered
    cdef QueuePair _offered_queue_pair
    cdef bint _sent_data
    cdef bint short_data_leads
    cdef readonly long long packets_sent
    cdef readonly long long bytes_sent
    cdef readonly long long bursts_sent
    cdef readonly long long control_sent
    cdef readonly Histogram pacing_errors
    cdef bint has_news
    cdef int _paused
    cdef long long _data_until_ns
    cdef long long _answers_until_ns
    cdef long long _paused_since_ns
    cdef readonly long long paused_ns

    @cython.locals(packet_bytes="long long", quantum_bytes="long long")
    cpdef object admit(self, QueuePair queue_pair)
    @cython.locals(is_busy="bint", ready_ns="long long")
    cpdef object update(self, QueuePair queue_pair, long long since_ns,
                        long long now_ns)
    @cython.locals(is_busy="bint", requester=Requester)
    cpdef object note_data(self, QueuePair queue_pair, long long now_ns)
    cdef object _answer(self, QueuePair queue_pair, bint is_busy, long long now_ns)
    @cython.locals(burst=Burst, queue_pair=QueuePair)
    cpdef Burst peek_burst(self, long long now_ns)
    @cython.locals(queue_pair=QueuePair, ring=Fifo)
    cdef void foresee_send(self, int stage) noexcept
    @cython.locals(queue_pair=QueuePair)
    cdef bint _has_short_data(self) except -1
    @cython.locals(burst=Burst, queue_pair=QueuePair)
    cdef Burst _peek_data(self, long long now_ns)
    @cython.locals(queue_pair=QueuePair)
    cpdef object commit_burst(self, Burst burst, long long now_ns)
    @cython.locals(wakeup_ns="long long", time_ns="long long", queue_pair=QueuePair)
    cpdef long long next_wakeup_ns(self) except? -1
    cpdef object pause(self, bint data, bint answers, long long until_ns,
                       long long now_ns)
    cdef object _end_pauses(self, long long now_ns)
    @cython.locals(wakeup_ns="long long", data_ns="long long")
    cdef long long _paused_wakeup_ns(self) except? -1
    @cython.locals(time_ns="long long", queue_pair=QueuePair)
    cpdef object handle_timers(self, long long now_ns)
    @cython.locals(requester=Requester, time_ns="long long")
    cdef object _schedule(self, QueuePair queue_pair)
    @cython.locals(requester=Requester)
    cdef bint _is_due(self, QueuePair queue_pair, long long time_ns) except -1
    @cython.locals(is_standing="bint")
    cdef bint _drop_first(self, QueuePair queue_pair, long long time_ns) except -1
    cdef object _leave_ring(self, QueuePair queue_pair, long long now_ns)
    cdef object _offer(self, Burst burst, QueuePair queue_pair, long long now_ns)
    @cython.locals(paced_ns="long long", due_ns="long long")
    cdef object _note_pacing(self, QueuePair queue_pair, long long now_ns)
    @cython.locals(total_ns="long long", wait_ns="long long")
    cdef object _credit_wait(self, QueuePair queue_pair)

cimport cython

from chakram.roce.burst cimport Burst
from chakram.roce.fifo cimport Fifo
from chakram.roce.histogram cimport Histogram
from chakram.roce.pacing cimport Line
from chakram.roce.queue_pair cimport QueuePair
from chakram.roce.queue_pairs cimport QueuePairs
from chakram.roce.port_receiver cimport Receiver
from chakram.roce.scheduler cimport Scheduler


cdef class PortEngine:
    cdef QueuePairs _queue_pairs
    cdef Fifo _events
    cdef Line _line
    cdef Scheduler _scheduler
    cdef Receiver _receiver
    cdef readonly Histogram round_trips
    cdef readonly Histogram pacing_errors

    cpdef object add_queue_pair(self, QueuePair queue_pair, object send_order=*)
    cpdef QueuePair queue_pair(self, long long qpn)
    cpdef object post_send(self, long long qpn, long long message_id,
                           long long size_bytes, long long now_ns, long long order=*,
                           bytes contents=*, unsigned long long remote_offset=*,
                           object context=*)
    cpdef object post_on(self, QueuePair queue_pair, long long message_id,
                         long long size_bytes, long long now_ns, long long order=*,
                         bytes contents=*, unsigned long long remote_offset=*,
                         object context=*)
    cpdef object next_event(self)
    cpdef object take_event(self)
    @cython.locals(burst=Burst)
    cpdef Burst next_burst(self, long long now_ns)
    cpdef Burst peek_burst(self, long long now_ns)
    cpdef object commit_burst(self, Burst burst, long long now_ns)
    cpdef long long next_wakeup_ns(self) except? -1
    cpdef object handle_timers(self, long long now_ns)
    @cython.locals(packets="int")
    cpdef object receive_burst(self, Burst burst, long long now_ns, int first=*,
                               object count=*, int ce=*)
    @cython.locals(queue_pair=QueuePair)
    cdef void foresee_packet(self, int stage, long long qpn, bint is_data) noexcept
    cdef void foresee_send(self, int stage) noexcept
    cpdef bint has_news(self) except -1
    cpdef bint set_not_ready(self, object qpn, long long psn, long long now_ns,
                            int ce=*) except -1
    cpdef object receive_datagrams(self, const unsigned char[::1] buffer,
                                   Py_ssize_t length, Py_ssize_t segment_size,
                                   long long now_ns, bint ce=*, int source_port=*,
                                   unsigned long long source_high=*,
                                   unsigned long long source_low=*)
    cpdef bint is_foreign(self, object qpn, unsigned long long high,
                          unsigned long long low) except -1
    cpdef long long foreign_packets(self) except? -1
    cpdef object pause(self, bint data, bint answers, long long until_ns,
                       long long now_ns)
    cpdef object lead_with_short_data(self)
    cpdef object rest(self, long long now_ns)
    cpdef object resume(self, long long now_ns)

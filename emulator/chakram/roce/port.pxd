cimport cython

from chakram.roce.burst cimport Burst
from chakram.roce.datagrams cimport Run, SegmentParser
from chakram.roce.histogram cimport Histogram
from chakram.roce.pacing cimport Line
from chakram.roce.queue_pair cimport QueuePair
from chakram.roce.timers cimport Timers
from chakram.roce.turns cimport Turns

cdef long long _NEVER
cdef int _DATA
cdef int _MALFORMED
cdef int _CNP
cdef int _ACKNOWLEDGE


cdef class PortEngine:
    cdef Line _line
    cdef int _max_burst_packets
    cdef object _verifier
    cdef SegmentParser _parser
    cdef Run _run
    cdef dict _queue_pairs
    cdef object _events
    cdef object _answering
    cdef Turns _turns
    cdef Timers _timers
    cdef long long _quantum_bytes
    cdef Burst _offered
    cdef QueuePair _offered_queue_pair
    cdef readonly long long packets_sent
    cdef readonly long long bytes_sent
    cdef readonly long long bursts_sent
    cdef readonly long long control_sent
    cdef readonly long long packets_received
    cdef readonly long long unknown_queue_pair
    cdef readonly long long malformed
    cdef readonly long long partition_key_errors
    cdef readonly long long unsupported
    cdef readonly Histogram round_trips
    cdef readonly Histogram pacing_errors
    cdef readonly long long icrc_checked
    cdef readonly long long icrc_errors

    @cython.locals(packet_bytes="long long", quantum_bytes="long long")
    cpdef object add_queue_pair(self, QueuePair queue_pair, object send_order=*)
    cpdef QueuePair queue_pair(self, object qpn)
    @cython.locals(queue_pair=QueuePair)
    cpdef object post_send(self, object qpn, long long message_id, long long size_bytes,
                           long long now_ns, long long order=*, bytes contents=*,
                           unsigned long long remote_offset=*)
    cpdef object next_event(self)
    @cython.locals(burst=Burst)
    cpdef Burst next_burst(self, long long now_ns)
    @cython.locals(burst=Burst, queue_pair=QueuePair)
    cpdef Burst peek_burst(self, long long now_ns)
    @cython.locals(queue_pair=QueuePair)
    cpdef object commit_burst(self, Burst burst, long long now_ns)
    @cython.locals(wakeup_ns="long long", time_ns="long long", queue_pair=QueuePair)
    cpdef long long next_wakeup_ns(self)
    @cython.locals(time_ns="long long", queue_pair=QueuePair)
    cpdef object handle_timers(self, long long now_ns)
    @cython.locals(packets="int", queue_pair=QueuePair)
    cpdef object receive_burst(self, Burst burst, long long now_ns, int first=*,
                               object count=*, int ce=*)
    @cython.locals(queue_pair=QueuePair)
    cpdef bint be_not_ready(self, object qpn, long long psn, long long now_ns)
    @cython.locals(run=Run, queue_pair=QueuePair, offset="Py_ssize_t",
                   size="Py_ssize_t", qpn="long long")
    cpdef object receive_datagrams(self, const unsigned char[::1] buffer,
                                   Py_ssize_t length, Py_ssize_t segment_size,
                                   long long now_ns, bint ce=*, int source_port=*)
    cdef bint _admits(self, const unsigned char[::1] buffer, Py_ssize_t offset,
                      Py_ssize_t size, int source_port)
    cdef object _deliver(self, QueuePair queue_pair, Run run, bint ce, long long now_ns)
    @cython.locals(parser=SegmentParser, start="Py_ssize_t")
    cdef object _keep(self, QueuePair queue_pair, const unsigned char[::1] buffer,
                      bint ce, long long now_ns)
    @cython.locals(opcode="int")
    cdef object _receive_control(self, QueuePair queue_pair, long long now_ns)
    @cython.locals(queue_pair=QueuePair)
    cdef bint _is_intact(self, const unsigned char[::1] buffer, Py_ssize_t offset,
                         Py_ssize_t size, int source_port)
    @cython.locals(wake_ns="long long", ready_ns="long long")
    cdef long long _wake_ns(self, QueuePair queue_pair)
    @cython.locals(wake_ns="long long")
    cdef object _schedule(self, QueuePair queue_pair)
    @cython.locals(is_busy="bint")
    cdef object _update(self, QueuePair queue_pair, long long since_ns, long long now_ns)
    cdef object _leave_ring(self, QueuePair queue_pair)
    cdef object _offer(self, Burst burst, QueuePair queue_pair, long long now_ns)
    @cython.locals(paced_ns="long long", due_ns="long long")
    cdef object _note_pacing(self, QueuePair queue_pair, long long now_ns)
    @cython.locals(total_ns="long long", wait_ns="long long")
    cdef object _credit_wait(self, QueuePair queue_pair)

cimport cython

from chakram.roce.burst cimport Burst
from chakram.roce.congestion.base cimport CongestionControl
from chakram.roce.events cimport SendCompleted
from chakram.roce.fifo cimport Fifo
from chakram.roce.histogram cimport Histogram
from chakram.roce.message cimport Message
from chakram.roce.pacing cimport Line, Pace
from chakram.roce.retries cimport Retries
from chakram.roce.send_queue cimport SendQueue

cdef long long _NEVER
cdef int _WRITE
cdef long long _MAX_OUTSTANDING
cdef int _SEQUENCE_ERROR
cdef long long _NO_IMMEDIATE
cdef int _FOR_NAK
cdef int _FOR_TIMEOUT
cdef int _FOR_RNR
cdef int _IDLE
cdef int _TURN
cdef int _WINDOW
cdef int _PACE
cdef int _SHORT_BYTES


cdef class Requester:
    # Fields that are read for every packet come first, to share few cache lines.
    cdef int _state
    cdef readonly bint failed
    cdef long long _qpn
    cdef CongestionControl _congestion_control
    cdef readonly SendQueue queue
    cdef readonly Pace pace
    cdef readonly Retries retries
    cdef Fifo _events
    cdef object _owner
    cdef Line _line
    cdef long long _unacknowledged
    cdef long long _unacknowledged_byte
    cdef long long _next
    cdef long long _next_byte
    cdef long long _highest
    cdef long long _ack_sequence
    cdef long long _since_request
    cdef int _verb
    cdef int _path_mtu
    cdef int _overhead_bytes
    cdef bint _is_repairing
    cdef bint _is_piece
    cdef long long _first_psn
    cdef long long _window_bytes
    cdef long long _ack_interval_packets
    cdef long long _most_outstanding
    cdef long long _since_ns
    cdef long long _until_ns
    cdef long long _paused_ns
    cdef long long _port_ns
    cdef long long _window_ns
    cdef long long _pace_ns
    cdef long long _pause_ns
    cdef long long _transfer_ns
    cdef long long _repair_ns
    cdef long long _sample_sequence
    cdef long long _sample_sent_ns
    cdef Histogram _round_trips
    cdef long long _hole_end
    cdef long long _asked_sequence
    cdef long long _went_back_to
    cdef long long _attempt
    cdef readonly long long packets_sent
    cdef readonly long long bytes_sent
    cdef readonly long long wire_bytes_sent
    cdef readonly long long acks_received
    cdef readonly long long cnps_received
    cdef readonly long long messages_posted
    cdef readonly long long messages_completed
    cdef long long _reordering_packets
    cdef long long _resume
    cdef readonly object failure
    cdef readonly long long messages_flushed
    cdef readonly long long packets_retransmitted
    cdef readonly long long bytes_retransmitted
    cdef readonly long long acks_invalid
    cdef readonly long long naks_received
    cdef readonly long long naks_stale
    cdef readonly long long naks_overtaken
    cdef readonly long long receiver_not_ready
    cdef readonly long long timeouts

    cpdef object redirect_events(self, Fifo events, object owner)
    cpdef object measure_round_trips(self, Histogram round_trips)
    @cython.locals(message=Message)
    cpdef object post_send(self, long long message_id, long long size_bytes,
                           long long now_ns, long long order=*, bytes contents=*,
                           unsigned long long remote_offset=*, object context=*)
    cpdef bint is_idle(self) except -1
    cpdef object demand(self, long long since_ns)
    cpdef long long sending_order(self) except? -1
    @cython.locals(message=Message)
    cpdef bint is_nearly_done(self) except -1
    @cython.locals(message=Message, outstanding="long long", payload="long long",
                   in_flight="long long", ready_ns="long long",
                   hold_until_ns="long long")
    cpdef long long ready_ns(self) except? -1
    @cython.locals(message=Message, path_mtu="int", outstanding="long long",
                   index="long long", remaining="long long", left_bytes="long long",
                   count="long long", paced="long long", window_bytes="long long",
                   in_flight="long long", payload_bytes="long long",
                   wire_bytes="long long", most="long long")
    cpdef bint fill(self, Burst burst, long long max_packets) except -1
    @cython.locals(message=Message, count="long long", again="long long",
                   rate_bps="long long", again_bytes="long long", i="Py_ssize_t")
    cpdef object commit(self, Burst burst, long long now_ns, long long due_ns=*)
    cpdef object add_generator_wait(self, long long wait_ns)
    cpdef object use_line(self, Line line)
    cpdef object note_line(self, long long until_ns)
    cpdef object begin_turn(self, long long now_ns)
    @cython.locals(ready_ns="long long")
    cpdef object end_turn(self, long long now_ns)
    @cython.locals(since_ns="long long", elapsed_ns="long long", own_ns="long long",
                   total_ns="long long", paused_ns="long long")
    cdef object _settle(self, long long now_ns)
    cdef object _begin_parts(self, Message message)
    cdef object _note_parts(self, Message message, long long end, long long now_ns)
    @cython.locals(acknowledged="long long")
    cpdef object handle_ack(self, long long psn, long long now_ns)
    @cython.locals(expected="long long", is_progress="bint", resume="long long")
    cpdef object handle_nak(self, int syndrome, long long psn, long long now_ns,
                            long long missing=*)
    cpdef object handle_cnp(self, long long now_ns)
    cpdef object handle_timeout(self, long long now_ns)
    @cython.locals(timer_ns="long long", timeout_ns="long long")
    cpdef long long next_timeout_ns(self) except? -1
    cpdef long long control_timer_ns(self) except? -1
    @cython.locals(flushed="Py_ssize_t")
    cpdef object fail(self, object reason, long long now_ns, object retried_for=*)
    cpdef long long unacknowledged_bytes(self) except? -1
    cpdef long long unfinished_messages(self) except? -1
    cdef object _control_timer(self, long long now_ns)
    @cython.locals(dynamic="long long")
    cdef long long _window(self) except? -1
    @cython.locals(distance="long long")
    cdef long long _sequence_of(self, long long psn) except? -1
    @cython.locals(byte="long long", message=Message, event=SendCompleted,
                   round_trip_ns="long long")
    cdef object _acknowledge(self, long long acknowledged, long long now_ns)
    cdef object _go_back(self, int reason, long long now_ns)
    cdef object _leap(self)

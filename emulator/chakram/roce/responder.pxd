cimport cython

from chakram.roce.burst cimport Burst
from chakram.roce.events cimport MessageReceived
from chakram.roce.notification cimport CnpLimiter

cdef int _WRITE
cdef long long _MAX_MESSAGE_BYTES
cdef int _ACK
cdef int _NAK
cdef int _CNP
cdef int _CREDITS_UNUSED
cdef int _NOT_READY
cdef int _SEQUENCE_ERROR
cdef int _INVALID_REQUEST


cdef class Responder:
    cdef object _events
    cdef object _qpn
    cdef int _path_mtu
    cdef long long _expected_psn
    cdef int _rnr_timer
    cdef CnpLimiter _cnp_limiter
    cdef bint _in_message
    cdef int _verb
    cdef long long _dma_length_bytes
    cdef long long _message_bytes
    cdef long long _message_packets
    cdef long long _accepted_ce
    cdef long long _first_received_ns
    cdef long long _unseen_bytes
    cdef long long _unseen_packets
    cdef long long _unseen_ce
    cdef long long _unseen_wrong
    cdef long long _unseen_since_ns
    cdef bint _ack_pending
    cdef bint _ack_first
    cdef int _nak_pending
    cdef bint _cnp_pending
    cdef bint _nak_sent
    cdef long long _asked_psn
    cdef long long _early_first_psn
    cdef long long _early_last_psn
    cdef bint _nak_is_reordering
    cdef readonly object failure
    cdef readonly long long packets_received
    cdef readonly long long bytes_received
    cdef public long long messages_received
    cdef readonly long long duplicates
    cdef readonly long long out_of_sequence
    cdef readonly long long invalid_requests
    cdef readonly long long ce
    cdef readonly long long acks_sent
    cdef readonly long long naks_sent
    cdef readonly long long sequence_naks_sent
    cdef readonly long long sequence_naks_reordered
    cdef readonly long long receiver_not_ready_sent
    cdef readonly long long cnps_sent

    cpdef object redirect_events(self, object events)
    @cython.locals(distance="long long", duplicates="long long", event=MessageReceived)
    cpdef object receive(self, long long psn, long long count, int verb, bint is_first,
                         bint is_last, long long payload_bytes,
                         long long dma_length_bytes, long long immediate,
                         bint ack_request, long long ce, long long now_ns)
    cpdef object note_wrong_payload(self)
    cpdef bint be_not_ready(self, long long psn, int ce, long long now_ns) except -1
    cpdef bint expects(self, long long psn) except -1
    @cython.locals(distance="long long")
    cpdef object refuse(self, long long psn, int ce, long long now_ns, object problem,
                        int syndrome)
    cpdef object fail(self, object reason)
    cpdef bint has_answer(self) except -1
    cpdef object fill(self, Burst burst)
    cpdef object commit(self, Burst burst)
    @cython.locals(last_psn="long long", is_beyond=bint, is_reordering=bint)
    cdef object _ask_again(self, long long psn, long long count)
    cdef object _note_again(self, long long psn, long long count)
    @cython.locals(message_bytes="long long", last_bytes="long long")
    cpdef object problem(self, long long count, int verb, bint is_first, bint is_last,
                         long long payload_bytes, long long dma_length_bytes)
    cpdef object order_problem(self, int verb, bint is_first)
    @cython.locals(limiter=CnpLimiter)
    cdef object _note_arrival(self, long long count, long long ce, long long now_ns)
    cdef object _refuse(self, object problem, int syndrome)

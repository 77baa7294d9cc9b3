cimport cython

from chakram.roce.burst cimport Burst
from chakram.roce.events cimport MessageParts, MessageReceived
from chakram.roce.fifo cimport Fifo
from chakram.roce.notification_point cimport CnpLimiter

cdef int _WRITE
cdef long long _MAX_MESSAGE_BYTES
cdef int _ACK
cdef int _NAK
cdef int _CNP
cdef int _CREDITS_UNUSED
cdef int _NOT_READY
cdef int _SEQUENCE_ERROR
cdef int _INVALID_REQUEST


cdef class EarlyPacket:
    cdef int verb
    cdef bint is_first
    cdef bint is_last
    cdef long long payload_bytes
    cdef long long dma_length_bytes
    cdef long long immediate
    cdef bint ack_request
    cdef int ce
    cdef bytes contents
    cdef unsigned long long address
    cdef unsigned long long key
    cdef MessageParts parts


cdef class Responder:
    cdef Fifo _events
    cdef object _owner
    cdef long long _qpn
    cdef int _path_mtu
    cdef long long _expected_psn
    cdef long long _first_psn
    cdef int _rnr_timer
    cdef CnpLimiter _cnp_limiter
    cdef object _memory
    cdef long long _reordering_packets
    cdef readonly dict early
    cdef set _wrong_psns
    cdef bint _has_gap
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
    cdef readonly long long kept_out_of_order
    cdef readonly long long beyond_window
    cdef readonly long long ce
    cdef readonly long long acks_sent
    cdef readonly long long naks_sent
    cdef readonly long long sequence_naks_sent
    cdef readonly long long sequence_naks_reordered
    cdef readonly long long receiver_not_ready_sent
    cdef readonly long long cnps_sent
    cdef long long _answered_psn
    cdef long long _answers

    cpdef object redirect_events(self, Fifo events, object owner)
    @cython.locals(distance="long long", duplicates="long long", had_gap=bint)
    cpdef object receive(self, long long psn, long long count, int verb, bint is_first,
                         bint is_last, long long payload_bytes,
                         long long dma_length_bytes, long long immediate,
                         bint ack_request, long long ce, long long now_ns)
    @cython.locals(is_expected="bint", payload_bytes="long long", syndrome="int",
                   early=EarlyPacket)
    cpdef object receive_contents(self, long long psn, int verb, bint is_first,
                                  bint is_last, bytes payload,
                                  long long dma_length_bytes,
                                  unsigned long long address, unsigned long long key,
                                  long long immediate, bint ack_request, long long ce,
                                  long long now_ns)
    @cython.locals(early=EarlyPacket)
    cpdef object note_parts(self, long long psn, MessageParts parts)
    cpdef object note_wrong_payload(self, long long psn)
    @cython.locals(distance="long long")
    cpdef bint takes(self, long long psn) except -1
    cpdef bint set_not_ready(self, long long psn, int ce, long long now_ns) except -1
    cpdef bint expects(self, long long psn) except -1
    @cython.locals(distance="long long")
    cpdef object refuse(self, long long psn, int ce, long long now_ns, object problem,
                        int syndrome)
    cpdef object fail(self, object reason)
    cpdef bint has_answer(self) except -1
    cpdef object fill(self, Burst burst)
    cpdef object commit(self, Burst burst)
    cdef object _begin_message(self, int verb, long long dma_length_bytes,
                               long long now_ns)
    cdef object _close_gap(self)
    @cython.locals(event=MessageReceived)
    cdef object _report_message(self, long long immediate, long long now_ns)
    @cython.locals(last_psn="long long", is_beyond=bint, is_reordering=bint)
    cdef object _ask_again(self, long long psn, long long count)
    cdef object _note_again(self, long long psn, long long count)
    @cython.locals(inside="long long", beyond="long long", i="long long",
                   each="long long", is_end=bint, early=EarlyPacket)
    cdef object _keep(self, long long psn, long long count, long long distance,
                      int verb, bint is_first, bint is_last, long long payload_bytes,
                      long long dma_length_bytes, long long immediate,
                      bint ack_request, long long ce)
    @cython.locals(i="long long", psn="long long", messages="long long",
                   early=EarlyPacket)
    cdef object _take_early(self, long long count, long long now_ns)
    @cython.locals(missing="long long")
    cdef long long _missing(self) except -1
    @cython.locals(message_bytes="long long", last_bytes="long long")
    cpdef object problem(self, long long count, int verb, bint is_first, bint is_last,
                         long long payload_bytes, long long dma_length_bytes)
    cpdef object order_problem(self, int verb, bint is_first)
    @cython.locals(limiter=CnpLimiter)
    cdef object _note_arrival(self, long long count, long long ce, long long now_ns)
    cdef object _refuse(self, object problem, int syndrome)

cimport cython

from chakram.native.prefetch_lines cimport prefetch
from chakram.roce.events cimport MessageParts, SendCompleted


# A context must not refer back to the message, so no garbage collection is needed.
cdef class Message(MessageParts):
    cdef public long long message_id
    cdef public long long size_bytes
    cdef public long long packets
    cdef public long long first_sequence
    cdef public long long first_byte
    cdef public long long posted_ns
    cdef public long long first_sent_ns
    cdef public long long rate_at_start_bps
    cdef public long long retransmitted
    cdef public long long generator_wait_ns
    cdef public long long cnps_before
    cdef public long long order
    cdef public object context
    cdef public bytes contents
    cdef public unsigned long long remote_offset
    cdef public bint continues

    cpdef object note_sent(self, long long again, long long now_ns, long long rate_bps,
                           long long cnps)
    @cython.locals(rate_bps="long long", event=SendCompleted)
    cpdef SendCompleted completion(self, long long now_ns, long long cnps)

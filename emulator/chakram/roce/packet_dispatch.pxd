cimport cython

from chakram.roce.burst cimport Burst
from chakram.roce.requester cimport Requester
from chakram.roce.responder cimport Responder

cdef int _DATA
cdef int _CNP
cdef int _INVALID_REQUEST


cdef class Arrivals:
    cdef object _qpn
    cdef Requester _requester
    cdef Responder _responder
    cdef object _memory

    cpdef object receive_burst(self, Burst burst, long long now_ns, int first,
                               int count, int ce)
    @cython.locals(index="long long", is_last="bint", payload_bytes="long long",
                   position="int", received="long long")
    cdef object _receive_part(self, Burst burst, int first, int count, int ce,
                              long long now_ns)
    @cython.locals(index="long long", is_last="bint", start="Py_ssize_t",
                   contents="bytes")
    cdef object _receive_position(self, Burst burst, int position, bint is_marked,
                                  long long now_ns)
    cdef object _note_parts(self, Burst burst, int last, long long received,
                            long long now_ns)
    cpdef object receive_run(self, long long psn, long long count, int verb,
                             bint is_first, bint is_last, long long payload_bytes,
                             long long dma_length_bytes, long long immediate,
                             bint ack_request, long long ce, long long now_ns)
    cpdef object receive_contents(self, long long psn, int verb, bint is_first,
                                  bint is_last, bytes payload,
                                  long long dma_length_bytes,
                                  unsigned long long address, unsigned long long key,
                                  long long immediate, bint ack_request, long long ce,
                                  long long now_ns)
    cpdef object refuse(self, long long psn, int ce, long long now_ns, object problem,
                        int syndrome=*)
    cpdef object receive_ack(self, int syndrome, long long psn, long long now_ns,
                             long long msn=*)
    cpdef object receive_cnp(self, long long now_ns)
    cdef object _fail_requester(self, long long now_ns)

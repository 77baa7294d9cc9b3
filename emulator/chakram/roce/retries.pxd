cimport cython

from chakram.roce.backoff cimport Backoff

cdef long long _NEVER
cdef long long _RNR_FOR_EVER
cdef int _FOR_NAK
cdef int _FOR_TIMEOUT


@cython.final
cdef class Retries:
    cdef Backoff _backoff
    cdef long long _count
    cdef long long _rnr_count
    cdef readonly long long limit
    cdef readonly long long rnr_limit
    cdef public long long timeout_ns
    cdef public long long hold_until_ns
    cdef public int reason
    cdef readonly long long for_nak
    cdef readonly long long for_timeout
    cdef readonly long long for_rnr

    cpdef object forgive(self)
    cpdef bint may_go_back(self) except -1
    cpdef bint may_wait(self) except -1
    @cython.locals(wait_ns="long long")
    cpdef object await_ack(self, long long now_ns)
    cpdef object note_again(self, long long packets)

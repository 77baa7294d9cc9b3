cimport cython

from chakram.roce.congestion.base cimport CongestionControl

cdef long long _BITS_PER_BYTE_NS
cdef long long _LONG_AGO_NS
cdef long long _NOT_PAUSED
cdef long long _NO_LIMIT
cdef long long _MADE_UP_NS


cdef class Line:
    cdef long long _rate_bps
    cdef long long _burst_bound_ns
    cdef long long _busy_since_ns
    cdef bint _is_offered
    cdef long long _remainder
    cdef bint _saves_up
    cdef long long _paused_since_ns
    cdef long long _paused_ns
    cdef readonly long long free_ns
    cdef readonly long long generator_waits
    cdef readonly long long generator_wait_ns

    cpdef object demand(self, long long since_ns)
    cpdef object pause(self, long long now_ns)
    cpdef object resume(self, long long now_ns)
    cpdef long long paused_ns(self, long long now_ns) except? -1
    cpdef object rest(self)
    cpdef long long ready_ns(self, long long now_ns) except? -1
    @cython.locals(lost_ns="long long")
    cpdef object offer(self, long long now_ns)
    @cython.locals(due_ns="long long", lost_ns="long long")
    cpdef long long lost_ns(self, long long now_ns) except? -1
    cpdef long long due_ns(self) except? -1
    cpdef bint is_first_offer(self) except -1
    cpdef bint has_rate(self) except -1
    @cython.locals(start_ns="long long", work="long long")
    cpdef object occupy(self, long long wire_bytes, long long now_ns,
                        long long queue_pairs=*)


cdef class Pace:
    cdef CongestionControl _congestion_control
    cdef long long _burst_ns
    cdef long long _burst_bound_ns
    cdef long long _packet_bytes
    cdef long long _from_ns
    cdef long long _bytes
    cdef long long _since_ns
    cdef bint _keeps_rate
    cdef bint _saves_up

    cpdef object demand(self, long long since_ns)

    @cython.locals(rate_bps="long long", work="long long")
    cpdef long long ready_ns(self) except? -1
    @cython.locals(rate_bps="long long", bound_bytes="long long", packets="long long")
    cpdef long long packets(self) except? -1
    @cython.locals(from_ns="long long", made_up_ns="long long")
    cpdef object advance(self, long long wire_bytes, long long now_ns,
                         long long due_ns)

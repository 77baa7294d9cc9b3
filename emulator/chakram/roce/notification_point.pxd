cdef class CnpLimiter:
    cdef long long _interval_ns
    cdef long long _after_ns

    cpdef bint admits(self, long long now_ns) except -1

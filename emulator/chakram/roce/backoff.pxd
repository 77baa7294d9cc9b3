cimport cython

cdef long long _RANGES


cdef class Backoff:
    cdef long long _timeout_ns
    cdef long long _low_ns
    cdef long long _tries
    cdef long long _jitter

    @cython.locals(number="long long", low_ns="long long")
    cpdef long long timeout_ns(self, long long retries) except? -1

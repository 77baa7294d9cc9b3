# C types for compiling marking.py.

cimport cython

from chakram.switch.keyed_random cimport draw


@cython.final
cdef class Marker:
    cdef long long _kmin_bytes
    cdef long long _kmax_bytes
    cdef long long _share
    cdef int _shift
    cdef unsigned long long _seed
    cdef unsigned long long _stream
    cdef long long _average_scaled
    cdef readonly bint at_dequeue
    cdef readonly long long average_bytes

    @cython.locals(
        average_bytes="long long", width="long long", share="long long",
        drawn="long long",
    )
    cpdef bint chooses(
        self, long long queue_bytes, unsigned long long number
    ) except -1

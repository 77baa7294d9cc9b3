# C types of marking.py, for the compiled form.

cimport cython


cdef class EcnMarker:
    cdef long long _kmin_bytes
    cdef long long _kmax_bytes
    cdef double _slope
    cdef object _draw
    cdef readonly long long marked_packets

    @cython.locals(last_bytes="long long", marked="long long")
    cpdef long long marks(
        self, long long queue_bytes, long long count, long long packet_bytes
    ) except? -1

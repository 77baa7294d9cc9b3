# C types for the compiled version of compute_streams.py.

cimport cython


cdef class ComputeStreams:
    cdef long long _arrivals
    cdef dict _waiting

    @cython.locals(waiting=list)
    cpdef bint take(
        self, object stream, Py_ssize_t index, long long ready_ns,
        long long preference=*
    ) except -1
    @cython.locals(waiting=list)
    cpdef release(self, object stream)

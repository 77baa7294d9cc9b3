# C types of streams.py, for the compiled form.

cdef class ComputeStreams:
    cdef dict _waiting

    cpdef bint take(self, object stream, Py_ssize_t index, long long ready_ns)
    cpdef release(self, object stream)

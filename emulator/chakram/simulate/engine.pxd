# C types of engine.py, for the compiled form.

cdef class Wire:
    cdef public object name
    cdef public long long rate_bps
    cdef public long long delay_ns
    cdef public long long free_ns
    cdef public long long sent_bytes
    cdef public long long bursts
    cpdef long long enter(self, long long wire_bytes, long long now_ns)


cdef class VirtualFabric:
    cdef public long long now_ns
    cdef public long long events
    cdef list _endpoints
    cdef object _route
    cdef dict _paths
    cdef list _heap
    cdef long long _number
    cdef list _wake_ns
    cdef list _finished
    cdef long long _unfinished
    cdef _drive(self, Py_ssize_t index, long long now_ns)
    cdef _forward(
        self, object burst, Py_ssize_t receiver, list wires, Py_ssize_t hop,
        long long now_ns
    )
    cdef _wake(self, Py_ssize_t index)

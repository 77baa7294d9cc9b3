# C types of expansion.py, for the compiled form.

cdef class Expansion:
    cdef public list send_qpns
    cdef public list send_messages
    cdef public list send_sizes
    cdef public list send_steps
    cdef public list send_channels
    cdef public list send_peers
    cdef public list needs
    cdef public list first_sends
    cdef public dict receive_index
    cdef public list receive_steps
    cdef public list receive_channels
    cdef public list receive_peers
    cdef public list dependents

    cpdef Py_ssize_t messages(self) except? -1


cdef class Expander:
    cdef object _program
    cdef object _job
    cdef object _numbers
    cdef dict _qpn_of
    cdef list _row_of
    cdef dict _expansions
    cdef long long _cached_messages
    cdef long long _cache_limit

    cpdef Expansion expansion(self, Py_ssize_t index)

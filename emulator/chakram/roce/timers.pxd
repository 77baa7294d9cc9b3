cdef class Timers:
    cdef list _heap
    cdef readonly long long first_ns
    cdef readonly long long first_qpn

    cpdef object add(self, long long time_ns, long long qpn)
    cpdef object drop_first(self)
    cdef object _look(self)

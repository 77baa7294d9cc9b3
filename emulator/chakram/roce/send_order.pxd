cdef class SendOrder:
    cdef public long long lowest
    cdef public long long in_ring
    cdef public list behind

# C types of pairs.py, for the compiled form.

cdef class Pair:
    cdef readonly long long qpn
    cdef readonly long long group
    cdef readonly long long peer
    cdef readonly long long place

# C types for the compiled version of queue_pair_peer.py.

cdef class Pair:
    cdef readonly long long qpn
    cdef readonly long long group
    cdef readonly long long peer
    cdef readonly long long place

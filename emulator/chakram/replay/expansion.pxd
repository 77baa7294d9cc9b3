# C types for the compiled version of expansion.py.

cimport cython

from chakram.replay.integer_map cimport NumberTable
from chakram.replay.rank_queue_pair cimport Pair


cdef class Expansion:
    cdef public list send_pairs
    cdef public list send_messages
    cdef public list send_sizes
    cdef public list send_steps
    cdef public list send_channels
    cdef public list send_peers
    cdef public list needs
    cdef public list first_sends
    cdef NumberTable _lanes
    cdef NumberTable _receives
    cdef public list receive_steps
    cdef public list receive_channels
    cdef public list receive_peers
    cdef public list dependents

    cpdef Py_ssize_t messages(self) except? -1
    @cython.locals(lane="long long")
    cpdef Py_ssize_t receive(self, Pair pair, long long message) except? -2


cdef class Expander:
    cdef object _program
    cdef object _job
    cdef object _numbers
    cdef dict _pair_of
    cdef list _row_of
    cdef dict _expansions
    cdef long long _cached_messages
    cdef long long _cache_limit

    cpdef Expansion expansion(self, Py_ssize_t index)

    @cython.locals(expansion=Expansion)
    cdef Expansion _bound(self, object share, list sizes, object group, object ranks)

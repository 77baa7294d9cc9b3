# C types for the compiled version of samples.py.

cimport cython

from chakram.native.append_rows_direct cimport append_values
from chakram.roce.queue_pair cimport QueuePair


cdef class _Sampled:
    cdef QueuePair pair
    cdef long long rank
    cdef long long peer
    cdef long long seen


cdef class Sampler:
    cdef readonly object rows
    cdef readonly long long bin_ns
    cdef object _endpoints
    cdef object _port_row
    cdef long long _most_looked_at
    cdef long long _most_rows
    cdef long long _turns_per_bin
    cdef long long _pairs_left
    cdef long long _rows_left
    cdef long long _next_ns
    cdef long long _taken
    cdef Py_ssize_t _turn
    cdef dict _ports_seen
    cdef list _pairs

    cpdef turn(self, long long now_ns)
    @cython.locals(
        rows="long long", pairs=list, turn="Py_ssize_t", allowed="long long",
        count="long long", entry=_Sampled,
    )
    cdef _sample_pairs(self, long long most, long long now_ns)
    @cython.locals(entry=_Sampled)
    cpdef finish(self, long long now_ns)
    cpdef _count(self, long long rows)
    cdef _sample_ports(self, long long now_ns)
    @cython.locals(pair=QueuePair)
    cdef _sample_pair(self, _Sampled entry, long long now_ns)

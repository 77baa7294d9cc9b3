cimport cython

from chakram.native.prefetch_lines cimport prefetch_item, prefetch_place
from chakram.roce.queue_pair cimport QueuePair

cdef int _FIRST_BITS
cdef unsigned long long _FACTOR
cdef unsigned long long _WORD


cdef class QueuePairs:
    cdef list _added
    cdef list _places
    cdef long long _mask
    cdef int _shift

    cpdef object add(self, QueuePair queue_pair)
    @cython.locals(place="Py_ssize_t", queue_pair=QueuePair)
    cpdef QueuePair find(self, long long qpn)
    cdef void foresee(self, int stage, long long qpn) noexcept
    @cython.locals(queue_pair=QueuePair)
    cpdef QueuePair of(self, long long qpn)
    cpdef tuple all(self)
    @cython.locals(place="Py_ssize_t")
    cdef object _put(self, QueuePair queue_pair)
    cdef Py_ssize_t _first_place(self, unsigned long long qpn) except -1

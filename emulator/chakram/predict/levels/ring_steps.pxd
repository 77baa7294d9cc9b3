# C types of ring_steps.py for the compiled build.

cimport cython

cdef int _FREE, _HOLD, _POSITION, _REACH, _SLOWER


cdef class RingSteps:
    cdef readonly Py_ssize_t waiting
    cdef readonly Py_ssize_t left
    cdef Py_ssize_t _nranks
    cdef Py_ssize_t _distance
    cdef Py_ssize_t _covered
    cdef long long[::1] _at_ns
    cdef long long[::1] _free_ns
    cdef long long[::1] _hold_ns
    cdef long long[::1] _reach_ns
    cdef long long[::1] _slower
    cdef Py_ssize_t _slower_count

    cpdef begin(self, Py_ssize_t position, long long now_ns)
    @cython.locals(covered="Py_ssize_t", number="Py_ssize_t")
    cpdef Py_ssize_t advance(self, Py_ssize_t steps) except -1
    @cython.locals(position="Py_ssize_t", at_ns="long long")
    cdef _send(self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t offset)
    @cython.locals(place="Py_ssize_t", at_ns="long long")
    cdef _pass_slower(self, Py_ssize_t row)

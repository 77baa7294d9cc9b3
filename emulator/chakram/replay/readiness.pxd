# C types for the compiled version of readiness.py.

cimport cython

cdef Py_ssize_t _NOTHING


cdef class Readiness:
    cdef readonly Py_ssize_t left
    cdef readonly long long end_ns
    cdef readonly long long[::1] ready_ns
    cdef readonly int[::1] released_by
    cdef bint _has_room
    cdef Py_ssize_t _count
    cdef int[::1] _counts
    cdef list _roots
    cdef int[::1] _first_successor
    cdef int[::1] _successors
    cdef int[::1] _missing
    cdef int[::1] _operation_at
    cdef int[::1] _place_of
    cdef list _ready
    cdef Py_ssize_t _next_root

    cpdef Readiness another(self)
    @cython.locals(count="Py_ssize_t", index="Py_ssize_t")
    cpdef begin(self, long long start_ns)
    @cython.locals(place="Py_ssize_t")
    cpdef Py_ssize_t take(self) except? -2
    cpdef postpone(self, Py_ssize_t index, long long until_ns)
    @cython.locals(
        successor="Py_ssize_t", releaser="Py_ssize_t", known="Py_ssize_t",
        known_ns="long long", at="Py_ssize_t",
    )
    cpdef done(self, Py_ssize_t index, long long done_ns, bint takes_no_time=*)

# C types for the compiled version of readiness.py.

cimport cython

cdef Py_ssize_t _NOTHING


cdef class Readiness:
    cdef readonly Py_ssize_t left
    cdef readonly long long end_ns
    cdef readonly list ready_ns
    cdef readonly list released_by
    cdef list _counts
    cdef list _roots
    cdef list _successors
    cdef list _missing
    cdef list _operation_at
    cdef list _place_of
    cdef list _ready

    cpdef Readiness another(self)
    cpdef begin(self, long long start_ns)
    cpdef Py_ssize_t take(self) except? -2
    cpdef postpone(self, Py_ssize_t index, long long until_ns)
    @cython.locals(
        missing=list, successor="Py_ssize_t", releaser="Py_ssize_t",
        known="Py_ssize_t", known_ns="long long",
    )
    cpdef done(self, Py_ssize_t index, long long done_ns, bint takes_no_time=*)

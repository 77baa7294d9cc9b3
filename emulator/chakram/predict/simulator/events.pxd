# C types of events.py, for the compiled form.

cimport cython

cdef long long _NO_EVENT
cdef int _FIELDS


cdef class Events:
    cdef long long[::1] _heap
    cdef long long _number
    cdef readonly long long count

    cpdef long long first_ns(self) except? -1
    @cython.locals(heap="long long[::1]", place="Py_ssize_t", parent="Py_ssize_t")
    cpdef add(self, long long time_ns, long long what)
    @cython.locals(
        heap="long long[::1]", what="long long", end="Py_ssize_t", time_ns="long long",
        number="long long", at="Py_ssize_t", child="Py_ssize_t", other="Py_ssize_t",
    )
    cpdef long long take(self) except? -1
    @cython.locals(
        old="long long[::1]", heap="long long[::1]", count="Py_ssize_t",
        at="Py_ssize_t",
    )
    cdef _grow(self)

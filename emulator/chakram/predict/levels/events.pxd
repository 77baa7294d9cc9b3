# C types of events.py, for the compiled form.

cimport cython


cdef class Events:
    cdef readonly long long now_ns
    cdef readonly long long events
    cdef long long[::1] _heap_ns
    cdef long long[::1] _heap_order
    cdef long long[::1] _heap_what
    cdef Py_ssize_t _heap_used
    cdef long long _number

    cpdef advance(self, long long now_ns)
    cdef _push(self, long long at_ns, long long what)
    @cython.locals(
        place="Py_ssize_t", above="Py_ssize_t", above_ns="long long",
    )
    cdef _push_numbered(self, long long at_ns, long long order,
                            long long what)
    @cython.locals(last="Py_ssize_t")
    cdef _pop(self)
    @cython.locals(
        used="Py_ssize_t", place="Py_ssize_t", below="Py_ssize_t",
        other="Py_ssize_t", below_ns="long long",
    )
    cdef _replace(self, long long at_ns, long long order,
                      long long what)

cimport cython

cdef long long _NEVER
cdef int _FIRST_ROOM


@cython.final
cdef class Timers:
    cdef long long[::1] _heap
    cdef Py_ssize_t _count
    cdef readonly long long first_ns
    cdef readonly long long first_qpn

    @cython.locals(place="Py_ssize_t", above="Py_ssize_t", above_ns="long long")
    cpdef object add(self, long long time_ns, long long qpn)
    @cython.locals(
        end="Py_ssize_t", time_ns="long long", qpn="long long", place="Py_ssize_t",
        below="Py_ssize_t", other="Py_ssize_t", below_ns="long long",
    )
    cpdef void drop_first(self) noexcept
    @cython.locals(at="Py_ssize_t", old="long long[::1]")
    cdef object _grow(self)

cimport cython

cdef Py_ssize_t _LAST


@cython.final
cdef class Histogram:
    cdef long long _counts[28]
    cdef long long _sum_ns

    @cython.locals(rest="long long", bucket="Py_ssize_t")
    cpdef void add(self, long long time_ns) noexcept
    cpdef object snapshot(self)

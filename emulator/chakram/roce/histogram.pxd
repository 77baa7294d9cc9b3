cimport cython

cdef Py_ssize_t _LAST


cdef class Histogram:
    cdef list _counts
    cdef long long _sum_ns

    @cython.locals(rest="long long", bucket="Py_ssize_t")
    cpdef object add(self, long long time_ns)
    cpdef object snapshot(self)

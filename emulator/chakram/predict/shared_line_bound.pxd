# C types of bound_times.py for the compiled build.

cimport cython

cdef int _HOP_BITS
cdef int _HOP_MASK


@cython.final
cdef class BoundTimes:
    cdef object _needs
    cdef object _lines
    cdef const long long[::1] _path
    cdef object _back_ns
    cdef bint _waits

    @cython.locals(
        index="Py_ssize_t", hop="Py_ssize_t", head_ns="double", tail_ns="double",
        work_ns="double", time_ns="double", end_ns="double", heads_ns="double[::1]",
        tails_ns="double[::1]", lines="tuple", place="long long", jobs=list,
    )
    cpdef double end_ns(
        self, object messages, const long long[::1] kinds, Py_ssize_t count_lines
    ) except? -1

    @cython.locals(
        index="Py_ssize_t", hop="Py_ssize_t", line="Py_ssize_t", kind="long long",
        path="Py_ssize_t", head_ns="double", tail_ns="double", back_ns="double",
        time_ns="double", end_ns="double", works_ns="double[::1]",
        heads_ns="double[::1]", tails_ns="double[::1]", lines="tuple",
    )
    cdef double _unordered_ns(
        self, object messages, const long long[::1] kinds, Py_ssize_t count_lines
    ) except? -1

    @cython.locals(
        index="Py_ssize_t", earlier="Py_ssize_t", hop="Py_ssize_t", shared="long long",
        begin_ns="double", work_ns="double", first_ns="double", last_ns="double",
        time_ns="double", there_ns="double", lines="tuple",
    )
    cdef object _heads(self, object messages, const long long[::1] kinds)

    @cython.locals(
        count="Py_ssize_t", index="Py_ssize_t", path="Py_ssize_t",
        earlier="Py_ssize_t", line="long long", tail_ns="double", alone_ns="double",
        rest_ns="double", work_ns="double", lines="tuple",
    )
    cdef object _tails(self, object messages, const long long[::1] kinds)

    @cython.locals(
        head_ns="double", tail_ns="double", work_ns="double", left_ns="double",
        first_tail_ns="double", now_ns="double", end_ns="double",
    )
    cdef double _line_ns(self, list jobs) except? -1

# C types of timeline.py, for the compiled form.

cimport cython

cdef int _NO_LINE


@cython.final
cdef class Timeline:
    cdef Py_ssize_t _lines
    cdef Py_ssize_t _link_count
    cdef bint _one_each
    cdef list _dependents
    cdef object _missing
    cdef const long long[::1] _out_lines
    cdef const long long[::1] _in_lines
    cdef const long long[::1] _up_lines
    cdef const long long[::1] _down_lines
    cdef const long long[::1] _back_ns
    cdef const long long[::1] _links
    cdef const long long[::1] _grant_ns

    @cython.locals(
        at="Py_ssize_t", index="Py_ssize_t", line="Py_ssize_t", number="int",
        back_ns="long long", alone_ns="long long", time_ns="long long",
        rest_ns="long long", longest_ns="long long", loads_ns="long long[::1]",
        rests_ns="long long[::1]",
    )
    cdef Py_ssize_t _shared_ns(
        self, const long long[::1] places, const long long[::1] out_ns,
        const long long[::1] path_ns, const long long[::1] latency_ns,
        const long long[::1] up_ns, const long long[::1] down_ns,
        const long long[::1] in_ns) except -1

    @cython.locals(
        count="Py_ssize_t", index="Py_ssize_t", dependent="Py_ssize_t",
        link="Py_ssize_t", line="Py_ssize_t", up="int",
        now_ns="long long", start_ns="long long", through_ns="long long",
        passed_ns="long long", arrived_ns="long long", served_ns="long long",
        head_ns="long long", granted_ns="long long", end_ns="long long",
        missing="long long[::1]", ready_ns="long long[::1]",
        tail_ns="long long[::1]", free_ns="long long[::1]", left="long long[::1]",
        under_way="bytearray", unit="object",
    )
    cdef Py_ssize_t _run(
        self, list events, const long long[::1] out_ns,
        const long long[::1] path_ns, const long long[::1] latency_ns,
        const long long[::1] up_ns, const long long[::1] down_ns,
        const long long[::1] in_ns, long long credits) except -1

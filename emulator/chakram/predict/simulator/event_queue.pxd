# C types of event_queue.py for the compiled build.

cimport cython

cdef long long _NO_EVENT
cdef int _FIELDS
cdef int _RUNS
cdef int _WINDOW
cdef int _WINDOW_ROOM


@cython.final
cdef class Events:
    cdef readonly long long count
    cdef long long _order
    cdef long long _taken_order
    cdef int _taken_from
    cdef long long _first_ns
    cdef long long _first_order
    cdef int _next
    cdef Py_ssize_t _room
    cdef long long[::1] _runs
    cdef Py_ssize_t _fronts[8]
    cdef Py_ssize_t _sizes[8]
    cdef long long _fronts_ns[8]
    cdef long long _fronts_order[8]
    cdef long long _lasts_ns[8]
    cdef long long _lasts_order[8]
    cdef long long[::1] _heap
    cdef Py_ssize_t _heap_count
    cdef long long[::1] _window
    cdef Py_ssize_t _window_at
    cdef Py_ssize_t _window_end

    cpdef long long first_ns(self) noexcept
    cpdef long long first_order(self) noexcept
    cpdef long long taken_order(self) noexcept
    cpdef add(self, long long time_ns, long long what)
    cpdef add_timer(self, long long time_ns, long long what)
    cpdef long long next_order(self) noexcept
    cpdef reserve_orders(self, long long count)
    cpdef add_at(self, long long time_ns, long long order, long long what)
    cdef _insert(self, long long time_ns, long long order, long long what, int run)
    @cython.locals(
        run=int, at="Py_ssize_t", what="long long", first_ns="long long",
        first_order="long long", following=int,
    )
    cpdef long long take(self) noexcept
    @cython.locals(run=int, place="Py_ssize_t")
    cpdef long long ahead(self, Py_ssize_t distance) noexcept
    @cython.locals(place="Py_ssize_t", at="Py_ssize_t")
    cdef _append(self, int run, long long time_ns, long long order, long long what)
    @cython.locals(
        old="long long[::1]", runs="long long[::1]", room="Py_ssize_t", run=int,
        index="Py_ssize_t", place="Py_ssize_t", field="Py_ssize_t",
    )
    cdef _widen(self)
    @cython.locals(
        place="Py_ssize_t", before="Py_ssize_t", last="Py_ssize_t", end="Py_ssize_t",
    )
    cdef _keep(self, long long time_ns, long long order, long long what)
    @cython.locals(at="Py_ssize_t")
    cdef void _extend(self) noexcept
    @cython.locals(at="Py_ssize_t")
    cdef void _move_window(self) noexcept
    @cython.locals(place="Py_ssize_t", parent="Py_ssize_t")
    cdef _push(self, long long time_ns, long long order, long long what)
    @cython.locals(
        what="long long", end="Py_ssize_t", time_ns="long long", order="long long",
        at="Py_ssize_t", child="Py_ssize_t", other="Py_ssize_t",
    )
    cdef long long _pop(self) noexcept
    @cython.locals(
        old="long long[::1]", heap="long long[::1]", count="Py_ssize_t",
        at="Py_ssize_t",
    )
    cdef _grow(self)

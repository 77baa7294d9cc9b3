# C types of record_streams.py for the compiled build.

cimport cython

cdef int _BLOCK, _BLOCK_BITS, _COUNT, _FIRST, _NONE, _RECORD, _STREAM, _UNTIL
cdef unsigned long long _MASK, _OVER


cdef class RecordStreams:
    cdef readonly unsigned long long one
    cdef readonly unsigned long long two
    cdef readonly unsigned long long three
    cdef unsigned long long[::1] _records
    cdef long long[::1] _next
    cdef long long[::1] _streams
    cdef long long[::1] _stream_of
    cdef unsigned long long[::1] _heads
    cdef long long[::1] _losers
    cdef bint _by_entry
    cdef Py_ssize_t _places
    cdef Py_ssize_t _free
    cdef Py_ssize_t _used

    @cython.locals(at="Py_ssize_t")
    cpdef clear(self)
    cpdef Py_ssize_t count(self, Py_ssize_t stream) except -1
    @cython.locals(row="Py_ssize_t", at="Py_ssize_t", block="Py_ssize_t")
    cpdef append(self, Py_ssize_t stream, unsigned long long one,
                 unsigned long long two, unsigned long long three)
    cpdef join(self, Py_ssize_t stream)
    @cython.locals(node="Py_ssize_t", place="Py_ssize_t", top="Py_ssize_t")
    cpdef merge(self, bint by_entry=*)
    cpdef stop(self)
    cpdef Py_ssize_t stream(self) except -1
    @cython.locals(row="Py_ssize_t")
    cpdef long long latest(self) except -1
    @cython.locals(
        top="Py_ssize_t", row="Py_ssize_t", at="Py_ssize_t", block="Py_ssize_t",
        node="Py_ssize_t",
    )
    cpdef advance(self)
    @cython.locals(at="Py_ssize_t")
    cdef void _show(self) noexcept
    @cython.locals(other="Py_ssize_t", one="Py_ssize_t", two="Py_ssize_t")
    cdef Py_ssize_t _play(self, Py_ssize_t node, Py_ssize_t place) noexcept
    @cython.locals(
        stream="Py_ssize_t", head="Py_ssize_t", at="Py_ssize_t",
        one="unsigned long long", two="unsigned long long", three="unsigned long long",
    )
    cdef void _load(self, Py_ssize_t place) noexcept

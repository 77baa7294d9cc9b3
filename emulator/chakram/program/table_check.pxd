# C types of table_check.py, for the compiled form.

cimport cython

cdef int _NOTHING
cdef int _MEMBER
cdef int _NAMED


@cython.locals(found="long long", at="Py_ssize_t")
cdef long long _largest(const unsigned int[::1] column) except -2

@cython.locals(at="Py_ssize_t")
cdef bint _are_within(const long long[::1] column, long long least,
                      long long most) except -1

@cython.locals(begin="long long", end="long long", at="Py_ssize_t")
cdef bint _are_ends(const unsigned int[::1] column, long long total,
                    long long longest) except -1


@cython.final
cdef class TableCheck:
    cdef object _columns
    cdef object _ranks
    cdef list _memberships
    cdef long long _first_collective
    cdef long long _first_message
    cdef bint _has_splits
    cdef list _ends
    cdef list _uneven
    # The columns.
    cdef const unsigned int[::1] _dependencies
    cdef const unsigned int[::1] _dependency_ends
    cdef const unsigned int[::1] _groups
    cdef const unsigned int[::1] _numbers
    cdef const unsigned int[::1] _kinds
    cdef const long long[::1] _input_bytes
    cdef const long long[::1] _trace_bytes
    cdef const unsigned int[::1] _roots
    cdef const unsigned int[::1] _peers
    # By group: its size, where its collectives begin, how many each member has.
    cdef const unsigned int[::1] _sizes
    cdef const long long[::1] _bases
    cdef long long[::1] _counts
    # By row of the table.
    cdef long long[::1] _edges
    cdef long long[::1] _reach
    # The operations of all programs, one program after the other.
    cdef const unsigned int[::1] _places
    cdef const long long[::1] _starts
    cdef int[::1] _shared
    cdef int[::1] _partner
    cdef int[::1] _waits
    cdef int[::1] _ready
    cdef int[::1] _before
    cdef int[::1] _released
    cdef long long[::1] _first_released
    # By collective.
    cdef int[::1] _first_seen
    cdef int[::1] _seen_in
    cdef int[::1] _absent
    cdef int[::1] _latest
    cdef Py_ssize_t _nready
    cdef long long _ended

    @cython.locals(begin="long long", edge="long long", place="Py_ssize_t",
                   reach="long long")
    cdef _measure(self)
    @cython.locals(total="long long", at="Py_ssize_t")
    cdef long long _sum_of_edges(self) noexcept
    @cython.locals(start="long long", end="long long", length="long long",
                   at="long long", place="long long", row="long long",
                   group="Py_ssize_t", rank="long long", own_counts="long long[::1]")
    cdef bint _has_sound_rows(self, int program,
                              const unsigned char[::1] membership) except -1
    @cython.locals(at="long long", place="long long", row="long long",
                   group="Py_ssize_t", number="long long", which="long long",
                   first="long long")
    cdef bint _has_sound_collectives(self, int program) except -1
    @cython.locals(at="Py_ssize_t", other_at="Py_ssize_t")
    cdef bint _have_sound_messages(self) except -1
    @cython.locals(count="Py_ssize_t", at="Py_ssize_t", which="int", member="int")
    cdef bint _all_end(self) except -1
    @cython.locals(count="Py_ssize_t", program="Py_ssize_t", first="long long",
                   at="long long", place="Py_ssize_t", end="long long",
                   edge="long long", target="long long", which="int")
    cdef _prepare(self)
    @cython.locals(edge="long long")
    cdef void _finish(self, Py_ssize_t at) noexcept
    cdef void _release(self, Py_ssize_t at) noexcept

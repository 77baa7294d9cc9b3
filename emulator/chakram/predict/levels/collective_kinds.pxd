# C types of collective_kinds.py for the compiled build.

cimport cython

cdef int _AWAITS, _BATCH, _CHANNEL, _CHUNKS, _COUNTER, _COUNTS
cdef int _FIRST_GROUP, _FIRST_RECEIVE, _FIRST_SEND, _IN_TURN, _MEMBER, _MISSING
cdef int _NEEDS, _NRANKS, _PEER, _PLACE, _POSITION, _RECEIVE, _RELEASES
cdef int _ROTATES, _SEND, _SHAPE, _SIZE, _STEP, _TURN, _WAITERS, _WAITS, _WAY


cdef class Kinds:
    cdef long long[::1] _size_bytes
    cdef long long[::1] _size_packets
    cdef long long[::1] _size_taken
    cdef dict _shape_of
    cdef long long[::1] _shapes
    cdef long long[::1] _positions
    cdef Py_ssize_t _positions_used
    cdef long long[::1] _sends
    cdef Py_ssize_t _sends_used
    cdef long long[::1] _releases
    cdef Py_ssize_t _releases_used
    cdef long long[::1] _dependents
    cdef Py_ssize_t _dependents_used
    cdef long long[::1] _groups
    cdef Py_ssize_t _groups_used
    cdef long long[::1] _members
    cdef Py_ssize_t _members_used
    cdef long long[::1] _chunk_sizes
    cdef Py_ssize_t _chunks_used

    cpdef set_size(self, Py_ssize_t size_class, long long size_bytes,
                   long long packets, long long taken_ns)
    @cython.locals(
        index="Py_ssize_t", row="Py_ssize_t", first_send="Py_ssize_t",
        most="Py_ssize_t", nchunks="Py_ssize_t", first_chunk="Py_ssize_t",
        number="Py_ssize_t", first_receive="Py_ssize_t", ends="Py_ssize_t",
        first_group="Py_ssize_t", size_bytes="long long", needed="Py_ssize_t",
    )
    cdef _add_shape(self, columns)
    @cython.locals(index="Py_ssize_t", peer="Py_ssize_t", receive="Py_ssize_t")
    cdef _set_releases(self, columns)
    @cython.locals(
        first_group="Py_ssize_t", first_member="Py_ssize_t", most="Py_ssize_t",
        counters="Py_ssize_t", position="Py_ssize_t", index="Py_ssize_t",
        row="Py_ssize_t",
    )
    cdef Py_ssize_t _add_groups(self, columns) except -1
    cpdef Py_ssize_t _size_class(self, long long size_bytes,
                                 long long reduced_bytes) except -1

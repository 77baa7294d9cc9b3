# C types for the compiled version of graph_index.py.

cimport cython

cdef int _NAME_SLOTS
cdef unsigned int _NAME_START
cdef unsigned int _NAME_FACTOR
cdef unsigned int _NAME_MASK
cdef int _FIRST_BITS
cdef unsigned long long _WORD_MASK
cdef unsigned long long _INDEX_FACTOR


@cython.final
cdef class NameTable:
    cdef bytearray _text
    cdef object _ends
    cdef int[::1] _latest

    cpdef int add(self, str name) except -1
    @cython.locals(at="Py_ssize_t", value="unsigned int", slot="unsigned int",
                   number="int")
    cpdef int put(self, const unsigned char* data, Py_ssize_t start,
                  Py_ssize_t end) except -1
    @cython.locals(known="const unsigned char*", first="Py_ssize_t", at="Py_ssize_t")
    cdef bint _is(self, int number, const unsigned char* data, Py_ssize_t start,
                  Py_ssize_t end) except -1


@cython.final
cdef class NodeIndex:
    cdef int _bits
    cdef long long _count
    cdef long long _full
    cdef unsigned long long[::1] _ids
    cdef int[::1] _positions

    cdef _make(self, int bits)
    cpdef bint put(self, unsigned long long node_id) except -1
    cpdef int find(self, unsigned long long node_id) except -2
    @cython.locals(mask="unsigned long long", slot="unsigned long long")
    cdef unsigned long long _slot(self, unsigned long long node_id) noexcept
    @cython.locals(ids="unsigned long long[::1]", positions="int[::1]",
                   old="Py_ssize_t", count="Py_ssize_t", slot="unsigned long long")
    cdef _grow(self)
    @cython.locals(position="int", edge="Py_ssize_t", target="int", last_in="int[::1]",
                   filled="Py_ssize_t", missing="list")
    cdef Py_ssize_t _resolve(self, const unsigned long long[::1] wanted,
                             const long long[::1] ends, int[::1] found,
                             long long[::1] found_ends, object on_missing,
                             bint drop_own) except -1


@cython.locals(edge="Py_ssize_t", back="Py_ssize_t", key="Py_ssize_t")
cdef int _group(const int[::1] keys, const int[::1] values, Py_ssize_t count,
                int[::1] lists, long long[::1] ends) except -1

@cython.locals(position="Py_ssize_t", edge="Py_ssize_t")
cdef bint _is_in_order(const unsigned long long[::1] ids,
                       const int[::1] dependencies,
                       const long long[::1] ends) except -1

@cython.locals(count="Py_ssize_t", starts="long long[::1]", successors="int[::1]",
               heap="int[::1]", edge="Py_ssize_t", position="int", target="int",
               ready="Py_ssize_t", done="Py_ssize_t")
cdef Py_ssize_t _fill_order(const unsigned long long[::1] ids,
                            const int[::1] dependencies,
                            const long long[::1] ends, int[::1] order,
                            int[::1] missing) except -1

@cython.locals(at="Py_ssize_t", parent="Py_ssize_t", node_id="unsigned long long")
cdef void _push(int[::1] heap, Py_ssize_t size, const unsigned long long[::1] ids,
                int position) noexcept

@cython.locals(at="Py_ssize_t", child="Py_ssize_t", position="int",
               node_id="unsigned long long")
cdef void _pop(int[::1] heap, Py_ssize_t size,
               const unsigned long long[::1] ids) noexcept

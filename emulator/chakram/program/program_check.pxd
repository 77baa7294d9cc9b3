# C types for the compiled version of program_check.py.

cimport cython

cdef int _NOTHING
cdef int _COMPUTE
cdef int _COLLECTIVE
cdef int _SEND
cdef long long _NO_VALUE
cdef long long _MOST_BYTES
cdef long long _MOST_NS


@cython.locals(found="long long", at="Py_ssize_t")
cpdef long long largest(const unsigned int[::1] column) except -2

@cython.locals(begin="long long", end="long long", at="Py_ssize_t")
cpdef bint are_ends(const unsigned int[::1] column, long long total,
                    long long longest) except -1

@cython.locals(begin="Py_ssize_t", row="Py_ssize_t", edge="Py_ssize_t")
cdef bint _looks_back(const unsigned int[::1] dependencies,
                      const unsigned int[::1] ends) except -1

@cython.locals(begin="Py_ssize_t", row="Py_ssize_t", edge="Py_ssize_t")
cpdef fill_edges(const unsigned int[::1] dependencies, const unsigned int[::1] ends,
                 const int[::1] nodes, int[::1] before, int[::1] after, Py_ssize_t at)

@cython.locals(row="Py_ssize_t")
cpdef fill_nodes(const unsigned char[::1] kinds, const unsigned int[::1] targets,
                 const unsigned int[::1] numbers, const int[::1] bases,
                 int[::1] nodes, int first)


cdef class ColumnsCheck:
    cdef object _columns
    cdef dict _agreed
    cdef readonly list problems
    cdef readonly dict collectives
    cdef readonly dict sends
    cdef readonly dict receives
    cdef readonly dict roots
    cdef readonly list unnumbered
    cdef readonly list uneven
    cdef readonly bint has_cycle

    @cython.locals(count="Py_ssize_t", row="Py_ssize_t", begin="Py_ssize_t",
                   edge="Py_ssize_t", kind="int", amount="long long",
                   start_ns="long long", has_starts="bint")
    cdef _look(self, const unsigned char[::1] kinds, const long long[::1] amounts,
               const unsigned int[::1] targets, const long long[::1] starts_ns,
               const unsigned int[::1] dependencies,
               const unsigned int[::1] dependency_ends)

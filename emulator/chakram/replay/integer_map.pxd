# C types for the compiled version of integer_map.py.

cimport cython

cdef unsigned long long _FACTOR
cdef unsigned long long _WORD
cdef int _FIRST_BITS


@cython.final
cdef class NumberTable:
    cdef long long[::1] _cells
    cdef long long _count
    cdef int _shift

    @cython.locals(at="Py_ssize_t")
    cpdef object put(self, long long key, long long value)
    @cython.locals(at="Py_ssize_t")
    cpdef long long find(self, long long key) noexcept
    @cython.locals(at="Py_ssize_t")
    cdef Py_ssize_t _place(self, unsigned long long key) noexcept
    @cython.locals(old="long long[::1]", at="Py_ssize_t", place="Py_ssize_t")
    cdef object _grow(self)

cimport cython

from chakram.native.prefetch_lines cimport prefetch_item


@cython.final
cdef class Fifo:
    cdef list _items
    cdef Py_ssize_t _mask
    cdef Py_ssize_t _first
    cdef readonly Py_ssize_t count

    cpdef object append(self, object item)
    cpdef object first(self)
    cdef void fetch_first(self, int lines) noexcept
    cpdef object fetch_second(self, int lines)
    cpdef object take(self)
    cdef object _grow(self)

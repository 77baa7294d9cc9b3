# C types of burst_port.py for the compiled form.

cdef class Port:
    cdef public const unsigned char[::1] buffer
    cdef public Py_ssize_t length
    cdef public Py_ssize_t segment_size
    cdef public bint marked
    cdef public int source_port
    cdef public unsigned long long source_high
    cdef public unsigned long long source_low
    cdef public bint segments
    cdef public long long send_retries
    cdef public long long socket_drops

    cpdef bint send_burst(self, object view, Py_ssize_t segment_size,
                          Py_ssize_t destination, int source_port, int kind,
                          bint marked=*) except -1
    cpdef bint receive_burst(self) except -1

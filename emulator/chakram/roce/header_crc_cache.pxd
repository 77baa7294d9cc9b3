cimport cython

from chakram.roce.burst cimport Burst

cdef int _SHARED
cdef int _KINDS
cdef unsigned int _ONES


cdef class HeaderRegisters:
    cdef readonly bint is_ipv4
    cdef object _local
    cdef dict _addresses
    cdef int _udp_port
    cdef Py_ssize_t _udp_at
    cdef Py_ssize_t _address_at
    cdef bytearray _bytes
    cdef unsigned char[::1] _headers
    cdef long long[::1] _flows
    cdef long long[::1] _packets
    cdef unsigned int[::1] _registers

    cpdef object set_destination(self, object destination, object address,
                                 object udp_port=*)
    @cython.locals(kind="int", flow="long long", packet="long long")
    cpdef unsigned int register(self, Burst burst, int opcode, int flags,
                                Py_ssize_t length) except? -1
    cpdef object masked_headers(self, Burst burst, Py_ssize_t length, int position)
    @cython.locals(address="bytes", i="Py_ssize_t", at="Py_ssize_t", udp_bytes="int",
                   headers="unsigned char[::1]", qpn="unsigned int")
    cdef unsigned int _compute(self, Burst burst, int opcode, int flags,
                               Py_ssize_t length) except? -1

cimport cython

from chakram.native.buffers_direct cimport network_word

cdef int _MALFORMED
cdef int _SERVED
cdef int _UNSUPPORTED
cdef int _BTH
cdef int _ICRC
cdef int _RETH
cdef int _IMMEDIATE
cdef int _AETH
cdef int _SEND
cdef int _WRITE
cdef int _WRITE_FIRST
cdef int _WRITE_ONLY_WITH_IMMEDIATE
cdef int _ACKNOWLEDGE
cdef int _CNP
cdef int _CNP_RESERVED
cdef int _BECN
cdef int _READ_REQUEST
cdef int _COMPARE_SWAP
cdef int _FETCH_ADD
cdef int _ATOMIC
cdef int _FIRST
cdef int _MIDDLE
cdef int _LAST_WITH_IMMEDIATE
cdef int _ONLY
cdef int _ONLY_WITH_IMMEDIATE


cdef class SegmentParser:
    cdef readonly int opcode
    cdef readonly int partition_key
    cdef readonly long long qpn
    cdef readonly long long psn
    cdef readonly bint ack_request
    cdef readonly bint is_data
    cdef readonly int verb
    cdef readonly bint is_first
    cdef readonly bint is_last
    cdef readonly long long payload_bytes
    cdef readonly Py_ssize_t payload_at
    cdef readonly long long dma_length_bytes
    cdef readonly unsigned long long address
    cdef readonly unsigned long long key
    cdef readonly long long immediate
    cdef readonly int syndrome
    cdef readonly int msn

    @cython.locals(opcode="int", pad_bytes="int", rest="Py_ssize_t", at="Py_ssize_t")
    cpdef int parse(self, const unsigned char[::1] data, Py_ssize_t offset,
                    Py_ssize_t length) except? -1
    @cython.locals(count="int", psn="unsigned long long",
                   previous="Py_ssize_t", opening="unsigned long long",
                   qpn="unsigned long long")
    cpdef int repetitions(self, const unsigned char[::1] data, Py_ssize_t offset,
                          Py_ssize_t size, Py_ssize_t end) except -1


cdef class Run:
    cdef public long long count
    cdef readonly long long psn
    cdef readonly int verb
    cdef readonly bint is_first
    cdef readonly bint is_last
    cdef readonly long long payload_bytes
    cdef readonly long long dma_length_bytes
    cdef readonly long long immediate
    cdef readonly bint ack_request
    cdef long long _path_mtu

    cpdef object begin(self, SegmentParser packet, long long path_mtu)
    cpdef bint extend(self, SegmentParser packet) except -1
    cpdef object repeat(self, long long count)
    cpdef bint is_inside(self) except -1

cimport cython

from chakram.native.buffers_direct cimport same_bytes, word
from chakram.roce.segment_parser cimport SegmentParser

cdef int _INTACT
cdef int _WRONG_ICRC
cdef int _WRONG_PAYLOAD
cdef int _BTH
cdef int _ICRC
cdef int _SHARED
cdef int _ACKNOWLEDGE
cdef int _CNP
cdef int _ADVANCE_POWERS
cdef int _RETREAT_POWERS
cdef unsigned int _ONES
cdef int _KINDS
cdef int _SEGMENTS
cdef int _IDENTIFICATIONS
cdef int _BEHIND_IDENTIFICATION


cdef class ArrivingFlow:
    cdef readonly bint is_pattern
    cdef readonly int identifications
    cdef bint _is_ipv4
    cdef Py_ssize_t _udp_at
    cdef bytearray _bytes
    cdef unsigned char[::1] _headers
    cdef long long[::1] packets
    cdef unsigned int[::1] registers

    @cython.locals(headers="unsigned char[::1]", at="Py_ssize_t", udp_bytes="int",
                   i="int")
    cdef unsigned int compute(self, const unsigned char[::1] data, Py_ssize_t offset,
                              Py_ssize_t size, int source_port) except? -1


cdef class PacketVerifier:
    cdef readonly int every
    cdef object _local
    cdef bint _is_ipv4
    cdef int _udp_port
    cdef bint _has_icrcs
    cdef long long _path_mtu
    cdef const unsigned char[::1] _pattern
    cdef const unsigned int[::1] _byte_table
    cdef const unsigned int[::1] _advance
    cdef const unsigned int[::1] _retreat
    cdef const unsigned int[::1] _stride
    cdef const unsigned int[::1] _identifications
    cdef const unsigned int[::1] _late_identifications
    cdef long long[::1] _residues
    cdef int _identification
    cdef int _at_position
    cdef int _step

    cpdef ArrivingFlow flow(self, object address, bint is_ours=*)
    cpdef object begin(self)
    @cython.locals(is_data="bint", end="Py_ssize_t", is_pattern="bint", as_sent="bint",
                   verdict="int", register="unsigned int", guess="int",
                   value="unsigned int", found="unsigned int", change="int",
                   opcode="int", kind="int", key="long long")
    cpdef int judge(self, const unsigned char[::1] data, Py_ssize_t offset,
                    Py_ssize_t size, SegmentParser packet, ArrivingFlow flow,
                    int source_port, int position) except -1
    @cython.locals(path_mtu="Py_ssize_t", pattern="const unsigned char[::1]",
                   late="const unsigned int[::1]", constant="unsigned int",
                   guess="int", done="int", value="unsigned int")
    cpdef int intact(self, const unsigned char[::1] data, Py_ssize_t offset,
                     Py_ssize_t size, int count, ArrivingFlow flow, int opcode,
                     int position) except -1
    cdef unsigned int _past(self, unsigned int register) except? -1
    @cython.locals(payload_end="Py_ssize_t")
    cdef bint _has_pattern(self, const unsigned char[::1] data, SegmentParser packet,
                           Py_ssize_t end) except -1
    @cython.locals(i="Py_ssize_t")
    cdef bint _has_plain_pad(self, const unsigned char[::1] data, Py_ssize_t at,
                             Py_ssize_t end) except -1
    @cython.locals(payload_bytes="Py_ssize_t", payload_at="Py_ssize_t",
                   constant="long long",
                   advance="const unsigned int[::1]", padded_bytes="Py_ssize_t",
                   k="int", base="int")
    cdef unsigned int _by_table(self, unsigned int register,
                                const unsigned char[::1] data, Py_ssize_t offset,
                                SegmentParser packet) except? -1
    cdef long long _residue(self, Py_ssize_t payload_bytes) except? -1
    @cython.locals(byte_table="const unsigned int[::1]", i="Py_ssize_t")
    cdef unsigned int _through(self, unsigned int register,
                               const unsigned char[::1] data, Py_ssize_t start,
                               Py_ssize_t end) except? -1
    @cython.locals(retreat="const unsigned int[::1]", register="unsigned int",
                   behind="Py_ssize_t", k="int", base="int")
    cdef int _identification_of(self, unsigned int difference, Py_ssize_t size) except? -2

cimport cython

from chakram.roce.burst cimport Burst
from chakram.roce.header_crc_cache cimport HeaderRegisters

cdef int _CNP
cdef int _WRITE
cdef int _BTH
cdef int _ICRC
cdef int _RETH
cdef int _IMMEDIATE
cdef int _AETH
cdef int _CNP_RESERVED
cdef int _FIRST
cdef int _MIDDLE
cdef int _LAST
cdef int _ONLY
cdef int _PLAIN_LAST
cdef int _PLAIN_ONLY
cdef int _WRITE_BASE
cdef int _ACKNOWLEDGE
cdef int _CNP_OPCODE
cdef int _POWERS
cdef unsigned int _ONES
cdef int _BTH_SHARED
cdef int _MIGRATED


cdef class Stamper:
    cdef object _bytes
    cdef unsigned char[::1] _buffer
    cdef HeaderRegisters _header_registers
    cdef public bint is_numbered
    cdef int _path_mtu
    cdef const unsigned int[::1] _identification
    cdef const unsigned int[::1] _byte_table
    cdef const unsigned int[::1] _advance
    cdef const unsigned int[::1] _stride
    cdef long long[::1] _residues
    cdef const unsigned char[::1] _pattern

    cpdef object put_payload(self, Py_ssize_t at)
    @cython.locals(buffer="unsigned char[::1]", stride="const unsigned int[::1]",
                   qpn="unsigned int", psn="unsigned int", size="Py_ssize_t",
                   opcode="int", header_register="unsigned int",
                   constant="unsigned int", position="int", asks="unsigned int",
                   high="unsigned int", middle="unsigned int", low="unsigned int",
                   register="unsigned int")
    cpdef object put_alike(self, Burst burst, int count, Py_ssize_t at)
    @cython.locals(opcode="int", kind="int", payload_bytes="Py_ssize_t",
                   pad_bytes="int", flags="int", payload_at="Py_ssize_t",
                   end="Py_ssize_t", i="int", padded_bytes="Py_ssize_t",
                   length="Py_ssize_t",
                   register="unsigned int", advance="const unsigned int[::1]",
                   k="int", base="int", constant="unsigned int")
    cpdef Py_ssize_t put_packet(self, Burst burst, int position, Py_ssize_t at,
                                bint is_there) except? -1
    @cython.locals(is_cnp="bint", i="int", length="Py_ssize_t", opcode="int",
                   flags="int", register="unsigned int")
    cpdef Py_ssize_t put_answer(self, Burst burst, Py_ssize_t at) except? -1
    @cython.locals(index="long long", base="int")
    cpdef int opcode(self, Burst burst, int position) except? -1
    cdef object _put_bth(self, Burst burst, int opcode, int flags, long long psn,
                         Py_ssize_t at)
    cdef object _put_word(self, unsigned long long value, Py_ssize_t at)
    @cython.locals(value="unsigned int")
    cdef object _put_icrc(self, unsigned int register, Py_ssize_t at)
    @cython.locals(constant="long long")
    cdef unsigned int _constant(self, Py_ssize_t at, Py_ssize_t payload_bytes,
                                int pad_bytes) except? -1
    @cython.locals(buffer="unsigned char[::1]", byte_table="const unsigned int[::1]",
                   i="Py_ssize_t")
    cdef unsigned int _through(self, unsigned int register, Py_ssize_t start,
                               Py_ssize_t end) except? -1

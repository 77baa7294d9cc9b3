cimport cython

from chakram.roce.burst cimport Burst

cdef int _DATA
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
cdef int _BY_TABLE
cdef int _IN_FULL
cdef int _ACKNOWLEDGE
cdef int _CNP_OPCODE
cdef int _POWERS
cdef int _BTH_SHARED


cdef class WireEncoder:
    cdef object _local
    cdef dict _addresses
    cdef int _udp_port
    cdef int _path_mtu
    cdef int _max_burst_packets
    cdef Py_ssize_t _slots
    cdef bint _is_ipv4
    cdef int _icrc_mode
    cdef int _udp_at
    cdef int _address_at
    cdef bytearray _headers_bytes
    cdef unsigned char[::1] _headers
    cdef const unsigned int[::1] _identification
    cdef const unsigned int[::1] _byte_table
    cdef const unsigned int[::1] _advance
    cdef long long[::1] _residues
    cdef const unsigned char[::1] _pattern
    cdef Py_ssize_t _odd_at
    cdef Py_ssize_t _slot_bytes
    cdef object _bytes
    cdef unsigned char[::1] _buffer
    cdef object _view
    cdef list _dirty

    cpdef object set_destination(self, object destination, object address,
                                 object udp_port=*)
    @cython.locals(start="Py_ssize_t", end="Py_ssize_t", length="Py_ssize_t",
                   index="long long", is_run="bint", segment="Py_ssize_t",
                   register="unsigned int", position="int", opcode="int",
                   last_bytes="long long", ends_message="bint",
                   address="bytes", i="Py_ssize_t")
    cpdef tuple encode(self, Burst burst, Py_ssize_t slot=*)
    @cython.locals(at="Py_ssize_t", stop="Py_ssize_t", position="int")
    cdef object _replace_icrcs(self, Burst burst, Py_ssize_t start, Py_ssize_t end,
                               Py_ssize_t segment)
    @cython.locals(index="long long", base="int")
    cdef int _opcode(self, Burst burst, int position)
    @cython.locals(buffer="unsigned char[::1]", byte_table="const unsigned int[::1]",
                   advance="const unsigned int[::1]", qpn="unsigned int",
                   psn="unsigned int", size="Py_ssize_t", base="int", opcode="int",
                   header_register="unsigned int", constant="unsigned int",
                   position="int", asks="unsigned int", high="unsigned int",
                   middle="unsigned int", low="unsigned int", register="unsigned int")
    cdef object _put_run(self, Burst burst, int count, Py_ssize_t at)
    @cython.locals(index="long long", payload_bytes="Py_ssize_t", pad_bytes="int",
                   end="Py_ssize_t", i="int")
    cdef Py_ssize_t _put_packet(self, Burst burst, int position, int opcode,
                                Py_ssize_t at)
    @cython.locals(is_cnp="bint", i="int", length="Py_ssize_t", register="unsigned int")
    cdef Py_ssize_t _put_answer(self, Burst burst, Py_ssize_t at)
    cdef object _put_bth(self, Burst burst, int opcode, int pad_bytes, long long psn,
                         Py_ssize_t at)
    cdef object _put_word(self, unsigned long long value, Py_ssize_t at)
    @cython.locals(value="unsigned int")
    cdef object _put_icrc(self, unsigned int register, Py_ssize_t at)
    @cython.locals(udp_bytes="int", udp_at="int", bth_at="int")
    cdef unsigned int _header_register(self, Burst burst, Py_ssize_t at,
                                       Py_ssize_t length)
    @cython.locals(payload_at="Py_ssize_t", kind="int", padded_bytes="Py_ssize_t",
                   advance="const unsigned int[::1]", k="int", base="int",
                   pad_bytes="int", constant="unsigned int")
    cdef object _seal(self, Py_ssize_t at, Py_ssize_t length, int position, int opcode,
                      unsigned int register)
    @cython.locals(constant="long long")
    cdef unsigned int _constant(self, Py_ssize_t at, Py_ssize_t payload_bytes,
                                int pad_bytes)
    @cython.locals(buffer="unsigned char[::1]", byte_table="const unsigned int[::1]",
                   i="Py_ssize_t")
    cdef unsigned int _through(self, unsigned int register, Py_ssize_t start,
                               Py_ssize_t end)
    cdef object _restore(self, Py_ssize_t slot, Py_ssize_t position)

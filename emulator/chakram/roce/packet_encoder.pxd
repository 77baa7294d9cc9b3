cimport cython

from chakram.roce.burst cimport Burst
from chakram.roce.header_crc_cache cimport HeaderRegisters
from chakram.roce.packet_assembly cimport Stamper

cdef int _DATA
cdef int _WRITE
cdef int _IMMEDIATE
cdef int _ICRC
cdef int _BY_TABLE
cdef int _IN_FULL


cdef class _Cut:
    cdef Py_ssize_t start
    cdef Py_ssize_t end
    cdef object view
    cdef Py_ssize_t segment
    cdef tuple result


cdef class WireEncoder:
    cdef HeaderRegisters _header_registers
    cdef Stamper _stamper
    cdef int _path_mtu
    cdef int _max_burst_packets
    cdef Py_ssize_t _slots
    cdef int _icrc_mode
    cdef Py_ssize_t _packet_bytes
    cdef Py_ssize_t _odd_at
    cdef Py_ssize_t _answer_at
    cdef Py_ssize_t _slot_bytes
    cdef object _bytes
    cdef object _view
    cdef _Cut _cut_data
    cdef _Cut _cut_answer
    cdef list _dirty
    cdef long long[::1] _shapes
    cdef Py_ssize_t _segment_bytes

    cpdef object set_destination(self, object destination, object address,
                                 object udp_port=*)
    cpdef object send_unsegmented(self)
    @cython.locals(start="Py_ssize_t", end="Py_ssize_t", segment="Py_ssize_t", cut=_Cut)
    cpdef tuple encode(self, Burst burst, Py_ssize_t slot=*)
    @cython.locals(at="Py_ssize_t", stop="Py_ssize_t", position="int")
    cdef object _replace_icrcs(self, Burst burst, Py_ssize_t start, Py_ssize_t end,
                               Py_ssize_t segment)
    @cython.locals(index="long long", last_bytes="long long", count="int")
    cdef object _check(self, Burst burst)
    @cython.locals(size="Py_ssize_t", position="int")
    cdef Py_ssize_t _put_run(self, Burst burst, Py_ssize_t slot,
                             Py_ssize_t at) except? -1
    @cython.locals(count="int", last_bytes="long long", shape="long long",
                   is_there="bint", position="int", length="Py_ssize_t")
    cdef Py_ssize_t _put_odd(self, Burst burst, Py_ssize_t slot,
                             Py_ssize_t at) except? -1

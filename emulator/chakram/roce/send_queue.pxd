cimport cython

from chakram.native.prefetch_lines cimport prefetch
from chakram.roce.burst cimport Burst
from chakram.roce.message cimport Message

cdef long long _MAX_MESSAGE_BYTES
cdef long long _NO_IMMEDIATE
cdef long long _LARGEST_SEND_BYTES
cdef long long _MOST_HEADERS_BYTES
cdef Py_ssize_t _COMPACT_AT


cdef class SendQueue:
    cdef int _path_mtu
    cdef readonly Message sending
    cdef Message _oldest
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t _current
    cdef list _behind
    cdef Py_ssize_t _head
    cdef long long _end
    cdef long long _end_byte

    cpdef object check(self, long long message_id, long long size_bytes,
                       bytes contents=*)
    @cython.locals(packets="long long", message=Message)
    cpdef Message append(self, long long message_id, long long size_bytes,
                      long long now_ns, long long order, bytes contents,
                      unsigned long long remote_offset)
    cpdef object clear(self)
    @cython.locals(index="Py_ssize_t")
    cpdef Message following(self, Py_ssize_t distance)
    @cython.locals(first=Message, message=Message, fitting="long long",
                   count="long long")
    cpdef long long alike(self, long long most) except? -1
    @cython.locals(count="long long", messages=list, message=Message, i="Py_ssize_t")
    cpdef long long share(self, Burst burst, long long most) except? -1
    cpdef object advance(self, long long count)
    cpdef object go_back(self)
    @cython.locals(message=Message, inside="long long")
    cpdef long long leap(self, long long sequence) except -1
    @cython.locals(message=Message)
    cpdef Message take_done(self, long long acknowledged)
    cdef void fetch_oldest(self) noexcept
    @cython.locals(first=Message, inside="long long")
    cpdef long long bytes_before(self, long long acknowledged) except? -1
    cdef object _find_sending(self)

# C types for compiling balancing.py.

cimport cython

from chakram.switch.keyed_random cimport draw
from chakram.switch.port cimport Port

cdef unsigned long long _NODE_STREAM


cdef class PacketBalancing:
    cdef readonly long long _node
    cdef readonly unsigned long long _seed
    cdef public unsigned long long _count

    cpdef Py_ssize_t choose(self, list ports, unsigned long long packet) except -1


cdef class Random(PacketBalancing):
    cpdef Py_ssize_t choose(self, list ports, unsigned long long packet) except -1


cdef class RoundRobin(PacketBalancing):
    @cython.locals(number="unsigned long long")
    cpdef Py_ssize_t choose(self, list ports, unsigned long long packet) except -1


cdef class Adaptive(PacketBalancing):
    @cython.locals(
        number="unsigned long long", best="Py_ssize_t", port=Port, least="long long",
        at="Py_ssize_t",
    )
    cpdef Py_ssize_t choose(self, list ports, unsigned long long packet) except -1

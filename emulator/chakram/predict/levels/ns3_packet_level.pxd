# C types of packet_messages.py for the compiled build.

cimport cython

from chakram.predict.levels.message_level cimport MessageLevel
from chakram.predict.simulator.ns3_host_model cimport MessageHosts, MessagePair

cdef int _CLASS, _LEFT_AT, _SLOT
cdef long long _NEVER


cdef class PacketLevel(MessageLevel):
    cdef readonly object fabric
    cdef object _settings
    cdef MessageHosts _wires
    cdef long long _due_ns
    cdef long long _until_ns
    cdef dict _windows

    cpdef bint run(self, long long until_ns, long long most_flows=*) except -1
    @cython.locals(size_bytes="long long")
    cdef _cross(self, Py_ssize_t slot, Py_ssize_t source, Py_ssize_t target)
    cdef long long _window_bytes(self, Py_ssize_t source, Py_ssize_t target) except -1
    @cython.locals(due_ns="long long")
    cdef _settle(self)
    @cython.locals(
        limit_ns="long long", wires=MessageHosts, before="long long",
        pair=MessagePair,
    )
    cdef _happen(self, Py_ssize_t number)

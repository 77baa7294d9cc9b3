# C types of flow_routes.py for the compiled build.

cimport cython

from chakram.switch.keyed_random cimport flow_hash
from chakram.switch.forwarding cimport Forwarding

cdef int _UNKNOWN


cdef class FlowRoutes:
    cdef Forwarding _forwarding
    cdef object _drawn
    cdef long long[::1] _firsts
    cdef long long[::1] _receivers
    cdef long long[::1] _entries
    cdef long long[::1] _nodes
    cdef long long[::1] _numbers
    cdef object _router
    cdef list _destinations
    cdef object _ports
    cdef object _fabric
    cdef object _ecmp

    @cython.locals(
        receiver="long long", entry="long long", node="long long", number="long long",
        near="long long", far="long long",
    )
    cpdef long long find(
        self, long long source, long long destination, long long source_port
    ) except? -2
    cpdef long long receiver(
        self, long long source, long long destination
    ) except? -2
    cpdef long long node(self, long long endpoint) except? -2
    cdef long long _add_flow(
        self, long long source, long long destination, long long receiver,
        long long source_port
    ) except? -1

# C types for compiling forwarding.py.

cimport cython

from chakram.native.prefetch_lines cimport prefetch_cell
from chakram.switch.balancing cimport PacketBalancing
from chakram.switch.port cimport Port

cdef int _NO_ROUTE
cdef int _UNKNOWN
cdef int _HEAD
cdef int _MANY_HOPS
cdef int _FIELDS
cdef int _ENTRY
cdef int _TARGET
cdef int _VALUE
cdef int _NODE_BITS
cdef long long _PORT_MASK


# Fields are in order of use. Fields that every packet uses come first.
@cython.final
cdef class Forwarding:
    cdef long long[::1] _paths
    cdef long long _width
    cdef long long _flows
    cdef long long _nodes
    cdef long long[::1] _fields
    cdef list _balancing
    cdef long long[::1] _sets
    cdef int[::1] _set_of
    cdef list _ports
    cdef list _set_ports
    cdef dict _choosers
    cdef dict _set_with
    cdef Py_ssize_t _sets_used
    cdef object _next_hops

    cpdef Py_ssize_t add_drawn_flow(
        self, long long switch, long long destination, long long value
    ) except -1
    @cython.locals(flow="long long")
    cpdef links_changed(self)
    cpdef bint has_path(self, long long flow) except -1
    cdef void prefetch_path(self, long long flow) noexcept
    @cython.locals(step="long long")
    cdef int known(self, long long flow, long long hop, long long node) noexcept
    @cython.locals(number=int)
    cpdef int egress(
        self, int flow, int hop, int node, int destination, unsigned long long packet
    ) except? -2
    @cython.locals(flow="Py_ssize_t")
    cdef Py_ssize_t _add_flow(
        self, long long switch, long long destination, long long value
    ) except -1
    @cython.locals(at="Py_ssize_t")
    cdef _set_flow(
        self, long long flow, long long switch, long long destination, long long value
    )
    @cython.locals(
        at="Py_ssize_t", node="long long", destination="long long", rest="long long",
        is_drawn=bint, hop="long long", place="Py_ssize_t", count="long long",
        index="long long",
    )
    cdef _find_path(self, long long flow)
    @cython.locals(
        old="long long[::1]", new="long long[::1]", width="long long",
        flow="long long", hop="long long",
    )
    cdef _widen(self)
    @cython.locals(place="Py_ssize_t")
    cdef Py_ssize_t _set_to(
        self, long long node, long long destination
    ) except -1
    @cython.locals(
        hops=list, place="Py_ssize_t", at="Py_ssize_t", number=int, peer=int,
        port=Port,
    )
    cdef Py_ssize_t _find_set(
        self, long long node, long long destination
    ) except -1
    @cython.locals(
        place="Py_ssize_t", count="long long", first="Py_ssize_t",
        balancing=PacketBalancing, value="long long", at="Py_ssize_t",
    )
    cdef int _choose(
        self, int flow, int node, int destination, unsigned long long packet
    ) except? -2

# C types of forwarding.py, for the compiled form.

cimport cython

from chakram.switch.draws cimport draw
from chakram.switch.port cimport Port

cdef int _NO_ROUTE
cdef int _RANDOM
cdef int _ROUND_ROBIN
cdef int _ADAPTIVE
cdef int _HASH
cdef int _MANY_HOPS


@cython.final
cdef class Forwarding:
    cdef list _ports
    cdef object _next_hops
    cdef list _balancing
    cdef unsigned long long _seed
    cdef list _flows
    cdef long long[::1] _spans
    cdef long long[::1] _paths
    cdef Py_ssize_t _paths_used
    cdef dict _hops
    cdef list _numbers

    cpdef links_changed(self)
    cpdef bint has_path(self, long long flow) except -1
    @cython.locals(
        node="long long", destination="long long", start="Py_ssize_t",
        end="Py_ssize_t", hops=list, number=int, port=Port, peer=int,
    )
    cdef _find_path(self, long long flow)
    @cython.locals(at="Py_ssize_t", number=int, port=Port)
    cpdef int egress(self, int flow, int hop, int node, int destination) except? -2
    @cython.locals(hops=list, key="long long")
    cdef list _hops_to(self, long long node, long long destination)
    @cython.locals(
        hops=list, count="long long", kind=int, number="unsigned long long", best=int,
        port=Port, least="long long", at="Py_ssize_t",
    )
    cdef int _choose(self, int flow, int node, int destination) except? -2

# C types of engine.py, for the compiled form.

cimport cython

from chakram.replay.endpoint cimport Endpoint
from chakram.roce.burst cimport Burst
from chakram.roce.port cimport PortEngine
from chakram.predict.simulator.marking cimport EcnMarker

cdef long long _NEVER
cdef int _DATA
cdef long long _BITS_PER_BYTE_NS
cdef long long _LARGEST
cdef long long _EVENTS_PER_REPORT
cdef long long _LAST_NS
cdef long long _YEAR_NS


cdef class Wire:
    cdef readonly object name
    cdef readonly EcnMarker marker
    cdef readonly long long rate_bps
    cdef readonly long long delay_ns
    cdef readonly long long sent_bytes
    cdef readonly long long bursts
    cdef long long _free_ns
    cdef long long _remainder

    @cython.locals(work="long long")
    cpdef long long enter(self, long long wire_bytes, long long now_ns) except? -1
    @cython.locals(waiting_ns="long long")
    cpdef long long queue_bytes(self, long long now_ns) except? -1


cdef class VirtualFabric:
    cdef readonly long long now_ns
    cdef readonly long long events
    cdef list _endpoints
    cdef object _route
    cdef dict _paths
    cdef list _heap
    cdef dict _marks
    cdef long long _number
    cdef list _wake_ns
    cdef list _finished
    cdef long long _unfinished
    cdef bint _has_failed

    @cython.locals(
        time_ns="long long", index="Py_ssize_t", wires=list, crossed="Py_ssize_t",
        burst=Burst, endpoint=Endpoint, engine=PortEngine,
    )
    cdef bint _step(self) except -1
    @cython.locals(
        endpoint=Endpoint, engine=PortEngine, now_ns="long long", burst=Burst,
        wires=list, receiver="Py_ssize_t",
    )
    cdef _drive(self, Py_ssize_t index)
    @cython.locals(arrival_ns="long long", wire=Wire)
    cdef _forward(
        self, Burst burst, Py_ssize_t receiver, list wires, Py_ssize_t crossed
    )
    @cython.locals(
        marker=EcnMarker, count="long long", queue_bytes="long long",
        marked="long long",
    )
    cdef _mark(self, Burst burst, Wire wire)
    @cython.locals(endpoint=Endpoint, wake_ns="long long")
    cdef _wake(self, Py_ssize_t index)

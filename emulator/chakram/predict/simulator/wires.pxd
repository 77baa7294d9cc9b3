# C types of wires.py, for the compiled form.

cimport cython

from chakram.predict.simulator.events cimport Events
from chakram.switch.model cimport SwitchModel
from chakram.switch.packets cimport Packets
from chakram.switch.port cimport Port

cdef long long _NEVER
cdef int _QUEUED
cdef int _DELIVERED
cdef int _EGRESS
cdef int _FATE
cdef int _NEXT
cdef int _ORDER
cdef int _TIME
cdef int _ENTERED
cdef int _WIRE_NS
cdef long long _LAST_NS
cdef long long _YEAR_NS
cdef int _ARRIVE
cdef int _FREE
cdef int _PAUSE
cdef int _MODEL
cdef int _KIND_BITS
cdef int _HEAD
cdef int _TAIL
cdef int _WAITS
cdef int _CUTS
cdef int _FREED
cdef int _LINK_FIELDS


cdef class Wires:
    cdef readonly long long now_ns
    cdef readonly long long hops
    cdef SwitchModel _model
    cdef Packets _packets
    cdef list _ports
    cdef long long[::1] _delays_ns
    cdef Events _events
    cdef long long[::1] _links
    cdef dict _pauses
    cdef bint _timed
    cdef bint _is_by_departure
    cdef long long _order
    cdef object _faults
    cdef long long _model_ns

    cdef _deliver(self, Py_ssize_t number, long long slot)
    cdef _forget(self, long long slot)
    cdef _look_at(self, Py_ssize_t number)
    cdef _be_told(self, Py_ssize_t number, int klass, long long duration_ns)
    cdef _happen(self, int kind, Py_ssize_t index)
    @cython.locals(
        packets=Packets, at="Py_ssize_t", slot="long long", after="long long",
        port=Port, peer=int, outcome=int, last_ns="long long",
    )
    cdef _arrive(self, Py_ssize_t number)
    @cython.locals(port=Port)
    cdef _kick(self, Py_ssize_t number)
    @cython.locals(port=Port, at="Py_ssize_t", what="long long")
    cdef _await_wire(self, Py_ssize_t number)
    @cython.locals(cells="long long[::1]")
    cdef _expect(self, Py_ssize_t number, long long slot)
    @cython.locals(
        packets=Packets, port=Port, at="Py_ssize_t", slot="long long",
        arrival_ns="long long",
    )
    cdef _send(self, Py_ssize_t number)
    @cython.locals(next_ns="long long")
    cdef _settle(self)
    cdef _pause(self, Py_ssize_t number)
    cdef _advance_model(self)
    @cython.locals(
        packets=Packets, at="Py_ssize_t", slot="long long", after="long long",
    )
    cdef _lose_link(self, Py_ssize_t number)

# C types of switch_links.py for the compiled build.

cimport cython

from chakram.predict.simulator.event_queue cimport Events
from chakram.native.prefetch_lines cimport prefetch_cell, prefetch_part
from chakram.switch.forwarding cimport Forwarding
from chakram.switch.model cimport SwitchModel
from chakram.switch.packet_slots cimport Packets
from chakram.switch.port cimport Port

cdef long long NEVER
cdef int QUEUED
cdef int DELIVERED
cdef int EGRESS
cdef int FATE
cdef int NEXT
cdef int ORDER
cdef int TIME
cdef int ENTERED
cdef int WIRE_NS
cdef int DSCP
cdef int FLOW
cdef int HOP
cdef int _COUNTERS_LINE
cdef int _CLASSES_LINE
cdef long long LAST_INSTANT_NS
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
cdef int _FIRST


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
    cdef public bint looks_ahead
    cdef bint _is_by_departure
    cdef long long _order
    cdef object _faults
    cdef long long _model_ns

    cdef _deliver(self, Py_ssize_t number, long long slot)
    cdef _forget(self, long long slot)
    cdef _look_at(self, Py_ssize_t number)
    cdef _on_pause(self, Py_ssize_t number, int klass, long long duration_ns)
    @cython.locals(stage=int)
    cdef void _look_ahead(self) noexcept
    @cython.locals(
        number="Py_ssize_t", kind=int, slot="long long", port=Port, klass=int,
        waiting=int,
    )
    cdef void _foresee(self, int stage, long long what) noexcept
    @cython.locals(
        packets=Packets, after="long long", klass=int, flow="long long",
        hop="long long", egress=int, forwarding=Forwarding,
    )
    cdef void _foresee_arrival(self, int stage, long long slot, Port port) noexcept
    cdef void _foresee_delivery(
        self, int stage, long long slot, Py_ssize_t number
    ) noexcept
    cdef void _foresee_own(self, int stage, int kind, Py_ssize_t index) noexcept
    @cython.locals(packets=Packets)
    cdef void _fetch_packet(self, long long slot) noexcept
    cdef void _fetch_counters(self, Py_ssize_t number, int klass) noexcept
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
    @cython.locals(packets=Packets, time_ns="long long", order="long long")
    cdef _expect(self, Py_ssize_t number, long long slot)
    @cython.locals(
        packets=Packets, port=Port, at="Py_ssize_t", slot="long long",
        arrival_ns="long long", begins_ns="long long",
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

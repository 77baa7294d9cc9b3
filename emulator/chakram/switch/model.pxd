# C types for compiling model.py.

cimport cython

from chakram.switch.buffer cimport Account, Pool
from chakram.switch.keyed_random cimport draw
from chakram.switch.forwarding cimport Forwarding
from chakram.switch.marking cimport Marker
from chakram.switch.packet_slots cimport Packets
from chakram.switch.port cimport Port

cdef int _QUEUED
cdef int _DELIVERED
cdef int _INGRESS_LIMIT
cdef int _HEADROOM_FULL
cdef int _EGRESS_LIMIT
cdef int _WRED
cdef int _NO_ROUTE
cdef int _LINK_DOWN
cdef int _WATCHDOG
cdef int _LINK_LOSS
cdef int _CORRUPTED
cdef int _CE
cdef int _NOT_ECT
cdef int _SIZE
cdef int _DSCP
cdef int _FLOW
cdef int _DESTINATION
cdef int _HOP
cdef int _ECN
cdef int _INGRESS
cdef int _CLASS
cdef int _EGRESS
cdef int _FATE
cdef int _CHOSEN
cdef int _NUMBER
cdef int _ENTERED
cdef int _DEPARTED
cdef int _WIRE_NS
cdef int _PAUSED_BEFORE
cdef int _PAUSED_NS
cdef int _HOST_PAUSED_NS
cdef int _QUEUED_NS
cdef int _MOST_QUEUED_NS
cdef int _QUEUE_PORT
cdef int _MOST_PAUSED_NS
cdef int _PAUSE_PORT
cdef int _SLOW_NS
cdef int _SLOW_PORT
cdef int _HEAD
cdef int _QUEUE_PACKETS
cdef int _QUEUE_BYTES
cdef int _RECEIVED_PACKETS
cdef int _RECEIVED_BYTES
cdef int _SENT_PACKETS
cdef int _SENT_BYTES
cdef int _MARKED_PACKETS
cdef int _DROP_PACKETS
cdef int _PFC_RECEIVED
cdef long long _BIT_NS
cdef int _CLASSES
cdef long long _NEVER
cdef int _FITS
cdef int _REFUSED
cdef unsigned long long _WIRE_STREAM
cdef unsigned long long _JITTER_STREAM


cdef class SwitchModel:
    cdef readonly Packets packets
    cdef readonly Forwarding forwarding
    cdef readonly long long entered
    cdef readonly long long left
    cdef readonly long long dropped
    cdef unsigned long long _seed
    cdef list _ports
    cdef readonly list pools
    cdef list _names
    cdef int _hosts
    cdef object _signals
    cdef list _dropped
    cdef list _changes
    cdef list _timers
    cdef long long _number

    @cython.locals(port=Port)
    cdef Port _add_port(
        self, int node, object spec, object switch, object settings, bint is_host
    )
    cpdef Port port(self, int number)
    @cython.locals(port=Port)
    cpdef int host_port(self, int host) except? -1
    @cython.locals(port=Port, packets=Packets, klass=int)
    cpdef int send(self, int number, long long slot, long long now_ns) except? -1
    @cython.locals(
        port=Port, out=Port, packets=Packets, klass=int, fate="long long", egress=int
    )
    cpdef int receive(self, int number, long long slot, long long now_ns) except? -1
    @cython.locals(
        port=Port, out=Port, packets=Packets, klass=int, egress=int,
        wire_ns="long long",
    )
    cpdef bint cuts_through(
        self, int number, long long slot, long long now_ns
    ) except -1
    @cython.locals(port=Port, packets=Packets, klass=int, slot="long long",
                   size_bytes="long long", marker=Marker)
    cpdef long long transmit(self, int number, long long now_ns) except? -2
    @cython.locals(
        packets=Packets, paused_ns="long long", queued_ns="long long",
        wire_ns="long long", nominal_ns="long long", size_bytes="long long",
    )
    cdef _account(self, Port port, long long slot, int klass, long long now_ns)
    @cython.locals(port=Port, packets=Packets)
    cpdef lose(self, long long slot)
    @cython.locals(
        packets=Packets, size_bytes="long long", occupied="long long", marker=Marker,
        is_chosen=bint, number="long long",
        into=int, place=int, incoming=Account, outgoing=Account, bit=int,
    )
    cdef int _enqueue(
        self, Port port, Port out, long long slot, int klass, long long now_ns
    ) except? -1
    @cython.locals(occupied="long long", number="long long", account=Account, port=Port)
    cdef _release(
        self, Port out, long long slot, int klass, long long size_bytes,
        long long now_ns
    )
    cdef int _drop(self, Port port, long long slot, int klass, int reason) except? -1
    @cython.locals(packets=Packets, slot="long long", account=Account)
    cdef _flush(self, Port port, int klass, int reason, long long now_ns)
    @cython.locals(drawn="long long", number="long long")
    cdef _pass(self, Port port, long long slot, long long now_ns)
    @cython.locals(drawn="long long", number="long long")
    cdef _draw_wire_fault(self, Port port, long long slot)
    @cython.locals(packets=Packets)
    cdef int _lose_on_wire(self, Port port, long long slot, int fate) except? -1
    @cython.locals(port=Port, until_ns="long long")
    cpdef pause(self, int number, int klass, long long duration_ns, long long now_ns)
    cdef _pause_peer(self, Port port, int klass, long long now_ns)
    cdef _resume_peer(self, Port port, int klass, long long now_ns)
    cdef _send_pause(self, Port port, int klass, long long now_ns)
    @cython.locals(sent_ns="long long")
    cdef _send_signal(
        self, Port port, int klass, long long duration_ns, long long now_ns
    )
    cpdef long long next_ns(self) except? -1
    @cython.locals(
        port=Port, time_ns="long long", kind=int, number=int, klass=int,
        epoch="long long",
    )
    cpdef advance(self, long long now_ns)
    cdef _set_timer(
        self, long long time_ns, int kind, int number, int klass, long long epoch
    )
    @cython.locals(klass=int, bit=int, is_stuck=bint)
    cdef _poll(self, Port port, object watchdog, long long now_ns)
    cdef _begin_storm(self, Port port, int klass, object action, long long now_ns)
    @cython.locals(port=Port, end=Port, klass=int)
    cpdef set_link(self, int number, bint is_up, long long now_ns)
    @cython.locals(port=Port)
    cpdef set_rate(self, int number, long long rate_bps, long long now_ns)
    @cython.locals(port=Port)
    cdef _set_shares(self, int number, long long lost, long long corrupted)
    @cython.locals(port=Port, klass=int, number="Py_ssize_t", total="long long")
    cpdef long long waiting(self) except? -1

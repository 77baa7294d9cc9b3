# C types for compiling live_switch.py.

cimport cython

from chakram.fabric.modeled_switch.frame_io cimport Frames
from chakram.predict.simulator.event_queue cimport Events
from chakram.predict.simulator.switch_links cimport Wires
from chakram.switch.keyed_random cimport Attempts
from chakram.switch.packet_slots cimport Packets
from chakram.switch.port cimport Port

cdef int _QUEUED
cdef int _CE
cdef int _ECT
cdef int _NOT_ECT
cdef int _DESTINATION
cdef int _DSCP
cdef int _ECN
cdef int _FLOW
cdef int _NUMBER
cdef int _POSITION
cdef int _SIZE
cdef int _SLOT_FIELDS
cdef int _KIND_BITS
cdef int _BATCH
cdef int _FRAMES_PER_ROUND
cdef long long _LONGEST_ROUND_NS
cdef int _ETHERNET_BYTES
cdef int _LEAST_BYTES
cdef int _LEAST_IPV6_BYTES
cdef int _UDP_BYTES
cdef int _BTH_BYTES
cdef int _OPCODE_ACKNOWLEDGE
cdef int _ETHERTYPE_IPV4
cdef int _ETHERTYPE_IPV6
cdef int _ETHERTYPE_PAUSE
cdef int _UDP


cdef class LiveSwitch(Wires):
    cdef Frames _frames
    cdef object _ecmp
    cdef long long _places
    cdef int[::1] _host_ports
    cdef int[::1] _host_nodes
    cdef dict _host_of
    cdef int[::1] _number_of
    cdef list _entries
    cdef dict _flow_of
    cdef list _free_flows
    cdef dict _attempts
    cdef long long _spare
    cdef long long[::1] _leaving
    cdef int _leaving_count
    cdef long long _limit_ns
    cdef readonly long long received
    cdef readonly long long delivered
    cdef readonly long long unknown
    cdef public long long late_ns

    @cython.locals(frames=Frames, left=int, hops="long long")
    cpdef bint round(self, long long now_ns) except -1
    cpdef long long next_ns(self) except? -1
    @cython.locals(
        frames=Frames, memory="unsigned char[::1]", slot="long long",
        time_ns="long long", length="Py_ssize_t", at="Py_ssize_t", kind=int,
        traffic_class=int, protocol=int, transport="Py_ssize_t",
        ports="unsigned long long", udp="Py_ssize_t", mac="unsigned long long",
        place="Py_ssize_t", source="unsigned long long",
        destination="unsigned long long", key="unsigned long long", flow="long long",
        packets=Packets, mark=int, port=int, psn=int, bth="Py_ssize_t",
    )
    cdef _take_in(self)
    @cython.locals(attempts=Attempts)
    cdef Attempts _attempts_of(self, unsigned long long key)
    cdef long long _add_flow(self, object key, long long slot) except -1
    cdef _forget_flows(self)
    @cython.locals(packets=Packets, place="Py_ssize_t", late_ns="long long")
    cdef _deliver(self, Py_ssize_t number, long long slot)
    @cython.locals(at=int)
    cdef _flush(self)
    @cython.locals(
        memory="unsigned char[::1]", at="Py_ssize_t", before=int, total=int,
    )
    cdef _mark(self, Py_ssize_t place)
    @cython.locals(events=Events, time_ns="long long", what="long long")
    cdef _run(self, long long limit_ns)
    cdef _receive_pause(self, bytes frame)
    @cython.locals(port=Port)
    cdef _on_pause(self, Py_ssize_t number, int klass, long long duration_ns)

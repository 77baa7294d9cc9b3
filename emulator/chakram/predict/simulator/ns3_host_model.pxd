# C types of message_hosts.py for the compiled build.

cimport cython

from chakram.predict.simulator.event_queue cimport Events
from chakram.predict.simulator.switch_links cimport Wires
from chakram.roce.congestion.base cimport CongestionControl
from chakram.switch.keyed_random cimport packet_number
from chakram.switch.packet_slots cimport Packets
from chakram.switch.port cimport Port

cdef long long NEVER
cdef int QUEUED
cdef int CE
cdef int ECT
cdef int CHOSEN
cdef int DESTINATION
cdef int DSCP
cdef int ECN
cdef int FLOW
cdef int HOP
cdef int NEXT
cdef int _KIND
cdef int NUMBER
cdef int POSITION
cdef int SIZE
cdef long long _BIT_NS
cdef int _WAKE
cdef int _BEGIN
cdef int KIND_BITS
cdef long long EVENTS_PER_SIGNALS
cdef long long LAST_INSTANT_NS
cdef int _DATA
cdef int _ANSWER
cdef int _MARKED_ANSWER
cdef int _DSCP_LOSSLESS
cdef int _FIRST_PORT
cdef int _PORT
cdef int _PORTS


cdef class MessagePair:
    cdef readonly Py_ssize_t number
    cdef readonly Py_ssize_t source
    cdef readonly Py_ssize_t peer
    cdef readonly Py_ssize_t message
    cdef readonly long long size_bytes
    cdef readonly long long packets
    cdef readonly long long sent_packets
    cdef readonly long long acked_packets
    cdef readonly long long flow
    cdef readonly long long answer_flow
    cdef readonly long long flow_number
    cdef readonly long long window_bytes
    cdef readonly long long next_ns
    cdef readonly long long first_ns
    cdef CongestionControl control


cdef class MessageHosts(Wires):
    cdef public list done
    cdef readonly long long events
    cdef long long _work
    cdef list _hosts
    cdef list _host_of
    cdef list _nodes
    cdef list _entries
    cdef long long _payload_bytes
    cdef long long _header_bytes
    cdef long long _answer_bytes
    cdef bint _scales_window
    cdef object _make_control
    cdef bint _has_choice
    cdef int _klass
    cdef list _answer_heads
    cdef list _answer_tails
    cdef list _rings
    cdef list _turns
    cdef list _wake_ns
    cdef list _pairs
    cdef list _free
    cdef dict _numbers
    cdef dict _flow_of

    @cython.locals(
        number="Py_ssize_t", pair=MessagePair, packets="long long", key="long long",
        nth="long long", own_port="long long",
    )
    cpdef post(self, Py_ssize_t source, Py_ssize_t peer, Py_ssize_t message,
               long long size_bytes, long long window_bytes, long long now_ns)
    cpdef long long next_ns(self) except? -1
    @cython.locals(events=Events)
    cpdef run_until(self, long long limit_ns)
    @cython.locals(
        key="long long", flow="Py_ssize_t", entry="Py_ssize_t", is_hashed=bint,
    )
    cdef Py_ssize_t _flow(self, Py_ssize_t source, Py_ssize_t peer,
                          long long own_port, long long peer_port) except -1
    @cython.locals(host="Py_ssize_t", port=Port)
    cdef _send(self, Py_ssize_t number)
    @cython.locals(
        packets=Packets, port=Port, slot="long long", ring=list, count="Py_ssize_t",
        at="Py_ssize_t", earliest_ns="long long", pair=MessagePair,
    )
    cdef bint _feed(self, Py_ssize_t host, Py_ssize_t number) except -1
    @cython.locals(
        window_bytes="long long", control=CongestionControl, port=Port,
        line_bps="long long", in_flight="long long",
    )
    cdef bint _is_window_full(self, MessagePair pair) except -1
    @cython.locals(
        packets=Packets, payload_bytes="long long", size_bytes="long long",
        slot="long long", control=CongestionControl, rate_bps="long long",
        took_ns="long long",
    )
    cdef _send_packet(self, MessagePair pair, Py_ssize_t number)
    cdef _offer(self, Py_ssize_t number, long long slot)
    @cython.locals(
        time_ns="long long", what="long long", kind=int, index="Py_ssize_t",
        pair=MessagePair,
    )
    cdef _step(self)
    @cython.locals(
        packets=Packets, pair=MessagePair, what=int, host="Py_ssize_t",
        control=CongestionControl,
    )
    cdef _deliver(self, Py_ssize_t number, long long slot)
    cdef _forget(self, long long slot)

# C types of virtual_fabric.py for the compiled build.

cimport cython

from chakram.predict.simulator.event_queue cimport Events
from chakram.predict.simulator.flow_routes cimport FlowRoutes
from chakram.predict.simulator.switch_links cimport Wires
from chakram.native.prefetch_lines cimport prefetch_part, prefetch_place
from chakram.replay.endpoint cimport Endpoint
from chakram.replay.integer_map cimport NumberTable
from chakram.roce.burst cimport Burst
from chakram.roce.events cimport MessageParts
from chakram.roce.port cimport PortEngine
from chakram.switch.keyed_random cimport packet_number
from chakram.switch.packet_slots cimport Packets
from chakram.switch.port cimport Port

cdef long long NEVER
cdef int _DATA
cdef int _CNP
cdef int QUEUED
cdef int CE
cdef int ECT
cdef int NOT_ECT
cdef int COUNT
cdef int DESTINATION
cdef int DSCP
cdef int ECN
cdef int FLOW
cdef int NUMBER
cdef int POSITION
cdef int SIZE
cdef int DEPARTED
cdef int SENT
cdef int OWN_NS
cdef int WIRE_NS
cdef int HOST_PAUSED_NS
cdef int PAUSED_NS
cdef int PAUSE_PORT
cdef int QUEUED_NS
cdef int QUEUE_PORT
cdef int SLOW_NS
cdef int SLOW_PORT
cdef long long _BIT_NS
cdef long long _EVENTS_PER_REPORT
cdef long long LAST_INSTANT_NS
cdef int _PATH_FIELDS
cdef int _SLOT_BITS
cdef int _WAKE
cdef int _LOCAL
cdef int _SAMPLE
cdef int KIND_BITS


cdef class VirtualFabric(Wires):
    cdef readonly long long events
    cdef list _endpoints
    cdef long long[::1] _hosts
    cdef long long[::1] _endpoint_of
    cdef FlowRoutes _routes
    cdef object _sampler
    cdef int _data_dscp
    cdef int _other_dscp
    cdef int _cnp_dscp
    cdef int _ecn
    cdef bint _whole_bursts
    cdef list _bursts
    cdef NumberTable _paths
    cdef long long[::1] _path_cells
    cdef Py_ssize_t _path_end
    cdef list _local
    cdef long long[::1] _wake_ns
    cdef long long[::1] _is_held
    cdef list _data_classes
    cdef long long[::1] _finished
    cdef long long _unfinished
    cdef bint _has_failed

    @cython.locals(
        events=Events, time_ns="long long", what="long long", kind=int,
        index="Py_ssize_t",
    )
    cdef bint _steps(self, long long limit) except -1
    @cython.locals(
        index="Py_ssize_t", packets=Packets, endpoint=Endpoint, engine=PortEngine,
        burst=Burst, first=int, count=int, ce=int, each="Py_ssize_t",
    )
    cdef _deliver(self, Py_ssize_t number, long long slot)
    @cython.locals(
        place="Py_ssize_t", burst=Burst, endpoint=Endpoint, engine=PortEngine,
    )
    cdef void _foresee_delivery(
        self, int stage, long long slot, Py_ssize_t number
    ) noexcept
    @cython.locals(endpoint=Endpoint, engine=PortEngine)
    cdef void _foresee_own(self, int stage, int kind, Py_ssize_t index) noexcept
    @cython.locals(packets=Packets)
    cdef _tell(self, MessageParts parts, long long slot)
    cdef _forget(self, long long slot)
    @cython.locals(
        endpoint=Endpoint, engine=PortEngine, now_ns="long long", burst=Burst,
    )
    cdef _drive(self, Py_ssize_t index)
    @cython.locals(
        path="Py_ssize_t", flow=int, packets=Packets, host=int, destination="long long",
        dscp=int, count=int, each=int, first=int, slot="long long",
        alone_ns="long long", rate_bps="long long", port=Port, parts=MessageParts,
        endpoint=Endpoint, key="long long", flow_number="long long", position="long long",
        attempt="long long",
    )
    cdef _put(self, Py_ssize_t index, Burst burst)
    @cython.locals(
        routes=FlowRoutes, flow="long long", receiver="long long", place="Py_ssize_t"
    )
    cdef Py_ssize_t _find_path(
        self, Py_ssize_t index, Burst burst, long long key
    ) except -1
    cdef _deliver_local(self, Py_ssize_t place)
    @cython.locals(endpoint=Endpoint, wake_ns="long long")
    cdef _wake(self, Py_ssize_t index)
    @cython.locals(index="Py_ssize_t", klass=int, is_held=bint, port=Port)
    cdef _look_at(self, Py_ssize_t number)

# C types of loop.py for the compiled form.

cimport cython

from chakram.native.host_time_direct cimport host_ns
from chakram.replay.endpoint cimport Endpoint
from chakram.roce.burst cimport Burst
from chakram.roce.histogram cimport Histogram
from chakram.roce.port cimport PortEngine
from chakram.roce.packet_encoder cimport WireEncoder
from chakram_agent.dataplane.port_base cimport Port

cdef int _RECEIVES_PER_ROUND
cdef int _SENDS_PER_ROUND
cdef int _UNPOLLED_LINES
cdef long long _SPIN_NS
cdef long long _WAKE_MARGIN_NS
cdef long long _POLL_NS
cdef long long _NAP_NS
cdef long long _RETRY_NS
cdef long long _LATE_NS
cdef long long _NEVER
cdef bint _HAS_HOST_CLOCK
cdef int _DATA
cdef int _CNP

cdef long long _now_ns() except? -1


cdef class Line:
    cdef readonly Endpoint endpoint
    cdef readonly Port port
    cdef readonly WireEncoder encoder
    cdef public bint blocked
    cdef readonly long long received_bytes
    cdef public long long wake_ns
    cdef public object pauses
    cdef PortEngine _engine
    cdef object _contents_encoder
    cdef list _sources
    cdef bint _leaves_alone
    cdef Py_ssize_t _outer_header_bytes

    cpdef object use_classes(self, dict data, dict answers)
    cpdef object hear(self, long long now_ns)
    @cython.locals(port=Port, received="bint", packets="Py_ssize_t")
    cpdef bint receive(self) except -1
    @cython.locals(burst=Burst, sent="bint", source_port=int)
    cpdef bint send(self, long long now_ns) except -1
    cdef object _leave_alone(self)


cdef class DataPlane:
    cdef readonly list lines
    cdef readonly long long busy_ns
    cdef readonly long long max_lag_ns
    cdef readonly Histogram lags
    cdef readonly long long late_rounds
    cdef readonly long long rounds
    cdef object _epoll
    cdef dict _line_of
    cdef dict _hearing
    cdef list _unpolled
    cdef long long _active_ns
    cdef bint _exact

    @cython.locals(line=Line)
    cpdef object arm(self, long long start_ns)
    cpdef object work(self, long long until_ns, long long limit_ns)
    @cython.locals(line=Line, now_ns="long long", due_ns="long long", active="bint",
                   began_ns="long long")
    cpdef object round(self)
    @cython.locals(line=Line, now_ns="long long", wake_ns="long long",
                   sleep_ns="long long")
    cpdef object wait(self, long long limit_ns)
    @cython.locals(line=Line)
    cpdef bint finished(self) except -1
    @cython.locals(line=Line)
    cdef list _readable(self)
    @cython.locals(line=Line)
    cdef object _wake(self, Endpoint endpoint)
    cdef object _watch_lines(self)
    cdef object _poll(self, long long timeout_ns)
    cdef object _note_lag(self, long long lag_ns)

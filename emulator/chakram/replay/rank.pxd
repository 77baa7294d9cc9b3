# C types of rank.py, for the compiled form.

cimport cython

from chakram.replay.early cimport EarlyMessages
from chakram.replay.expansion cimport Expander, Expansion
from chakram.replay.progress cimport ActiveOperation, Activity, Flow
from chakram.replay.readiness cimport Readiness
from chakram.replay.rows cimport RowWriter
from chakram.replay.streams cimport ComputeStreams
from chakram.roce.events cimport MessageReceived, SendCompleted

cdef long long _NEVER
cdef object _BARRIER
cdef int _CAUSE_GRANT
cdef int _CAUSE_MESSAGE
cdef int _CAUSE_OPERATION
cdef int _CAUSE_START
cdef Py_ssize_t _NOTHING
cdef long long _SEND_KEYS
cdef int _STEP_BITS
cdef long long _ENDLESS


cdef class Replay:
    cdef readonly long long number
    cdef readonly object job
    cdef readonly long long rank
    cdef readonly bint is_background
    cdef readonly long long iteration
    cdef readonly long long completed_messages
    cdef readonly long long completed_operations
    cdef readonly long long finished_ns
    cdef tuple _operations
    cdef long long _iterations
    cdef long long _gap_ns
    cdef long long _offset_ns
    cdef list _preference
    cdef object _starts_ns
    cdef object _numbers
    cdef object _tables
    cdef dict _group_of_qpn
    cdef dict _peer_of_qpn
    cdef long long _point_to_point
    cdef list _durations_ns
    cdef Expander _expander
    cdef Readiness _readiness
    cdef RowWriter _rows
    cdef ComputeStreams _streams
    cdef list _timers
    cdef dict _active
    cdef EarlyMessages _early
    cdef long long _strays
    cdef object _credits
    cdef dict _flows
    cdef object _posts
    cdef Activity _activity
    cdef long long _iteration_start_ns

    cpdef arm(self, long long start_ns)
    cpdef long long next_timer_ns(self) except? -1
    cpdef handle_timers(self, long long now_ns)
    @cython.locals(
        received_ns="long long", immediate="long long", group="long long",
        key="long long", message="long long", active=ActiveOperation,
    )
    cpdef message_received(self, long long qpn, MessageReceived event, long long now_ns)
    @cython.locals(
        acked_ns="long long", flow=Flow, active=ActiveOperation, wait_ns="long long"
    )
    cpdef message_acknowledged(
        self, long long qpn, SendCompleted event, long long now_ns
    )
    cpdef next_post(self)
    cpdef bint finished(self) except -1
    cpdef long long stray_messages(self) except? -1
    cpdef long long early_messages(self) except? -1
    cdef _start_iteration(self, long long due_ns, long long now_ns)
    @cython.locals(end_ns="long long")
    cdef _end_iteration(self)
    @cython.locals(timers=list, deadline_ns="long long", index="Py_ssize_t")
    cdef _handle_timers_until(self, long long until_ns, long long now_ns)
    @cython.locals(readiness=Readiness, index="Py_ssize_t", due_ns="long long")
    cdef _run(self, long long now_ns)
    @cython.locals(ready_ns="long long")
    cdef _begin(self, Py_ssize_t index, long long now_ns)
    cdef _done(self, Py_ssize_t index, long long done_ns)
    cdef _start_compute(self, Py_ssize_t index, long long start_ns)
    cdef _end_compute(self, Py_ssize_t index, long long end_ns)
    @cython.locals(
        group="long long", position="long long", first_order="long long",
        sequence="long long", immediate="long long", key="long long", expansion=Expansion,
        ready_ns="long long", start_ns="long long", is_counted="bint",
        active=ActiveOperation, send="Py_ssize_t", due_ns="long long",
    )
    cdef _start_communication(self, Py_ssize_t index, operation, long long now_ns)
    @cython.locals(
        expansion=Expansion, receive="Py_ssize_t", missing=list, send="Py_ssize_t",
    )
    cdef _arrive(
        self, ActiveOperation active, long long qpn, long long message,
        long long size_bytes, long long ce, long long received_ns
    )
    @cython.locals(released_by="Py_ssize_t")
    cdef _post_own(self, ActiveOperation active, Py_ssize_t send)
    @cython.locals(flow=Flow)
    cdef _take_grant(self, long long qpn, long long granted_ns)
    @cython.locals(expansion=Expansion, qpn="long long", immediate="long long",
                   flow=Flow)
    cdef _post(
        self, ActiveOperation active, Py_ssize_t send, long long ready_ns,
        int cause_kind, long long cause_rank, long long cause_number
    )
    cdef _end(self, ActiveOperation active)

# C types for the compiled version of rank.py.

cimport cython

from chakram.replay.incoming cimport IncomingMessages
from chakram.replay.expansion cimport Expander, Expansion
from chakram.replay.rank_queue_pair cimport Pair
from chakram.replay.message_posting cimport Posts
from chakram.replay.rank_progress cimport ActiveOperation, Activity, Flow
from chakram.replay.readiness cimport Readiness
from chakram.replay.row_writer cimport RowWriter
from chakram.replay.compute_streams cimport ComputeStreams
from chakram.roce.events cimport MessageReceived, SendCompleted

cdef long long _NEVER
cdef int _COMPUTE
cdef Py_ssize_t _NOTHING
cdef Py_ssize_t _NOT_NOW
cdef long long _ENDLESS


cdef class Replay:
    cdef readonly long long number
    cdef readonly object job
    cdef readonly long long rank
    cdef readonly bint is_background
    cdef readonly bint is_held
    cdef readonly long long iteration
    cdef readonly long long completed_messages
    cdef readonly long long completed_operations
    cdef readonly long long finished_ns
    cdef readonly dict pairs
    cdef object _program
    cdef bytes _kinds
    cdef bytes _are_barriers
    cdef long long _iterations
    cdef long long _gap_ns
    cdef long long _offset_ns
    cdef list _preference
    cdef object _starts_ns
    cdef object _numbers
    cdef long long _warmup
    cdef list _durations_ns
    cdef list _stream_of
    cdef Expander _expander
    cdef Readiness _readiness
    cdef RowWriter _rows
    cdef bint _has_arrivals
    cdef ComputeStreams _streams
    cdef dict _held_by
    cdef list _timers
    cdef IncomingMessages _arrivals
    cdef Posts _posts
    cdef Activity _activity
    cdef long long _iteration_start_ns

    cpdef arm(self, long long start_ns)
    cpdef hold(self, bint is_held, long long now_ns)
    @cython.locals(active=ActiveOperation)
    cpdef bint rests(self) except -1
    cpdef long long next_timer_ns(self) except? -1
    cpdef handle_timers(self, long long now_ns)
    @cython.locals(
        received_ns="long long", immediate="long long", active=ActiveOperation
    )
    cpdef message_received(self, Pair pair, MessageReceived event, long long now_ns)
    @cython.locals(acked_ns="long long", active=ActiveOperation)
    cpdef message_acknowledged(
        self, Flow flow, SendCompleted event, long long now_ns,
        long long recorded_qpn=*
    )
    cpdef Flow next_post(self)
    cpdef bint finished(self) except -1
    cpdef bint is_measuring(self) except -1
    cpdef long long stray_messages(self) except? -1
    cpdef long long early_messages(self) except? -1
    cdef _start_iteration(self, long long due_ns, long long now_ns)
    @cython.locals(end_ns="long long")
    cdef _end_iteration(self)
    cdef _begin_at(self, long long due_ns)
    @cython.locals(timers=list, deadline_ns="long long", index="Py_ssize_t")
    cdef _handle_timers_until(self, long long until_ns, long long now_ns)
    @cython.locals(readiness=Readiness, index="Py_ssize_t", due_ns="long long")
    cdef _run(self, long long now_ns)
    @cython.locals(ready_ns="long long")
    cdef _begin(self, Py_ssize_t index, long long now_ns)
    cdef _done(self, Py_ssize_t index, long long done_ns, bint takes_no_time=*)
    cdef _start_compute(self, Py_ssize_t index, long long start_ns)
    cdef _end_compute(self, Py_ssize_t index, long long end_ns)
    @cython.locals(
        expansion=Expansion, ready_ns="long long", start_ns="long long",
        is_counted="bint", active=ActiveOperation, pair=Pair,
        immediate="long long", event=MessageReceived,
    )
    cdef _start_communication(self, Py_ssize_t index, long long now_ns)
    @cython.locals(
        receive="Py_ssize_t", expansion=Expansion, channel="long long"
    )
    cdef _arrive(
        self, ActiveOperation active, Pair pair, long long immediate,
        MessageReceived event
    )
    cdef _end(self, ActiveOperation active)

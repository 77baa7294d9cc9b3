# C types of program_walk.py for the compiled build.

cimport cython

from chakram.predict.simulator.event_queue cimport Events
from chakram.replay.compute_streams cimport ComputeStreams
from chakram.replay.rank_progress cimport Activity
from chakram.replay.readiness cimport Readiness

cdef int COMPUTE, NOTHING
cdef long long _ENDLESS, MOST_AT_ONCE


cdef class RankWalk:
    cdef readonly Py_ssize_t number
    cdef readonly object program
    cdef readonly long long iteration
    cdef readonly long long iterations
    cdef public bint is_recorded
    cdef readonly bint is_finished
    cdef readonly bint is_background
    cdef long long _offset_ns
    cdef long long _gap_ns
    cdef object _begin
    cdef object _records
    cdef object _kinds
    cdef bytes _are_barriers
    cdef list _durations_ns
    cdef list _stream_of
    cdef list _preference
    cdef Readiness _readiness
    cdef list _starts_ns
    cdef Py_ssize_t _operations
    cdef ComputeStreams _streams
    cdef Activity _activity
    cdef Events _timers
    cdef long long _first_timer
    cdef long long _iteration_start_ns
    cdef long long _at_once
    cdef dict _begun
    cdef public list communications
    cdef public dict places

    cdef _share_tables(self, RankWalk like)
    cpdef arm(self)
    @cython.locals(index="long long")
    cpdef handle_timer(self, long long number, long long now_ns)
    cpdef ended(self, Py_ssize_t index, long long now_ns, long long sent,
                long long received)
    cdef _write_share(self, Py_ssize_t index, long long ready_ns, long long now_ns,
                      long long sent, long long received, long long slip_ns)
    cdef _start_iteration(self, long long now_ns)
    @cython.locals(end_ns="long long", next_ns="long long", activity=Activity)
    cdef _end_iteration(self)
    @cython.locals(readiness=Readiness, index="Py_ssize_t", due_ns="long long")
    cdef _run(self, long long now_ns)
    @cython.locals(slip_ns="long long")
    cdef _start(self, Py_ssize_t index, long long now_ns)
    cdef _start_compute(self, Py_ssize_t index, long long now_ns)
    cdef _end_compute(self, Py_ssize_t index, long long now_ns)
    cdef _done(self, Py_ssize_t index, long long now_ns, bint takes_no_time)
    @cython.locals(number="long long")
    cdef _set_timer(self, long long at_ns, long long index)

# C types of run_plan.py for the compiled build.

cimport cython

from chakram.predict.levels.pending_messages cimport Traffic
from chakram.predict.levels.program_walk cimport RankWalk
from chakram.predict.simulator.event_queue cimport Events

cdef int _COLUMNS, _FIRST, _GROUP, _KEY, _NONE, _OPEN, _OPERATION, _PART, TIMER_BITS
cdef int _WALK
cdef long long EVENTS_PER_SIGNALS, _FLOWS_AT_ONCE, _REPORT_AFTER, _SHARES_AT_ONCE


cdef class _Group:
    cdef readonly Py_ssize_t number
    cdef readonly long long[::1] numbers
    cdef readonly dict opened


cdef class _Communication:
    cdef readonly bint is_collective
    cdef readonly bint is_send
    cdef readonly long long target
    cdef readonly long long number
    cdef readonly Py_ssize_t parts
    cdef readonly list shapes


cdef class LevelRun:
    cdef Traffic _traffic
    cdef object _division
    cdef readonly object records
    cdef long long[::1] _host_of
    cdef long long[::1] _server_of
    cdef long long[::1] _line_of
    cdef dict _number_of
    cdef Events _timers
    cdef list _walks
    cdef object _matrices
    cdef dict _communications
    cdef list _groups
    cdef dict _group_of
    cdef long long[::1] _shares
    cdef long long _unwritten
    cdef long long _timed
    cdef object _report
    cdef long long _report_at
    cdef dict _carried
    cdef list _recorded
    cdef list _numbers
    cdef readonly bint is_folded
    cdef readonly bint is_stepped
    cdef long long _alike

    @cython.locals(
        traffic=Traffic, timers=Events, until_ns="long long", number="long long",
        walk=RankWalk, done=list, share="Py_ssize_t",
    )
    cpdef bint _step(self) except -1
    cpdef _progressed(self, long long messages)
    cpdef _begin(self, RankWalk walk, Py_ssize_t row, long long released,
                 long long now_ns)
    @cython.locals(
        communication=_Communication, way="long long", place=tuple, group=_Group,
        key="long long", first="Py_ssize_t", at="Py_ssize_t", share="Py_ssize_t",
    )
    cdef _begin_part(self, RankWalk walk, Py_ssize_t row, long long released,
                     Py_ssize_t part)
    @cython.locals(
        shape="Py_ssize_t", first="Py_ssize_t", share="Py_ssize_t",
        number="Py_ssize_t", numbers="long long[::1]",
    )
    cdef Py_ssize_t _open(self, RankWalk walk, Py_ssize_t row, Py_ssize_t part,
                          _Communication communication, _Group group) except -1
    @cython.locals(
        traffic=Traffic, at="Py_ssize_t", walk=RankWalk, row="Py_ssize_t",
        part="Py_ssize_t", sent="long long", received="long long",
        first="Py_ssize_t", group=_Group, communication=_Communication, carried=list,
    )
    cdef _end(self, Py_ssize_t share)

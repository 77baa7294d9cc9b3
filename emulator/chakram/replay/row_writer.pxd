# C types for the compiled version of row_writer.py.

cimport cython

from cpython.array cimport array

from chakram.native.append_rows_direct cimport append_row
from chakram.replay.expansion cimport Expansion
from chakram.replay.rank_progress cimport ActiveOperation, Activity, Flow
from chakram.roce.events cimport MessageParts, SendCompleted

cdef long long _UNKNOWN


cdef class RowWriter:
    cdef object _records
    cdef long long _number
    cdef array _flow_row
    cdef long long[::1] _flow
    cdef array _share_row
    cdef long long[::1] _share
    cdef array _arrival_row
    cdef long long[::1] _arrival
    cdef array _computation_row
    cdef long long[::1] _computation
    cdef array _iteration_row
    cdef long long[::1] _iteration

    @cython.locals(
        expansion=Expansion, send="Py_ssize_t", row="long long[::1]",
        parts=MessageParts, at="Py_ssize_t",
    )
    cpdef flow(
        self, long long iteration, long long qpn, ActiveOperation active, Flow flow,
        SendCompleted event, long long wait_ns
    )
    @cython.locals(row="long long[::1]")
    cpdef share(self, long long iteration, ActiveOperation active)
    @cython.locals(row="long long[::1]")
    cpdef arrival(
        self, long long iteration, long long operation, long long peer,
        long long number, long long received_ns
    )
    @cython.locals(row="long long[::1]")
    cpdef computation(
        self, long long iteration, long long index, long long ready_ns,
        long long start_ns, long long end_ns, long long released_by, long long held_by
    )
    @cython.locals(row="long long[::1]")
    cpdef iteration(
        self, long long iteration, long long start_ns, long long end_ns,
        Activity activity
    )

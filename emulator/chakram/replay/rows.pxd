# C types of rows.py, for the compiled form.

cimport cython

from chakram.replay.expansion cimport Expansion
from chakram.replay.progress cimport ActiveOperation, Activity, Flow
from chakram.roce.events cimport SendCompleted


cdef class RowWriter:
    cdef object _records
    cdef long long _number

    @cython.locals(expansion=Expansion, send="Py_ssize_t")
    cpdef flow(
        self, long long iteration, long long qpn, Flow flow, SendCompleted event,
        long long wait_ns
    )
    cpdef share(self, long long iteration, ActiveOperation active)
    cpdef iteration(
        self, long long iteration, long long start_ns, long long end_ns,
        Activity activity
    )

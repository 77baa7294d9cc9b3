# C types for the compiled version of message_posting.py.
#
# Only ``Replay`` calls these methods, once per message, so they are C functions.

cimport cython

from chakram.replay.expansion cimport Expansion
from chakram.replay.rank_queue_pair cimport Pair
from chakram.replay.rank_progress cimport ActiveOperation, Flow
from chakram.replay.row_writer cimport RowWriter
from chakram.roce.events cimport SendCompleted
from chakram.roce.fifo cimport Fifo

cdef Py_ssize_t _NOTHING
cdef int _CAUSE_GRANT
cdef int _CAUSE_MESSAGE
cdef int _CAUSE_OPERATION
cdef int _CAUSE_START
cdef int _END_ACKNOWLEDGED


cdef class Posts:
    cdef long long _number
    cdef object _credits
    cdef RowWriter _rows
    cdef Fifo _posts

    @cython.locals(send="Py_ssize_t")
    cdef begin(self, ActiveOperation active)
    @cython.locals(
        expansion=Expansion, missing=list, send="Py_ssize_t", channel="long long"
    )
    cdef arrived(
        self, ActiveOperation active, Py_ssize_t receive, Pair pair,
        long long immediate, long long received_ns
    )
    @cython.locals(flow=Flow, active=ActiveOperation)
    cdef bint take_grant(self, Pair pair, long long granted_ns) except -1
    cdef Flow next_post(self)
    @cython.locals(
        active=ActiveOperation, wait_ns="long long", qpn="long long",
        expansion=Expansion,
        channel="long long",
    )
    cdef ActiveOperation acknowledged(
        self, Flow flow, SendCompleted event, long long iteration,
        long long recorded_qpn=*
    )
    cdef _post_own(self, ActiveOperation active, Py_ssize_t send)
    @cython.locals(expansion=Expansion, flow=Flow)
    cdef _post(
        self, ActiveOperation active, Py_ssize_t send, long long ready_ns,
        int cause_kind, long long cause_rank, long long cause_number
    )

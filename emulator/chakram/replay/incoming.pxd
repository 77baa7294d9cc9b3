# C types for the compiled version of incoming.py.
#
# Only ``Replay`` calls these methods, once per message, so they are C functions.

cimport cython

from chakram.replay.early_messages cimport EarlyMessages
from chakram.replay.expansion cimport Expansion
from chakram.replay.rank_queue_pair cimport Pair
from chakram.replay.rank_progress cimport ActiveOperation
from chakram.roce.events cimport MessageReceived

cdef Py_ssize_t _NOT_NOW
cdef int _COLLECTIVE
cdef int _SEND
cdef long long _SEND_KEYS
cdef int _STEP_BITS
cdef int _END_RECEIVED
cdef long long _IMMEDIATE_MASK


cdef class IncomingMessages:
    cdef bytes _kinds
    cdef list _targets
    cdef list _numbers
    cdef list _collectives
    cdef dict _sends
    cdef dict _receives
    cdef long long _point_to_point
    cdef dict _active
    cdef ActiveOperation _latest
    cdef EarlyMessages _early
    cdef long long _strays

    @cython.locals(
        kind="int", number="long long", target="long long", total="long long",
        position="long long", first_order="long long", sequence="long long",
        immediate="long long", key="long long", active=ActiveOperation,
    )
    cdef ActiveOperation begin(
        self, Py_ssize_t index, long long iteration,
        Expansion expansion, long long ready_ns, long long start_ns, bint is_counted
    )
    cdef end(self, ActiveOperation active)
    @cython.locals(key="long long", active=ActiveOperation)
    cdef ActiveOperation find(
        self, Pair pair, long long immediate, MessageReceived event
    )
    cdef refuse(self)
    @cython.locals(
        receive="Py_ssize_t", expansion=Expansion, channel="long long"
    )
    cdef Py_ssize_t take(
        self, ActiveOperation active, Pair pair, long long immediate,
        MessageReceived event
    ) except? -2
    cdef list kept(self, ActiveOperation active)
    cdef under_way(self)
    cdef long long strays(self) except? -1
    cdef long long early(self) except? -1

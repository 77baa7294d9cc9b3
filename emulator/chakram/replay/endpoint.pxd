# C types of endpoint.py, for the compiled form.

cimport cython

from chakram.replay.rank cimport Replay
from chakram.roce.port cimport PortEngine


cdef class Endpoint:
    cdef public object port
    cdef public object records
    cdef public list destinations
    cdef public PortEngine engine
    cdef public list replays
    cdef object _failure
    cdef dict _replay_of_qpn
    cdef dict _peer_of_qpn

    @cython.locals(replay=Replay, busy="bint")
    cpdef advance(self, long long now_ns)
    @cython.locals(replay=Replay)
    cdef _dispatch_events(self, long long now_ns)
    cdef _post_all(self, Replay replay, long long now_ns)
    @cython.locals(replay=Replay, earliest="long long")
    cpdef long long next_wakeup_ns(self)
